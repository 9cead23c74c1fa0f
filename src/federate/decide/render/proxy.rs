//! The proxy that the SPIRE server reaches other clusters through. Pure.
//!
//! It is the controller's own: both fetch the same bundles. If they took different ways, the controller
//! would report outages that SPIRE does not have, or miss those that it has.

use serde_json::{Value, json};

/// What the server must always reach directly: itself, Services, and the API server. Kubernetes expands the
/// last entry to its address.
const DIRECT: [&str; 5] =
    ["localhost", "127.0.0.1", ".svc", ".cluster.local", "$(KUBERNETES_SERVICE_HOST)"];

/// The proxy settings of the server's container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxy {
    /// Variables without credentials, by name.
    passed_on: Vec<(&'static str, String)>,
    /// Variables with credentials, which are not passed on.
    withheld: Vec<&'static str>,
    exceptions: Vec<String>,
}

impl Proxy {
    /// Like Go, it prefers variables in capitals.
    pub fn from_env(variable: impl Fn(&str) -> Option<String>) -> Self {
        let either = |name: &str| {
            let names = [name.to_owned(), name.to_lowercase()];
            names.iter().find_map(|name| variable(name).filter(|value| !value.is_empty()))
        };
        let mut proxy = Self::default();
        for name in ["HTTPS_PROXY", "HTTP_PROXY"] {
            match either(name) {
                // Anywhere in it: a password may contain characters that end a URL's authority.
                Some(value) if value.contains('@') => proxy.withheld.push(name),
                Some(value) => proxy.passed_on.push((name, value)),
                None => {}
            }
        }
        let exceptions = either("NO_PROXY").unwrap_or_default();
        let exceptions = exceptions.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        proxy.exceptions = exceptions.map(str::to_owned).collect();
        proxy
    }

    /// Why the server does not get the controller's proxy, without naming credentials.
    pub fn withheld(&self) -> Option<String> {
        let names = match &*self.withheld {
            [] => return None,
            names => names.join(" and "),
        };
        Some(format!(
            "the SPIRE server is not given {names} of trustplane federate, because credentials stand in it: \
             whoever may read the StatefulSet could read them. Name a proxy that needs none, or add {names} to \
             the container spire-server of the StatefulSet yourself, from a Secret: it stays there"
        ))
    }

    pub(super) fn environment(&self) -> Vec<Value> {
        if self.passed_on.is_empty() && self.withheld.is_empty() {
            return Vec::new();
        }
        let ours = DIRECT.iter().filter(|entry| !self.exceptions.iter().any(|it| it == *entry));
        let exceptions = self.exceptions.iter().map(|entry| escaped(entry));
        let exceptions: Vec<_> = exceptions.chain(ours.map(|entry| (*entry).to_owned())).collect();
        let proxies = self.passed_on.iter().map(|(name, value)| (*name, escaped(value)));
        let all = proxies.chain([("NO_PROXY", exceptions.join(","))]);
        all.map(|(name, value)| json!({ "name": name, "value": value })).collect()
    }
}

/// Kubernetes expands `$(NAME)` in a container's environment.
fn escaped(value: &str) -> String {
    value.replace('$', "$$")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy(variables: &[(&str, &str)]) -> Proxy {
        let find = |name: &str| variables.iter().find(|(it, _)| *it == name);
        Proxy::from_env(|name| find(name).map(|(_, value)| (*value).to_owned()))
    }

    fn rendered(proxy: &Proxy) -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        proxy.environment().iter().map(|it| (text(&it["name"]), text(&it["value"]))).collect()
    }

    #[test]
    fn what_must_stay_direct_completes_the_exceptions() {
        let proxy = proxy(&[
            ("https_proxy", "http://lower.example:3128"),
            ("HTTPS_PROXY", "http://proxy.example:3128"),
            ("http_proxy", "http://proxy.example:3129"),
            ("NO_PROXY", "10.0.0.0/8, .svc,,internal.example"),
        ]);
        let direct = "10.0.0.0/8,.svc,internal.example,localhost,127.0.0.1,.cluster.local,$(KUBERNETES_SERVICE_HOST)";
        let expected = [
            ("HTTPS_PROXY", "http://proxy.example:3128"),
            ("HTTP_PROXY", "http://proxy.example:3129"),
            ("NO_PROXY", direct),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(rendered(&proxy), expected);
        assert_eq!(proxy.withheld(), None);
    }

    #[test]
    fn without_a_proxy_there_is_nothing_to_make_exceptions_from() {
        assert_eq!(rendered(&proxy(&[("NO_PROXY", "a.example"), ("HTTPS_PROXY", "")])), []);
    }

    #[test]
    fn credentials_are_told_of_and_neither_passed_on_nor_printed() {
        for credentials in ["http://spire:hunter2@proxy.example", "spire:hunter2/#@proxy.example"] {
            let proxy =
                proxy(&[("HTTPS_PROXY", credentials), ("HTTP_PROXY", "http://plain.example")]);
            let told = proxy.withheld().unwrap();
            assert!(told.contains("HTTPS_PROXY of trustplane federate"), "{told}");
            let names: Vec<_> = rendered(&proxy).into_iter().map(|(name, _)| name).collect();
            assert_eq!(names, ["HTTP_PROXY", "NO_PROXY"]);
            let everything = format!("{told} {:?} {proxy:?}", rendered(&proxy));
            assert!(!everything.contains("hunter2"), "{everything}");
        }
    }

    #[test]
    fn kubernetes_replaces_nothing_in_what_the_administrator_wrote() {
        let proxy =
            proxy(&[("HTTPS_PROXY", "http://$(HOSTNAME).example"), ("NO_PROXY", "$(HOSTNAME)")]);
        let environment = rendered(&proxy);
        assert_eq!(environment[0].1, "http://$$(HOSTNAME).example");
        assert!(environment[1].1.starts_with("$$(HOSTNAME),"), "{environment:?}");
    }
}
