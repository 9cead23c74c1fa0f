//! DER by hand, for tests that break its rules.

/// One element.
pub fn tlv(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = match body.len() {
        length @ 0..=127 => vec![length as u8],
        length @ 128..=255 => vec![0x81, length as u8],
        length => vec![0x82, (length >> 8) as u8, length as u8],
    };
    [&[tag], &length[..], body].concat()
}
