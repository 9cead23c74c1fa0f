//! Reads the header of PROXY protocol v2: the address of the client, told by a router that passes TCP on.
//!
//! Whoever can connect can also write such a header, so only a router may reach a listener that reads them.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
};

use tokio::io::{AsyncRead, AsyncReadExt as _};

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Addresses need 36 bytes; routers add a few extensions, which are skipped.
const LONGEST: usize = 2048;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum HeaderError {
    #[error("the connection does not begin with a header of PROXY protocol v2")]
    NoHeader,
    #[error("the PROXY header has an unknown version, command or family")]
    Unknown,
    #[error("the PROXY header has a wrong length")]
    Length,
}

/// The client's address; none where the router speaks for itself, or does not know it.
pub(super) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<SocketAddr>> {
    let mut head = [0; 16];
    stream.read_exact(&mut head).await?;
    let length = length(&head).map_err(io::Error::other)?;
    let mut rest = vec![0; length];
    stream.read_exact(&mut rest).await?;
    source(head[12], head[13], &rest).map_err(io::Error::other)
}

/// Of what follows the first 16 bytes.
fn length(head: &[u8; 16]) -> Result<usize, HeaderError> {
    if !head.starts_with(SIGNATURE) {
        return Err(HeaderError::NoHeader);
    }
    let length = usize::from(u16::from_be_bytes([head[14], head[15]]));
    if length > LONGEST { Err(HeaderError::Length) } else { Ok(length) }
}

fn source(command: u8, family: u8, rest: &[u8]) -> Result<Option<SocketAddr>, HeaderError> {
    match (command, family) {
        // LOCAL, whatever else it says.
        (0x20, _) => Ok(None),
        // PROXY of a protocol that the router does not tell.
        (0x21, 0x00) => Ok(None),
        (0x21, 0x11) => {
            let address: [u8; 4] = bytes(rest, 0)?;
            bytes::<4>(rest, 4)?;
            Ok(Some((Ipv4Addr::from(address), port(rest, 8)?).into()))
        }
        (0x21, 0x21) => {
            let address: [u8; 16] = bytes(rest, 0)?;
            bytes::<16>(rest, 16)?;
            Ok(Some((Ipv6Addr::from(address), port(rest, 32)?).into()))
        }
        _ => Err(HeaderError::Unknown),
    }
}

fn port(rest: &[u8], at: usize) -> Result<u16, HeaderError> {
    // The destination's port follows.
    let [high, low, ..] = bytes::<4>(rest, at)?;
    Ok(u16::from_be_bytes([high, low]))
}

fn bytes<const N: usize>(rest: &[u8], at: usize) -> Result<[u8; N], HeaderError> {
    let found = rest.get(at..at + N).and_then(|it| it.try_into().ok());
    found.ok_or(HeaderError::Length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let mut header = SIGNATURE.to_vec();
        header.extend([command, family]);
        header.extend(u16::try_from(rest.len()).unwrap().to_be_bytes());
        header.extend(rest);
        header
    }

    /// The address, and what follows the header.
    async fn read_all(mut bytes: &[u8]) -> Result<(Option<SocketAddr>, Vec<u8>), String> {
        let found = read(&mut bytes).await.map_err(|error| error.to_string())?;
        Ok((found, bytes.to_vec()))
    }

    #[tokio::test]
    async fn the_address_of_a_client_is_read_and_nothing_behind_the_header() {
        let mut v4 =
            header(0x21, 0x11, &[192, 0, 2, 1, 10, 0, 0, 1, 0x30, 0x39, 1, 187, 3, 0, 1, 9]);
        v4.extend(b"TLS");
        let expected = "192.0.2.1:12345".parse().unwrap();
        assert_eq!(read_all(&v4).await, Ok((Some(expected), b"TLS".to_vec())));

        let mut rest = [0; 36];
        rest[..4].copy_from_slice(&[0x20, 1, 0x0d, 0xb8]);
        rest[15] = 7;
        rest[33] = 80;
        let expected = "[2001:db8::7]:80".parse().unwrap();
        assert_eq!(read_all(&header(0x21, 0x21, &rest)).await, Ok((Some(expected), vec![])));
    }

    #[tokio::test]
    async fn a_router_that_speaks_for_itself_has_no_other_address() {
        for (command, family) in [(0x20, 0x00), (0x20, 0x11), (0x21, 0x00)] {
            let local = header(command, family, &[]);
            assert_eq!(read_all(&local).await, Ok((None, vec![])), "{command} {family}");
        }
    }

    #[tokio::test]
    async fn whatever_is_no_header_is_refused() {
        let good = header(0x21, 0x11, &[0; 12]);
        let mut version_1 = b"PROXY TCP4 192.0.2.1 10.0.0.1 1 2\r\n".to_vec();
        version_1.extend(&good);
        let mut long = header(0x21, 0x11, &[0; 12]);
        long[14] = 0xff;
        for (bytes, why) in [
            (version_1, "does not begin"),
            (header(0x31, 0x11, &[0; 12]), "unknown version"),
            (header(0x22, 0x11, &[0; 12]), "unknown version"),
            (header(0x21, 0x31, &[0; 216]), "unknown version"),
            (header(0x21, 0x11, &[0; 11]), "wrong length"),
            (header(0x21, 0x21, &[0; 35]), "wrong length"),
            (long, "wrong length"),
            (good[..20].to_vec(), "eof"),
        ] {
            let error = read_all(&bytes).await.unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
