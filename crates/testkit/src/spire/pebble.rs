//! Pebble, a real ACME server. It validates every name by TLS-ALPN-01 at one loopback port: that of
//! a router, or of a bundle endpoint itself.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

use super::{is_open, keeper_of, program, web};
use crate::tied::{self, Tied};
use crate::{Pair, eventually, free_port, pair, scratch_folder, suite};

/// A running ACME server. It ends with the test.
pub struct Pebble {
    _process: Tied,
    _keeper: Tied,
    resolving: JoinHandle<()>,
    address: SocketAddr,
    management: SocketAddr,
    own: Pair,
}

impl Pebble {
    /// Starts one that validates challenges at this port.
    pub async fn start(challenged_port: u16) -> Self {
        let own = pair::Order::of("localhost").make();
        let folder = scratch_folder().expect("a folder");
        let file = |name: &str| folder.join(name);
        suite::write_private(&file("tls.crt"), &own.certificate);
        suite::write_private(&file("tls.key"), &own.key);
        let free = || SocketAddr::from(([127, 0, 0, 1], free_port().expect("a free port")));
        let (address, management) = (free(), free());
        let conf = json!({ "pebble": {
            "listenAddress": address,
            "managementListenAddress": management,
            "certificate": file("tls.crt"),
            "privateKey": file("tls.key"),
            "tlsPort": challenged_port,
            "httpPort": challenged_port,
        }});
        suite::write_private(&file("pebble.json"), &conf.to_string());
        let (resolver, resolving) = resolve_all_to_loopback().await;

        let log = suite::subfolder("spire").join(format!("pebble-{}.log", suite::next_number()));
        let mut command = tied::command(&program("pebble"), &log, None);
        command
            .arg("-config")
            .arg(file("pebble.json"))
            .args(["-dnsserver", &resolver.to_string()])
            // By default it waits and refuses requests at random, to test clients.
            .env("PEBBLE_VA_NOSLEEP", "1")
            .env("PEBBLE_WFE_NONCEREJECT", "0");
        let process = Tied::spawn(command).expect("pebble starts");
        let pebble = Self {
            _process: process,
            _keeper: keeper_of(&folder),
            resolving,
            address,
            management,
            own,
        };
        eventually(Duration::from_secs(30), "Pebble listens", async || {
            let open = is_open(address).await && is_open(management).await;
            if open { Ok(()) } else { Err(std::fs::read_to_string(&log).unwrap_or_default()) }
        })
        .await;
        pebble
    }

    /// The value for `directory_url`.
    pub fn directory_url(&self) -> String {
        format!("https://localhost:{}/dir", self.address.port())
    }

    /// CA of its own certificate, in PEM.
    pub fn authority(&self) -> &str {
        &self.own.authority
    }

    /// CA of the certificates that it issues, in PEM. A new one at every start.
    pub async fn issuing_authority(&self) -> String {
        web::get(self.management, "localhost", self.authority(), "/roots/0")
            .await
            .expect("Pebble shows its root")
            .body
    }
}

impl Drop for Pebble {
    fn drop(&mut self) {
        self.resolving.abort();
    }
}

/// A name server with a single answer.
async fn resolve_all_to_loopback() -> (SocketAddr, JoinHandle<()>) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a free port");
    let address = socket.local_addr().expect("an address");
    let answering = tokio::spawn(async move {
        let mut buffer = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            if let Some(answer) = answer_to(&buffer[..length]) {
                let _ = socket.send_to(&answer, from).await;
            }
        }
    });
    (address, answering)
}

/// Answers every query for an IPv4 address with loopback, and others with nothing (RFC 1035,
/// section 4).
fn answer_to(query: &[u8]) -> Option<Vec<u8>> {
    const HEADER: usize = 12;
    const POINTER_TO_NAME: [u8; 2] = [0xc0, HEADER as u8];
    const A: [u8; 4] = [0, 1, 0, 1];
    let name_ends = HEADER + query.get(HEADER..)?.iter().position(|&byte| byte == 0)? + 1;
    let question_ends = name_ends + A.len();
    let asked = query.get(name_ends..question_ends)?;
    let found = u8::from(asked == A);
    // The query's ID, flags of a successful answer, one question, and the number of answers.
    let mut answer = [&query[..2], &[0x85, 0x80, 0, 1, 0, found, 0, 0, 0, 0]].concat();
    answer.extend(&query[HEADER..question_ends]);
    if found == 1 {
        let (ttl, length) = ([0, 0, 0, 1], [0, 4]);
        answer.extend([&POINTER_TO_NAME[..], &A, &ttl, &length, &[127, 0, 0, 1]].concat());
    }
    Some(answer)
}
