//! The audit line of each review, and its figures.

use std::sync::Arc;

use serde::Serialize;

use super::{
    decide::{request::Answer, status::Failure},
    metrics::Metrics,
    reviewer::Reviewed,
    serve::{Audit, Record},
};
use crate::runtime::{audit_log::AuditLog, clock::Clock};

/// Has no token, and nothing that a token was made from.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    event: &'static str,
    time: String,
    audit_id: &'a str,
    caller: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    credential_id: Option<&'a str>,
    audiences: &'a [String],
    verdict: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

pub struct AuditTrail {
    log: Arc<AuditLog>,
    metrics: Arc<Metrics>,
    clock: Clock,
}

impl AuditTrail {
    pub fn new(log: Arc<AuditLog>, metrics: Arc<Metrics>, clock: Clock) -> Self {
        Self { log, metrics, clock }
    }

    fn line<'a>(&self, record: &Record<'a>) -> Line<'a> {
        let reviewed = record.outcome.ok();
        // Who a refused token names is noted only if its cluster's key signed it.
        let identity = reviewed.and_then(|it| it.identity.as_ref());
        Line {
            event: "review",
            time: self.clock.now().to_rfc3339_opts(chrono::SecondsFormat::Millis, true),
            audit_id: record.id,
            caller: record.caller,
            cluster: reviewed.and_then(|it| it.cluster.as_deref()),
            user: identity.map(|it| it.username()),
            credential_id: identity.and_then(|it| it.credential_id.as_deref()),
            audiences: record.audiences,
            verdict: verdict(record.outcome),
            reason: match record.outcome {
                Ok(reviewed) => reviewed.refused.as_ref().map(ToString::to_string),
                Err(failure) => Some(failure.message.clone()),
            },
        }
    }
}

fn verdict(outcome: Result<&Reviewed, &Failure>) -> &'static str {
    match outcome {
        Ok(Reviewed { answer: Answer::Authenticated(_), .. }) => "authenticated",
        Ok(_) => "refused",
        Err(_) => "unanswered",
    }
}

impl Audit for AuditTrail {
    fn record(&self, record: Record<'_>) {
        self.metrics.reviewed(record.outcome, record.took);
        if let Err(error) = self.log.write(&self.line(&record)) {
            tracing::error!(%error, audit_id = record.id, "an audit record could not be written");
            self.metrics.audit_failed();
        }
    }

    fn caller_refused(&self, failure: &Failure) {
        self.metrics.caller_refused(failure);
    }
}

#[cfg(test)]
mod tests {
    use std::{io, sync::Mutex, time::Duration};

    use prometheus_client::registry::Registry;
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        review::{
            decide::testing::{Issuer, claims, noon},
            reviewer::{Asked, Purpose},
            testing::Stage,
        },
        runtime::lock::lock,
    };

    #[derive(Clone, Default)]
    struct Output(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Output {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            lock(&self.0).extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_says_who_asked_about_whom_and_has_no_token() {
        let stage = Stage::start().await;
        let (output, mut registry) = (Output::default(), Registry::default());
        let metrics = Metrics::register(&mut registry);
        let log = Arc::new(AuditLog::to(Box::new(output.clone())));
        let trail = AuditTrail::new(log, metrics, Clock::from_fn(noon));
        let forged = Issuer::p256("a").token(&claims());
        let good = stage.of_a.token(&claims());
        for token in [&good, &forged] {
            let asked = Asked {
                token,
                audiences: &["shop".to_owned()],
                audit_id: None,
                deadline: tokio::time::Instant::now() + Duration::from_secs(10),
                purpose: Purpose::Review,
                among: None,
            };
            let reviewed = stage.reviewer.review(asked).await.ok().unwrap();
            trail.record(Record {
                id: "4711",
                caller: "a/shop/door",
                audiences: &["shop".to_owned()],
                outcome: Ok(&reviewed),
                took: Duration::from_millis(3),
            });
        }
        let failure = Failure::unavailable("cluster a could not be asked about the token");
        let outcome = Err(&failure);
        let took = Duration::ZERO;
        trail.record(Record { id: "4712", caller: "c", audiences: &[], outcome, took });
        let text = String::from_utf8(lock(&output.0).clone()).unwrap();
        let lines: Vec<Value> = text.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
        assert_eq!(
            lines[0],
            json!({
                "event": "review", "time": "2030-03-17T17:46:40.000Z", "auditId": "4711",
                "caller": "a/shop/door", "cluster": "a", "user": "system:serviceaccount:shop:cart",
                "credentialId": "JTI=t-1", "audiences": ["shop"], "verdict": "authenticated",
            })
        );
        assert_eq!(lines[1]["verdict"], "refused");
        assert_eq!(lines[1]["reason"], "no cluster publishes its key");
        assert!(lines[1]["user"].is_null(), "nobody vouches for the name");
        assert_eq!(lines[2]["verdict"], "unanswered");
        for part in good.split('.').chain(forged.split('.')) {
            assert!(!text.contains(part));
        }
    }
}
