//! The client: so many connections, each of which asks again as soon as it was answered.
//!
//! It runs in its own process: this binary, started with [`COMMAND`].

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use clap::Parser;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    process::Command,
    task::JoinSet,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// The hidden subcommand.
pub const COMMAND: &str = "keep-alive-client";

/// What it asks for.
#[derive(Clone, Parser)]
pub struct Order {
    #[arg(long)]
    pub address: SocketAddr,
    #[arg(long)]
    pub path: String,
    /// The document that it has already
    #[arg(long)]
    pub etag: Option<String>,
    #[arg(long)]
    pub clients: usize,
    #[arg(long)]
    pub milliseconds: u64,
    /// The CA of the server, in PEM
    #[arg(long)]
    pub ca: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct Found {
    answers: u64,
    seconds: f64,
}

/// Answers a second.
pub async fn rate(order: &Order) -> anyhow::Result<f64> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(COMMAND).args(["--address", &order.address.to_string(), "--path", &order.path]);
    command.args(["--clients", &order.clients.to_string()]);
    command.args(["--milliseconds", &order.milliseconds.to_string()]).arg("--ca").arg(&order.ca);
    command.args(order.etag.iter().flat_map(|etag| ["--etag", etag]));
    let output = command.stderr(std::process::Stdio::inherit()).output().await?;
    ensure!(output.status.success(), "the client failed");
    let Found { answers, seconds } = serde_json::from_slice(&output.stdout)?;
    Ok(answers as f64 / seconds)
}

/// Runs in a process of its own.
pub async fn run(arguments: &[String]) -> anyhow::Result<()> {
    let order = Arc::new(Order::parse_from([COMMAND.to_owned()].iter().chain(arguments)));
    let connector = connector(&order.ca)?;
    let mut connections = Vec::new();
    for _ in 0..order.clients {
        connections.push(connect(&connector, order.address).await?);
    }
    // The handshakes are over.
    let begin = Instant::now();
    let deadline = begin + Duration::from_millis(order.milliseconds);
    let mut clients = JoinSet::new();
    for connection in connections {
        clients.spawn(ask_until(deadline, connection, order.clone()));
    }
    let mut answers = 0;
    while let Some(client) = clients.join_next().await {
        answers += client??;
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!("{}", serde_json::to_string(&Found { answers, seconds })?);
    Ok(())
}

fn connector(ca: &Path) -> anyhow::Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&fs::read(ca)?).context("a certificate")?)?;
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

async fn connect(
    connector: &TlsConnector,
    address: SocketAddr,
) -> anyhow::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(connector.connect(ServerName::try_from("localhost")?, stream).await?)
}

async fn ask_until(
    deadline: Instant,
    mut stream: TlsStream<TcpStream>,
    order: Arc<Order>,
) -> anyhow::Result<u64> {
    let condition = order.etag.as_ref().map(|etag| format!("If-None-Match: {etag}\r\n"));
    let condition = condition.unwrap_or_default();
    let request = format!("GET {} HTTP/1.1\r\nHost: localhost\r\n{condition}\r\n", order.path);
    let expected = if order.etag.is_some() { "HTTP/1.1 304 " } else { "HTTP/1.1 200 " };
    stream.write_all(request.as_bytes()).await?;
    // All answers have the length of the first.
    let mut answer = first_answer(&mut stream, order.etag.is_none()).await?;
    let mut answers = 1;
    while Instant::now() < deadline {
        stream.write_all(request.as_bytes()).await?;
        stream.read_exact(&mut answer).await?;
        ensure!(answer.starts_with(expected.as_bytes()), "another answer than {expected}");
        answers += 1;
    }
    Ok(answers)
}

async fn first_answer(
    stream: &mut TlsStream<TcpStream>,
    has_body: bool,
) -> anyhow::Result<Vec<u8>> {
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&answer).to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length: usize = length.map_or(Ok(0), |it| it.trim().parse())?;
    let body = answer.len()..answer.len() + if has_body { length } else { 0 };
    answer.resize(body.end, 0);
    stream.read_exact(&mut answer[body]).await?;
    Ok(answer)
}
