//! Connection pool for one endpoint. The pool follows no redirects, modifies no messages, and never
//! repeats a request that the server may have received.

use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{self, Client as Pool};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tower_service::Service;

use crate::address::FilteredResolver;

/// Idle timeout of a connection. It is shorter than the 60 seconds after which load balancers close
/// idle connections.
const IDLE: Duration = Duration::from_secs(50);

/// Interval and timeout of HTTP/2 pings. Without pings, only a response timeout would detect a dead
/// connection.
const SIGN_OF_LIFE: Duration = Duration::from_secs(30);

/// Interval of TCP keep-alive probes.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
const KEEP_ALIVE_TRIES: u32 = 3;
/// Maximum size of an HTTP/1 connection's read buffer in bytes, and so of a response's headers. The
/// buffer stays allocated while a stream is open.
const READ_BUFFER: usize = 16 << 10;

/// HTTP client with a connection pool for one endpoint.
pub(crate) struct Client(Pool<Connector, Full<Bytes>>);

impl Client {
    /// Creates an empty pool; `limit` is the connect timeout.
    pub(crate) fn new(tls: ClientConfig, names: FilteredResolver, limit: Duration) -> Self {
        let mut sockets = HttpConnector::new_with_resolver(names);
        // The TLS layer above decides whether a connection is encrypted.
        sockets.enforce_http(false);
        sockets.set_nodelay(true);
        sockets.set_keepalive(Some(KEEP_ALIVE));
        sockets.set_keepalive_interval(Some(KEEP_ALIVE));
        sockets.set_keepalive_retries(Some(KEEP_ALIVE_TRIES));
        let connector = HttpsConnector::from((sockets, tls));
        let pool = Pool::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .http1_max_buf_size(READ_BUFFER)
            .http2_keep_alive_interval(SIGN_OF_LIFE)
            .http2_keep_alive_timeout(SIGN_OF_LIFE)
            .build(Connector { connector, limit });
        Self(pool)
    }

    /// Sends a request and waits for the response head.
    pub(crate) async fn send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, legacy::Error> {
        self.0.request(request).await
    }
}

#[derive(Debug, thiserror::Error)]
#[error("timed out while connecting")]
pub(crate) struct ConnectTimeout;

/// Returns whether the server reported that it did not process the request: it sent a graceful
/// GOAWAY or refused the stream.
pub(crate) fn is_unprocessed(error: &legacy::Error) -> bool {
    let Some(error) = cause::<h2::Error>(error).filter(|error| error.is_remote()) else {
        return false;
    };
    let reason = error.reason();
    error.is_go_away() && reason == Some(h2::Reason::NO_ERROR)
        || error.is_reset() && reason == Some(h2::Reason::REFUSED_STREAM)
}

/// Returns the first cause of type `E` in an error chain.
pub(crate) fn cause<'e, E: Error + 'static>(error: &'e (dyn Error + 'static)) -> Option<&'e E> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        cause = error.source();
    }
    None
}

/// Returns the innermost cause. Outer errors contain addresses, which may contain keys.
pub(crate) fn root_cause(error: &dyn Error) -> String {
    let mut root = error;
    while let Some(cause) = root.source() {
        root = cause;
    }
    root.to_string()
}

/// Opens connections. One timeout covers DNS, TCP and TLS.
#[derive(Clone)]
struct Connector {
    connector: HttpsConnector<HttpConnector<FilteredResolver>>,
    limit: Duration,
}

type ConnectError = Box<dyn Error + Send + Sync>;

impl Service<Uri> for Connector {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, ConnectError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        self.connector.poll_ready(context)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let connecting = timeout(self.limit, self.connector.call(to));
        Box::pin(async move { connecting.await.unwrap_or_else(|_| Err(ConnectTimeout.into())) })
    }
}
