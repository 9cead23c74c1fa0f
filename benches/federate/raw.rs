//! The plain client: fetches a bundle over and over, each time with a new connection, and discards
//! it. It verifies no certificate, to keep its own cost small.
//!
//! It runs in its own process: this binary, started with [`COMMAND`].

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use clap::Parser;
use openssl::ssl::{SslConnector, SslMethod, SslVerifyMode};
use serde::{Deserialize, Serialize};
use testkit::{figures::Times, process::Process};
use tokio::process::Command;

/// The hidden subcommand.
pub const COMMAND: &str = "raw-fetches";
const TIMEOUT: Duration = Duration::from_secs(30);

/// Arguments of the client.
#[derive(Clone, Parser)]
struct Order {
    #[arg(long)]
    address: SocketAddr,
    #[arg(long)]
    clients: usize,
    #[arg(long)]
    milliseconds: u64,
}

#[derive(Serialize, Deserialize)]
pub struct Found {
    /// Duration of each fetch, in milliseconds.
    times: Vec<f64>,
    seconds: f64,
    /// Processor time of the client.
    processor: f64,
}

impl Found {
    /// Fetches a second.
    pub fn rate(&self) -> f64 {
        self.times.len() as f64 / self.seconds
    }

    pub fn fetches(&self) -> f64 {
        self.times.len() as f64
    }

    pub fn times(&self) -> Times {
        Times::of(self.times.clone())
    }

    /// Processor time of the client per fetch, in milliseconds.
    pub fn processor_each(&self) -> f64 {
        1000.0 * self.processor / self.fetches()
    }
}

/// Runs `clients` concurrent fetchers against an endpoint.
pub async fn fetches(address: SocketAddr, clients: usize, time: Duration) -> anyhow::Result<Found> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(COMMAND).args(["--address", &address.to_string()]);
    command.args(["--clients", &clients.to_string()]);
    command.args(["--milliseconds", &time.as_millis().to_string()]);
    let output = command.stderr(std::process::Stdio::inherit()).output().await?;
    ensure!(output.status.success(), "the plain client failed");
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Runs in a process of its own.
pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    let order = Order::parse_from([COMMAND.to_owned()].iter().chain(arguments));
    let begin = Instant::now();
    let deadline = begin + Duration::from_millis(order.milliseconds);
    // Made once, because it reads all CAs of the machine.
    let mut connector = SslConnector::builder(SslMethod::tls_client())?;
    connector.set_verify(SslVerifyMode::NONE);
    let connector = connector.build();
    let client = || {
        let connector = connector.clone();
        thread::spawn(move || {
            let mut times = Vec::new();
            while Instant::now() < deadline {
                let start = Instant::now();
                fetch(&connector, order.address)?;
                times.push(1000.0 * start.elapsed().as_secs_f64());
            }
            anyhow::Ok(times)
        })
    };
    let clients: Vec<_> = (0..order.clients).map(|_| client()).collect();
    let mut times = Vec::new();
    for client in clients {
        times.extend(client.join().ok().context("a client panicked")??);
    }
    let seconds = begin.elapsed().as_secs_f64();
    let processor = Process::this().busy()?.as_secs_f64();
    println!("{}", serde_json::to_string(&Found { times, seconds, processor })?);
    Ok(())
}

fn fetch(connector: &SslConnector, address: SocketAddr) -> anyhow::Result<()> {
    let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let configured = connector.configure()?.verify_hostname(false);
    let mut stream = configured.connect("localhost", stream)?;
    write!(stream, "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    ensure!(answer.starts_with(b"HTTP/1.1 200 "), "the endpoint did not answer with a bundle");
    Ok(())
}
