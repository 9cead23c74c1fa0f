//! What removing a cluster takes away.

use serde_json::{Value, json};

use super::{
    Action, Places, Side, Step,
    objects::{Object, is_ours},
};
use crate::review::decide::config::edit::{EditError, without_entry};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    pub config: Option<String>,
    pub has_credential: bool,
    /// What belongs there, with what is there; empty if nothing is removed there.
    pub objects: Vec<(Object, Option<Value>)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removal {
    Absent,
    /// Somebody else's.
    Foreign,
    /// With what has to hold at that moment, as the API server takes it.
    Delete(Value),
}

/// In the order in which it is done: first nothing asks the cluster any more, then nothing can.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The configuration without it; none if it has no such entry.
    pub config: Option<String>,
    pub credential: bool,
    pub objects: Vec<(Object, Removal)>,
}

pub fn plan(cluster: &str, facts: &Facts) -> Result<Plan, EditError> {
    let config = without_entry(facts.config.as_deref().unwrap_or_default(), cluster)?;
    let removals = facts.objects.iter().rev();
    let removals = removals.map(|(object, found)| (object.clone(), removal(found.as_ref())));
    Ok(Plan { config, credential: facts.has_credential, objects: removals.collect() })
}

fn removal(found: Option<&Value>) -> Removal {
    match found.map(|it| (it, &it["metadata"])) {
        None => Removal::Absent,
        Some((_, metadata)) if !metadata["deletionTimestamp"].is_null() => Removal::Absent,
        Some((found, _)) if !is_ours(found) => Removal::Foreign,
        Some((_, metadata)) => Removal::Delete(json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {
                "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"],
            },
        })),
    }
}

impl Plan {
    pub fn is_nothing(&self) -> bool {
        let has_removal =
            self.objects.iter().any(|(_, removal)| matches!(removal, Removal::Delete(_)));
        self.config.is_none() && !self.credential && !has_removal
    }

    pub fn steps(&self, places: &Places) -> Vec<Step> {
        let action = |is_there| if is_there { Action::Remove } else { Action::Nothing };
        let config = if self.config.is_some() { Action::Change } else { Action::Nothing };
        let mut steps = vec![
            Step::new(Side::Here, config, &places.config),
            Step::new(Side::Here, action(self.credential), &places.credential),
        ];
        steps.extend(self.objects.iter().map(|(object, removal)| {
            match removal {
                Removal::Absent => Step::new(Side::Remote, Action::Nothing, object),
                Removal::Foreign => Step::new(Side::Remote, Action::Nothing, object)
                    .note("it does not carry our label app.kubernetes.io/part-of=trustplane"),
                Removal::Delete(_) => Step::new(Side::Remote, Action::Remove, object),
            }
        }));
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::{super::objects::objects, *};

    const CONFIG: &str = "clusters:\n  a:\n    issuer: i\n  b:\n    issuer: i\n    \
                          api_server: https://b.test\n    token_path: /b\n";

    fn places() -> Places {
        Places { credential: "Secret s".into(), config: "ConfigMap c".into() }
    }

    fn found(object: &Object) -> Value {
        let mut found = object.content.clone();
        found["metadata"]["uid"] = json!("u");
        found["metadata"]["resourceVersion"] = json!("7");
        found
    }

    #[test]
    fn first_nothing_asks_the_cluster_any_more_and_then_nothing_can() {
        let objects = objects().unwrap().into_iter();
        let objects = objects.map(|it| (it.clone(), Some(found(&it)))).collect();
        let facts = Facts { config: Some(CONFIG.into()), has_credential: true, objects };
        let plan = plan("b", &facts).unwrap();
        let steps = plan.steps(&places());
        let shown: Vec<_> = steps.iter().map(|it| (it.action, it.object.as_str())).collect();
        assert_eq!(shown[0], (Action::Change, "ConfigMap c"));
        assert_eq!(shown[1], (Action::Remove, "Secret s"));
        assert_eq!(shown[2], (Action::Remove, "FlowSchema trustplane-review-remote"));
        assert_eq!(shown.last(), Some(&(Action::Remove, "Namespace trustplane-review")));
        assert_eq!(plan.config.as_deref(), Some("clusters:\n  a:\n    issuer: i\n"));
        let (_, Removal::Delete(options)) = &plan.objects[0] else { panic!("nothing is deleted") };
        assert_eq!(options["preconditions"], json!({ "uid": "u", "resourceVersion": "7" }));
    }

    #[test]
    fn what_is_not_ours_stays_and_what_is_gone_is_no_error() {
        let mut all = objects().unwrap().into_iter();
        let (namespace, account) = (all.next().unwrap(), all.next().unwrap());
        let mut foreign = found(&namespace);
        foreign["metadata"]["labels"] = json!({});
        let objects = vec![(namespace, Some(foreign)), (account, None)];
        let facts = Facts { config: None, has_credential: false, objects };
        let plan = plan("b", &facts).unwrap();
        assert!(plan.is_nothing());
        let steps = plan.steps(&places());
        assert!(steps.iter().all(|it| it.action == Action::Nothing), "{steps:?}");
        assert!(steps.last().unwrap().note.as_ref().is_some_and(|it| it.contains("our label")));
    }
}
