//! Serves the gateway on a port, with connection timeouts and a graceful shutdown.

mod socket;
mod watchdog;

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{OptionFuture, join};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::http::Server;
use crate::listen::socket::ClientSocket;
use crate::listen::watchdog::Watchdog;
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
    server: Server,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send,
    hurry: impl Future<Output = ()> + Send,
) {
    // The server is compiled in this crate, not again in each crate that calls this function.
    serve_until(server, listener, pin!(stop), pin!(hurry)).await;
}

/// A future that the caller owns.
type Signal<'a> = Pin<&'a mut (dyn Future<Output = ()> + Send)>;

async fn serve_until(
    server: Server,
    listener: TcpListener,
    mut stop: Signal<'_>,
    hurry: Signal<'_>,
) {
    let (operations, agents) = (Arc::clone(&server.gateway.operations), server.agents.clone());
    let replay = Arc::clone(&server.gateway.replay);
    let limits = operations.limits;
    let builder = builder(&limits);
    let router = server.router();
    let open = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    let mut settling = JoinSet::new();
    settling.spawn(settle_periodically(Arc::clone(&operations)));
    if let Some(agents) = &agents {
        settling.spawn(Arc::clone(&agents.drives).sweep());
    }
    // The gateway also runs without a watchdog, but then probes get no answer while all workers are
    // blocked.
    let (watchdog, mut handed) = Watchdog::start(&listener).ok().unzip();
    if let Some(watchdog) = &watchdog {
        settling.spawn(watchdog.ticks());
    }
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted.map(|(stream, _)| stream),
            // Without a watchdog, this branch never completes.
            Some(Some(stream)) = OptionFuture::from(handed.as_mut().map(UnboundedReceiver::recv)) => {
                TcpStream::from_std(stream)
            }
            Some(_) = connections.join_next() => continue,
            () = &mut stop => break,
        };
        match accepted {
            Ok(stream) => {
                // Without `TCP_NODELAY`, each small write of a stream would wait for the
                // acknowledgement of the previous write.
                drop(stream.set_nodelay(true));
                let socket = ClientSocket::new(stream, limits.headers, limits.slow_reader);
                let service = TowerToHyperService::new(router.clone());
                let connection =
                    builder.serve_connection_with_upgrades(TokioIo::new(socket), service);
                let connection = open.watch(connection.into_owned());
                let replay = Arc::clone(&replay);
                connections.spawn(async move {
                    replay.calls().disconnects().wait_until_drained().await;
                    connection.await
                });
            }
            Err(error) if is_connection_error(&error) => {}
            // The system lacks a resource, such as file descriptors, which may be available again
            // soon.
            Err(_) => sleep(ACCEPT_RETRY_DELAY).await,
        }
    }
    drop((listener, watchdog));
    // A WebSocket is no connection of hyper any more.
    let all_closed = join(open.shutdown(), operations.sockets.drain());
    tokio::select! {
        ended = timeout(limits.shutdown, all_closed) => drop(ended),
        () = hurry => {}
    }
    operations.sockets.stop();
    connections.shutdown().await;
    if let Some(agents) = agents {
        // No client waits for a response any more. An unfinished run continues in another process,
        // or after a restart.
        agents.drives.stop(limits.capture).await;
    }
    settling.shutdown().await;
    drop(timeout(limits.shutdown, replay.all_settled()).await);
    operations.finish().await;
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
