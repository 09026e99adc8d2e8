//! Load generator: sends growing conversations over persistent connections and measures the latency
//! of each request.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::conversation::{Conversation, Dialect, Size};
use crate::reply::Model;

#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadSpec {
    pub(crate) dialect: Dialect,
    pub(crate) size: Size,
    /// Whether the clients drop the model's reasoning.
    pub(crate) lossy: bool,
    pub(crate) connections: usize,
    /// Number of consecutive conversations per connection.
    pub(crate) conversations: usize,
    /// The provider's address, for gateways that expect this address in each request.
    pub(crate) provider: Option<SocketAddr>,
}

impl LoadSpec {
    /// Returns a load of small requests in Anthropic's dialect, from clients that keep the model's
    /// reasoning.
    pub(crate) fn small(connections: usize, conversations: usize) -> Self {
        Self {
            dialect: Dialect::Messages,
            size: Size::Small,
            lossy: false,
            connections,
            conversations,
            provider: None,
        }
    }
}

/// Latencies and sizes of the requests that a client sent.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    times: Vec<Duration>,
    /// Bytes that the requests added to their conversations. First requests count completely.
    added_bytes: u64,
    reply_bytes: u64,
}

impl Sample {
    pub(crate) fn merge(&mut self, other: Self) {
        self.times.extend(other.times);
        self.added_bytes += other.added_bytes;
        self.reply_bytes += other.reply_bytes;
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct LoadResult {
    pub(crate) requests: usize,
    pub(crate) elapsed: Duration,
    /// Bytes of all replies, and bytes that the requests added to their conversations.
    pub(crate) content_bytes: u64,
    /// Request latencies in ascending order.
    times: Vec<Duration>,
}

impl LoadResult {
    pub(crate) fn new(sample: Sample, elapsed: Duration) -> Self {
        let Sample { mut times, added_bytes, reply_bytes } = sample;
        times.sort_unstable();
        let content_bytes = added_bytes + reply_bytes;
        Self { requests: times.len(), elapsed, content_bytes, times }
    }

    /// Returns the number of replies per second.
    pub(crate) fn rate(&self) -> f64 {
        self.requests as f64 / self.elapsed.as_secs_f64().max(f64::EPSILON)
    }

    /// Divides a duration by the number of requests.
    pub(crate) fn per_request(&self, time: Duration) -> Duration {
        time / self.requests.max(1) as u32
    }

    /// Returns the latency at a quantile between 0 and 1.
    pub(crate) fn quantile(&self, share: f64) -> Duration {
        let last = self.times.len().saturating_sub(1);
        self.times.get((last as f64 * share) as usize).copied().unwrap_or_default()
    }
}

/// The key in model calls to a gateway that requires no key.
pub(crate) const NO_KEY: &str = "none";

pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    host: String,
    /// The API key that requests contain.
    key: String,
    /// The provider's address, for gateways that expect this address in each request.
    provider: Option<SocketAddr>,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let connection = TcpStream::connect(address).await?;
        connection.set_nodelay(true)?;
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(connection)).await?;
        let (sender, connection) = handshake;
        tokio::spawn(connection);
        Ok(Self { sender, host: address.to_string(), key: NO_KEY.to_owned(), provider: None })
    }

    /// Opens a connection whose requests contain this API key.
    pub(crate) async fn open_with_key(address: SocketAddr, key: &str) -> anyhow::Result<Self> {
        Ok(Self { key: key.to_owned(), ..Self::open(address).await? })
    }

    /// Whether the server has closed the connection, which servers do after a while without
    /// requests.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    pub(crate) async fn post(
        &mut self,
        path: &str,
        body: Bytes,
    ) -> anyhow::Result<Response<Incoming>> {
        self.sender.ready().await?;
        let mut request = Request::post(path)
            .header("host", &self.host)
            .header("content-type", "application/json")
            .header("anthropic-version", "2023-06-01")
            .header("x-api-key", &self.key)
            .header("authorization", format!("Bearer {}", self.key));
        if let Some(provider) = self.provider {
            request = request.header("x-portkey-provider", "anthropic");
            request = request.header("x-portkey-custom-host", format!("http://{provider}/v1"));
        }
        Ok(self.sender.send_request(request.body(Full::new(body))?).await?)
    }

    /// Sends a GET request and returns the response body.
    pub(crate) async fn get(&mut self, path: &str) -> anyhow::Result<Bytes> {
        Ok(self.get_response(path).await?.into_body().collect().await?.to_bytes())
    }

    /// Sends a GET request.
    pub(crate) async fn get_response(&mut self, path: &str) -> anyhow::Result<Response<Incoming>> {
        self.sender.ready().await?;
        let mut request = Request::get(path).header("host", &self.host);
        if self.key != NO_KEY {
            request = request.header("x-api-key", &self.key);
        }
        Ok(self.sender.send_request(request.body(Full::default())?).await?)
    }

    /// Sends a POST request and returns the complete response body.
    pub(crate) async fn post_whole(&mut self, path: &str, body: Bytes) -> anyhow::Result<Bytes> {
        let response = self.post(path, body).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        anyhow::ensure!(status.is_success(), "{status}: {}", String::from_utf8_lossy(&body));
        Ok(body)
    }

    /// Sends the next request of a conversation and adds the reply to the conversation.
    pub(crate) async fn take_turn(
        &mut self,
        conversation: &mut Conversation,
        sample: &mut Sample,
    ) -> anyhow::Result<()> {
        let (body, added) = conversation.next_request();
        let began = Instant::now();
        let reply = self.post_whole(conversation.path(), body).await?;
        sample.times.push(began.elapsed());
        sample.added_bytes += added as u64;
        sample.reply_bytes += reply.len() as u64;
        let unreadable = || format!("unexpected reply: {}", String::from_utf8_lossy(&reply));
        conversation.add_reply(&reply).with_context(unreadable)
    }
}

