//! The validity of certificates and tokens.
//!
//! `spire-server validate` accepts values that `run` then fails with, such as a CA of a microsecond. Within
//! these bounds the server starts.

use super::{Problem, pattern::pattern};
use crate::api::spire_server::SpireServerSpec;

pattern!(
    /// Few enough digits that no sum exceeds Go's longest duration.
    FORM,
    r"^([0-9]{1,6}(\.[0-9]{1,3})?h)?([0-9]{1,7}(\.[0-9]{1,3})?m)?([0-9]{1,9}(\.[0-9]{1,3})?s)?$"
);

/// The bounds of a field, in minutes and in words.
pub struct Bounds {
    pub field: &'static str,
    pub minutes: (u64, u64),
    pub words: (&'static str, &'static str),
}

pub const CA: Bounds = Bounds {
    field: "caValidity",
    minutes: (10, 87_600 * 60),
    words: ("10m", "87600h (ten years)"),
};
pub const X509: Bounds = Bounds {
    field: "defaultX509Validity",
    minutes: (1, 8_760 * 60),
    words: ("1m", "8760h (a year)"),
};
pub const JWT: Bounds = Bounds { field: "defaultJWTValidity", ..X509 };

pub fn problems(spec: &SpireServerSpec) -> impl Iterator<Item = Problem> {
    let fields = [
        (CA, &spec.ca_validity),
        (X509, &spec.default_x509_validity),
        (JWT, &spec.default_jwt_validity),
    ];
    fields.into_iter().filter_map(|(bounds, text)| bounds.problem(text))
}

impl Bounds {
    fn problem(&self, text: &str) -> Option<Problem> {
        let (least, most) = self.minutes;
        let within = (least * 60_000..=most * 60_000).contains(&milliseconds(text).unwrap_or(0));
        let why = || Problem::new(format!("spec.{}", self.field), self.says());
        (!within).then(why)
    }

    pub fn says(&self) -> String {
        let (least, most) = self.words;
        format!(
            "write a duration from {least} to {most}, with h, m and s in this order, \
             such as 24h or 1h30m"
        )
    }
}

/// None if it has another form.
fn milliseconds(text: &str) -> Option<u64> {
    if !FORM.accepts(text) {
        return None;
    }
    let mut sum = 0;
    for part in text.split_inclusive(['h', 'm', 's']) {
        let (number, unit) = part.split_at(part.len() - 1);
        let unit = match unit {
            "h" => 3600,
            "m" => 60,
            _ => 1,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        // At most three digits: thousandths of seconds, minutes or hours.
        let thousandths: u64 = format!("{whole}{fraction:0<3}").parse().ok()?;
        sum += thousandths * unit;
    }
    Some(sum)
}
