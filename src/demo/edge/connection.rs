//! One connection to the edge, from its first message to its last answer.

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header, uri::Authority,
};
use http_body_util::{Either, Full};
use hyper::{body::Incoming, client, server, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncWriteExt, copy_bidirectional},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{StartHandshake, TlsConnector};

use super::{
    CERTIFICATE_HEADER, EDGE_HEADER, Edge, ROUTE_HEADER,
    admit::{Certificate, Termination},
    backend::{Destination, Speaking, Stream},
    hello::Hello,
    table::{Connection, Entry, Found},
};

/// For the ClientHello, each TLS handshake and the headers of a request.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

type Body = Either<Full<Bytes>, Incoming>;

/// The certificate of a connection's handshake.
struct Opened {
    certificate: Arc<Certificate>,
    is_default: bool,
    host: String,
    client: SocketAddr,
}

impl Opened {
    fn line(&self) -> String {
        let which = if self.is_default { "the edge's default certificate" } else { "certificate" };
        format!("{which} {}", self.certificate.summary)
    }
}

pub async fn serve(edge: Arc<Edge>, mut stream: TcpStream, client: SocketAddr) {
    let Ok(Ok(Some(hello))) = timeout(HANDSHAKE_TIMEOUT, Hello::read(&mut stream)).await else {
        return;
    };
    let host = hello.host();
    // The decision holds for the whole connection, even if the Route changes meanwhile.
    let decided = edge.table().connection(&host);
    match decided {
        Connection::Pass(route) => forward_passthrough(&edge, &route, stream, &hello.bytes).await,
        Connection::Terminate(own) => {
            let is_default = own.is_none();
            let certificate = own.unwrap_or_else(|| edge.default.clone());
            let opened = Opened { certificate, is_default, host, client };
            terminate(edge, stream, hello, Arc::new(opened)).await;
        }
    }
}

/// Forwards the bytes undecrypted, including the ClientHello.
async fn forward_passthrough(edge: &Edge, route: &Entry, mut stream: TcpStream, hello: &[u8]) {
    let destination = edge.backends.destination(route).await;
    let Ok(mut backend) = edge.backends.connect(route, destination, Speaking::Tls).await else {
        return;
    };
    if backend.write_all(hello).await.is_ok() {
        let _ = copy_bidirectional(&mut stream, &mut backend).await;
    }
}

