//! The replicas of trustplane, run as a kubelet would: with the arguments, the environment and the
//! account that the Deployment names. The image is the program that was just built, and it listens on
//! a free port of loopback.

use std::path::PathBuf;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Container, EnvVar};
use kube::{Api, Client};
use testkit::{Access, Controller, Launch, suite, token_of};
use trustplane::names::INJECT_LEASE;

const NAMESPACE: &str = "trustplane";
const DEPLOYMENT: &str = "trustplane-inject";
const LISTEN: &str = "--listen=127.0.0.1:0";

/// The running replicas of the Deployment.
pub struct Replicas {
    admin: Access,
    /// For kubeconfigs.
    folder: PathBuf,
    template: Option<Template>,
    running: Vec<Replica>,
}

struct Replica {
    pod: String,
    controller: Controller,
}

/// The Pod template of the Deployment.
struct Template {
    arguments: Vec<String>,
    environment: Vec<EnvVar>,
    kubeconfig: PathBuf,
}

impl Replicas {
    /// None yet.
    pub fn new(admin: Access, folder: PathBuf) -> Self {
        Self { admin, folder, template: None, running: Vec::new() }
    }

    /// Stops all, reads the Deployment, and starts as many as it asks for. Waits until each is ready.
    /// Without a Deployment there are none.
    pub async fn redeploy(&mut self, client: &Client) {
        self.stop().await;
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
        let Some(deployment) =
            deployments.get_opt(DEPLOYMENT).await.expect("Deployments can be read")
        else {
            self.template = None;
            return;
        };
        let count = deployment.spec.replicas.unwrap_or(1);
        self.template = Some(self.template_of(client, deployment).await);
        for _ in 0..count {
            self.start_one();
        }
        for replica in &mut self.running {
            replica.controller.ready().await;
        }
    }

    /// Ends all of them as a kubelet does, at once.
    pub async fn stop(&mut self) {
        let ends = self.running.iter_mut().map(|replica| replica.controller.terminate());
        futures::future::join_all(ends).await;
        self.running.clear();
    }

    /// The holder of the Lease, while it is one of those that run.
    pub async fn leader(&self, client: &Client) -> Option<String> {
        let leases: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
        let lease = leases.get_opt(INJECT_LEASE).await.ok()??;
        let holder = lease.spec?.holder_identity?;
        self.running.iter().any(|replica| replica.is(&holder)).then_some(holder)
    }

    /// Kills the replica that goes by this name in the Lease, and starts another in its place.
    pub fn replace(&mut self, holder: &str) {
        let place = self.running.iter().position(|replica| replica.is(holder));
        let mut replica = self.running.remove(place.expect("the leader is one of ours"));
        replica.controller.kill9();
        self.start_one();
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.running.len()
    }

    fn start_one(&mut self) {
        let template = self.template.as_ref().expect("there is a Deployment");
        let pod = format!("{DEPLOYMENT}-{}", suite::next_number());
        let arguments: Vec<&str> = template.arguments.iter().map(String::as_str).collect();
        let mut launch = Launch::exactly(&pod, &arguments, template.kubeconfig.clone());
        for variable in &template.environment {
            launch = launch.env(&variable.name, &value_of(variable, &pod));
        }
        self.running.push(Replica { pod, controller: launch.start() });
    }

    async fn template_of(&self, client: &Client, deployment: Deployment) -> Template {
        let pod = deployment.spec.template.spec.expect("a Deployment has Pods");
        let account = pod.service_account_name.as_deref().unwrap_or("default");
        let token = token_of(client, NAMESPACE, account).await;
        let kubeconfig = self.folder.join("replica.kubeconfig");
        self.admin.with_token(token).write_kubeconfig(&kubeconfig);
        let Container { args, env, .. } =
            pod.containers.into_iter().next().expect("a Pod has a container");
        Template {
            arguments: on_loopback(args.unwrap_or_default()),
            environment: env.unwrap_or_default(),
            kubeconfig,
        }
    }
}

impl Replica {
    /// A holder is a Pod's name, and what tells its processes apart.
    fn is(&self, holder: &str) -> bool {
        holder.split('_').next() == Some(&self.pod)
    }
}

/// The arguments, with another address to listen on.
fn on_loopback(arguments: Vec<String>) -> Vec<String> {
    let mut kept = Vec::new();
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--listen" => drop(arguments.next()),
            other if other.starts_with("--listen=") => {}
            _ => kept.push(argument),
        }
    }
    kept.push(LISTEN.to_owned());
    kept
}

fn value_of(variable: &EnvVar, pod: &str) -> String {
    let field = variable.value_from.as_ref().and_then(|from| from.field_ref.as_ref());
    match field.map(|field| field.field_path.as_str()) {
        Some("metadata.name") => pod.to_owned(),
        Some("metadata.namespace") => NAMESPACE.to_owned(),
        Some(other) => panic!("the stack does not know the field {other} of a Pod"),
        None => variable.value.clone().unwrap_or_default(),
    }
}
