//! JSON patches as in Kubernetes' library, which differs from RFC 6902: `replace` creates missing
//! values, an absent value is null, and negative indices count from the end.

use serde::Deserialize;
use serde_json::Value;

use super::PatchError;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Operation {
    op: String,
    path: Option<String>,
    from: Option<String>,
    value: Value,
}

pub(super) fn apply(object: &mut Value, operations: &[Operation]) -> Result<(), PatchError> {
    operations.iter().try_for_each(|operation| operation.apply(object))
}

impl Operation {
    fn apply(&self, object: &mut Value) -> Result<(), PatchError> {
        match self.op.as_str() {
            "add" => add(object, self.path()?, self.value.clone()),
            "remove" => remove(object, self.path()?).map(drop),
            "replace" => self.replace(object),
            "move" => {
                let value = remove(object, self.from()?)?;
                add(object, self.path()?, value)
            }
            "copy" => {
                let value = get(object, self.from()?)?.cloned().unwrap_or_default();
                add(object, self.path()?, value)
            }
            "test" => self.test(object),
            other => Err(failed(format!("Unexpected kind: {other}"))),
        }
    }

    fn path(&self) -> Result<&str, PatchError> {
        self.path.as_deref().ok_or_else(|| failed("operation missing path field"))
    }

    fn from(&self) -> Result<&str, PatchError> {
        self.from.as_deref().ok_or_else(|| failed("operation missing from field"))
    }

    fn replace(&self, object: &mut Value) -> Result<(), PatchError> {
        let path = self.path()?;
        if path.is_empty() {
            *object = self.value.clone();
            return Ok(());
        }
        let (parent, key) = find(object, path)?;
        match parent {
            Value::Object(map) => {
                map.insert(key, self.value.clone());
            }
            Value::Array(list) => {
                let at = index(&key, list.len())?;
                *list.get_mut(at).ok_or_else(|| out_of_range(&key))? = self.value.clone();
            }
            _ => return Err(missing(path)),
        }
        Ok(())
    }

    fn test(&self, object: &mut Value) -> Result<(), PatchError> {
        let path = self.path()?;
        let found = match path {
            "" => Some(&*object),
            path => get(object, path)?,
        };
        if *found.unwrap_or(&Value::Null) == self.value {
            return Ok(());
        }
        Err(failed(format!("testing value {path} failed: test failed")))
    }
}

fn add(object: &mut Value, path: &str, value: Value) -> Result<(), PatchError> {
    let (parent, key) = find(object, path)?;
    match parent {
        Value::Object(map) => {
            map.insert(key, value);
        }
        Value::Array(list) if key == "-" => list.push(value),
        Value::Array(list) => {
            let at = index(&key, list.len() + 1)?;
            if at > list.len() {
                return Err(out_of_range(&key));
            }
            list.insert(at, value);
        }
        _ => return Err(missing(path)),
    }
    Ok(())
}

fn remove(object: &mut Value, path: &str) -> Result<Value, PatchError> {
    let (parent, key) = find(object, path)?;
    match parent {
        Value::Object(map) => map.remove(&key).ok_or_else(|| missing(path)),
        Value::Array(list) => {
            let at = index(&key, list.len())?;
            if at >= list.len() {
                return Err(out_of_range(&key));
            }
            Ok(list.remove(at))
        }
        _ => Err(missing(path)),
    }
}

fn get<'a>(object: &'a mut Value, path: &str) -> Result<Option<&'a Value>, PatchError> {
    let (parent, key) = find(object, path)?;
    match parent {
        Value::Object(map) => Ok(map.get(&key)),
        Value::Array(list) => {
            let at = index(&key, list.len())?;
            list.get(at).map(Some).ok_or_else(|| out_of_range(&key))
        }
        _ => Err(missing(path)),
    }
}

/// The parent of the value at the path, and the last step.
fn find<'a>(object: &'a mut Value, path: &str) -> Result<(&'a mut Value, String), PatchError> {
    let mut steps = path.split('/').skip(1).map(|step| step.replace("~1", "/").replace("~0", "~"));
    let mut key = steps.next().ok_or_else(|| missing(path))?;
    let mut parent = object;
    for next in steps {
        parent = match parent {
            Value::Object(map) => map.get_mut(&key).ok_or_else(|| missing(path))?,
            Value::Array(list) => {
                let at = index(&key, list.len())?;
                list.get_mut(at).ok_or_else(|| out_of_range(&key))?
            }
            _ => return Err(missing(path)),
        };
        key = next;
    }
    Ok((parent, key))
}

fn index(key: &str, length: usize) -> Result<usize, PatchError> {
    let at: i64 =
        key.parse().map_err(|_| failed(format!("value was not a proper array index: '{key}'")))?;
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    let at = if at < 0 { at + length } else { at };
    usize::try_from(at).map_err(|_| out_of_range(key))
}

fn failed(why: impl Into<String>) -> PatchError {
    PatchError::Operation(why.into())
}

fn missing(path: &str) -> PatchError {
    failed(format!("doc is missing path: {path:?}: missing value"))
}

fn out_of_range(key: &str) -> PatchError {
    failed(format!("Unable to access invalid index: {key}: invalid index referenced"))
}
