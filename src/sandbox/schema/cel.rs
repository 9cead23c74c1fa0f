//! The rules of `x-kubernetes-validations`, evaluated with the crate `cel`.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, LazyLock},
};

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

static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut environment = Env::stdlib();
    // It fails only where it was added before.
    let _ = environment.add_extension(cel::extensions::strings);
    Arc::new(environment)
});

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

    /// The rules that do not hold for a value, with the reason of those that can't be evaluated.
    pub(super) fn broken<'a>(rules: &'a [Self], value: &Value) -> Vec<(&'a Self, Option<String>)> {
        if rules.is_empty() {
            return Vec::new();
        }
        let mut context = Context::with_env(ENVIRONMENT.clone());
        context.add_variable_from_value("self", converted(value));
        let outcome = |rule: &'a Self| match rule.holds(&context) {
            Ok(true) => None,
            Ok(false) => Some((rule, None)),
            Err(why) => Some((rule, Some(why))),
        };
        rules.iter().filter_map(outcome).collect()
    }

    fn holds(&self, context: &Context<'_, '_>) -> Result<bool, String> {
        match self.program.execute(context) {
            Ok(cel::Value::Bool(holds)) => Ok(holds),
            Ok(_) => Err("the rule gives no bool".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}

fn converted(value: &Value) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(flag) => cel::Value::Bool(*flag),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => cel::Value::Int(whole),
            None => cel::Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => text.as_str().into(),
        Value::Array(list) => list.iter().map(converted).collect::<Vec<_>>().into(),
        Value::Object(map) => {
            let entries = map.iter().map(|(name, value)| (name.clone(), converted(value)));
            entries.collect::<HashMap<String, cel::Value>>().into()
        }
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rule({})", self.message)
    }
}
