//! Times that can't overflow.

use chrono::{DateTime, TimeDelta, Utc};

/// The last second that the API can write.
const END: i64 = 253_402_300_799;

pub(super) fn after(start: DateTime<Utc>, wait: TimeDelta) -> DateTime<Utc> {
    let end = DateTime::from_timestamp(END, 0).unwrap_or(DateTime::<Utc>::MAX_UTC);
    start.checked_add_signed(wait).map_or(end, |then| then.min(end))
}
