//! Leases.

use serde_json::Value;

use super::remove;
use crate::api_error::Cause;

/// Coordinated leader election is off, as in Kubernetes by default.
pub(super) fn prepare(object: &mut Value) {
    remove(&mut object["spec"], "strategy");
    remove(&mut object["spec"], "preferredHolder");
}

pub(super) fn validate(object: &Value) -> Vec<Cause> {
    let limits = [
        ("leaseDurationSeconds", 1, "must be greater than 0"),
        ("leaseTransitions", 0, "must be greater than or equal to 0"),
    ];
    let broken = limits.iter().filter_map(|(field, least, why)| {
        let number = object["spec"][*field].as_i64().filter(|number| number < least)?;
        Some(Cause::invalid(format!("spec.{field}"), &number.to_string(), why))
    });
    broken.collect()
}
