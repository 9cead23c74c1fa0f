//! Stops the process gracefully on Ctrl-C, SIGTERM, Ctrl-\, or when its terminal is closed.

use std::{fs, io};

use futures::future::select_all;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A token that is cancelled when the process is asked to end.
pub fn on_signal() -> io::Result<CancellationToken> {
    let mut kinds = vec![SignalKind::interrupt(), SignalKind::terminate(), SignalKind::quit()];
    // A process started with `nohup` should outlive the terminal.
    if !is_ignored(SignalKind::hangup()) {
        kinds.push(SignalKind::hangup());
    }
    let mut signals = kinds.into_iter().map(signal).collect::<io::Result<Vec<_>>>()?;
    let token = CancellationToken::new();
    let asked = token.clone();
    tokio::spawn(async move {
        select_all(signals.iter_mut().map(|signal| Box::pin(signal.recv()))).await;
        tracing::info!("asked to stop: finishing what is under way");
        asked.cancel();
    });
    Ok(token)
}

/// Whether our parent had this signal ignored; false where there is no /proc.
fn is_ignored(kind: SignalKind) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| (mask >> (kind.as_raw_value() - 1)) & 1 == 1)
}
