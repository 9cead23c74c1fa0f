//! An address that leads to one server after another.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// Forwards TCP connections. Those that are open stay where they are, so a server that ends can finish what is
/// under way.
pub struct Switch {
    address: SocketAddr,
    target: Arc<Mutex<SocketAddr>>,
    accepting: JoinHandle<()>,
}

impl Switch {
    /// Runs on the runtime of the caller.
    pub async fn start(target: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let target = Arc::new(Mutex::new(target));
        let accepting = tokio::spawn(accept(listener, target.clone()));
        Ok(Self { address, target, accepting })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Leads new connections to another server.
    pub fn lead_to(&self, target: SocketAddr) {
        *self.target.lock().expect("nobody panics with it") = target;
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, target: Arc<Mutex<SocketAddr>>) {
    while let Ok((mut from, _)) = listener.accept().await {
        let target = *target.lock().expect("nobody panics with it");
        tokio::spawn(async move {
            if let Ok(mut to) = TcpStream::connect(target).await {
                let _ = copy_bidirectional(&mut from, &mut to).await;
            }
        });
    }
}
