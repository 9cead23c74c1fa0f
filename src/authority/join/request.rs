//! What can be read in a request to join before anything is looked up. Pure, and total: nobody has proved
//! anything yet.

use rustls::pki_types::CertificateDer;

use super::messages::{InitialRequest, JoinRequest, Role};
use crate::{
    api::join_token,
    authority::decide::challenge::Signed,
    spiffe::{
        chain,
        key::{PublicKey, RequestError},
    },
};

/// The SVID and four intermediates.
const LONGEST_CHAIN: usize = 5;

#[derive(Debug)]
pub struct Parsed<'a> {
    init: &'a InitialRequest,
    pub request: &'a JoinRequest,
    pub role: join_token::Role,
    pub chain: Vec<CertificateDer<'a>>,
    /// None if the request for a certificate is not signed by its key.
    pub new_key: Option<PublicKey>,
}

impl<'a> Parsed<'a> {
    /// What the client must sign.
    pub fn signed(&self) -> Signed<'a> {
        let JoinRequest { token, role, csr, expires, .. } = self.request;
        Signed { chain: &self.init.x509_svid, csr, token, role: *role, expires: *expires }
    }
}

/// The error says what is malformed, and quotes nothing.
pub fn parse(init: &InitialRequest) -> Result<Parsed<'_>, String> {
    let request = init.join_request.as_ref().ok_or("join_request is missing")?;
    let role = match Role::try_from(request.role) {
        Ok(Role::Bot) => join_token::Role::Bot,
        Ok(Role::Agent) => join_token::Role::Agent,
        Ok(Role::Unspecified) | Err(_) => return Err("role is neither bot nor agent".to_owned()),
    };
    let chain = chain::split(&init.x509_svid).ok_or("x509_svid is not certificates in DER")?;
    if chain.len() > LONGEST_CHAIN {
        return Err("x509_svid has more than 4 intermediates".to_owned());
    }
    let new_key = match PublicKey::of_request(&request.csr) {
        Ok(key) => Some(key),
        Err(RequestError::Signature) => None,
        Err(error) => return Err(format!("csr: {error}")),
    };
    Ok(Parsed { init, request, role, chain, new_key })
}
