//! A container: a process with its own root, set up like image, Pod and kubelet demand.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use k8s_openapi::api::core::v1::{Container, PodSpec};

use super::images::{self, Image};
use super::network::{self, Network};
use super::volumes::{ACCOUNT, ACCOUNT_VOLUME};
use crate::tied::{self, Tied};
use crate::{suite, toolbox};

/// libc's folders, for programs that the official images link statically.
const LIBC: [&str; 4] = ["/lib", "/lib64", "/usr/lib", "/usr/lib64"];
/// Devices of every container runtime.
const DEVICES: [&str; 4] = ["/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"];
/// PATH of a container whose image sets none.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// User and groups of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub id: u32,
    pub group: u32,
    pub groups: Vec<u32>,
}

/// The user of a container, or why the kubelet refuses it.
pub fn user(pod: &PodSpec, container: &Container) -> Result<User, String> {
    let image = images::find(container.image.as_deref().unwrap_or_default())?;
    let (own, pod) = (container.security_context.as_ref(), pod.security_context.as_ref());
    let chosen = own.and_then(|it| it.run_as_user).or(pod.and_then(|it| it.run_as_user));
    let group = own.and_then(|it| it.run_as_group).or(pod.and_then(|it| it.run_as_group));
    let non_root = own.and_then(|it| it.run_as_non_root).or(pod.and_then(|it| it.run_as_non_root));
    let refused = |why: &str| Err(format!("CreateContainerConfigError: {}: {why}", container.name));
    match (non_root == Some(true), chosen, image.user) {
        (true, Some(0), _) => return refused("container's runAsUser breaks non-root policy"),
        (true, None, None | Some((0, _))) => {
            return refused("container has runAsNonRoot and image will run as root");
        }
        _ => {}
    }
    let number = |id: i64| u32::try_from(id).expect("the number of a user or a group");
    let by_image = image.user.unwrap_or((0, 0));
    let mut groups: Vec<_> = pod.and_then(|it| it.supplemental_groups.clone()).unwrap_or_default();
    groups.extend(pod.and_then(|it| it.fs_group));
    Ok(User {
        id: chosen.map_or(by_image.0, number),
        // A user that is unknown to the image has group 0.
        group: group.map_or(if chosen.is_some() { 0 } else { by_image.1 }, number),
        groups: groups.into_iter().map(number).collect(),
    })
}

struct Mount {
    source: PathBuf,
    target: String,
    read_only: bool,
}

/// A container that can be restarted.
pub struct Process {
    image: &'static Image,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    user: User,
    confined: bool,
    no_new_privileges: bool,
    read_only_root: bool,
    work_folder: String,
    mounts: Vec<Mount>,
    root: PathBuf,
    log: PathBuf,
    running: Option<Tied>,
}

impl Process {
    pub fn of(
        container: &Container,
        user: User,
        volumes: &BTreeMap<String, PathBuf>,
        pod_name: &str,
        root: PathBuf,
        log: PathBuf,
    ) -> Result<Self, String> {
        let image = images::find(container.image.as_deref().unwrap_or_default())?;
        let environment = environment(container, pod_name)?;
        let replaced = |text: &String| expanded(text, &environment);
        let entrypoint = match container.command.as_deref() {
            Some([_, ..]) => container.command.iter().flatten().map(replaced).collect(),
            _ => image.entrypoint.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>(),
        };
        let arguments = container.args.iter().flatten().map(replaced);
        let context = container.security_context.clone().unwrap_or_default();
        let dropped = context.capabilities.and_then(|it| it.drop).unwrap_or_default();
        Ok(Self {
            image,
            arguments: entrypoint.into_iter().chain(arguments).collect(),
            user,
            confined: dropped.iter().any(|it| it == "ALL"),
            no_new_privileges: context.allow_privilege_escalation == Some(false),
            read_only_root: context.read_only_root_filesystem == Some(true),
            work_folder: container
                .working_dir
                .clone()
                .unwrap_or_else(|| image.work_folder.to_owned()),
            mounts: mounts(container, image, volumes)?,
            environment,
            root,
            log,
            running: None,
        })
    }

    /// Replaces the image's CAs by these, in PEM.
    pub fn trust(&mut self, folder: &Path, authorities: &str) {
        use std::os::unix::fs::PermissionsExt;
        let source = folder.join("authorities.pem");
        suite::write_private(&source, authorities);
        fs::set_permissions(&source, fs::Permissions::from_mode(0o644)).expect("a file of ours");
        self.mounts.push(Mount { source, target: AUTHORITIES.to_owned(), read_only: true });
    }

    /// Starts or restarts it.
    pub fn start(&mut self, network: &Network) {
        self.running = None;
        let mut command = tied::command(Path::new("nsenter"), &self.log, None);
        self.enter(&mut command, network, self.arguments.iter().map(String::as_str));
        self.running = Some(Tied::spawn(command).expect("nsenter starts"));
    }

    /// Another program in the same container.
    pub fn command_of(&self, network: &Network, arguments: &[&str]) -> tokio::process::Command {
        let mut command = Command::new("nsenter");
        self.enter(&mut command, network, arguments.iter().copied());
        command.into()
    }

