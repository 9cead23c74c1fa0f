//! The blocks of a PEM text, and which of them a Route may hold.

/// One block with its markers. It has no `Debug`, because it may be a key.
pub struct Block<'a> {
    pub label: &'a str,
    pub text: String,
    pub has_headers: bool,
}

/// The PEM blocks that the router writes for HAProxy.
const KNOWN: [&str; 9] = [
    CERTIFICATE,
    "PRIVATE KEY",
    "RSA PRIVATE KEY",
    "EC PRIVATE KEY",
    "ECDSA PRIVATE KEY",
    "PUBLIC KEY",
    "RSA PUBLIC KEY",
    "DSA PUBLIC KEY",
    "ECDSA PUBLIC KEY",
];

/// `openssl ecparam -genkey` writes it before the key; the router drops it.
const DROPPED: &str = "EC PARAMETERS";

pub const CERTIFICATE: &str = "CERTIFICATE";

impl Block<'_> {
    /// Whether this is a private key.
    pub fn is_key(&self) -> bool {
        self.label.ends_with("PRIVATE KEY")
    }

    /// Whether OpenShift's router accepts it in this field: since 4.21 neither a public key beside
    /// a certificate or a key, nor a certificate beside a key.
    fn belongs_to(&self, field: &str) -> bool {
        match field {
            "certificate" => self.is_key() || self.label == CERTIFICATE,
            "key" => self.is_key(),
            _ => true,
        }
    }
}

/// The blocks of `field`, or why the router refuses them. Text between them is ignored.
pub fn blocks<'a>(field: &str, text: &'a str) -> Result<Vec<Block<'a>>, String> {
    let found = scan(text).into_iter().filter(|block| block.label != DROPPED);
    found
        .map(|block| {
            if !KNOWN.contains(&block.label) {
                Err(format!("spec.tls.{field}: unrecognized PEM block {}", block.label))
            } else if !block.belongs_to(field) {
                Err(format!("spec.tls.{field}: block {} does not belong there", block.label))
            } else if block.has_headers {
                Err(format!("spec.tls.{field}: block {} has PEM headers", block.label))
            } else {
                Ok(block)
            }
        })
        .collect()
}

fn scan(text: &str) -> Vec<Block<'_>> {
    let mut found = Vec::new();
    let mut lines = text.lines().map(str::trim_end);
    while let Some(line) = lines.next() {
        let Some(label) = marker(line, "BEGIN") else { continue };
        let body: Vec<&str> =
            lines.by_ref().take_while(|line| marker(line, "END") != Some(label)).collect();
        let has_headers = body.iter().any(|line| line.contains(':'));
        let text = format!("{line}\n{}\n-----END {label}-----\n", body.join("\n"));
        found.push(Block { label, text, has_headers });
    }
    found
}

fn marker<'a>(line: &'a str, kind: &str) -> Option<&'a str> {
    line.strip_prefix("-----")?.strip_prefix(kind)?.strip_prefix(' ')?.strip_suffix("-----")
}
