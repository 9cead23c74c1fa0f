//! Reads the configuration, and the CAs that it names, as they are now.

use std::{
    collections::BTreeMap,
    fmt, fs, io,
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};

use super::decide::config::{self, Config, Fault};

/// Larger files are none of ours: ten thousand clusters take a third of it.
const LONGEST: u64 = 16 * 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("{} can't be read: {cause}", path.display())]
    Read { path: PathBuf, cause: io::Error },
    #[error("{} is longer than {LONGEST} bytes", .0.display())]
    Long(PathBuf),
    #[error("{} is not UTF-8", .0.display())]
    Text(PathBuf),
    #[error("{}:{}", path.display(), Faults(faults))]
    Faults { path: PathBuf, faults: Vec<Fault> },
    #[error("cluster {cluster}: {} holds no certificate in PEM", path.display())]
    NoCertificate { cluster: String, path: PathBuf },
}

/// One a line.
struct Faults<'a>(&'a [Fault]);

impl fmt::Display for Faults<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [only] => write!(f, " {only}"),
            all => all.iter().try_for_each(|fault| write!(f, "\n  {fault}")),
        }
    }
}

/// A CA's certificates, in DER.
pub type Roots = Vec<Vec<u8>>;

#[derive(Debug)]
pub struct Loaded {
    pub config: Config,
    /// Of clusters that name a file of CAs.
    pub roots: BTreeMap<String, Roots>,
    /// Of everything that was read.
    pub digest: [u8; 32],
}

pub fn load(path: &Path) -> Result<Loaded, LoadError> {
    let bytes = read(path)?;
    let mut digest = Sha256::new_with_prefix(&bytes);
    let text = String::from_utf8(bytes).map_err(|_| LoadError::Text(path.to_owned()))?;
    let config = config::read(&text);
    let config = config.map_err(|faults| LoadError::Faults { path: path.to_owned(), faults })?;
    let mut roots = BTreeMap::new();
    for (cluster, it) in &config.clusters {
        let Some(file) = it.remote.as_ref().and_then(|it| it.ca_cert.as_ref()) else { continue };
        let pem = read(file)?;
        digest.update((pem.len() as u64).to_be_bytes());
        digest.update(&pem);
        let none = || LoadError::NoCertificate { cluster: cluster.clone(), path: file.clone() };
        roots.insert(cluster.clone(), certificates(&pem).ok_or_else(none)?);
    }
    Ok(Loaded { config, roots, digest: digest.finalize().into() })
}

fn read(path: &Path) -> Result<Vec<u8>, LoadError> {
    let failed = |cause| LoadError::Read { path: path.to_owned(), cause };
    if fs::metadata(path).map_err(failed)?.len() > LONGEST {
        return Err(LoadError::Long(path.to_owned()));
    }
    fs::read(path).map_err(failed)
}

/// None unless there is one, and all can be read.
pub(super) fn certificates(pem: &[u8]) -> Option<Roots> {
    let all: Result<Vec<_>, _> = rustls_pemfile::certs(&mut &*pem).collect();
    let all = all.ok()?.into_iter().map(|it| it.to_vec()).collect::<Roots>();
    (!all.is_empty()).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "clusters:\n  far:\n    issuer: https://far.test\n    api_server: https://far.test:6443\n    ca_cert: CA\n    token_path: /none\n";

    #[test]
    fn a_changed_ca_is_a_changed_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let (file, ca) = (folder.path().join("clusters.yaml"), folder.path().join("ca.crt"));
        fs::write(&file, CONFIG.replace("CA", ca.to_str().unwrap())).unwrap();
        let certificate = || {
            let params = rcgen::CertificateParams::new(["far.test".to_owned()]).unwrap();
            params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem()
        };
        fs::write(&ca, certificate()).unwrap();
        let first = load(&file).unwrap();
        assert_eq!(first.roots["far"].len(), 1);
        assert_eq!(load(&file).unwrap().digest, first.digest);
        fs::write(&ca, certificate()).unwrap();
        assert_ne!(load(&file).unwrap().digest, first.digest);
        fs::write(&ca, "no certificate").unwrap();
        let error = load(&file).unwrap_err().to_string();
        assert!(error.starts_with("cluster far: ") && error.ends_with("no certificate in PEM"));
    }

    #[test]
    fn every_fault_is_told_with_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("clusters.yaml");
        fs::write(
            &file,
            "clusters:\n  far: {issuer: i, api_server: 'http://x'}\n  B: {issuer: j}\n",
        )
        .unwrap();
        let text = load(&file).unwrap_err().to_string();
        assert!(text.lines().count() > 2 && text.contains("line 2, column"), "{text}");
        assert!(matches!(load(&folder.path().join("none")), Err(LoadError::Read { .. })));
    }
}
