//! The connections of one endpoint: opened where one is needed, shared, and kept for a while. Nothing is followed, changed
//! or asked again here that was heard.

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

use crate::address::Guarded;

/// How long a connection is kept that nobody uses: less than the minute after which balancers close theirs.
const IDLE: Duration = Duration::from_secs(50);

/// How often a shared connection is asked whether it is still there, and how long that may take. Without it a dead one would be
/// noticed only when an answer has taken too long.
const SIGN_OF_LIFE: Duration = Duration::from_secs(30);

/// The same for the sockets themselves.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
const KEEP_ALIVE_TRIES: u32 = 3;

/// The connections of one endpoint.
pub(crate) struct Client(Pool<Patient, Full<Bytes>>);

impl Client {
    /// None is open yet. Each may take that long to open.
    pub(crate) fn new(tls: ClientConfig, names: Guarded, limit: Duration) -> Self {
        let mut sockets = HttpConnector::new_with_resolver(names);
        // Whether a connection is encrypted is decided one layer above.
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
            .http2_keep_alive_interval(SIGN_OF_LIFE)
            .http2_keep_alive_timeout(SIGN_OF_LIFE)
            .build(Patient { connector, limit });
        Self(pool)
    }

    /// Sends a request, and waits for the first byte of the answer.
    pub(crate) async fn send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, legacy::Error> {
        self.0.request(request).await
    }
}

/// A connection took too long to open.
#[derive(Debug, thiserror::Error)]
#[error("the connection was not opened in time")]
pub(crate) struct TooSlow;

/// Whether the other side said that it did not hear the request at all: it goes away, or has too much to do.
pub(crate) fn was_not_heard(error: &legacy::Error) -> bool {
    let Some(error) = cause::<h2::Error>(error).filter(|error| error.is_remote()) else {
        return false;
    };
    let reason = error.reason();
    error.is_go_away() && reason == Some(h2::Reason::NO_ERROR)
        || error.is_reset() && reason == Some(h2::Reason::REFUSED_STREAM)
}

/// The cause of that type, if it is among those of an error.
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

/// Opens connections: names are looked up, sockets opened and keys agreed upon, all within one limit.
#[derive(Clone)]
struct Patient {
    connector: HttpsConnector<HttpConnector<Guarded>>,
    limit: Duration,
}

type Failure = Box<dyn Error + Send + Sync>;

impl Service<Uri> for Patient {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = Failure;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Failure>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        self.connector.poll_ready(context)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let connecting = timeout(self.limit, self.connector.call(to));
        Box::pin(async move { connecting.await.unwrap_or_else(|_| Err(TooSlow.into())) })
    }
}
