//! Bounds the reviews of each caller that are under way, so that one who floods leaves room for the others.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use super::Failure;
use crate::runtime::lock::lock;

/// Half of what one cluster is asked at the same time.
const MOST: usize = 50;

/// By the caller's name. Callers without a request under way take no room.
#[derive(Clone, Default)]
pub(super) struct CallerLimit(Arc<Mutex<HashMap<String, usize>>>);

/// Held while a request is under way.
pub(super) struct UnderWay {
    callers: CallerLimit,
    name: String,
}

impl CallerLimit {
    pub(super) fn enter(&self, name: &str) -> Result<UnderWay, Failure> {
        let mut all = lock(&self.0);
        let count = all.entry(name.to_owned()).or_default();
        if *count >= MOST {
            let message = format!("{MOST} reviews of this caller are under way");
            return Err(Failure::too_many_requests(message));
        }
        *count += 1;
        Ok(UnderWay { callers: self.clone(), name: name.to_owned() })
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut all = lock(&self.callers.0);
        if let Some(count) = all.get_mut(&self.name) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_that_floods_leaves_room_for_the_others() {
        let limit = CallerLimit::default();
        let mut held: Vec<_> = (0..MOST).map(|_| limit.enter("flood").ok()).collect();
        assert_eq!(limit.enter("flood").err().map(|it| it.code), Some(429));
        assert!(limit.enter("calm").is_ok());
        held.pop();
        assert!(limit.enter("flood").is_ok());
        drop(held);
        assert!(lock(&limit.0).is_empty());
    }
}
