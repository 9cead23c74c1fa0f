//! One certificate, read as strictly as the router's Go reads it.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::net::IpAddr;

use chrono::{DateTime, Utc};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{GeneralName, NameConstraints, ParsedExtension, X509Extension};
use x509_parser::prelude::FromDer;

use super::der::{self, Inside};
use super::problem::{Findings, Part, Problem};
use super::public_key::PublicKey;
use super::shape;
use super::signature::{self, Digest, Verification};
use super::uri;

pub(super) struct Certificate<'a> {
    pub(super) der: &'a [u8],
    pub(super) x509: X509Certificate<'a>,
    pub(super) key: PublicKey,
    pub(super) not_before: DateTime<Utc>,
    pub(super) not_after: DateTime<Utc>,
}

impl<'a> Certificate<'a> {
    /// Errors say what is wrong, for the message.
    pub(super) fn read(der: &'a [u8]) -> Result<Self, &'static str> {
        let (rest, x509) =
            X509Certificate::from_der(der).map_err(|_| "it is not an X.509 certificate")?;
        if !rest.is_empty() {
            return Err("there is extra data after the certificate in its PEM block");
        }
        if !der::is_strict(der, Inside::Certificate) || !shape::is_certificate(der) {
            return Err("its encoding breaks the rules of X.509");
        }
        if x509.raw_serial().first().is_none_or(|first| first & 0x80 != 0) {
            return Err("its serial number is negative");
        }
        extensions_fault(x509.extensions())?;
        let key = PublicKey::of_info(x509.public_key().raw)?;
        let time = |time: &x509_parser::time::ASN1Time| {
            DateTime::from_timestamp(time.timestamp(), 0).ok_or("its validity is not well-formed")
        };
        let (not_before, not_after) =
            (time(&x509.validity().not_before)?, time(&x509.validity().not_after)?);
        Ok(Self { der, x509, key, not_before, not_after })
    }

    pub(super) fn subject(&self) -> &[u8] {
        self.x509.subject().as_raw()
    }

    pub(super) fn issuer(&self) -> &[u8] {
        self.x509.issuer().as_raw()
    }

    pub(super) fn is_self_issued(&self) -> bool {
        self.subject() == self.issuer()
    }

    /// The one parsed extension that the pick knows; Go refuses a second of the same kind.
    pub(super) fn extension<T>(
        &self,
        pick: impl Fn(&ParsedExtension<'a>) -> Option<T>,
    ) -> Option<T> {
        self.x509.extensions().iter().find_map(|extension| pick(extension.parsed_extension()))
    }

    pub(super) fn subject_key_id(&self) -> Option<&'a [u8]> {
        self.extension(|extension| match extension {
            ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0),
            _ => None,
        })
    }

    pub(super) fn authority_key_id(&self) -> Option<&'a [u8]> {
        self.extension(|extension| match extension {
            ParsedExtension::AuthorityKeyIdentifier(id) => {
                id.key_identifier.as_ref().map(|id| id.0)
            }
            _ => None,
        })
    }

    pub(super) fn alternative_names(&self) -> Vec<GeneralName<'a>> {
        self.extension(|extension| match extension {
            ParsedExtension::SubjectAlternativeName(names) => Some(names.general_names.clone()),
            _ => None,
        })
        .unwrap_or_default()
    }

    /// The serial number in hexadecimal digits, and in the lines after it what a host can be
    /// compared with: DNS names in lower case and addresses as text.
    ///
    /// An address that is written as a DNS name is left out, and so is a name with a line break in
    /// it: no client matches them.
    pub(super) fn serial_and_host_names(&self) -> Box<str> {
        let mut lines = self.serial();
        for name in self.alternative_names() {
            match name {
                GeneralName::DNSName(name)
                    if name.parse::<IpAddr>().is_err() && !name.contains('\n') =>
                {
                    lines.push('\n');
                    lines.extend(name.chars().map(|c| c.to_ascii_lowercase()));
                }
                GeneralName::IPAddress(bytes) => {
                    if let Some(address) = address(bytes) {
                        // Into a text that can't fail.
                        let _ = write!(lines, "\n{address}");
                    }
                }
                _ => {}
            }
        }
        lines.into_boxed_str()
    }

    fn serial(&self) -> String {
        match der::without_leading_zeros(self.x509.raw_serial()) {
            [] => "00".to_owned(),
            digits => hex::encode(digits),
        }
    }

    /// Self-signed as the router and OpenSSL tell it: by names and key ids, not by the signature.
    pub(super) fn counts_as_self_signed(&self) -> bool {
        let same_key = match self.authority_key_id() {
            None => true,
            authority => authority == self.subject_key_id(),
        };
        self.is_self_issued()
            && same_key
            && signature::fits_key(&self.x509.signature_algorithm, &self.key)
    }

    pub(super) fn verify_signature(&self, parent: &Certificate<'_>) -> Verification {
        signature::verify(&self.x509, &parent.x509, &parent.key)
    }

    /// Finds what would make the router refuse the certificate, or HAProxy its configuration,
    /// anywhere in a chain.
    pub(super) fn chain_problems(&self, part: Part, findings: &mut Findings) {
        if let Some(problem) = self.key.chain_problem(part) {
            findings.add(problem);
        }
        if self.counts_as_self_signed() {
            return;
        }
        if let Digest::Weak(digest) = signature::digest(&self.x509.signature_algorithm) {
            findings.add(Problem::WeakSignature { part, digest });
        }
    }
}

