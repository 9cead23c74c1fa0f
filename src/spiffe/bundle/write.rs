//! Writes a bundle document.

use std::time::Duration;

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};
use x509_parser::{certificate::X509Certificate, prelude::FromDer, public_key::PublicKey};

use super::{Authority, Bundle, Flaw, JwtKey};
use crate::jose::jwk::{Curve, PublicKey as PublicNumbers};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    #[error("the CA certificate {0}")]
    Certificate(#[from] Flaw),
    #[error("the CA certificate's key is neither an elliptic curve's nor RSA")]
    Key,
}

/// The document of a trust domain with these authorities, in this order. The same input gives the same
/// bytes.
pub fn document(
    authorities: &[CertificateDer<'static>],
    sequence: u64,
    refresh_hint: Duration,
) -> Result<String, WriteError> {
    let keys = authorities.iter().map(jwk).collect::<Result<Vec<_>, _>>()?;
    let document = json!({
        "keys": keys,
        "spiffe_sequence": sequence,
        "spiffe_refresh_hint": refresh_hint.as_secs(),
    });
    Ok(document.to_string())
}

/// The JWK set of a bundle's keys for JWT-SVIDs, and of no other.
pub fn jwt_document(bundle: &Bundle) -> String {
    let number = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let jwk = |key: &JwtKey| match key.key() {
        PublicNumbers::Ec { curve, x, y } => json!({
            "use": "jwt-svid", "kid": key.kid, "kty": "EC", "crv": curve.name(), "x": number(x), "y": number(y),
        }),
        PublicNumbers::Rsa { n, e } => json!({
            "use": "jwt-svid", "kid": key.kid, "kty": "RSA", "n": number(n), "e": number(e),
        }),
    };
    json!({ "keys": bundle.jwt.iter().map(jwk).collect::<Vec<_>>() }).to_string()
}

/// With the members of the key: go-spiffe refuses a whole bundle without them.
fn jwk(der: &CertificateDer<'static>) -> Result<Value, WriteError> {
    Authority::read(der.clone())?;
    let (_, certificate) = X509Certificate::from_der(der).map_err(|_| Flaw::Unreadable)?;
    let key = certificate.public_key().parsed().map_err(|_| WriteError::Key)?;
    let number = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let x5c = [STANDARD.encode(der)];
    match key {
        PublicKey::EC(point) => {
            let (tag, numbers) = point.data().split_first().ok_or(WriteError::Key)?;
            let (x, y) = numbers.split_at(numbers.len() / 2);
            let curve = Curve::of_length(x.len()).filter(|_| *tag == 4).ok_or(WriteError::Key)?;
            let (x, y) = (number(x), number(y));
            Ok(
                json!({ "use": "x509-svid", "kty": "EC", "crv": curve.name(), "x": x, "y": y, "x5c": x5c }),
            )
        }
        PublicKey::RSA(rsa) => {
            let without_zeros = |bytes: &[u8]| {
                number(&bytes[bytes.iter().position(|&byte| byte != 0).unwrap_or(0)..])
            };
            let (n, e) = (without_zeros(rsa.modulus), without_zeros(rsa.exponent));
            Ok(json!({ "use": "x509-svid", "kty": "RSA", "n": n, "e": e, "x5c": x5c }))
        }
        _ => Err(WriteError::Key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spiffe::testing::{Ca, jwt_key};

    #[test]
    fn a_written_document_is_read_back_with_the_same_authorities_sequence_and_hint() {
        let (one, other) = (Ca::new("one"), Ca::new("other"));
        let hint = Duration::from_secs(300);
        let text = document(&[one.der(), other.der()], u64::MAX, hint).unwrap();
        let bundle = Bundle::parse(text.as_bytes()).unwrap();
        let ders: Vec<_> = bundle.x509.iter().map(|it| it.der().clone()).collect();
        assert_eq!(ders, [one.der(), other.der()]);
        assert_eq!((bundle.sequence, bundle.refresh_hint), (Some(u64::MAX), Some(hint)));
        assert_eq!(text, document(&[one.der(), other.der()], u64::MAX, hint).unwrap());
    }

    #[test]
    fn keys_have_no_kid_exactly_one_x5c_and_the_members_of_their_type() {
        let text = document(&[Ca::new("one").der()], 1, Duration::from_secs(60)).unwrap();
        let value: Value = serde_json::from_str(&text).unwrap();
        let key = &value["keys"][0];
        assert_eq!(
            (&key["kty"], &key["use"], &key["crv"]),
            (&json!("EC"), &json!("x509-svid"), &json!("P-256"))
        );
        assert_eq!(key["x5c"].as_array().unwrap().len(), 1);
        assert!(key.get("kid").is_none());
        for coordinate in ["x", "y"] {
            let bytes = URL_SAFE_NO_PAD.decode(key[coordinate].as_str().unwrap()).unwrap();
            assert_eq!(bytes.len(), 32, "{coordinate}");
        }
    }

    #[test]
    fn a_document_for_jwt_svids_has_their_keys_and_no_authority() {
        let mixed = json!({ "keys": [Ca::new("one").jwk(), jwt_key("a"), {"kty": "oct", "use": "jwt-svid"}] });
        let mixed = Bundle::parse(mixed.to_string().as_bytes()).unwrap();
        let text = jwt_document(&mixed);
        assert_eq!(
            serde_json::from_str::<Value>(&text).unwrap(),
            json!({ "keys": [jwt_key("a")] })
        );
        assert_eq!(Bundle::parse(text.as_bytes()).unwrap().jwt, mixed.jwt);
    }

    #[test]
    fn an_empty_bundle_has_its_keys_all_the_same() {
        let text = document(&[], 7, Duration::from_secs(60)).unwrap();
        assert_eq!(text, r#"{"keys":[],"spiffe_refresh_hint":60,"spiffe_sequence":7}"#);
    }

    #[test]
    fn what_is_no_authority_is_not_published() {
        let svid = Ca::new("one").svid("spiffe://td/a");
        let refused = document(&[svid.der], 1, Duration::from_secs(60));
        assert_eq!(refused, Err(WriteError::Certificate(Flaw::NotAuthority)));
    }
}
