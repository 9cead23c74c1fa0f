//! Certificates in DER, one after the other, as joins and the Workload API carry them.

use rustls::pki_types::CertificateDer;

/// The tag of a SEQUENCE, which a certificate is.
const SEQUENCE: u8 = 0x30;

/// Splits certificates by their lengths alone. None if there is no certificate, or bytes are missing or left
/// over.
pub fn split(mut der: &[u8]) -> Option<Vec<CertificateDer<'_>>> {
    let mut chain = Vec::new();
    while !der.is_empty() {
        let (one, rest) = der.split_at_checked(length(der)?)?;
        chain.push(CertificateDer::from(one));
        der = rest;
    }
    (!chain.is_empty()).then_some(chain)
}

/// Of the first element, its head included.
fn length(der: &[u8]) -> Option<usize> {
    match *der {
        [SEQUENCE, short @ 0..=0x7f, ..] => Some(2 + usize::from(short)),
        [SEQUENCE, 0x81, a, ..] => Some(3 + usize::from(a)),
        [SEQUENCE, 0x82, a, b, ..] => Some(4 + usize::from(u16::from_be_bytes([a, b]))),
        // A certificate of 64 KiB is more than any message holds.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spiffe::testing::Ca;

    #[test]
    fn a_chain_is_split_into_what_it_was_made_of() {
        let certificates = [Ca::new("a"), Ca::new("bb"), Ca::new("ccc")].map(|ca| ca.der());
        let joined: Vec<u8> = certificates.iter().flat_map(|it| it.to_vec()).collect();
        assert_eq!(split(&joined).unwrap(), certificates);
        let (short, middle) = ([&[SEQUENCE, 3], &[7; 3][..]].concat(), [SEQUENCE, 0x81, 1, 9]);
        assert_eq!(split(&[&short[..], &middle].concat()).unwrap().len(), 2);
    }

    #[test]
    fn a_damaged_chain_is_refused() {
        let der = Ca::new("a").der();
        assert_eq!(split(&[]), None);
        assert_eq!(split(&der[..der.len() - 1]), None);
        assert_eq!(split(&[&der[..], &[0]].concat()), None);
        assert_eq!(split(&[SEQUENCE]), None);
        assert_eq!(split(&[SEQUENCE, 0x82, 1]), None);
        // Of indefinite length, and longer than any memory.
        assert_eq!(split(&[SEQUENCE, 0x80, 0, 0]), None);
        assert_eq!(split(&[&[SEQUENCE, 0x88][..], &[0xff; 8]].concat()), None);
    }
}
