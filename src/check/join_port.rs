//! Whether clients that want to join can reach the authority: its flag, the port of its container, and that of
//! its Service.

use std::net::SocketAddr;

use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{Container, Service},
    },
    apimachinery::pkg::util::intstr::IntOrString,
};
use kube::{Api, Client};

use super::{found::Answer, questions::variable};
use crate::{
    k8s::api_error,
    names::{AUTHORITY_DEPLOYMENT, AUTHORITY_SERVICE},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinPort {
    /// The Deployment does not ask for it.
    Off,
    /// At the Pod's loopback address.
    Loopback,
    /// At this port of the Pods, to which no port of the Service leads.
    Unreachable(u16),
    /// At this port of the Service.
    Served(i32),
}

pub(super) async fn gather(client: &Client, namespace: &str) -> Answer<JoinPort> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    let (deployment, service) = tokio::join!(
        api_error::with_timeout(deployments.get_opt(AUTHORITY_DEPLOYMENT)),
        api_error::with_timeout(services.get_opt(AUTHORITY_SERVICE)),
    );
    let pod = deployment?.and_then(|it| it.spec.template.spec);
    let container = pod.and_then(|it| it.containers.into_iter().next()).unwrap_or_default();
    Ok(read(&container, service?.as_ref()))
}

fn read(container: &Container, service: Option<&Service>) -> JoinPort {
    let Some(address) = listens_at(container) else { return JoinPort::Off };
    if address.ip().is_loopback() {
        return JoinPort::Loopback;
    }
    let number = i32::from(address.port());
    let named = |name: &str| {
        let mut ports = container.ports.iter().flatten();
        ports.any(|it| it.name.as_deref() == Some(name) && it.container_port == number)
    };
    let ports = service.and_then(|it| it.spec.as_ref()?.ports.as_deref()).unwrap_or_default();
    let leads_there = ports.iter().find(|it| match &it.target_port {
        Some(IntOrString::String(name)) => named(name),
        Some(IntOrString::Int(target)) => *target == number,
        None => it.port == number,
    });
    leads_there.map_or(JoinPort::Unreachable(address.port()), |it| JoinPort::Served(it.port))
}

/// The address of its flag, or of the variable for it.
fn listens_at(container: &Container) -> Option<SocketAddr> {
    let arguments = container.args.as_deref().unwrap_or_default();
    let value = |(at, argument): (usize, &String)| match argument.strip_prefix("--join-listen")? {
        "" => arguments.get(at + 1).cloned(),
        value => value.strip_prefix('=').map(str::to_owned),
    };
    let flag = arguments.iter().enumerate().filter_map(value).next_back();
    let variable = || variable(container, "TRUSTPLANE_JOIN_LISTEN").map(str::to_owned);
    flag.or_else(variable)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn container(args: &[&str], variable: &str) -> Container {
        let env = json!([{ "name": "TRUSTPLANE_JOIN_LISTEN", "value": variable }]);
        let ports = json!([{ "name": "join", "containerPort": 8445 }]);
        let container = json!({ "name": "a", "args": args, "env": env, "ports": ports });
        serde_json::from_value(container).unwrap()
    }

    fn service(target: Value) -> Service {
        let ports =
            json!([{ "name": "metrics", "port": 8080 }, { "port": 443, "targetPort": target }]);
        serde_json::from_value(json!({ "metadata": {}, "spec": { "ports": ports } })).unwrap()
    }

    #[test]
    fn the_address_is_read_off_flag_and_variable_as_the_program_does() {
        let at = |args: &[&str], variable| listens_at(&container(args, variable));
        assert_eq!(at(&["authority"], ""), None);
        let expected = "[::]:8445".parse().ok();
        assert_eq!(at(&["--join-listen=[::]:8445"], "[::]:1"), expected, "a flag wins");
        assert_eq!(at(&["--join-listen", "[::]:8445"], ""), expected);
        assert_eq!(at(&["authority"], "[::]:8445"), expected);
    }

    #[test]
    fn a_port_is_served_where_the_service_leads_to_it_by_name_or_number() {
        let open = container(&["--join-listen=[::]:8445"], "");
        let served = |target: Value| read(&open, Some(&service(target)));
        assert_eq!(served(json!("join")), JoinPort::Served(443));
        assert_eq!(served(json!(8445)), JoinPort::Served(443));
        for other in [json!("web"), json!(8444)] {
            assert_eq!(served(other), JoinPort::Unreachable(8445));
        }
        assert_eq!(read(&open, None), JoinPort::Unreachable(8445));
        let other_port = container(&["--join-listen=[::]:9000"], "");
        assert_eq!(
            read(&other_port, Some(&service(json!("join")))),
            JoinPort::Unreachable(9000),
            "the name is that of another port"
        );
    }

    #[test]
    fn without_the_flag_it_is_off_and_at_a_loopback_address_nobody_reaches_it() {
        let service = service(json!("join"));
        assert_eq!(read(&container(&[], ""), Some(&service)), JoinPort::Off);
        let inner = container(&["--join-listen=127.0.0.1:8445"], "");
        assert_eq!(read(&inner, Some(&service)), JoinPort::Loopback);
    }
}
