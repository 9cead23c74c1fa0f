//! The network namespace of a Pod. The test process forwards connections into it and out of it.
//!
//! A socket stays in the network namespace of the thread that created it. So a thread enters the
//! Pod's namespace to listen or connect, and hands the socket back.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::tied::{self, Tied};
use crate::{Cluster, eventually, http};

/// Address of the Service `kubernetes`, which is in the API server's certificate.
pub const SERVICE: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 0, 0, 1), 443);
/// The Pod's address. Probes and clients use it, so a server that listens only on loopback is not
/// ready.
const POD: Ipv4Addr = Ipv4Addr::new(10, 244, 0, 2);
const TIMEOUT: Duration = Duration::from_secs(2);

/// A network namespace with its forwarders. Dropping it ends them.
pub struct Network {
    /// Process that keeps the namespace alive.
    pause: Tied,
    passing_on: Mutex<JoinSet<()>>,
}

impl Network {
    /// A namespace with the API server at its Service's address, and each of `reaching` at its
    /// address on this machine.
    pub async fn start(cluster: &Cluster, reaching: &[SocketAddr]) -> Self {
        let script = format!(
            "ip link set lo up && ip address add {}/32 dev lo && ip address add {POD}/32 dev lo && exec sleep infinity",
            SERVICE.0
        );
        let mut command = tied::command(Path::new("unshare"), Path::new("/dev/null"), None);
        command.args(["--net", "--", "sh", "-c", &script]);
        let mut pause = Tied::spawn(command).expect("unshare starts");
        let comm = format!("/proc/{}/comm", pause.pid());
        eventually(Duration::from_secs(10), "a Pod has a network", async || {
            assert_eq!(pause.exit_code(), None, "unshare and ip make no network");
            let name = std::fs::read_to_string(&comm).unwrap_or_default();
            if name.trim() == "sleep" { Ok(()) } else { Err(name) }
        })
        .await;
        let network = Self { pause, passing_on: Mutex::default() };
        let api = cluster.url().trim_start_matches("https://").parse().expect("an address");
        network.lead_out(SERVICE.into(), api);
        for address in reaching {
            network.lead_out(*address, *address);
        }
        network
    }

    /// Process id for nsenter.
    pub fn file(&self) -> String {
        format!("/proc/{}/ns/net", self.pause.pid())
    }

    fn lead_out(&self, inside: SocketAddr, outside: SocketAddr) {
        let listener = within(&self.file(), || std::net::TcpListener::bind(inside));
        let listener = listener.and_then(|it| it.set_nonblocking(true).map(|()| it));
        let listener = listener.and_then(TcpListener::from_std).expect("a free port of the Pod");
        self.pass_on(listener, move || TcpStream::connect(outside));
    }

    /// The address outside for a port of the Pod.
    pub async fn publish(&self, port: u16) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let file: Arc<str> = self.file().into();
        self.pass_on(listener, move || {
            let file = file.clone();
            async move {
                let connect = move || {
                    let stream = within(&file, || {
                        std::net::TcpStream::connect_timeout(&pod(port), TIMEOUT)
                    })?;
                    stream.set_nonblocking(true).map(|()| stream)
                };
                let stream =
                    tokio::task::spawn_blocking(connect).await.map_err(io::Error::other)?;
                TcpStream::from_std(stream?)
            }
        });
        address
    }

    fn pass_on<F>(&self, listener: TcpListener, connect: impl Fn() -> F + Send + 'static)
    where
        F: Future<Output = io::Result<TcpStream>> + Send + 'static,
    {
        self.passing_on.lock().expect("the tasks").spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut from, _)) = listener.accept().await {
                let connecting = connect();
                // The client sees the closed connection.
                connections.spawn(async move {
                    if let Ok(mut to) = connecting.await {
                        let _ = copy_bidirectional(&mut from, &mut to).await;
                    }
                });
                while connections.try_join_next().is_some() {}
            }
        });
    }

    /// Whether a probe by HTTP succeeds.
    pub async fn answers(&self, port: u16, path: &str) -> bool {
        let (file, path) = (self.file(), path.to_owned());
        let ask = move || within(&file, || http::get(pod(port), &path, TIMEOUT));
        matches!(tokio::task::spawn_blocking(ask).await, Ok(Ok((200, _))))
    }
}

fn pod(port: u16) -> SocketAddr {
    (POD, port).into()
}

/// Runs `work` in a network namespace, on its own thread.
fn within<T: Send>(network: &str, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let network = File::open(network)?;
    let inside = || {
        move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?;
        work()
    };
    std::thread::scope(|scope| scope.spawn(inside).join().expect("no panic on the way"))
}
