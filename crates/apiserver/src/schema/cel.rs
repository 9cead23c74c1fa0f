//! The rules of `x-kubernetes-validations`, evaluated with the crate `cel`.

mod functions;

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, LazyLock},
};

use cel::{
    Context, Env, Program,
    common::{
        types::{CelBool, CelDouble, CelInt, CelList, CelMap, CelNull, CelString},
        value::Val,
    },
};
use serde_json::Value;

/// One rule.
pub struct Rule {
    program: Program,
    /// The message if the rule does not hold.
    pub message: String,
    /// Path of the blamed field, relative to the rule's field; may be empty.
    pub field: String,
    /// Whether it uses `oldSelf`.
    transition: bool,
}

static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut environment = Env::stdlib();
    // Fails only for duplicates.
    let _ = environment.add_extension(cel::extensions::strings);
    let _ = environment.add_extension(functions::register);
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
        let transition = program.references().has_variable("oldSelf");
        Ok(Self { program, message, field, transition })
    }

    /// The violated rules, with the error of those that can't be evaluated. Transition rules are
    /// skipped without an old value.
    pub(super) fn broken<'a>(
        rules: &'a [Self],
        value: &Value,
        before: Option<&Value>,
    ) -> Vec<(&'a Self, Option<String>)> {
        if rules.is_empty() {
            return Vec::new();
        }
        let mut context = Context::with_env(ENVIRONMENT.clone());
        context.add_variable_as_val("self", seen(value));
        if let Some(before) = before {
            context.add_variable_as_val("oldSelf", seen(before));
        }
        let outcome = |rule: &'a Self| match rule.holds(&context) {
            Ok(true) => None,
            Ok(false) => Some((rule, None)),
            Err(why) => Some((rule, Some(why))),
        };
        let asked = rules.iter().filter(|rule| before.is_some() || !rule.transition);
        asked.filter_map(outcome).collect()
    }

    fn holds(&self, context: &Context<'_, '_>) -> Result<bool, String> {
        match self.program.execute(context) {
            Ok(cel::Value::Bool(holds)) => Ok(holds),
            Ok(_) => Err("the rule gives no bool".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Converts to a CEL value. Strings are not copied, because they may be long and hold keys.
fn seen(value: &Value) -> Box<dyn Val + '_> {
    match value {
        Value::Null => Box::new(CelNull),
        Value::Bool(flag) => Box::new(CelBool::from(*flag)),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => Box::new(CelInt::from(whole)),
            None => Box::new(CelDouble::from(number.as_f64().unwrap_or(f64::NAN))),
        },
        Value::String(text) => Box::new(CelString::from(text.as_str())),
        Value::Array(list) => Box::new(CelList::from(list.iter().map(seen).collect::<Vec<_>>())),
        Value::Object(map) => {
            let fields = map.iter().map(|(name, value)| (name.as_str().into(), seen(value)));
            Box::new(CelMap::from(fields.collect::<HashMap<_, _>>()))
        }
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rule({})", self.message)
    }
}