    /// The script `enter` sets up root and user, and then executes the program.
    fn enter<'a>(
        &self,
        command: &mut Command,
        network: &Network,
        arguments: impl Iterator<Item = &'a str>,
    ) {
        let numbers = |ids: &[u32]| ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        command
            .arg(format!("--net={}", network.file()))
            .args(["unshare", "--mount", "--propagation", "private", "--"])
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/src/kubelet/enter"))
            .arg(&self.root)
            .arg(if self.read_only_root { "ro" } else { "rw" })
            .arg(&self.work_folder);
        for Mount { source, target, read_only } in &self.mounts {
            command.arg(source).arg(target).arg(if *read_only { "ro" } else { "rw" });
        }
        command.arg("--");
        command.args(self.environment.iter().map(|(name, value)| format!("{name}={value}")));
        command.arg("--");
        command
            .arg(format!("--reuid={}", self.user.id))
            .arg(format!("--regid={}", self.user.group));
        match &*self.user.groups {
            [] => command.arg("--clear-groups"),
            groups => command.arg(format!("--groups={}", numbers(groups))),
        };
        command.arg("--inh-caps=-all");
        if self.confined {
            command.arg("--bounding-set=-all");
        }
        if self.no_new_privileges {
            command.arg("--no-new-privs");
        }
        command.arg("--").args(arguments);
    }

    pub fn exit_code(&mut self) -> Option<i32> {
        self.running.as_mut().and_then(Tied::exit_code)
    }

    pub fn pid(&self) -> i32 {
        self.running.as_ref().expect("it was started").pid()
    }

    /// Its log, including earlier starts.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

/// Outer mounts first, as container runtimes do.
fn mounts(
    container: &Container,
    image: &Image,
    volumes: &BTreeMap<String, PathBuf>,
) -> Result<Vec<Mount>, String> {
    let toolbox = toolbox().unwrap_or_else(|why| panic!("{why}"));
    let program = image.entrypoint[0];
    let name = program.rsplit('/').next().unwrap_or(program);
    let mut mounts =
        vec![Mount { source: toolbox.join(name), target: program.to_owned(), read_only: true }];
    for path in LIBC.iter().chain(&DEVICES).filter(|path| Path::new(path).exists()) {
        let is_device = path.starts_with("/dev/");
        mounts.push(Mount {
            source: path.into(),
            target: (*path).to_owned(),
            read_only: !is_device,
        });
    }
    for mount in container.volume_mounts.iter().flatten() {
        if mount.sub_path.is_some() || mount.sub_path_expr.is_some() {
            return Err(format!("{}: parts of volumes are not known here", mount.mount_path));
        }
        let source = volumes.get(&mount.name);
        let source = source.ok_or_else(|| format!("there is no volume {}", mount.name))?;
        mounts.push(Mount {
            source: source.clone(),
            target: mount.mount_path.clone(),
            read_only: mount.read_only == Some(true),
        });
    }
    let account = volumes[ACCOUNT_VOLUME].clone();
    mounts.push(Mount { source: account, target: ACCOUNT.to_owned(), read_only: true });
    mounts.sort_by_key(|mount| mount.target.matches('/').count());
    Ok(mounts)
}

/// Variables of runtime and kubelet, then those of the container.
fn environment(container: &Container, pod_name: &str) -> Result<Vec<(String, String)>, String> {
    let (host, port) = network::SERVICE;
    let mut environment: Vec<_> = [
        ("PATH", PATH.to_owned()),
        ("HOSTNAME", pod_name.to_owned()),
        ("KUBERNETES_SERVICE_HOST", host.to_string()),
        ("KUBERNETES_SERVICE_PORT", port.to_string()),
        ("KUBERNETES_SERVICE_PORT_HTTPS", port.to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    if container.env_from.as_ref().is_some_and(|it| !it.is_empty()) {
        return Err("envFrom is not known here".to_owned());
    }
    for variable in container.env.iter().flatten() {
        if variable.value_from.is_some() {
            return Err(format!("{}: valueFrom is not known here", variable.name));
        }
        let value = expanded(variable.value.as_deref().unwrap_or_default(), &environment);
        environment.retain(|(name, _)| *name != variable.name);
        environment.push((variable.name.clone(), value));
    }
    Ok(environment)
}

/// `$(NAME)` is replaced where there is such a variable, and `$$` is a dollar.
fn expanded(text: &str, environment: &[(String, String)]) -> String {
    let mut result = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        result.push_str(before);
        rest = after;
        if let Some(after) = after.strip_prefix('$') {
            result.push('$');
            rest = after;
        } else if let Some((name, after)) =
            after.strip_prefix('(').and_then(|reference| reference.split_once(')'))
            && let Some((_, value)) = environment.iter().find(|(it, _)| it == name)
        {
            result.push_str(value);
            rest = after;
        } else {
            result.push('$');
        }
    }
    result + rest
}

#[test]
fn variables_are_replaced_as_by_kubernetes() {
    let environment = [("A".to_owned(), "1".to_owned())];
    for (text, expected) in [
        ("$(A)-$(B)-$A", "1-$(B)-$A"),
        ("$$(A) $$$(A) $$$$", "$(A) $1 $$"),
        ("$(A", "$(A"),
        ("$", "$"),
    ] {
        assert_eq!(expanded(text, &environment), expected, "{text}");
    }
}