pub(crate) async fn run(address: SocketAddr, work: LoadSpec) -> anyhow::Result<LoadResult> {
    let mut connections = Vec::new();
    for _ in 0..work.connections {
        connections
            .push(Connection { provider: work.provider, ..Connection::open(address).await? });
    }
    let began = Instant::now();
    let mut running = JoinSet::new();
    for connection in connections {
        running.spawn(run_conversations(connection, work));
    }
    let mut sample = Sample::default();
    while let Some(result) = running.join_next().await {
        sample.merge(result??);
    }
    Ok(LoadResult::new(sample, began.elapsed()))
}

async fn run_conversations(mut connection: Connection, work: LoadSpec) -> anyhow::Result<Sample> {
    let mut sample = Sample::default();
    for _ in 0..work.conversations {
        let mut conversation = Conversation::new(work.dialect, Model::Short, work.size, work.lossy);
        for _ in 0..work.size.turns() {
            connection.take_turn(&mut conversation, &mut sample).await?;
        }
    }
    Ok(sample)
}

/// Measures the time to the first chunk of `count` streamed replies, requested one after another.
pub(crate) async fn first_pieces(address: SocketAddr, count: usize) -> anyhow::Result<LoadResult> {
    let mut connection = Connection::open(address).await?;
    let (mut sample, start) = (Sample::default(), Instant::now());
    for _ in 0..count {
        let body =
            Conversation::new(Dialect::Messages, Model::Long, Size::Small, false).request(true);
        let began = Instant::now();
        let response = connection.post(Dialect::Messages.path(), body).await?;
        anyhow::ensure!(response.status().is_success(), "{}", response.status());
        let mut body = response.into_body();
        body.frame().await.context("the response body is empty")??;
        sample.times.push(began.elapsed());
        while let Some(frame) = body.frame().await {
            frame?;
        }
    }
    Ok(LoadResult::new(sample, start.elapsed()))
}
