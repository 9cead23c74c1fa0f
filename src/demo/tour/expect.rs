//! Compares the expectation of a step with the observation. Pure.

use serde::Serialize;

use super::{observed::or_error, probe::Served};
use crate::inject::decide::state::{Reason, State};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Digest of the served certificate.
    pub sha256: String,
    /// The True condition and its reason.
    pub condition: (State, Reason),
    /// Reason of the newest Event.
    pub event: Option<Reason>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Seen {
    /// The served certificate, or why the TLS client got none.
    #[serde(serialize_with = "or_error")]
    pub served: Result<Served, String>,
    /// The Route's True condition.
    pub condition: Option<Reported>,
    /// The Route's newest Event.
    pub event: Option<Reported>,
}

/// A condition or an Event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reported {
    /// Type of the condition or of the Event.
    pub r#type: String,
    pub reason: String,
    pub message: String,
}

impl Expected {
    /// Differences from the expectation; empty if it is met.
    pub fn differences(&self, seen: &Seen) -> Vec<String> {
        let mut differences = Vec::new();
        match &seen.served {
            Err(why) => differences.push(format!("nothing was served: {why}")),
            Ok(served) => self.compare_served(served, &mut differences),
        }
        let (state, reason) = self.condition;
        let condition = seen.condition.as_ref().map(|it| (&*it.r#type, &*it.reason));
        if condition != Some((state.as_str(), reason.as_str())) {
            let (state, reason) = (state.as_str(), reason.as_str());
            differences.push(format!("the condition should be {state}, reason {reason}"));
        }
        let event = seen.event.as_ref().map(|event| &*event.reason);
        if event != self.event.map(Reason::as_str) {
            let wanted = self.event.map_or("none", Reason::as_str);
            differences.push(format!("the newest Event should be {wanted}"));
        }
        differences
    }

    fn compare_served(&self, served: &Served, differences: &mut Vec<String>) {
        if served.certificate.sha256 != self.sha256 {
            let wanted = &self.sha256[..self.sha256.len().min(12)];
            differences.push(format!("the certificate should be the one with sha256 {wanted}"));
        }
        if served.status != 200 {
            differences.push(format!("the edge answered {}, not 200", served.status));
        }
        if !served.line.contains(served.certificate.short()) {
            differences.push("the edge's answer names another certificate".to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::certificate_summary::CertificateSummary;

    fn expected() -> Expected {
        Expected {
            sha256: "0123456789abcdef".to_owned(),
            condition: (State::Managed, Reason::SecretInjected),
            event: Some(Reason::CertificateInjected),
        }
    }

    fn reported(r#type: &str, reason: &str) -> Option<Reported> {
        Some(Reported { r#type: r#type.into(), reason: reason.into(), message: String::new() })
    }

    fn seen() -> Seen {
        let certificate = CertificateSummary {
            subject: "CN=shop".into(),
            issuer: "CN=ca".into(),
            serial: "1".into(),
            sha256: "0123456789abcdef".into(),
        };
        let line = format!("Route shop/shop (edge) | certificate {certificate}");
        Seen {
            served: Ok(Served { certificate, status: 200, line }),
            condition: reported("Managed", "SecretInjected"),
            event: reported("Normal", "CertificateInjected"),
        }
    }

    fn served(change: impl FnOnce(&mut Served)) -> Seen {
        let mut seen = seen();
        seen.served.as_mut().map(change).unwrap();
        seen
    }

    #[test]
    fn an_expected_observation_has_no_differences() {
        assert_eq!(expected().differences(&seen()), Vec::<String>::new());
        let nothing = Expected { event: None, ..expected() };
        assert!(nothing.differences(&Seen { event: None, ..seen() }).is_empty());
    }

    #[test]
    fn every_difference_is_reported() {
        let cases = [
            served(|it| it.certificate.sha256 = "0123456789abffff".into()),
            served(|it| it.status = 503),
            served(|it| it.line = "Route shop/shop (edge) | certificate of another".into()),
            Seen { served: Err("refused".into()), ..seen() },
            Seen { condition: None, ..seen() },
            Seen { condition: reported("Default", "SecretInjected"), ..seen() },
            Seen { condition: reported("Managed", "SecretNotFound"), ..seen() },
            Seen { event: None, ..seen() },
            Seen { event: reported("Normal", "CertificateUpdated"), ..seen() },
        ];
        for seen in cases {
            assert_eq!(expected().differences(&seen).len(), 1, "{seen:?}");
        }
        let unexpected = Expected { event: None, ..expected() };
        assert_eq!(unexpected.differences(&seen()), ["the newest Event should be none"]);
    }
}
