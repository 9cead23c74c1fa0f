//! The flags that say how the injector decides, for every command that runs one.

use std::time::Duration;

use anyhow::Context;
use chrono::TimeDelta;
use clap::{Args, ValueEnum};

use crate::{
    inject::decide::plan::{OnInvalid, Policy, StatusScope},
    runtime::flags::{at_least_a_second, duration},
};

/// How the injector decides.
#[derive(Debug, Args)]
pub struct PolicyArgs {
    /// What happens to the last good certificate and key when their Secret becomes invalid
    #[arg(
        long,
        env = "TRUSTPLANE_ON_INVALID_SECRET",
        value_enum,
        value_name = "WHAT",
        default_value = "default"
    )]
    on_invalid_secret: OnInvalidSecret,

    /// How long a Secret must be missing before its certificate and key are removed from the Routes
    #[arg(long, env = "TRUSTPLANE_SECRET_MISSING_GRACE", value_parser = duration, default_value = "5s", value_name = "DURATION")]
    pub(super) secret_missing_grace: Duration,

    /// Which Routes get .status.certificate
    #[arg(
        long,
        env = "TRUSTPLANE_STATUS",
        value_enum,
        value_name = "WHICH",
        default_value = "all"
    )]
    status: Status,

    /// How often to check every Route again even if nothing changed
    #[arg(long, env = "TRUSTPLANE_RESYNC", value_parser = at_least_a_second, default_value = "10m", value_name = "DURATION")]
    pub(super) resync: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OnInvalidSecret {
    /// They are removed, and the router serves its default certificate
    Default,
    /// They stay in the Route
    Keep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Status {
    /// Every Route
    All,
    /// Routes that have, or had, the annotation
    Annotated,
    /// None
    Off,
}

impl PolicyArgs {
    pub(super) fn policy(&self) -> anyhow::Result<Policy> {
        Ok(Policy {
            on_invalid: match self.on_invalid_secret {
                OnInvalidSecret::Default => OnInvalid::Default,
                OnInvalidSecret::Keep => OnInvalid::Keep,
            },
            missing_grace: TimeDelta::from_std(self.secret_missing_grace)
                .context("--secret-missing-grace is too long")?,
            status: match self.status {
                Status::All => StatusScope::All,
                Status::Annotated => StatusScope::Annotated,
                Status::Off => StatusScope::Off,
            },
        })
    }
}
