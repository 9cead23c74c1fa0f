//! What `trustplane federate` would do, once, for a person to read. Nothing is written.

mod diff;

use std::{fmt, sync::Arc};

use kube::{Api, Client};
use serde_json::{Value, json};

use crate::{
    api::{
        federated_trust_domain::FederatedTrustDomain,
        spire_server::{self, SpireServer},
    },
    federate::{
        act::{
            apply::{Comparison, Mode, Writer, resource},
            apps_domain, effective, references,
        },
        decide::{
            conditions::{self, ApplyResult, ConditionValue, Findings, Operation},
            merge,
            render::{self, Component, RenderContext, Rendered},
            trust,
        },
    },
    k8s::api_error::{self, ApiError},
    runtime::printable,
};

#[derive(Debug, thiserror::Error)]
#[error("{what} could not be read: {error}")]
pub struct Unread {
    what: &'static str,
    error: ApiError,
}

#[derive(Clone, Debug, PartialEq)]
enum Action {
    Create,
    Change,
    Keep,
    Leave(String),
    /// Reading it failed.
    Fail(String),
}

impl Action {
    fn word(&self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Change => "change",
            Self::Keep => "keep",
            Self::Leave(_) => "leave",
            Self::Fail(_) => "fail",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Shown {
    /// As `ConfigMap spire/spire-server`.
    name: String,
    action: Action,
    /// Lines that begin with `+`, `-` or a space.
    diff: Vec<String>,
}

#[derive(Debug)]
pub struct Preview {
    server: String,
    objects: Vec<Shown>,
    conditions: Vec<ConditionValue>,
}

/// None if there is no SpireServer.
pub async fn preview(
    client: &Client,
    setting: &RenderContext,
    max_peers: usize,
) -> Result<Option<Preview>, Unread> {
    let unread = |what: &'static str| move |error: ApiError| Unread { what, error };
    let api: Api<SpireServer> = Api::all(client.clone());
    let server = api_error::with_timeout(api.get_opt(spire_server::NAME)).await;
    let server = server.map_err(unread("the SpireServer"))?;
    let Some(server) = server.filter(|it| it.metadata.deletion_timestamp.is_none()) else {
        return Ok(None);
    };
    let api: Api<FederatedTrustDomain> = Api::all(client.clone());
    let domains = match api_error::with_timeout(api.list(&Default::default())).await {
        // The CRD is not installed.
        Err(ApiError::NotFound) => Vec::new(),
        listed => listed.map_err(unread("the ClusterFederatedTrustDomains"))?.items,
    };
    let by_name = |it: FederatedTrustDomain| (it.metadata.name.clone().unwrap_or_default(), it);
    let federated = trust::federated(&domains.into_iter().map(by_name).collect());
    let effective =
        effective::effective(client, &setting.namespace, server, &federated, max_peers).await;
    let effective = effective.map_err(unread("the last valid spec"))?;
    let server = &effective.server;
    let federation = server.spec.federation.as_ref();
    let setting = apps_domain::completed(setting, federation, client).await;
    let setting = setting.map_err(unread("the kind of cluster"))?;
    let mut findings = Findings {
        problems: effective.problems.clone(),
        unlisted: effective.unlisted.clone(),
        host: federation.and_then(|it| render::host(it, &setting)),
        ..Findings::default()
    };
    match references::problems(client, &setting.namespace, federation).await {
        Ok(problems) => findings.references = problems,
        Err(unread) => findings.unread = Some(unread),
    }
    let writer = Writer::new(client.clone(), Arc::new(setting.clone()), Mode::CreateOnly);
    let owner = server.metadata.uid.as_deref().unwrap_or_default();
    let rendered = if effective.can_render { render::render(server, &setting) } else { Vec::new() };
    let mut objects = Vec::new();
    for rendered in rendered {
        let compared = writer.compare(&rendered, owner).await;
        let (shown, outcome) = judge(&rendered, compared);
        objects.push(shown);
        findings.outcomes.push((rendered.part, outcome));
    }
    let conditions = conditions::evaluate(server, &findings);
    let server = format!("SpireServer cluster, trust domain {}", server.spec.trust_domain);
    Ok(Some(Preview { server, objects, conditions }))
}

fn judge(rendered: &Rendered, compared: Result<Comparison, ApiError>) -> (Shown, ApplyResult) {
    let object = &rendered.object;
    let (action, diff, outcome) = match compared {
        Ok(Comparison::Missing) => {
            let lines = diff::between(&Value::Null, object);
            (Action::Create, lines, ApplyResult::Created)
        }
        Ok(Comparison::Same(live)) => (Action::Keep, Vec::new(), ApplyResult::InPlace(live)),
        Ok(Comparison::Differs { live, patch }) => {
            let after = merge::patched(&live, &patch);
            let (lines, fields) = (diff::between(&live, &after), merge::named(&patch));
            // Only our own bookkeeping annotations would change.
            let action = if lines.is_empty() { Action::Keep } else { Action::Change };
            (action, lines, ApplyResult::Updated(fields, after))
        }
        Ok(Comparison::Taken(owner)) => {
            let why = format!("it belongs to {owner}");
            (Action::Leave(why), Vec::new(), ApplyResult::Taken(owner))
        }
        Ok(Comparison::Deleting) => {
            let why = "it is being deleted, and would be made again then".to_owned();
            let outcome = ApplyResult::Failed(Operation::Update, ApiError::Conflict);
            (Action::Leave(why), Vec::new(), outcome)
        }
        Err(error) => {
            let why = error.to_string();
            (Action::Fail(why), Vec::new(), ApplyResult::Failed(Operation::Read, error))
        }
    };
    (Shown { name: name(rendered.part, object), action, diff }, outcome)
}

fn name(part: Component, object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    let namespace = match text("namespace") {
        "" => String::new(),
        namespace => format!("{namespace}/"),
    };
    format!("{} {namespace}{}", resource(part).kind, text("name"))
}

impl Preview {
    /// Whether every object could be read.
    pub fn is_complete(&self) -> bool {
        !self.objects.iter().any(|it| matches!(it.action, Action::Fail(_)))
    }

    /// The preview as JSON.
    pub fn document(&self) -> String {
        let object = |it: &Shown| {
            let why = match &it.action {
                Action::Leave(why) | Action::Fail(why) => Some(why),
                _ => None,
            };
            json!({ "object": it.name, "action": it.action.word(), "why": why, "diff": it.diff })
        };
        let condition = |it: &ConditionValue| json!({ "type": it.about, "status": it.status, "reason": it.reason, "message": it.message });
        let document = json!({
            "objects": self.objects.iter().map(object).collect::<Vec<_>>(),
            "conditions": self.conditions.iter().map(condition).collect::<Vec<_>>(),
        });
        printable::json(&format!("{document:#}\n"))
    }

    fn count(&self, action: &Action) -> usize {
        self.objects.iter().filter(|it| it.action == *action).count()
    }
}

impl fmt::Display for Preview {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", printable::printable(&self.server))?;
        for Shown { name, action, diff } in &self.objects {
            let name = printable::printable(name);
            match action {
                Action::Create => writeln!(f, "+ {name} would be created")?,
                Action::Change => writeln!(f, "~ {name} would be changed")?,
                Action::Keep => writeln!(f, "= {name} stays as it is")?,
                Action::Leave(why) => {
                    writeln!(f, "! {name} would be left alone: {}", printable::printable(why))?;
                }
                Action::Fail(why) => {
                    writeln!(f, "! {name} could not be read: {}", printable::printable(why))?;
                }
            }
            for line in diff {
                writeln!(f, "    {}", printable::printable(line))?;
            }
        }
        writeln!(f, "\nConditions that would result, but for those that only time can tell:")?;
        for ConditionValue { about, status, reason, message } in &self.conditions {
            writeln!(f, "  {about:<26} {status:<8} {reason}")?;
            for line in printable::lines(message).lines() {
                writeln!(f, "      {line}")?;
            }
        }
        let (created, changed) = (self.count(&Action::Create), self.count(&Action::Change));
        match (created, changed) {
            (0, 0) => writeln!(f, "\nNothing was changed, and nothing would be."),
            _ => writeln!(
                f,
                "\nNothing was changed. Objects that would be created: {created}, changed: {changed}."
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::federate::decide::render::tests::{self, server, spiffe};

    fn rendered(part: Component, server: &SpireServer) -> Rendered {
        Rendered { part, object: tests::part(server, part) }
    }

    fn lines(text: &str, part: Component, live: Comparison, server: &SpireServer) -> bool {
        let (shown, _) = judge(&rendered(part, server), Ok(live));
        shown.diff.iter().any(|line| line.contains(text))
    }

    #[test]
    fn an_object_that_is_missing_is_shown_whole_and_one_that_differs_by_its_difference() {
        let server = server(spiffe());
        let (created, outcome) =
            judge(&rendered(Component::Route, &server), Ok(Comparison::Missing));
        assert_eq!(created.name, "Route spire/spire-server-federation");
        assert_eq!((created.action, outcome), (Action::Create, ApplyResult::Created));
        assert!(created.diff.iter().all(|line| line.starts_with("+ ")), "{:#?}", created.diff);

        let wanted = rendered(Component::Route, &server);
        let mut live = merge::creation(&wanted.object);
        live["spec"]["host"] = json!("other.test");
        let patch = merge::patch(&live, &wanted.object).unwrap();
        let (changed, _) = judge(&wanted, Ok(Comparison::Differs { live, patch }));
        let changes: Vec<_> = changed.diff.iter().filter(|it| !it.starts_with(' ')).collect();
        assert_eq!(
            changes,
            ["-   host: other.test", "+   host: spire-server-federation-spire.apps.example.com",]
        );
    }

    #[test]
    fn how_to_reach_the_database_is_shown_to_nobody() {
        const PASSWORD: &str = "s3cret-of-the-database";
        let mut server = server(spiffe());
        let secret = json!(format!("postgres://u:{PASSWORD}@db/spire"));
        server.spec.datastore.connection_string = serde_json::from_value(secret).unwrap();
        let part = Component::ServerConfigMap;
        assert!(!lines(PASSWORD, part, Comparison::Missing, &server));
        assert!(lines("connection_string\": \"(hidden)", part, Comparison::Missing, &server));

        let wanted = rendered(part, &server).object;
        for conf in ["{}", "not JSON: connection_string = s3cret-of-the-database"] {
            let mut live = merge::creation(&wanted);
            live["data"]["server.conf"] = json!(conf);
            let patch = merge::patch(&live, &wanted).unwrap();
            let differs = Comparison::Differs { live, patch };
            assert!(!lines(PASSWORD, part, differs, &server), "{conf}");
        }
        let mut other = server.clone();
        other.spec.datastore.connection_string =
            serde_json::from_value(json!("postgres://u:another@db/spire")).unwrap();
        let live = merge::creation(&rendered(part, &other).object);
        let patch = merge::patch(&live, &wanted).unwrap();
        let (shown, _) = judge(&rendered(part, &server), Ok(Comparison::Differs { live, patch }));
        let changes: Vec<_> = shown.diff.iter().filter(|it| it.starts_with('+')).collect();
        assert!(changes[0].contains("(hidden, another)"), "that it changes is said: {changes:?}");
        assert_eq!(changes.len(), 1, "{changes:?}");
    }
}
