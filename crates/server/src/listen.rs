//! Serves the gateway on a TCP port or a Unix socket, with optional TLS, connection timeouts and a
//! graceful shutdown.

mod listener;
mod socket;
mod tls;
mod watchdog;

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use axum::http::header::HOST;
use axum::http::uri::{PathAndQuery, Scheme};
use axum::http::{Request, Uri};
use axum::response::Response;
use futures_util::future::{OptionFuture, join};
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use rustls::ServerConfig;
use throughline_replay::Replay;
use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::http::{HttpService, ServerHandle};
pub use crate::listen::listener::GatewayListener;
use crate::listen::socket::{ClientSocket, ClientStream};
pub use crate::listen::tls::{SharedTls, TlsError, TlsSettings};
use crate::telemetry::{Limits, Telemetry};

/// Interval for saving usage and for reading the usage that other processes saved.
const SETTLE_INTERVAL: Duration = Duration::from_secs(1);
/// Delay before the next accept if the system runs out of a resource, such as file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);
/// Keep-alive interval and timeout of HTTP/2 connections.
const SIGN_OF_LIFE: Duration = Duration::from_secs(20);
/// Maximum number of concurrent HTTP/2 streams per connection.
const MAX_STREAMS_PER_CONNECTION: u32 = 256;

/// Serves requests until `stop` completes. Then waits for open responses until the shutdown limit
/// expires or `hurry` completes, and saves the usage.
pub async fn serve(
    server: impl Into<ServerHandle>,
    listener: impl Into<GatewayListener>,
    stop: impl Future<Output = ()> + Send,
    hurry: impl Future<Output = ()> + Send,
) {
    // The server is compiled in this crate, not again in each crate that calls this function.
    serve_until(server.into(), listener.into(), pin!(stop), pin!(hurry)).await;
}

/// A future that the caller owns.
type Signal<'a> = Pin<&'a mut (dyn Future<Output = ()> + Send)>;

async fn serve_until(
    handle: ServerHandle,
    listener: GatewayListener,
    mut stop: Signal<'_>,
    hurry: Signal<'_>,
) {
    let server = handle.current();
    let (operations, agents) = (Arc::clone(&server.gateway.operations), server.agents.clone());
    let replay = Arc::clone(&server.gateway.replay);
    // A reload replaces this server.
    drop(server);
    let limits = operations.limits;
    let mut connections = Connections::new(handle.service(), Arc::clone(&replay), limits);
    let mut settling = JoinSet::new();
    settling.spawn(settle_periodically(Arc::clone(&operations)));
    if let Some(agents) = &agents {
        settling.spawn(Arc::clone(&agents.drives).sweep());
    }
    // The gateway also runs without a watchdog, but then probes get no answer while all workers are
    // blocked.
    let (watchdog, mut handed) = listener.start_watchdog().unzip();
    if let Some(watchdog) = &watchdog {
        settling.spawn(watchdog.ticks());
    }
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            // Without a watchdog, this branch never completes.
            Some(Some(stream)) = OptionFuture::from(handed.as_mut().map(UnboundedReceiver::recv)) => {
                TcpStream::from_std(stream).map(ClientStream::Tcp)
            }
            Some(_) = connections.tasks.join_next() => continue,
            () = &mut stop => break,
        };
        match accepted {
            Ok(stream) => connections.open(stream, listener.tls()),
            Err(error) if is_connection_error(&error) => {}
            // The system lacks a resource, such as file descriptors, which may be available again
            // soon.
            Err(_) => sleep(ACCEPT_RETRY_DELAY).await,
        }
    }
    // Probes over open connections must fail before new connections are refused.
    operations.sockets.begin_drain();
    drop((listener, watchdog));
    let Connections { shutdown, mut tasks, .. } = connections;
    // A WebSocket is no connection of hyper any more.
    let all_closed = join(shutdown.shutdown(), operations.sockets.drain());
    tokio::select! {
        ended = timeout(limits.shutdown, all_closed) => drop(ended),
        () = hurry => {}
    }
    operations.sockets.stop();
    tasks.shutdown().await;
    if let Some(agents) = agents {
        // No client waits for a response any more. An unfinished run continues in another process,
        // or after a restart.
        agents.drives.stop(limits.capture).await;
    }
    settling.shutdown().await;
    drop(timeout(limits.shutdown, replay.all_settled()).await);
    operations.finish().await;
}