pub(super) fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

fn extensions_fault(extensions: &[X509Extension<'_>]) -> Result<(), &'static str> {
    let mut seen = HashSet::new();
    for extension in extensions {
        if !seen.insert(extension.oid.as_bytes()) {
            return Err("it has the same extension twice");
        }
        extension_fault(extension)?;
    }
    Ok(())
}

/// Whether Go would read the extension. It reads those of RFC 5280 and leaves all others alone.
fn extension_fault(extension: &X509Extension<'_>) -> Result<(), &'static str> {
    let [0x55, 0x1d, number] = extension.oid.as_bytes() else {
        return authority_access_fault(extension);
    };
    let inside = match number {
        14 | 15 | 19 | 30 | 31 | 35 | 36 | 37 | 54 => Inside::Everything,
        17 => Inside::Names,
        // Policies: Go reads their numbers only, and takes longer ones there than elsewhere.
        32 | 33 if shape::is_extension(*number, extension.value) => return parsed_fault(extension),
        32 | 33 => return Err("an extension breaks the rules of X.509"),
        _ => return Ok(()),
    };
    if matches!(number, 14 | 35) && extension.critical {
        return Err("a key identifier is marked critical, which it must not be");
    }
    if !der::is_strict(extension.value, inside) || !shape::is_extension(*number, extension.value) {
        return Err("an extension breaks the rules of X.509");
    }
    parsed_fault(extension)?;
    match extension.parsed_extension() {
        ParsedExtension::SubjectAlternativeName(names) => names_fault(&names.general_names),
        ParsedExtension::NameConstraints(constraints) => constraints_fault(constraints),
        _ => Ok(()),
    }
}

/// Go reads every constraint when it reads the certificate, whether it is needed or not.
fn constraints_fault(constraints: &NameConstraints<'_>) -> Result<(), &'static str> {
    let subtrees = [&constraints.permitted_subtrees, &constraints.excluded_subtrees];
    let mut bases =
        subtrees.into_iter().flatten().flatten().map(|subtree| &subtree.base).peekable();
    let fine = bases.peek().is_some()
        && bases.all(|base| match base {
            GeneralName::DNSName(name) => uri::is_constraint(name.as_bytes()),
            GeneralName::IPAddress(range) => is_range(range),
            GeneralName::RFC822Name(text) if text.contains('@') => uri::is_mailbox(text),
            GeneralName::RFC822Name(name) => uri::is_constraint(name.as_bytes()),
            GeneralName::URI(name) => {
                name.parse::<IpAddr>().is_err() && uri::is_constraint(name.as_bytes())
            }
            GeneralName::Invalid(tag, _) => !matches!(tag.0, 1 | 2 | 6 | 7),
            _ => true,
        });
    if fine { Ok(()) } else { Err("one of its name constraints is not well-formed") }
}

/// An address and a mask of the same length, in which all ones stand before the zeros.
fn is_range(range: &[u8]) -> bool {
    let (base, mask) = range.split_at(range.len() / 2);
    // From the first byte that has a zero on, nothing but that byte's leading ones may be set.
    let rest = mask.iter().skip_while(|byte| **byte == 0xff);
    let is_prefix = rest.enumerate().all(|(at, byte)| match at {
        0 => byte.leading_ones() == byte.count_ones(),
        _ => *byte == 0,
    });
    address(base).is_some() && base.len() == mask.len() && is_prefix
}

fn authority_access_fault(extension: &X509Extension<'_>) -> Result<(), &'static str> {
    const AUTHORITY_ACCESS: [u8; 8] = [0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x01, 0x01];
    if extension.oid.as_bytes() != AUTHORITY_ACCESS {
        return Ok(());
    }
    if extension.critical {
        return Err("its authority information is marked critical, which it must not be");
    }
    let strict = der::is_strict(extension.value, Inside::Names);
    match strict && shape::is_authority_access(extension.value) {
        true => parsed_fault(extension),
        false => Err("an extension breaks the rules of X.509"),
    }
}

fn parsed_fault(extension: &X509Extension<'_>) -> Result<(), &'static str> {
    match extension.parsed_extension() {
        ParsedExtension::ParseError { .. } => Err("an extension is not well-formed"),
        _ => Ok(()),
    }
}

fn names_fault(names: &[GeneralName<'_>]) -> Result<(), &'static str> {
    let fine = names.iter().all(|name| match name {
        GeneralName::RFC822Name(text) | GeneralName::DNSName(text) => text.is_ascii(),
        GeneralName::URI(text) => uri::is_accepted(text),
        GeneralName::IPAddress(bytes) => address(bytes).is_some(),
        GeneralName::Invalid(tag, _) => !matches!(tag.0, 1 | 2 | 6 | 7),
        _ => true,
    });
    if fine { Ok(()) } else { Err("one of its alternative names is not well-formed") }
}
