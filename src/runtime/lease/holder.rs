//! Reads who holds a Lease, for commands that do not compete for it.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::{Api, Client};

use super::{DURATION, PERIOD};
use crate::{
    k8s::api_error::{self, ApiError},
    runtime::clock::Clock,
};

/// A live holder renews at least once in this time.
const RENEWAL_WAIT: Duration = PERIOD.saturating_mul(2);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    NoLease,
    Released,
    Alive {
        identity: String,
    },
    /// The last holder has not renewed it for longer than it lasts.
    Gone {
        identity: String,
        /// By the holder's clock.
        renewed: Option<DateTime<Utc>>,
    },
}

/// If the last renewal does not look recent, waits for another one: the holder's clock and ours may
/// differ.
pub async fn read(
    client: &Client,
    namespace: &str,
    name: &str,
    clock: &Clock,
) -> Result<Holder, ApiError> {
    let api: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let Some(first) = api_error::with_timeout(api.get_opt(name)).await? else {
        return Ok(Holder::NoLease);
    };
    match judge(&first, clock.now()) {
        Holder::Gone { identity, renewed } => {
            tokio::time::sleep(RENEWAL_WAIT).await;
            let again = api_error::with_timeout(api.get_opt(name)).await?;
            let version = |lease: &Lease| lease.metadata.resource_version.clone();
            let moved = again.is_some_and(|again| version(&again) != version(&first));
            Ok(if moved { Holder::Alive { identity } } else { Holder::Gone { identity, renewed } })
        }
        holder => Ok(holder),
    }
}

fn judge(lease: &Lease, now: DateTime<Utc>) -> Holder {
    let spec = lease.spec.clone().unwrap_or_default();
    let renewed = renewed(&spec);
    let lasts = TimeDelta::from_std(DURATION).unwrap_or(TimeDelta::MAX);
    match spec.holder_identity {
        None => Holder::Released,
        Some(identity) if identity.is_empty() => Holder::Released,
        Some(identity) if renewed.is_some_and(|then| (now - then).abs() < lasts) => {
            Holder::Alive { identity }
        }
        Some(identity) => Holder::Gone { identity, renewed },
    }
}

fn renewed(spec: &LeaseSpec) -> Option<DateTime<Utc>> {
    let time = spec.renew_time.as_ref()?.0;
    DateTime::from_timestamp_micros(time.as_microsecond())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn noon() -> DateTime<Utc> {
        "2026-03-01T12:00:00Z".parse().unwrap()
    }

    fn lease(holder: &str, renewed: &str) -> Lease {
        let spec = json!({ "holderIdentity": holder, "renewTime": renewed });
        serde_json::from_value(json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {}, "spec": spec,
        }))
        .unwrap()
    }

    #[test]
    fn a_holder_counts_as_alive_while_its_last_renewal_is_recent() {
        let identity = || "pod-1".to_owned();
        for time in ["2026-03-01T11:59:46.000000Z", "2026-03-01T12:00:14.000000Z"] {
            let held = judge(&lease("pod-1", time), noon());
            assert_eq!(held, Holder::Alive { identity: identity() }, "{time}");
        }
        for time in ["2026-03-01T11:59:45.000000Z", "2026-03-01T13:00:00.000000Z"] {
            let held = judge(&lease("pod-1", time), noon());
            assert!(matches!(held, Holder::Gone { .. }), "{time}: {held:?}");
        }
    }

    #[test]
    fn a_lease_without_a_holder_was_released() {
        let held = judge(&lease("", "2026-03-01T12:00:00.000000Z"), noon());
        assert_eq!(held, Holder::Released);
        assert_eq!(judge(&Lease::default(), noon()), Holder::Released);
    }
}