/// The open connections, and what a new connection needs.
struct Connections {
    builder: Builder<TokioExecutor>,
    service: HttpService,
    replay: Arc<Replay>,
    limits: Limits,
    shutdown: GracefulShutdown,
    tasks: JoinSet<()>,
}

impl Connections {
    fn new(service: HttpService, replay: Arc<Replay>, limits: Limits) -> Self {
        let (shutdown, tasks) = (GracefulShutdown::new(), JoinSet::new());
        Self { builder: builder(&limits), service, replay, limits, shutdown, tasks }
    }

    /// Serves a new connection in its own task.
    fn open(&mut self, stream: ClientStream, tls: Option<Arc<ServerConfig>>) {
        let (replay, limits) = (Arc::clone(&self.replay), self.limits);
        let service = ClientService { service: self.service.clone(), is_tls: tls.is_some() };
        let Some(tls) = tls else {
            let socket = ClientSocket::new(stream, limits.headers, limits.slow_reader);
            let connection =
                self.builder.serve_connection_with_upgrades(TokioIo::new(socket), service);
            let connection = self.shutdown.watch(connection.into_owned());
            self.tasks.spawn(async move {
                replay.calls().disconnects().wait_until_drained().await;
                drop(connection.await);
            });
            return;
        };
        let (watcher, builder) = (self.shutdown.watcher(), self.builder.clone());
        self.tasks.spawn(async move {
            let stream = timeout(limits.headers, Box::pin(stream.encrypt(tls))).await;
            let Ok(Ok(stream)) = stream else { return };
            replay.calls().disconnects().wait_until_drained().await;
            let socket = ClientSocket::new(stream, limits.headers, limits.slow_reader);
            let connection = builder.serve_connection_with_upgrades(TokioIo::new(socket), service);
            drop(watcher.watch(connection.into_owned()).await);
        });
    }
}

/// Serves the requests of one connection.
struct ClientService {
    service: HttpService,
    is_tls: bool,
}

impl Service<Request<Incoming>> for ClientService {
    type Response = Response;
    type Error = Infallible;
    type Future = <HttpService as Service<Request<Incoming>>>::Future;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        if self.is_tls {
            add_https_scheme(&mut request);
        }
        self.service.call(request)
    }
}

/// Completes the URI of an HTTP/1.1 request with the scheme and the host, as in HTTP/2.
fn add_https_scheme<B>(request: &mut Request<B>) {
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    let Some(host) = host.filter(|_| request.uri().scheme().is_none()) else { return };
    let path = request.uri().path_and_query().map_or("/", PathAndQuery::as_str);
    let complete = Uri::builder().scheme(Scheme::HTTPS).authority(host).path_and_query(path);
    // A request with an invalid host keeps its URI.
    if let Ok(uri) = complete.build() {
        *request.uri_mut() = uri;
    }
}

fn builder(limits: &Limits) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(limits.headers);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(SIGN_OF_LIFE)
        .keep_alive_timeout(SIGN_OF_LIFE)
        .max_concurrent_streams(MAX_STREAMS_PER_CONNECTION);
    builder
}

/// Returns whether an accept error affects only one connection, so that accepting can continue
/// immediately.
fn is_connection_error(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
    )
}

async fn settle_periodically(operations: Arc<Telemetry>) {
    let mut ticks = interval(SETTLE_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        operations.save_usage().await;
    }
}
