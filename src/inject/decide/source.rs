//! The annotation `trustplane.dev/injected-from`: which version of which Secret the pair in a Route was
//! read from, and by which rules it was judged. Pure.
//!
//! It saves a read of the Secret after a restart, and means nothing alone: it is believed only
//! beside the marker that it was written with. It looks like this:
//!
//! ```text
//! v1:<uid>:<resourceVersion>:<number of the rules>:<16 digits of the marker's digest of the pair>
//! ```

use sha2::{Digest, Sha256};

use crate::{inject::decide::marker::Marker, tls};

const FORMAT: &str = "v1";

/// One version of one Secret. Digests, because thousands are kept and only sameness is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revision {
    uid: u64,
    version: u64,
}

impl Revision {
    /// The revision of a Secret with this uid and resourceVersion.
    pub fn of(uid: &str, version: &str) -> Self {
        Self { uid: digest(uid), version: digest(version) }
    }
}

fn digest(text: &str) -> u64 {
    let digest: [u8; 32] = Sha256::digest(text).into();
    u64::from_be_bytes(std::array::from_fn(|at| digest[at]))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    revision: Revision,
    rules: u32,
}

/// How a Route's source compares with the current Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// The Route holds what this version of the Secret holds.
    Same,
    /// It does, but the pair was judged by other rules than ours.
    OtherRules,
    /// The Secret is another, or has changed.
    Different,
}

impl Source {
    /// The annotation for a pair that was read from this version of a Secret.
    pub fn text(uid: &str, version: &str, marker: &Marker) -> String {
        format!("{FORMAT}:{uid}:{version}:{}:{}", tls::RULES, marker.digits())
    }

    /// Reads the annotation; none where it was not written together with this marker.
    pub fn read(text: &str, marker: &Marker) -> Option<Self> {
        let parts: Vec<&str> = text.split(':').collect();
        let [FORMAT, uid, version, rules, digits] = parts[..] else { return None };
        let rules = rules.parse().ok()?;
        (digits == marker.digits()).then(|| Self { revision: Revision::of(uid, version), rules })
    }

    pub fn agreement(self, now: Revision) -> Agreement {
        match self.rules == tls::RULES {
            _ if self.revision != now => Agreement::Different,
            true => Agreement::Same,
            false => Agreement::OtherRules,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marker() -> Marker {
        Marker::of("4711", "certificate", "key")
    }

    #[test]
    fn a_source_that_was_written_with_the_note_names_the_secrets_version() {
        let text = Source::text("s-1", "41", &marker());
        assert!(text.starts_with("v1:s-1:41:") && text.len() < 120, "{text}");
        let source = Source::read(&text, &marker()).unwrap();
        assert_eq!(source.agreement(Revision::of("s-1", "41")), Agreement::Same);
        assert_eq!(source.agreement(Revision::of("s-1", "42")), Agreement::Different);
        assert_eq!(source.agreement(Revision::of("s-2", "41")), Agreement::Different);
    }

    #[test]
    fn a_source_beside_another_note_is_not_believed() {
        let text = Source::text("s-1", "41", &marker());
        for other in [Marker::of("4712", "certificate", "key"), Marker::of("4711", "other", "key")]
        {
            assert_eq!(Source::read(&text, &other), None);
        }
    }

    #[test]
    fn a_pair_that_was_judged_by_other_rules_is_told_apart() {
        let text = Source::text("s-1", "41", &marker());
        let others = text.replace(&format!(":{}:", tls::RULES), ":4294967295:");
        let source = Source::read(&others, &marker()).unwrap();
        assert_eq!(source.agreement(Revision::of("s-1", "41")), Agreement::OtherRules);
        assert_eq!(source.agreement(Revision::of("s-1", "42")), Agreement::Different);
    }

    #[test]
    fn what_we_never_wrote_is_no_source() {
        let good = Source::text("s-1", "41", &marker());
        let digits = marker().digits();
        for text in [
            "",
            "v1",
            "v1:::::",
            &good.replace("v1", "v2"),
            &good[..good.len() - 1],
            &format!("{good}:"),
            &format!("v1:s-1:41:one:{digits}"),
            &format!("v1:s-1:41:-1:{digits}"),
        ] {
            assert_eq!(Source::read(text, &marker()), None, "{text}");
        }
    }
}
