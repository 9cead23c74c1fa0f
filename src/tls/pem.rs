//! Cuts a text into PEM blocks, strictly.
//!
//! The router reads with Go's `encoding/pem`, which skips what it can't read without a word, and
//! differently from version to version. Here a marker is either exactly in its place or a problem,
//! so that whatever passes is the same sequence of blocks to every version of Go and to OpenSSL.
//! Text that has no marker in it (OpenSSL's dump, bag attributes, comments) is ignored, as by Go.
//!
//! Not `rustls-pemfile`: it skips unknown labels and unfinished blocks silently, and those must be
//! refused and named.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use zeroize::Zeroizing;

use super::problem::{Damage, Field, Findings, Problem};

const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const DASHES: &str = "-----";

/// Go's decoder does not look at the unused bits of the last character, so neither do we.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// The kinds of block that the router takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Certificate,
    PrivateKey,
    PublicKey,
    /// OpenSSL writes it before an EC key; the router drops it unread.
    EcParameters,
}

/// One block. The content may be a key, so it is wiped when dropped.
pub(super) struct Block {
    pub(super) kind: Kind,
    pub(super) line: usize,
    pub(super) der: Zeroizing<Vec<u8>>,
}

/// A block whose END line was not reached yet.
struct Open<'a> {
    label: &'a str,
    line: usize,
    headers: Option<usize>,
    encrypted: bool,
    base64: Zeroizing<String>,
}

/// All readable blocks of a text, in order. What is not readable is added to the findings.
pub(super) fn blocks(field: Field, text: &str, findings: &mut Findings) -> Vec<Block> {
    let mut scan = Scan { field, findings, open: None, blocks: Vec::new() };
    for (index, line) in lines(text).enumerate() {
        scan.line(index + 1, line);
    }
    scan.end()
}

struct Scan<'a, 'f> {
    field: Field,
    findings: &'f mut Findings,
    open: Option<Open<'a>>,
    blocks: Vec<Block>,
}

impl<'a> Scan<'a, '_> {
    fn line(&mut self, number: usize, line: &'a str) {
        match marker(line) {
            Marker::Begin(label) => self.begin(number, label),
            Marker::End(label) => match self.open.take() {
                Some(open) if open.label == label => self.close(open),
                Some(open) => self.damaged(open.line, Damage::OtherEnd),
                None => self.damaged(number, Damage::NoBegin),
            },
            Marker::Broken(damage) => {
                self.open = None;
                self.damaged(number, damage);
            }
            Marker::None => {
                if let Some(open) = &mut self.open {
                    open.content(number, line);
                }
            }
        }
    }

    fn begin(&mut self, number: usize, label: &'a str) {
        let base64 = Zeroizing::default();
        let open = Open { label, line: number, headers: None, encrypted: false, base64 };
        if let Some(unfinished) = self.open.replace(open) {
            self.damaged(unfinished.line, Damage::NoEnd);
        }
    }

    fn close(&mut self, open: Open<'a>) {
        let (field, line) = (self.field, open.line);
        let is_key = open.label.ends_with("PRIVATE KEY");
        if is_key && (open.encrypted || open.label == "ENCRYPTED PRIVATE KEY") {
            return self.findings.add(Problem::EncryptedKey { field, line });
        }
        let Some(kind) = kind(open.label) else {
            let label = well_known(open.label);
            return self.findings.add(Problem::ForeignBlock { field, line, label });
        };
        if let Some(line) = open.headers {
            return self.findings.add(Problem::Headers { field, line });
        }
        match BASE64.decode(open.base64.as_bytes()) {
            Ok(der) => self.blocks.push(Block { kind, line, der: Zeroizing::new(der) }),
            Err(_) => self.damaged(line, Damage::NotBase64),
        }
    }

    fn damaged(&mut self, line: usize, damage: Damage) {
        let field = self.field;
        self.findings.add(Problem::Damaged { field, line, damage });
    }

    fn end(mut self) -> Vec<Block> {
        if let Some(unfinished) = self.open.take() {
            self.damaged(unfinished.line, Damage::NoEnd);
        }
        self.blocks
    }
}

impl Open<'_> {
    fn content(&mut self, number: usize, line: &str) {
        if line.contains(':') {
            self.headers.get_or_insert(number);
            self.encrypted |= line.contains("ENCRYPTED");
        }
        // Every line ends up here, headers too: then the block is refused for them anyway.
        self.base64.extend(line.chars().filter(|c| !matches!(c, ' ' | '\t' | '\r')));
    }
}

/// Lines as Go's decoder sees them: one `\r` before the `\n` and spaces and tabs at the end don't
/// count, but a `\r` at the very end of the text does.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive('\n').map(|line| {
        let line = match line.strip_suffix('\n') {
            Some(line) => line.strip_suffix('\r').unwrap_or(line),
            None => line,
        };
        line.trim_end_matches([' ', '\t'])
    })
}

enum Marker<'a> {
    Begin(&'a str),
    End(&'a str),
    Broken(Damage),
    None,
}

fn marker(line: &str) -> Marker<'_> {
    let label = |start| {
        let label = line.strip_prefix(start)?.strip_suffix(DASHES)?;
        (!label.contains(DASHES)).then_some(label)
    };
    // Looser than the exact marker on purpose: a marker that lost a dash, is indented or follows
    // a byte order mark would make Go skip the block, and the chain would lose a certificate.
    let (begins, ends) = (line.contains("-BEGIN "), line.contains("-END "));
    match (begins, ends) {
        (false, false) => Marker::None,
        (true, false) => label(BEGIN).map_or(Marker::Broken(Damage::BeginLine), Marker::Begin),
        (false, true) => label(END).map_or(Marker::Broken(Damage::EndLine), Marker::End),
        (true, true) => Marker::Broken(Damage::JoinedLines),
    }
}

fn kind(label: &str) -> Option<Kind> {
    Some(match label {
        "CERTIFICATE" => Kind::Certificate,
        "PRIVATE KEY" | "RSA PRIVATE KEY" | "EC PRIVATE KEY" | "ECDSA PRIVATE KEY" => {
            Kind::PrivateKey
        }
        "PUBLIC KEY" | "RSA PUBLIC KEY" | "DSA PUBLIC KEY" | "ECDSA PUBLIC KEY" => Kind::PublicKey,
        "EC PARAMETERS" => Kind::EcParameters,
        _ => return None,
    })
}

/// Only labels from this list are repeated to the user; any other may be a piece of a key.
fn well_known(label: &str) -> &'static str {
    const LABELS: [&str; 15] = [
        "TRUSTED CERTIFICATE",
        "X509 CERTIFICATE",
        "X509 CRL",
        "CERTIFICATE REQUEST",
        "NEW CERTIFICATE REQUEST",
        "ATTRIBUTE CERTIFICATE",
        "PKCS7",
        "CMS",
        "DSA PRIVATE KEY",
        "OPENSSH PRIVATE KEY",
        "PGP PRIVATE KEY BLOCK",
        "DH PARAMETERS",
        "DSA PARAMETERS",
        "X9.42 DH PARAMETERS",
        "OPENSSL PARAMETERS",
    ];
    LABELS.into_iter().find(|known| *known == label).unwrap_or("a label that it does not know")
}
