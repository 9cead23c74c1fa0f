//! Logs to stderr, as text or JSON, with the targets shut that would print what passes through.

use std::io::IsTerminal;

use clap::ValueEnum;
use tracing::{Metadata, Subscriber};
use tracing_subscriber::{
    EnvFilter, Layer, filter::FilterFn, fmt, layer::SubscriberExt, registry::LookupSpan,
    util::SubscriberInitExt,
};

/// `--log-format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One object a line.
    Json,
}

/// How much is logged where RUST_LOG does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loudness {
    /// What happens.
    Usual,
    /// Nothing but errors: somebody reads what stands on the standard output.
    Quiet,
}

/// Starts logging; RUST_LOG chooses the levels, before `loudness` does.
pub fn init(format: LogFormat, loudness: Loudness) {
    let chosen = std::env::var(EnvFilter::DEFAULT_ENV).ok().map(EnvFilter::try_new).transpose();
    let (chosen, unreadable) = chosen.map_or_else(|error| (None, Some(error)), |it| (it, None));
    // What the client library says about a failed request, we say better and once.
    let levels = chosen.unwrap_or_else(|| {
        EnvFilter::new(match loudness {
            Loudness::Usual => "info,kube_client::client::builder=off",
            Loudness::Quiet => "error,kube_client::client::builder=off",
        })
    });
    tracing_subscriber::registry()
        .with(lines(format).with_filter(discreet()).with_filter(levels))
        .init();
    if let Some(error) = unreadable {
        tracing::error!(
            "RUST_LOG is ignored: {error}. Write it as RUST_LOG=debug or RUST_LOG=trustplane=debug"
        );
    }
}

fn lines<S>(format: LogFormat) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    match format {
        LogFormat::Text => {
            let colours = std::io::stderr().is_terminal();
            fmt::layer().with_ansi(colours).with_writer(std::io::stderr).boxed()
        }
        LogFormat::Json => {
            fmt::layer().json().flatten_event(true).with_writer(std::io::stderr).boxed()
        }
    }
}

/// Shuts, at every level, the target of a library that prints answers of the API server whole:
/// a truncated Secret would end up in the log (tests/cluster/no_leaks.rs).
fn discreet() -> FilterFn<fn(&Metadata<'_>) -> bool> {
    FilterFn::new(|metadata| metadata.is_span() || metadata.target() != "kube_client::client")
}