async fn terminate(edge: Arc<Edge>, stream: TcpStream, hello: Hello, opened: Arc<Opened>) {
    let config = edge.config(&opened.certificate);
    let handshake = StartHandshake::from_parts(hello.accepted, stream).into_stream(config);
    let Ok(Ok(stream)) = timeout(HANDSHAKE_TIMEOUT, handshake).await else { return };
    let service = service_fn(move |request| {
        let (edge, opened) = (edge.clone(), opened.clone());
        async move { Ok::<_, Infallible>(answer(&edge, &opened, request).await) }
    });
    let _ = server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HANDSHAKE_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn answer(edge: &Edge, opened: &Opened, request: Request<Incoming>) -> Response<Body> {
    // As in a router, the handshake selects the certificate, and each request its Route.
    let host = asked_host(&request).unwrap_or_else(|| opened.host.clone());
    let with = opened.line();
    let found = edge.table().find(&host, request.uri().path());
    let (route, mut response) = match found {
        Found::NoRoute => {
            let line = format!("No Route is served at {host}{} | {with}", request.uri().path());
            (None, line_response(StatusCode::SERVICE_UNAVAILABLE, &line))
        }
        Found::Refused(route, why) => {
            let line = format!("Route {} is not admitted: {why} | {with}", route.at);
            (Some(route), line_response(StatusCode::SERVICE_UNAVAILABLE, &line))
        }
        Found::Route(route, offer) => {
            let mut line = format!("Route {} ({}) | {with}", route.at, offer.termination.as_str());
            if let Some(remark) = &offer.remark {
                line = format!("{line} | {remark}");
            }
            let response = serve_route(edge, &route, &offer.termination, request, opened, line);
            (Some(route.clone()), response.await)
        }
    };
    let route = route.map_or("none".to_owned(), |route| route.at.to_string());
    let headers = response.headers_mut();
    set(headers, ROUTE_HEADER, &route);
    set(headers, CERTIFICATE_HEADER, &format!("sha256:{}", opened.certificate.summary.sha256));
    response
}

async fn serve_route(
    edge: &Edge,
    route: &Entry,
    termination: &Termination,
    request: Request<Incoming>,
    opened: &Opened,
    line: String,
) -> Response<Body> {
    let destination = edge.backends.destination(route).await;
    let forwarded = match (termination, destination) {
        (Termination::None | Termination::Passthrough, _) => {
            let line = format!("{line} | nothing is served here for this Route");
            return line_response(StatusCode::SERVICE_UNAVAILABLE, &line);
        }
        (Termination::Edge, Destination::BuiltIn) => return line_response(StatusCode::OK, &line),
        (Termination::Edge, _) => connect(edge, route, destination, None).await,
        (Termination::Reencrypt(trust), _) => connect(edge, route, destination, Some(trust)).await,
    };
    let answered = match forwarded {
        Ok(stream) => {
            forward(stream, request, opened, &line).await.map_err(|error| error.to_string())
        }
        Err(why) => Err(why),
    };
    answered.unwrap_or_else(|why| {
        let line = format!("{line} | the backend can't be used: {why}");
        line_response(StatusCode::SERVICE_UNAVAILABLE, &line)
    })
}

/// Connects to the backend, over TLS of the edge's own for `reencrypt` Routes.
async fn connect(
    edge: &Edge,
    route: &Entry,
    destination: Destination,
    trust: Option<&Arc<ClientConfig>>,
) -> Result<Box<dyn Stream>, String> {
    let speaking = if trust.is_some() { Speaking::Tls } else { Speaking::Plain };
    let connected = edge.backends.connect(route, destination, speaking).await;
    let stream = connected.map_err(|error| error.to_string())?;
    let Some(trust) = trust else { return Ok(stream) };
    let name = format!("{}.{}.svc", route.spec.to.name, route.at.namespace);
    let name = ServerName::try_from(name).map_err(|error| error.to_string())?;
    let handshake = TlsConnector::from(trust.clone()).connect(name, stream);
    match timeout(HANDSHAKE_TIMEOUT, handshake).await {
        Ok(Ok(stream)) => Ok(Box::new(stream)),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("no TLS handshake in time".to_owned()),
    }
}

async fn forward(
    stream: Box<dyn Stream>,
    mut request: Request<Incoming>,
    opened: &Opened,
    line: &str,
) -> Result<Response<Body>, hyper::Error> {
    let (mut sender, connection) = client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // This task ends with the answer's body, and that with the client's connection.
    tokio::spawn(connection);
    let headers = request.headers_mut();
    drop_hop_by_hop(headers);
    set(headers, EDGE_HEADER, line);
    set(headers, HeaderName::from_static("x-forwarded-proto"), "https");
    set(headers, HeaderName::from_static("x-forwarded-host"), &opened.host);
    set(headers, HeaderName::from_static("x-forwarded-for"), &opened.client.ip().to_string());
    let mut response = sender.send_request(request).await?;
    drop_hop_by_hop(response.headers_mut());
    Ok(response.map(Either::Right))
}

/// Hop-by-hop headers are not forwarded.
fn drop_hop_by_hop(headers: &mut HeaderMap) {
    for name in [header::CONNECTION, header::UPGRADE, header::TE, header::PROXY_AUTHENTICATE] {
        headers.remove(name);
    }
}

/// The host of a request, without its port.
fn asked_host<B>(request: &Request<B>) -> Option<String> {
    let host = request.headers().get(header::HOST)?.to_str().ok()?;
    let host: Authority = host.parse().ok()?;
    Some(host.host().to_owned())
}

fn line_response(status: StatusCode, line: &str) -> Response<Body> {
    let mut response = Response::new(Either::Left(Full::from(format!("{line}\n"))));
    *response.status_mut() = status;
    set(response.headers_mut(), header::CONTENT_TYPE, "text/plain; charset=utf-8");
    response
}

/// Sets a header, or removes it if the value is not allowed in headers.
fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    headers.remove(&name);
    if let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) {
        headers.insert(name, value);
    }
}
