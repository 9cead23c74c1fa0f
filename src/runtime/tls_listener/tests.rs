//! Certificates in files, and who is kept waiting.

use std::fs;

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio_rustls::TlsConnector;

use super::*;
use crate::runtime::reloader::RELOAD_INTERVAL;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn put(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    fn put_pair(&self) -> (PathBuf, PathBuf, Vec<u8>) {
        let (certificate, key) = pair();
        let der = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap().to_vec();
        (self.put("tls.crt", &certificate), self.put("tls.key", &key), der)
    }
}

fn pair() -> (String, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let parameters = rcgen::CertificateParams::new(vec!["localhost".into()]).unwrap();
    (parameters.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

fn served(files: &CertReloader) -> Vec<u8> {
    files.current().cert[0].to_vec()
}

#[tokio::test(start_paused = true)]
async fn a_new_pair_in_the_files_is_served_and_a_bad_one_leaves_the_old_in_place() {
    let folder = Folder::new();
    let (certificate, key, first) = folder.put_pair();
    let files = CertReloader::read(&certificate, &key).unwrap();
    assert_eq!(served(&files), first);

    let (_, _, second) = folder.put_pair();
    assert_eq!(served(&files), first, "the files are not read with every handshake");
    tokio::time::sleep(RELOAD_INTERVAL).await;
    assert_eq!(served(&files), second);

    folder.put("tls.key", &pair().1);
    tokio::time::sleep(RELOAD_INTERVAL).await;
    assert_eq!(served(&files), second, "half of a renewal is not served");
    fs::remove_file(&certificate).unwrap();
    tokio::time::sleep(RELOAD_INTERVAL).await;
    assert_eq!(served(&files), second);

    let (_, _, third) = folder.put_pair();
    tokio::time::sleep(RELOAD_INTERVAL).await;
    assert_eq!(served(&files), third);
}

#[test]
fn what_is_no_pair_is_refused_with_the_files_name_and_nothing_of_its_content() {
    let folder = Folder::new();
    let (certificate, key, _) = folder.put_pair();
    let (other, _) = pair();
    let other = folder.put("other.crt", &other);
    let empty = folder.put("empty", "");
    let absent = folder.0.path().join("absent");
    for (certificate, key, why) in [
        (&absent, &key, "absent can't be read"),
        (&empty, &key, "empty holds no certificate"),
        (&certificate, &empty, "empty holds no private key"),
        (&certificate, &certificate, "tls.crt holds no private key"),
        (&other, &key, "are no usable pair"),
    ] {
        let error = CertReloader::read(certificate, key).unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(shown.contains(why), "{shown}");
        assert!(!shown.contains("BEGIN"), "the content is shown");
    }
}

/// Opens a connection to our own pages, as a probe does.
async fn shake_hands(address: SocketAddr, root: Vec<u8>) -> io::Result<()> {
    let mut roots = RootCertStore::empty();
    roots.add(root.into()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.map(drop)
}

#[tokio::test]
async fn peers_that_never_finish_their_handshake_keep_no_probe_waiting() {
    let folder = Folder::new();
    let (certificate, key, root) = folder.put_pair();
    let files = CertReloader::read(&certificate, &key).unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let listener = TlsListener::new(taken, files).unwrap();
    let mut silent = Vec::new();
    for _ in 0..2 * MAX_HANDSHAKES {
        silent.push(TcpStream::connect(listener.address).await.unwrap());
    }
    // The kubelet gives a probe one second.
    let probe = timeout(Duration::from_secs(1), shake_hands(listener.address, root)).await;
    assert!(matches!(probe, Ok(Ok(()))), "{probe:?}");
}
