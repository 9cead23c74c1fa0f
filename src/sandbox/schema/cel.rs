//! The rules of `x-kubernetes-validations`, evaluated with the crate `cel`.

use std::{fmt, sync::Arc, sync::LazyLock};

use cel::{Context, Env, Program};
use serde_json::Value;

/// One rule about a value.
pub struct Rule {
    program: Program,
    /// What is told when it does not hold.
    pub message: String,
    /// Which field is to blame, below the one that the rule stands at; may be empty.
    pub field: String,
}

static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));

impl Rule {
    /// Reads the list of rules of a schema.
    pub(super) fn read_all(source: &Value) -> Result<Vec<Self>, String> {
        source.as_array().into_iter().flatten().map(Self::read).collect()
    }

    fn read(source: &Value) -> Result<Self, String> {
        let text = source["rule"].as_str().unwrap_or_default();
        let program = ENVIRONMENT.compile(text).map_err(|error| format!("{text}: {error}"))?;
        let message = match source["message"].as_str() {
            Some(message) => message.to_owned(),
            None => format!("failed rule: {text}"),
        };
        let field = source["fieldPath"].as_str().unwrap_or_default().to_owned();
        Ok(Self { program, message, field })
    }

    /// Whether the rule holds. One that can't be evaluated does not, as in Kubernetes.
    pub fn holds(&self, value: &Value) -> Result<bool, String> {
        let mut context = Context::with_env(ENVIRONMENT.clone());
        let value = cel::to_value(value).map_err(|error| error.to_string())?;
        context.add_variable_from_value("self", value);
        match self.program.execute(&context) {
            Ok(cel::Value::Bool(holds)) => Ok(holds),
            Ok(_) => Err("the rule gives no bool".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rule({})", self.message)
    }
}
