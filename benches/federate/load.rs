//! Load on a bundle endpoint: the real SPIRE server's, and for comparison a minimal one in this
//! process. Every fetch is a new connection, like those of peers.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::{process::Process, report::Table, spire::SpireServer};

use crate::{
    peers::Peers,
    raw::{self, Found},
};

/// If rates differ by more, the machine was not quiet.
const QUIET: f64 = 0.15;
/// Peers of the largest federation, each with a SPIRE server and a controller that poll, by default
/// every 75 seconds.
const MOST_A_SECOND: f64 = 50.0 * 2.0 / 75.0;

/// Both endpoints with different numbers of clients.
pub struct Load {
    tries: Vec<Try>,
}

struct Try {
    clients: usize,
    spire: Found,
    /// Processor time of the SPIRE server, in seconds.
    spire_processor: f64,
    /// Memory of the SPIRE server, in MB.
    resident: f64,
    plain: Found,
}

impl Load {
    pub async fn measure(clients: &[usize], each: Duration) -> anyhow::Result<Self> {
        let server = SpireServer::start("bench-load", conf()).await;
        let peers = Peers::start(1).await?;
        let mut tries = Vec::new();
        for clients in clients.iter().copied() {
            let process = Process(server.pid());
            let before = process.busy()?;
            let spire = raw::fetches(server.federation_address(), clients, each).await?;
            let spire_processor = process.busy()?.saturating_sub(before).as_secs_f64();
            let resident = process.resident()?;
            let plain = raw::fetches(peers.all[0].address, clients, each).await?;
            tries.push(Try { clients, spire, spire_processor, resident, plain });
        }
        Ok(Self { tries })
    }

    pub fn table(&self) -> Table {
        let column = |it: &Try| match it.clients {
            1 => "1 client".to_owned(),
            several => format!("{several} clients"),
        };
        let tries = &self.tries;
        let mut table = Table::new("load on an endpoint", tries.iter().map(column).collect());
        let most = tries.iter().map(|it| it.spire.rate()).fold(0.0, f64::max);
        let share = format!(
            "50 peers with a refresh hint of 300 s come to {MOST_A_SECOND:.1}/s: {:.2} % of the best",
            100.0 * MOST_A_SECOND / most
        );
        table.row("SPIRE server: fetches a second", "/s", tries, |it| it.spire.rate(), share);
        table.row("- p50", "ms", tries, |it| it.spire.times().at(0.5), "");
        table.row("- p99", "ms", tries, |it| it.spire.times().at(0.99), "");
        let each = |it: &Try| 1000.0 * it.spire_processor / it.spire.fetches();
        table.row("- on a processor, each fetch", "ms", tries, each, "the server's part");
        table.row("- memory", "MB", tries, |it| it.resident, "resident, afterwards");
        let remark = "the same client; an endpoint that does nothing else, in the bench's process";
        table.row("plain endpoint: fetches a second", "/s", tries, |it| it.plain.rate(), remark);
        table.row("- p99", "ms", tries, |it| it.plain.times().at(0.99), "");
        let ratio = |it: &Try| it.spire.rate() / it.plain.rate();
        table.row("SPIRE server, share of the plain endpoint", "", tries, ratio, "");
        table
    }

    /// Why the run is void, from a second measurement of the same endpoints at the end.
    pub fn void_against(&self, later: &Self) -> Option<String> {
        let rate = |load: &Self, clients: usize| {
            load.tries.iter().find(|it| it.clients == clients).map(|it| it.plain.rate())
        };
        let both = later
            .tries
            .iter()
            .filter_map(|it| Some((it.clients, rate(self, it.clients)?, it.plain.rate())));
        both.into_iter().find_map(|(clients, before, after)| {
            let differs = (after / before - 1.0).abs() > QUIET;
            differs.then(|| {
                format!(
                    "the plain endpoint answered {before:.0}/s to {clients} clients before, and \
                     {after:.0}/s afterwards: something else kept the machine busy"
                )
            })
        })
    }
}

/// A SPIRE server with an endpoint and without peers.
fn conf() -> Value {
    json!({
        "server": {
            "bind_address": "127.0.0.1",
            "bind_port": "8081",
            "trust_domain": "a.test",
            "log_level": "WARN",
            "ca_key_type": "ec-p256",
            "federation": { "bundle_endpoint": {
                "address": "0.0.0.0",
                "port": 8443,
                "refresh_hint": "300s",
                "profile": { "https_spiffe": {} },
            }},
        },
        "plugins": {
            "DataStore": [{ "sql": { "plugin_data": { "database_type": "sqlite3" } } }],
            "KeyManager": [{ "disk": { "plugin_data": {} } }],
        },
    })
}
