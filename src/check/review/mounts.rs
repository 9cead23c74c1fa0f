//! What of a Pod's volumes its first container sees. Pure.

use std::path::Path;

use k8s_openapi::api::core::v1::{KeyToPath, PodSpec, Volume, VolumeMount, VolumeProjection};

/// The ConfigMap that a flag's file of this name is from.
pub fn config_map<'a>(pod: &'a PodSpec, file: &str) -> Option<&'a str> {
    let arguments = pod.containers.first()?.args.iter().flatten();
    let mut paths = arguments.filter_map(|it| Some(Path::new(it.split_once('=')?.1)));
    let path = paths.find(|it| it.file_name().is_some_and(|name| name == file))?;
    let (volume, _) = mounted(pod, path)?;
    Some(volume.config_map.as_ref()?.name.as_str())
}

/// Whether there is a volume that can hold this file. What is in one that the manifest does not spell out can't be
/// seen.
pub fn has(pod: &PodSpec, path: &Path) -> bool {
    let Some((volume, below)) = mounted(pod, path) else { return false };
    match volume.projected.as_ref() {
        Some(projected) => projected.sources.iter().flatten().any(|it| projects(it, below)),
        None => true,
    }
}

/// The volume that a path is in, and the path in it.
fn mounted<'a, 'b>(pod: &'a PodSpec, path: &'b Path) -> Option<(&'a Volume, &'b Path)> {
    let mounts = pod.containers.first()?.volume_mounts.iter().flatten();
    let below = |mount: &'a VolumeMount| Some((mount, path.strip_prefix(&mount.mount_path).ok()?));
    // A volume may be mounted inside of another.
    let (mount, below) =
        mounts.filter_map(below).max_by_key(|(mount, _)| mount.mount_path.len())?;
    let volume = pod.volumes.iter().flatten().find(|volume| volume.name == mount.name)?;
    Some((volume, below))
}

fn projects(source: &VolumeProjection, path: &Path) -> bool {
    let secret = source.secret.as_ref().map(|it| &it.items);
    let config_map = source.config_map.as_ref().map(|it| &it.items);
    let is_path = |item: &KeyToPath| Path::new(&item.path) == path;
    match secret.or(config_map) {
        Some(Some(items)) => items.iter().any(is_path),
        // All keys, and none of them is a folder.
        Some(None) => path.components().count() == 1,
        None => false,
    }
}
