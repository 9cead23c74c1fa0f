//! Times as people say them.

use chrono::{DateTime, TimeDelta, Utc};

/// Such as `in 4m` or `2h ago`.
pub(super) fn relative(at: DateTime<Utc>, now: DateTime<Utc>) -> String {
    let short = |span: TimeDelta| match span.num_seconds() {
        seconds @ ..=119 => format!("{}s", seconds.max(0)),
        seconds @ 120..=7199 => format!("{}m", seconds / 60),
        seconds @ 7200..=172_799 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    };
    match at > now {
        true => format!("in {}", short(at - now)),
        false => format!("{} ago", short(now - at)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_as_people_say_them() {
        let now = "2030-06-15T12:00:00Z".parse().unwrap();
        let shown = |seconds| relative(now + TimeDelta::seconds(seconds), now);
        assert_eq!(
            [shown(90), shown(300), shown(86_400), shown(864_000)],
            ["in 90s", "in 5m", "in 24h", "in 10d"]
        );
        assert_eq!([shown(-1), shown(-7200)], ["1s ago", "2h ago"]);
    }
}
