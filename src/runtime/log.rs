//! Logs to stderr, as text or JSON. Targets that would print requests and answers are off.
//! An event is one line and moves no cursor, even with names that a tenant chose.

use std::io::{self, IsTerminal, Write};

use anstyle::Style;
use clap::ValueEnum;
use tracing::{Metadata, Subscriber, field::Field};
use tracing_subscriber::{
    EnvFilter, Layer,
    filter::FilterFn,
    fmt::{self, format::Writer},
    layer::SubscriberExt,
    registry::LookupSpan,
    util::SubscriberInitExt,
};

use super::{
    printable::{self, printable},
    terminal::FAINT,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One object a line.
    Json,
}

/// How much is logged without RUST_LOG.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verbosity {
    Normal,
    /// Errors only, for commands whose output is read by people.
    Quiet,
}

/// Starts logging. RUST_LOG takes precedence over `verbosity`.
pub fn init(format: LogFormat, verbosity: Verbosity) {
    let chosen = std::env::var(EnvFilter::DEFAULT_ENV).ok().map(EnvFilter::try_new).transpose();
    let (chosen, unreadable) = chosen.map_or_else(|error| (None, Some(error)), |it| (it, None));
    // We log failed requests ourselves, once and with context.
    let levels = chosen.unwrap_or_else(|| {
        EnvFilter::new(match verbosity {
            Verbosity::Normal => "info,kube_client::client::builder=off",
            Verbosity::Quiet => "error,kube_client::client::builder=off",
        })
    });
    tracing_subscriber::registry()
        .with(
            lines(format, colours(), io::stderr).with_filter(without_bodies()).with_filter(levels),
        )
        .init();
    if let Some(error) = unreadable {
        tracing::error!(
            "RUST_LOG is ignored: {error}. Write it as RUST_LOG=debug or RUST_LOG=trustplane=debug"
        );
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Colours {
    Yes,
    No,
}

fn colours() -> Colours {
    if io::stderr().is_terminal() { Colours::Yes } else { Colours::No }
}

fn lines<S, W>(
    format: LogFormat,
    colours: Colours,
    writer: impl Fn() -> W + Send + Sync + 'static,
) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    W: Write + 'static,
{
    match format {
        LogFormat::Text => fmt::layer()
            .with_ansi(colours == Colours::Yes)
            .fmt_fields(fmt::format::debug_fn(field))
            .with_writer(writer)
            .boxed(),
        LogFormat::Json => {
            fmt::layer().json().flatten_event(true).with_writer(move || JsonLines(writer())).boxed()
        }
    }
}

/// The library's own format does not escape values that are logged with `%`.
fn field(writer: &mut Writer<'_>, field: &Field, value: &dyn std::fmt::Debug) -> std::fmt::Result {
    let text = format!("{value:?}");
    let text = printable(&text);
    let style = if writer.has_ansi_escapes() { FAINT } else { Style::new() };
    match field.name() {
        "message" => write!(writer, "{text}"),
        // The target already says where a record of the crate `log` comes from.
        name if name.starts_with("log.") => Ok(()),
        name => write!(writer, " {style}{}={style:#}{text}", name.trim_start_matches("r#")),
    }
}

/// Escapes characters that JSON allows, but that a terminal would interpret.
struct JsonLines<W>(W);

impl<W: Write> Write for JsonLines<W> {
    /// The library writes each event with one call.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        self.0.write_all(printable::json(&String::from_utf8_lossy(event)).as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Switches off, at every level, the target of kube that prints whole answers of the API server:
/// a truncated Secret would end up in the log (tests/inject/no_leaks.rs).
fn without_bodies() -> FilterFn<fn(&Metadata<'_>) -> bool> {
    FilterFn::new(|metadata| metadata.is_span() || metadata.target() != "kube_client::client")
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use anstream::adapter::strip_str;

    use super::*;
    use crate::runtime::printable::{HOSTILE, is_harmless};

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What is logged of a text in each place where one can stand.
    fn logged(format: LogFormat, colours: Colours, text: &str) -> String {
        let written = Lines::default();
        let inner = written.clone();
        let layer = lines(format, colours, move || inner.clone());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            tracing::warn!(shown = %text, debugged = ?text, plain = text, "message of {text}");
        });
        let bytes = written.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn whatever_a_tenant_wrote_a_line_of_the_log_is_one_harmless_line() {
        for (format, colours) in [
            (LogFormat::Text, Colours::No),
            (LogFormat::Text, Colours::Yes),
            (LogFormat::Json, Colours::No),
        ] {
            let line = logged(format, colours, HOSTILE);
            assert!(is_harmless(&strip_str(&line).to_string()), "{line:?}");
            assert_eq!(line.matches('\n').count(), 1, "{line:?}");
            // The colour that the tenant asked for is not among the log's own.
            assert!(!line.contains("\u{1b}[31m"), "{line:?}");
        }
    }

    #[test]
    fn a_line_of_json_means_what_was_logged() {
        let line = logged(LogFormat::Json, Colours::No, HOSTILE);
        let read: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(read["plain"], HOSTILE);
        assert_eq!(read["message"], format!("message of {HOSTILE}"));
    }

    #[test]
    fn ordinary_texts_are_logged_as_they_are() {
        let line = logged(LogFormat::Text, Colours::No, "Bäckerei \"Süß\"");
        assert!(line.contains("message of Bäckerei \"Süß\" shown=Bäckerei \"Süß\""), "{line}");
    }
}
