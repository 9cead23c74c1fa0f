//! Which kinds there are, for clients that do not know.

use http::request::Parts;
use serde_json::{Value, json};

use super::answer::Answer;
use crate::sandbox::refusal::Refusal;

/// `/version`.
pub(super) fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "gitVersion": "v1.36.3+trustplane-sandbox",
        "gitCommit": "", "gitTreeState": "", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "", "compiler": "", "platform": "linux/amd64",
    })
}

pub(super) fn serve(_path: &[String], _parts: &Parts) -> Result<Answer, Refusal> {
    Err(Refusal::no_such_path())
}
