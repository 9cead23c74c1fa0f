//! Assigns addresses of Services and ports of nodes in order.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::Store;
use crate::kinds::{self, text};

impl Store {
    /// Assigns the addresses and ports that the Service's type needs and that are missing.
    pub(super) fn give_addresses(&self, service: &mut Value) {
        let kind = text(service, &["spec", "type"]).to_owned();
        if kind == "ExternalName" {
            return;
        }
        if text(service, &["spec", "clusterIP"]).is_empty() {
            service["spec"]["clusterIP"] = self.free_address().into();
        }
        let address = service["spec"]["clusterIP"].clone();
        if service["spec"].get("clusterIPs").is_none() {
            service["spec"]["clusterIPs"] = json!([address]);
        }
        // The endpoints of a headless Service without selector may be of both families.
        let anybodys = address == "None" && service["spec"].get("selector").is_none();
        let (families, policy) = if anybodys {
            (json!(["IPv4", "IPv6"]), "RequireDualStack")
        } else {
            (json!(["IPv4"]), "SingleStack")
        };
        if service["spec"].get("ipFamilies").is_none() {
            service["spec"]["ipFamilies"] = families;
        }
        if service["spec"].get("ipFamilyPolicy").is_none() {
            service["spec"]["ipFamilyPolicy"] = policy.into();
        }
        if matches!(kind.as_str(), "NodePort" | "LoadBalancer") {
            let mut taken = self.node_ports();
            let ports = service["spec"].get_mut("ports").and_then(Value::as_array_mut);
            for port in ports.into_iter().flatten() {
                if port["nodePort"].as_i64().unwrap_or(0) == 0 {
                    let free = (30_000..32_768).find(|number| !taken.contains(number));
                    port["nodePort"] = free.unwrap_or(0).into();
                    taken.extend(free);
                }
            }
        }
    }

    fn free_address(&self) -> String {
        let services = self.of_kind(kinds::service()).values();
        let taken: HashSet<&str> =
            services.map(|service| text(service, &["spec", "clusterIP"])).collect();
        let all =
            (0..=255).flat_map(|third| (1..=254).map(move |last| format!("10.96.{third}.{last}")));
        all.into_iter().find(|address| !taken.contains(address.as_str())).unwrap_or_default()
    }

    fn node_ports(&self) -> HashSet<i64> {
        let services = self.of_kind(kinds::service()).values();
        let ports = services.flat_map(|service| service["spec"]["ports"].as_array()).flatten();
        ports.filter_map(|port| port["nodePort"].as_i64()).collect()
    }
}
