//! The gateway on a port: connections that neither stall nor pile up, and a stop that lets streams end.

mod socket;
mod watchdog;

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::gateway::Gateway;
use crate::listen::socket::Socket;
use crate::listen::watchdog::Watchdog;
use crate::operations::{Limits, Operations};

/// How often what was used is kept, and what others used is read.
const SETTLE: Duration = Duration::from_secs(1);
/// How long it waits where the system has no more connections to give.
const BREATH: Duration = Duration::from_millis(100);
/// How often a shared connection is asked whether it is still there, and how long that may take.
const SIGN_OF_LIFE: Duration = Duration::from_secs(20);
/// How many streams one connection may share.
const STREAMS_OF_ONE: u32 = 256;

/// Answers on that port until it is asked to stop. Then open answers may end, in the time that they have or until somebody is in a
/// hurry; and what was used is kept.
pub async fn serve(
    gateway: Gateway,
    listener: TcpListener,
    stop: impl Future<Output = ()>,
    hurry: impl Future<Output = ()>,
) {
    let (operations, agents) = (Arc::clone(&gateway.operations), gateway.agents.clone());
    let replay = Arc::clone(&gateway.replay);
    let limits = operations.limits;
    let builder = builder(&limits);
    let router = gateway.router();
    let open = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    let mut stop = pin!(stop);
    let mut settling = JoinSet::new();
    settling.spawn(keep_settling(Arc::clone(&operations)));
    if let Some(agents) = agents.clone() {
        settling.spawn(agents.sweep());
    }
    // Without it the gateway serves as well; only probes go unanswered while all workers are blocked.
    let (watchdog, mut handed) = Watchdog::start(&listener).ok().unzip();
    if let Some(watchdog) = &watchdog {
        settling.spawn(watchdog.ticks());
    }
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted.map(|(stream, _)| stream),
            Some(stream) = next(&mut handed) => TcpStream::from_std(stream),
            Some(_) = connections.join_next() => continue,
            () = &mut stop => break,
        };
        match accepted {
            Ok(stream) => {
                let connection = connection(&builder, stream, &router, &limits);
                let connection = open.watch(connection);
                let replay = Arc::clone(&replay);
                connections.spawn(async move {
                    replay.stories().left().put_away().await;
                    connection.await
                });
            }
            Err(error) if is_of_one(&error) => {}
            // The system is out of something, as of files: it may be there in a moment.
            Err(_) => sleep(BREATH).await,
        }
    }
    drop((listener, watchdog));
    tokio::select! {
        ended = timeout(limits.shutdown, open.shutdown()) => drop(ended),
        () = hurry => {}
    }
    connections.shutdown().await;
    if let Some(agents) = agents {
        // Who waited for an answer is gone: a run that is at work goes on elsewhere, or later.
        agents.stop(limits.capture).await;
    }
    settling.shutdown().await;
    drop(timeout(limits.shutdown, replay.all_settled()).await);
    operations.finish().await;
}

/// The next connection that the watchdog accepted; never one without a watchdog.
async fn next(
    handed: &mut Option<UnboundedReceiver<std::net::TcpStream>>,
) -> Option<std::net::TcpStream> {
    match handed {
        Some(handed) => handed.recv().await,
        None => std::future::pending().await,
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
        .max_concurrent_streams(STREAMS_OF_ONE);
    builder
}

type Serving = hyper_util::server::conn::auto::Connection<
    'static,
    TokioIo<Socket>,
    TowerToHyperService<Router>,
    TokioExecutor,
>;

fn connection(
    builder: &Builder<TokioExecutor>,
    stream: TcpStream,
    router: &Router,
    limits: &Limits,
) -> Serving {
    // A stream is many small writes, and each would wait for the last one's acknowledgement.
    drop(stream.set_nodelay(true));
    let socket = Socket::new(stream, limits.headers, limits.slow_reader);
    let service = TowerToHyperService::new(router.clone());
    builder.serve_connection(TokioIo::new(socket), service).into_owned()
}

/// Whether only one connection failed, which its caller knows already.
fn is_of_one(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
    )
}

async fn keep_settling(operations: Arc<Operations>) {
    let mut ticks = interval(SETTLE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        operations.settle().await;
    }
}
