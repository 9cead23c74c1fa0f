//! Fills a cluster, as fast as its API server allows.

use std::{
    io::{IsTerminal, Write},
    time::{Duration, Instant},
};

use futures::{StreamExt, TryStreamExt, stream};
use kube::Client;
use serde_json::{Value, json};

use crate::{
    certificates::Issuer,
    population::{
        HOSTILE, LONE, NAMESPACES, RAW, RouteRef, SHARED, Size, namespace, other_secret, place,
        route, routes_path, secrets_path, tls_secret,
    },
    requests::{create, patch},
};

/// More are no faster on two cores.
const CONCURRENCY: usize = 32;

pub async fn namespaces(client: &Client) -> anyhow::Result<()> {
    let tenants = (0..NAMESPACES).map(namespace);
    for name in tenants.chain([SHARED, LONE, RAW, HOSTILE].map(str::to_owned)) {
        let namespace =
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        create(client, "/api/v1/namespaces", &namespace).await?;
    }
    Ok(())
}

/// Creates the objects that the larger size has in addition.
pub async fn fill(client: &Client, issuer: &Issuer, from: Size, to: Size) -> anyhow::Result<()> {
    let pairs = issuer.pairs(to.routes - from.routes)?;
    all("TLS Secrets", pairs.len(), |number| {
        let place = place(from.routes + number).secret();
        let secret = tls_secret(&place.name, &pairs[number]);
        created(client, secrets_path(&place.namespace), secret)
    })
    .await?;
    all("Routes", pairs.len(), |number| annotated(client, place(from.routes + number), None))
        .await?;
    all("other Secrets", to.others - from.others, |number| {
        let number = from.others + number;
        created(client, secrets_path(&namespace(number)), other_secret(number))
    })
    .await
}

/// Creates a Route for that Secret, or for the Secret with the Route's name.
pub async fn annotated(client: &Client, at: RouteRef, secret: Option<&str>) -> anyhow::Result<()> {
    let own = at.secret();
    let route = route(&at.name, Some(secret.unwrap_or(&own.name)));
    created(client, routes_path(&at.namespace), route).await
}

pub async fn created(client: &Client, path: String, object: Value) -> anyhow::Result<()> {
    create(client, &path, &object).await
}

pub async fn patched(client: &Client, path: String, change: Value) -> anyhow::Result<()> {
    patch(client, &path, &change).await.map(drop)
}

/// Runs `work` for every number, many at once.
pub async fn all<F>(what: &str, count: usize, work: impl Fn(usize) -> F) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let mut progress = Progress::of(what, count);
    let mut done = stream::iter(0..count).map(work).buffer_unordered(CONCURRENCY);
    while done.try_next().await?.is_some() {
        progress.step();
    }
    Ok(())
}

/// A progress line: updated in place in a terminal, printed every ten seconds elsewhere.
pub struct Progress<'a> {
    what: &'a str,
    count: usize,
    done: usize,
    begin: Instant,
    shown: Instant,
}

impl<'a> Progress<'a> {
    pub fn of(what: &'a str, count: usize) -> Self {
        Self { what, count, done: 0, begin: Instant::now(), shown: Instant::now() }
    }

    pub fn step(&mut self) {
        self.done += 1;
        let (last, terminal) = (self.done == self.count, std::io::stderr().is_terminal());
        let often = if terminal { Duration::from_millis(200) } else { Duration::from_secs(10) };
        if !last && self.shown.elapsed() < often {
            return;
        }
        self.shown = Instant::now();
        let rate = self.done as f64 / self.begin.elapsed().as_secs_f64();
        let (start, end) = if terminal { ("\r", "\x1b[K") } else { ("", "") };
        let line = format!("{}/{} {}, {rate:.0}/s", self.done, self.count, self.what);
        let newline = if last || !terminal { "\n" } else { "" };
        let mut output = std::io::stderr().lock();
        // Progress output may fail.
        let _ = write!(output, "{start}{line}{end}{newline}").and_then(|()| output.flush());
    }
}
