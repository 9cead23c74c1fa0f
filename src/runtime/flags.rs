//! How flags of every command are read.

use std::time::Duration;

pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|_| "write it like 500ms, 5s or 10m".to_owned())
}

pub(crate) fn at_least_a_second(text: &str) -> Result<Duration, String> {
    let duration = duration(text)?;
    if duration < Duration::from_secs(1) {
        return Err("must be at least 1s".to_owned());
    }
    Ok(duration)
}
