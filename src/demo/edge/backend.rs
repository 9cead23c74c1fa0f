//! Backends of the edge: a port of this machine, or else a small server in this process that
//! answers with the request it got. The edge never connects to another machine.

use std::{
    collections::HashMap,
    convert::Infallible,
    fmt,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use k8s_openapi::{
    api::core::v1::{Service, ServiceSpec},
    apimachinery::pkg::util::intstr::IntOrString,
};
use kube::{Api, Client};
use rustls::{
    ServerConfig,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, DuplexStream},
    net::TcpStream,
};
use tokio_rustls::TlsAcceptor;

use super::{EDGE_HEADER, admit::Certificate, base_config, table::Entry};
use crate::{
    demo::{authority::Authority, certificate_summary::CertificateSummary},
    k8s::object_ref::ObjectRef,
    runtime::clock::Clock,
};

pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// The server in this process.
    BuiltIn,
    /// This port of the machine.
    Local(SocketAddr),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaking {
    Plain,
    /// TLS of the client or of the edge.
    Tls,
}

pub struct Backends {
    client: Client,
    tls: TlsAcceptor,
}

impl Backends {
    /// `authority` issues the certificates of the server in this process.
    pub fn new(client: Client, authority: Authority, clock: Clock) -> Result<Self, rustls::Error> {
        let issuer = Issuer { authority, clock, issued: Mutex::default() };
        let tls: ServerConfig = base_config(Arc::new(issuer))?;
        Ok(Self { client, tls: TlsAcceptor::from(Arc::new(tls)) })
    }

    ///
    /// A Service of type ExternalName for this machine leads to one of its ports. Any other, even
    /// one that does not exist, leads to the server in this process.
    pub async fn destination(&self, route: &Entry) -> Destination {
        let services: Api<Service> = Api::namespaced(self.client.clone(), &route.at.namespace);
        let service = services.get_opt(&route.spec.to.name).await.ok().flatten();
        let spec = service.and_then(|service| service.spec).unwrap_or_default();
        let target = route.spec.port.as_ref().map(|port| &port.target_port);
        local_port(&spec, target).map_or(Destination::BuiltIn, |port| {
            Destination::Local((Ipv4Addr::LOCALHOST, port).into())
        })
    }

    /// Connects to a Route's backend.
    pub async fn connect(
        &self,
        route: &Entry,
        destination: Destination,
        speaking: Speaking,
    ) -> std::io::Result<Box<dyn Stream>> {
        match destination {
            Destination::Local(address) => Ok(Box::new(TcpStream::connect(address).await?)),
            Destination::BuiltIn => {
                const BUFFER: usize = 64 * 1024;
                let (near, far) = tokio::io::duplex(BUFFER);
                let service = ObjectRef::new(route.at.namespace.clone(), &*route.spec.to.name);
                tokio::spawn(serve(far, service, speaking, self.tls.clone()));
                Ok(Box::new(near))
            }
        }
    }
}

/// The port of this machine that a Service points to.
fn local_port(service: &ServiceSpec, target: Option<&IntOrString>) -> Option<u16> {
    let here = ["localhost", "127.0.0.1"];
    if service.type_.as_deref() != Some("ExternalName")
        || !service.external_name.as_deref().is_some_and(|name| here.contains(&name))
    {
        return None;
    }
    let ports = service.ports.as_deref().unwrap_or_default();
    let port = match target {
        Some(IntOrString::Int(number)) => *number,
        Some(IntOrString::String(name)) => {
            ports.iter().find(|port| port.name.as_deref() == Some(name))?.port
        }
        None => ports.first()?.port,
    };
    u16::try_from(port).ok().filter(|port| *port != 0)
}

/// Serves one connection to the server in this process.
async fn serve(stream: DuplexStream, service: ObjectRef, speaking: Speaking, tls: TlsAcceptor) {
    match speaking {
        Speaking::Plain => respond(stream, format!("Service {service} over plain HTTP")).await,
        Speaking::Tls => {
            let Ok(stream) = tls.accept(stream).await else { return };
            let connection = stream.get_ref().1;
            let name = connection.server_name().unwrap_or_default().to_owned();
            respond(stream, format!("Service {service} over TLS, as {name:?}")).await;
        }
    }
}

async fn respond(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, who: String) {
    let service = service_fn(move |request: Request<Incoming>| {
        // Passthrough connections have no headers of the edge, which does not decrypt them.
        let line = match request.headers().get(EDGE_HEADER) {
            Some(edge) => format!("{} | {who}\n", String::from_utf8_lossy(edge.as_bytes())),
            None => format!("{who}\n"),
        };
        async move { Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(line))) }
    });
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

/// Issues one certificate for each requested name.
struct Issuer {
    authority: Authority,
    clock: Clock,
    issued: Mutex<HashMap<String, Arc<CertifiedKey>>>,
}

impl Issuer {
    /// Bounded, because clients of a wildcard Route can request any number of names.
    const MAX_CERTIFICATES: usize = 1000;

    fn certificate(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        let mut issued = self.issued.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = issued.get(name) {
            return Some(known.clone());
        }
        if issued.len() >= Self::MAX_CERTIFICATES {
            issued.clear();
        }
        let new = self.authority.issue(&[name], self.clock.now()).ok()?;
        let new = Certificate::new(vec![new.der.clone()], &new.key_der()).ok()?.certified;
        issued.insert(name.to_owned(), new.clone());
        Some(new)
    }
}

impl ResolvesServerCert for Issuer {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.certificate(hello.server_name().unwrap_or("backend.sandbox.localhost"))
    }
}

impl fmt::Debug for Issuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issuer")
            .field("authority", &CertificateSummary::of(self.authority.der()))
            .finish_non_exhaustive()
    }
}
