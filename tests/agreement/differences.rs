//! Where the sandbox is known to differ from a real API server, and why it may.
//!
//! At most ten, and none on what the controllers do: get, list, watch and merge patch of Routes; get,
//! list and watch of Secrets; create, get and patch of Events; get, create and update of Leases.

use serde_json::Value;

use crate::call::Call;
use crate::side::Answer;

/// A known difference.
pub struct Known {
    pub name: &'static str,
    pub why: &'static str,
    /// Whether it explains why these two answers differ.
    pub explains: fn(&Call, &Answer, &Answer) -> bool,
}

pub const KNOWN: &[Known] = &[Known {
    name: "formats",
    why: "The sandbox speaks JSON only and says so, where the real server names YAML and protobuf too.",
    explains: |_, left, right| left.code == 406 && right.code == 406,
}];

/// The known difference that explains why two answers are not the same.
pub fn known(call: &Call, left: &Answer, right: &Answer) -> Option<&'static str> {
    KNOWN.iter().find(|known| (known.explains)(call, left, right)).map(|known| known.name)
}

/// The same for the events of two watches.
pub fn known_events(_call: &Call, _left: &Value, _right: &Value) -> Option<&'static str> {
    None
}
