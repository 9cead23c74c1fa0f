//! Settings of the official images, from their Dockerfiles.

/// The configuration of an image.
#[derive(Debug)]
pub struct Image {
    /// Name and tag.
    pub name: &'static str,
    /// `ENTRYPOINT`; the toolbox has the program under the file name of its first part.
    pub entrypoint: &'static [&'static str],
    /// `USER`: user and group.
    pub user: Option<(u32, u32)>,
    pub work_folder: &'static str,
}

pub const SPIRE_SERVER_1_13_3: Image = Image {
    name: "spire-server:1.13.3",
    entrypoint: &["/opt/spire/bin/spire-server", "run"],
    user: Some((1000, 1000)),
    work_folder: "/opt/spire",
};

pub const SPIRE_CONTROLLER_MANAGER_0_6_4: Image = Image {
    name: "spire-controller-manager:0.6.4",
    entrypoint: &["/spire-controller-manager"],
    user: None,
    work_folder: "/",
};

/// The image of this name, from any registry.
pub fn find(name: &str) -> Result<&'static Image, String> {
    let all = [&SPIRE_SERVER_1_13_3, &SPIRE_CONTROLLER_MANAGER_0_6_4];
    let last = name.rsplit('/').next().unwrap_or(name);
    all.into_iter().find(|it| it.name == last).ok_or_else(|| format!("ErrImagePull: {name}"))
}
