//! The volumes of a Pod, with the modes and owners that the kubelet gives them.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{ConfigMap, PodSpec, Secret};
use kube::Api;

use super::{Node, make_folder};

/// Path of the account token in every container.
pub const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The volume that admission adds to every Pod, with our own name.
pub const ACCOUNT_VOLUME: &str = "kube-api-access";

/// The account of a Pod.
pub struct Account {
    pub namespace: String,
    pub name: String,
    /// Owner of the token.
    pub user: Option<u32>,
}

/// Creates all volumes, by name.
pub async fn make(
    node: &Node,
    folder: &Path,
    spec: &PodSpec,
    claims: &[String],
    account: &Account,
) -> Result<BTreeMap<String, PathBuf>, String> {
    let context = spec.security_context.clone().unwrap_or_default();
    let group = context.fs_group.map(|id| u32::try_from(id).expect("the number of a group"));
    let mut made = BTreeMap::new();
    for name in claims {
        let path = node.folder.join("claims").join(name);
        let always = context.fs_group_change_policy.as_deref() != Some("OnRootMismatch");
        claim(&path, group, always);
        made.insert(name.clone(), path);
    }
    for volume in spec.volumes.iter().flatten() {
        let path = folder.join("volumes").join(&volume.name);
        make_folder(&path);
        if volume.empty_dir.is_some() {
            set(&path, 0o777, None);
            own(&path, group, 0o2770);
        } else if let Some(source) = &volume.config_map {
            let maps: Api<ConfigMap> = Api::namespaced(node.admin.clone(), &account.namespace);
            let map =
                maps.get(&source.name).await.map_err(|_| missing("configmap", &source.name))?;
            let files = map.data.unwrap_or_default();
            let files = files.into_iter().map(|(name, text)| (name, text.into_bytes()));
            write(&path, files, source.default_mode, group);
        } else if let Some(source) = &volume.secret {
            let name = source.secret_name.clone().unwrap_or_default();
            let secrets: Api<Secret> = Api::namespaced(node.admin.clone(), &account.namespace);
            let secret = secrets.get(&name).await.map_err(|_| missing("secret", &name))?;
            let files = secret.data.unwrap_or_default();
            let files = files.into_iter().map(|(name, bytes)| (name, bytes.0));
            write(&path, files, source.default_mode, group);
        } else {
            return Err(format!("volume {} is of a kind that is not known here", volume.name));
        }
        made.insert(volume.name.clone(), path);
    }
    let path = folder.join("volumes").join(ACCOUNT_VOLUME);
    make_folder(&path);
    token(node, &path, account, group).await;
    made.insert(ACCOUNT_VOLUME.to_owned(), path);
    Ok(made)
}

fn missing(kind: &str, name: &str) -> String {
    format!("FailedMount: MountVolume.SetUp failed: {kind} \"{name}\" not found")
}

/// Creates a claim on first use. Changes the group of its files, unless the policy is
/// OnRootMismatch and the root has it already.
fn claim(path: &Path, group: Option<u32>, always: bool) {
    use std::os::unix::fs::MetadataExt;
    if !path.exists() {
        make_folder(path);
    }
    let is_groups = |id: u32| {
        let root = fs::metadata(path).expect("the volume");
        root.gid() == id && root.mode() & 0o2770 == 0o2770
    };
    if always || group.is_some_and(|id| !is_groups(id)) {
        own_all(path, group);
    }
}

fn own_all(path: &Path, group: Option<u32>) {
    own(path, group, if path.is_dir() { 0o2770 } else { 0o660 });
    for entry in fs::read_dir(path).into_iter().flatten() {
        own_all(&entry.expect("an entry").path(), group);
    }
}

fn write(
    folder: &Path,
    files: impl Iterator<Item = (String, Vec<u8>)>,
    mode: Option<i32>,
    group: Option<u32>,
) {
    let mode = mode.map_or(0o644, |mode| u32::try_from(mode).expect("a mode"));
    for (name, content) in files {
        let file = folder.join(name);
        fs::write(&file, content).expect("a file of a volume");
        set(&file, mode, None);
        own(&file, group, 0o440);
    }
    own(folder, group, 0o2550);
}

async fn token(node: &Node, folder: &Path, account: &Account, group: Option<u32>) {
    let Account { namespace, name, user } = account;
    let token = node.cluster.token_of(namespace, name).await;
    let authority = node.cluster.admin_access().authority.clone();
    let mode = if user.is_some() || group.is_some() { 0o600 } else { 0o644 };
    for (name, content) in [("token", &token), ("ca.crt", &authority), ("namespace", namespace)] {
        let file = folder.join(name);
        fs::write(&file, content).expect("a file of a volume");
        set(&file, mode, *user);
        own(&file, group, 0o440);
    }
    own(folder, group, 0o2550);
}

fn set(path: &Path, mode: u32, user: Option<u32>) {
    chown(path, user, None).expect("a file of ours");
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("a file of ours");
}

/// Sets group and group permissions.
fn own(path: &Path, group: Option<u32>, modes: u32) {
    let Some(group) = group else { return };
    chown(path, None, Some(group)).expect("a file of ours");
    let mode = fs::metadata(path).expect("a file of ours").permissions().mode();
    fs::set_permissions(path, Permissions::from_mode(mode | modes)).expect("a file of ours");
}
