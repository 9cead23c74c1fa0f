//! The audit log of the tour, in memory.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
};

use serde_json::Value;

use crate::runtime::lock::lock;

/// Clones share their lines.
#[derive(Clone, Debug, Default)]
pub struct AuditTrail(Arc<Mutex<Vec<u8>>>);

impl AuditTrail {
    /// The last complete record.
    pub fn newest(&self) -> Option<Value> {
        self.newest_of(|_| true)
    }

    /// The last complete record of this event.
    pub fn newest_of_event(&self, event: &str) -> Option<Value> {
        self.newest_of(|it| it["event"] == event)
    }

    fn newest_of(&self, is_meant: impl Fn(&Value) -> bool) -> Option<Value> {
        let written = lock(&self.0);
        let complete = &written[..written.iter().rposition(|&byte| byte == b'\n')?];
        let lines = complete.rsplit(|&byte| byte == b'\n');
        lines.filter_map(|line| serde_json::from_slice(line).ok()).find(is_meant)
    }
}

impl Write for AuditTrail {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        lock(&self.0).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_newest_record_is_the_last_line_that_is_complete() {
        let trail = AuditTrail::default();
        assert_eq!(trail.newest(), None);
        trail.clone().write_all(b"{\"event\":\"one\"}\n{\"event\":\"two\"}\n{\"ev").unwrap();
        assert_eq!(trail.newest(), Some(json!({ "event": "two" })));
        assert_eq!(trail.newest_of_event("one"), Some(json!({ "event": "one" })));
        assert_eq!(trail.newest_of_event("three"), None);
    }
}
