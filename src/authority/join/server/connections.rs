//! HTTP/2 connections, and the one method that is served over them.

use std::{convert::Infallible, pin::pin, sync::Arc, time::Duration};

use axum::serve::Listener as _;
use futures::stream;
use http::{Request, Response};
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::JoinSet,
    time::timeout,
};
use tonic::{Status, Streaming, body::Body, server::Grpc};
use tonic_prost::ProstCodec;

use super::{
    JoinService, Peer,
    answer::AnswerBody,
    conversation,
    open_connections::{Connection, OpenConnections, OpenStream},
};
use crate::{
    authority::join::messages::{self, METHOD},
    runtime::tls_listener::TlsListener,
};

const STREAMS_PER_CONNECTION: u32 = 64;
/// What a client may send before we have read it. A message has at most 64 KiB.
const STREAM_WINDOW: u32 = 64 * 1024;
const CONNECTION_WINDOW: u32 = 256 * 1024;
/// What we hold for a client that does not read, apart from one message.
const SEND_BUFFER: usize = 64 * 1024;
const LONGEST_HEADERS: u32 = 8 * 1024;
const LONGEST_MESSAGE: usize = 64 * 1024;
/// Follows a client that vanished without a word.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// For streams under way at the end.
const LAST_STREAMS: Duration = Duration::from_secs(2);

/// Serves until the service is asked to stop.
pub(super) async fn serve(service: Arc<JoinService>, mut listener: TlsListener) {
    let mut tasks = JoinSet::new();
    let mut open = OpenConnections::default();
    loop {
        let (stream, address) = tokio::select! {
            biased;
            () = service.stop.cancelled() => break,
            // Frees what ended connections hold.
            Some(_) = tasks.join_next(), if !tasks.is_empty() => continue,
            accepted = listener.accept() => accepted,
        };
        let Some(connection) = open.admit() else { continue };
        let peer = Peer { address: address.ip().to_canonical() };
        tasks.spawn(serve_connection(service.clone(), stream, peer, connection));
    }
    drop(listener);
    while tasks.join_next().await.is_some() {}
}

async fn serve_connection<S>(
    service: Arc<JoinService>,
    stream: S,
    peer: Peer,
    connection: Arc<Connection>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let stop = service.stop.clone();
    let handler = {
        let connection = connection.clone();
        service_fn(move |request| answer(service.clone(), peer, connection.clone(), request))
    };
    let serving = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_PER_CONNECTION)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .max_header_list_size(LONGEST_HEADERS)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT)
        .serve_connection(TokioIo::new(stream), handler);
    let mut serving = pin!(serving);
    tokio::select! {
        // A client that breaks off is its own affair.
        _ = serving.as_mut() => return,
        () = connection.closed() => return,
        () = connection.idle() => {}
        () = stop.cancelled() => {}
    }
    serving.as_mut().graceful_shutdown();
    let _ = timeout(LAST_STREAMS, serving).await;
}

async fn answer(
    service: Arc<JoinService>,
    peer: Peer,
    connection: Arc<Connection>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    if request.uri().path() != METHOD {
        return Ok(Status::unimplemented("there is no such method").into_http());
    }
    let codec = ProstCodec::<messages::Response, messages::Request>::default();
    let mut grpc = Grpc::new(codec).max_decoding_message_size(LONGEST_MESSAGE);
    let mut body = None;
    let method = tower::service_fn(|request: tonic::Request<Streaming<messages::Request>>| {
        let stream = OpenStream::new(&connection);
        let answers = conversation::start(&service, request.into_inner(), peer, Some(stream));
        let answers = answers.map(|answers| {
            body = Some(AnswerBody::new(answers));
            // tonic would encode each message for each client.
            tonic::Response::new(stream::empty::<Result<messages::Response, Status>>())
        });
        std::future::ready(answers)
    });
    let response = grpc.streaming(method, request).await;
    Ok(match body {
        Some(body) => response.map(|_| Body::new(body)),
        None => response,
    })
}
