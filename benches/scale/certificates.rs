//! Pairs of an issuer: a leaf and two intermediates. Three of four leaves have RSA keys of 2048
//! bits, cert-manager's default, about 5 KB with the key; every fourth has an ECDSA key. All CAs
//! are RSA.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rcgen::{
    CertificateParams, CertifiedIssuer, DnType, KeyPair, PKCS_RSA_SHA256, RsaKeySize, SerialNumber,
    date_time_ymd,
};
use testkit::pair::authority;

const DAY: Duration = Duration::from_secs(24 * 3600);
/// RSA keys are slow to make. Some leaves share a key, but no two share a certificate.
const RSA_KEYS: usize = 32;
/// One of this many leaves is ECDSA.
const ECDSA_EVERY: u64 = 4;
/// Sample for the average size.
const SAMPLE: usize = 40;

/// Content of a TLS Secret.
pub struct Pair {
    /// The leaf first.
    pub chain: String,
    pub key: String,
}

/// Issues pairs, no two of them the same.
pub struct Issuer {
    issuing: CertifiedIssuer<'static, KeyPair>,
    /// The intermediates, as PEM.
    above: String,
    keys: Vec<KeyPair>,
    given_out: AtomicU64,
}

impl Issuer {
    pub fn new() -> Result<Self, rcgen::Error> {
        let mut keys = in_parallel(RSA_KEYS + 3, rsa)?;
        let mut key = || keys.pop().ok_or(rcgen::Error::KeyGenerationUnavailable);
        let root = CertifiedIssuer::self_signed(authority("Bench root"), key()?)?;
        let policy = CertifiedIssuer::signed_by(authority("Bench policy"), key()?, &root)?;
        let issuing = CertifiedIssuer::signed_by(authority("Bench issuing"), key()?, &policy)?;
        let above = issuing.pem() + &policy.pem();
        Ok(Self { issuing, above, keys, given_out: AtomicU64::new(1) })
    }

    pub fn pair(&self) -> Result<Arc<Pair>, rcgen::Error> {
        let number = self.given_out.fetch_add(1, Ordering::Relaxed);
        if number.is_multiple_of(ECDSA_EVERY) {
            return self.signed(number, &KeyPair::generate()?);
        }
        self.signed(number, &self.keys[number as usize % self.keys.len()])
    }

    pub fn pairs(&self, count: usize) -> Result<Vec<Arc<Pair>>, rcgen::Error> {
        in_parallel(count, || self.pair())
    }

    /// Bytes of a chain and of a key, on average.
    pub fn mean_bytes(&self) -> Result<(usize, usize), rcgen::Error> {
        let some = self.pairs(SAMPLE)?;
        let mean = |bytes: fn(&Pair) -> usize| {
            some.iter().map(|pair| bytes(pair)).sum::<usize>() / some.len()
        };
        Ok((mean(|pair| pair.chain.len()), mean(|pair| pair.key.len())))
    }

    fn signed(&self, number: u64, key: &KeyPair) -> Result<Arc<Pair>, rcgen::Error> {
        let host = format!("host-{number}.apps.example.com");
        // It covers every Route's host: otherwise the controller would report warnings.
        let names = vec![host.clone(), "*.apps.example.com".to_owned()];
        let mut leaf = CertificateParams::new(names)?;
        leaf.distinguished_name.push(DnType::CommonName, host);
        leaf.use_authority_key_identifier_extension = true;
        leaf.serial_number = Some(SerialNumber::from(number));
        let today = date_time_ymd(1970, 1, 1)
            + SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        (leaf.not_before, leaf.not_after) = (today - DAY, today + 90 * DAY);
        let chain = leaf.signed_by(key, &self.issuing)?.pem() + &self.above;
        Ok(Arc::new(Pair { chain, key: key.serialize_pem() }))
    }
}

fn in_parallel<T: Send>(
    count: usize,
    make: impl Fn() -> Result<T, rcgen::Error> + Sync,
) -> Result<Vec<T>, rcgen::Error> {
    let some = |count: usize| (0..count).map(|_| make()).collect::<Result<Vec<T>, _>>();
    thread::scope(|scope| {
        let half = scope.spawn(|| some(count / 2));
        let mut all = some(count - count / 2)?;
        // The panic message is printed already.
        all.extend(half.join().unwrap_or(Err(rcgen::Error::KeyGenerationUnavailable))?);
        Ok(all)
    })
}

fn rsa() -> Result<KeyPair, rcgen::Error> {
    KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048)
}
