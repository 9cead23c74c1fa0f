//! What a joining client signs.
//!
//! All parts have their length in front of them, so no two requests sign the same bytes. With the server's
//! trust domain, which each side takes from its own configuration, a signature that one server was given is
//! worth nothing at another; with the nonce it is worth nothing twice.

use sha2::{Digest as _, Sha256};

const CONTEXT: &[u8] = b"trustplane.dev/join/v1";
/// In bytes.
pub const NONCE_LENGTH: usize = 32;

/// A request to join, as far as it is signed.
#[derive(Clone, Copy, Debug)]
pub struct Signed<'a> {
    /// As it was sent: concatenated DER.
    pub chain: &'a [u8],
    pub csr: &'a [u8],
    pub token: &'a str,
    pub role: i32,
    /// In seconds since 1970; 0 if the client leaves it to the server.
    pub expires: i64,
}

/// The message to sign with the key of the SVID.
pub fn message(trust_domain: &str, nonce: &[u8], signed: &Signed<'_>) -> Vec<u8> {
    let mut request = Sha256::new();
    let (role, expires) = (signed.role.to_be_bytes(), signed.expires.to_be_bytes());
    for part in [signed.chain, signed.csr, signed.token.as_bytes(), &role, &expires] {
        request.update((part.len() as u64).to_be_bytes());
        request.update(part);
    }
    let mut message = Vec::new();
    for part in [CONTEXT, trust_domain.as_bytes(), nonce, &request.finalize()] {
        message.extend((part.len() as u64).to_be_bytes());
        message.extend(part);
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: Signed<'_> =
        Signed { chain: b"chain", csr: b"csr", token: "token", role: 1, expires: 7 };

    #[test]
    fn every_part_of_a_request_is_signed() {
        let of = |signed: &Signed<'_>| message("td.test", b"nonce", signed);
        let others = [
            Signed { chain: b"chaim", ..REQUEST },
            Signed { csr: b"csx", ..REQUEST },
            Signed { token: "tokem", ..REQUEST },
            Signed { role: 2, ..REQUEST },
            Signed { expires: 8, ..REQUEST },
            // The same bytes, cut elsewhere.
            Signed { chain: b"chainc", csr: b"sr", ..REQUEST },
        ];
        for other in &others {
            assert_ne!(of(&REQUEST), of(other), "{other:?}");
        }
        assert_ne!(of(&REQUEST), message("td.tesu", b"nonce", &REQUEST));
        assert_ne!(of(&REQUEST), message("td.test", b"noncf", &REQUEST));
        assert_eq!(of(&REQUEST), of(&REQUEST.clone()));
    }

    /// Clients in other languages are written by this layout.
    #[test]
    fn the_message_is_laid_out_as_the_docs_say() {
        let message = message("td.test", &[7; NONCE_LENGTH], &REQUEST);
        let mut expected = Vec::new();
        let mut request = Sha256::new();
        for part in [&b"chain"[..], b"csr", b"token", &[0, 0, 0, 1], &[0, 0, 0, 0, 0, 0, 0, 7]] {
            request.update([0, 0, 0, 0, 0, 0, 0, part.len() as u8]);
            request.update(part);
        }
        for part in [&b"trustplane.dev/join/v1"[..], b"td.test", &[7; 32], &request.finalize()] {
            expected.extend([0, 0, 0, 0, 0, 0, 0, part.len() as u8]);
            expected.extend(part);
        }
        assert_eq!(message, expected);
    }
}
