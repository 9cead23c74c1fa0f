//! Filled stores, one for each size. Filling takes minutes, so smaller stores are copied on the way
//! to the largest, and can be kept for the next run.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;
use testkit::suite::{private_folder, subfolder};

use crate::{
    certificates::Issuer,
    fill::{fill, namespaces},
    population::Size,
    stage::Stage,
};

/// Change it with the filled objects, so that old stores are not used.
const EDITION: u32 = 2;

/// A folder of stores. They hold keys.
pub struct Stores {
    folder: PathBuf,
    kept: bool,
}

impl Stores {
    /// In a given folder, or in a temporary one.
    pub fn open(kept: Option<&Path>) -> Self {
        let folder = kept.map_or_else(|| subfolder("stores"), Path::to_owned);
        private_folder(&folder);
        Self { folder, kept: kept.is_some() }
    }

    /// The folder of a filled store.
    pub fn of(&self, size: Size) -> PathBuf {
        self.folder.join(format!("edition-{EDITION}-{}-{}", size.routes, size.others))
    }

    /// Fills the missing stores of these ascending sizes.
    pub async fn fill(&self, issuer: &Issuer, sizes: &[Size]) -> anyhow::Result<()> {
        let mut filling: Option<Stage> = None;
        let mut last = Size { routes: 0, others: 0 };
        for &size in sizes {
            if self.of(size).exists() {
                (filling, last) = (None, size);
                continue;
            }
            let stage = match filling.take() {
                Some(stage) => stage,
                None => self.stage(last).await?,
            };
            fill(&stage.client().await?, issuer, last, size).await?;
            filling = Some(self.keep(stage, size)?);
            last = size;
        }
        Ok(())
    }

    async fn stage(&self, size: Size) -> anyhow::Result<Stage> {
        if size.routes > 0 {
            return Stage::with("fill", &self.of(size)).await;
        }
        let stage = Stage::empty().await?;
        namespaces(&stage.client().await?).await?;
        Ok(stage)
    }

    fn keep(&self, mut stage: Stage, size: Size) -> anyhow::Result<Stage> {
        // Renamed at the end, so that an interrupted copy is not used.
        let part = self.folder.join("part");
        if part.exists() {
            fs::remove_dir_all(&part)?;
        }
        stage.copy_store(&part)?;
        fs::rename(&part, self.of(size)).context("a filled store")?;
        Ok(stage)
    }
}

impl Drop for Stores {
    fn drop(&mut self) {
        if !self.kept {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}
