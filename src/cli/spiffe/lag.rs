//! Whether what is published of our CAs lags behind. The state itself is in a Secret with keys, which no
//! command reads, so this is told from what should have been published by now.

use chrono::{DateTime, TimeDelta, Utc};
use kube::{Api, Client};

use super::Published;
use crate::{
    api::config_map::ConfigMap,
    authority::{act::apply, decide::ca::Requests},
    cli::relative::relative,
    k8s::api_error,
    names::{BUNDLE_CONFIG_MAP, REQUESTS_CONFIG_MAP},
    runtime::printable::printable,
};

/// The leader looks every 10 seconds, and a new one is found within a minute.
const USUAL: TimeDelta = TimeDelta::minutes(2);

/// What is asked for; nothing for a user who may not see it.
pub(super) async fn requests(client: &Client, namespace: &str) -> Requests {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let found = api_error::with_timeout(api.get_opt(REQUESTS_CONFIG_MAP)).await;
    found.ok().flatten().map(|it| apply::requests(&it)).unwrap_or_default()
}

/// What is not as it should be, in sentences.
pub(super) fn lags(published: &Published, asked: &Requests, now: DateTime<Utc>) -> Vec<String> {
    let Published { state, document } = published;
    let mut lags = Vec::new();
    let due = state.change_due();
    if due < now - USUAL {
        lags.push(format!("the next change of our CAs was due {}", relative(due, now)));
    }
    let is_open =
        |asked: &Option<String>, handled: &Option<String>| asked.is_some() && asked != handled;
    if is_open(&asked.rotate, &state.handled.rotate) {
        let when = asked.rotate.as_deref().unwrap_or_default();
        lags.push(format!("the rotation that was asked for at {} is not begun", printable(when)));
    }
    if is_open(&asked.revoke, &state.handled.revoke) {
        let id = asked.revoke.as_deref().unwrap_or_default();
        lags.push(format!("CA {} is to be revoked, and still published", printable(id)));
    }
    if state.document().ok().as_ref() != document.as_ref() {
        lags.push("the published bundle is not that of our CAs: somebody altered it".to_owned());
    }
    let todo = format!(
        "trustplane authority publishes it within seconds. If it does not, its log and the Events of ConfigMap \
         {BUNDLE_CONFIG_MAP} say why"
    );
    lags.iter().map(|lag| format!("{lag}. {todo}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authority::{
        act::signer::make_ca,
        decide::ca::{self, Policy},
    };

    const POLICY: Policy = Policy {
        refresh_hint: TimeDelta::minutes(5),
        ca_ttl: TimeDelta::days(30),
        svid_ttl: TimeDelta::hours(1),
    };

    fn now() -> DateTime<Utc> {
        "2030-06-15T12:00:00Z".parse().unwrap()
    }

    fn published() -> Published {
        let made = make_ca("a.test", POLICY.ca_ttl, now()).unwrap();
        let state = ca::first("a.test", made.ca, ca::Before::default(), &POLICY, now());
        let document = Some(state.document().unwrap());
        Published { state, document }
    }

    #[test]
    fn what_is_current_lags_behind_nothing() {
        let mut published = published();
        let asked = Requests { rotate: Some("monday".to_owned()), revoke: None };
        assert_eq!(lags(&published, &Requests::default(), now()), Vec::<String>::new());
        published.state.handled = asked.clone();
        assert_eq!(lags(&published, &asked, now()), Vec::<String>::new(), "it was carried out");
    }

    #[test]
    fn a_change_that_is_overdue_or_asked_for_and_an_altered_bundle_are_told() {
        let mut published = published();
        let late = lags(&published, &Requests::default(), now() + TimeDelta::days(16));
        assert!(late[0].starts_with("the next change of our CAs was due 24h ago. "), "{late:?}");
        published.document = Some("{}".to_owned());
        let revoke = Some("5b0c\u{1b}[31m".to_owned());
        let asked = Requests { rotate: Some("monday".to_owned()), revoke };
        let lags = lags(&published, &asked, now());
        assert_eq!(lags.len(), 3, "{lags:?}");
        assert!(lags[0].contains("asked for at monday is not begun"), "{lags:?}");
        assert!(lags[1].starts_with("CA 5b0c\\u{1b}[31m is to be revoked"), "{lags:?}");
        assert!(lags[2].contains("somebody altered it"), "{lags:?}");
    }
}
