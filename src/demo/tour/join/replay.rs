//! Sends a join that somebody recorded a second time.

use rcgen::KeyPair;

use crate::authority::join::{
    client::{Client, JoinError, ServerTrust, Try},
    messages::{Certs, InitialRequest},
};

/// Every byte that a client sent.
struct Recording {
    init: InitialRequest,
    signed_nonce: Vec<u8>,
}

/// The answer to a join that is sent again, word for word.
pub async fn replay(
    client: &Client,
    trust: &ServerTrust,
) -> Result<Result<Certs, JoinError>, JoinError> {
    let Recording { init, signed_nonce } = record(client, trust).await?;
    let mut again = Try::begin(client.connect(trust).await?, init).await?;
    Ok(again.solve(signed_nonce).await)
}

/// Joins, and keeps what was sent.
async fn record(client: &Client, trust: &ServerTrust) -> Result<Recording, JoinError> {
    let svid = client.source.read(client.clock.now()).await?;
    let init = client.init(&svid, &KeyPair::generate()?)?;
    let mut attempt = Try::begin(client.connect(trust).await?, init.clone()).await?;
    let signed_nonce = svid.sign(&client.message(&attempt.nonce, &init))?;
    attempt.solve(signed_nonce.clone()).await?;
    Ok(Recording { init, signed_nonce })
}
