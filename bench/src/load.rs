//! The load: connections that stay open, conversations that grow, and how long each answer took.

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

use crate::reply::Model;
use crate::talk::{Dialect, Size, Talk};

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    pub(crate) dialect: Dialect,
    pub(crate) size: Size,
    /// Whether the clients send no reasoning back.
    pub(crate) lossy: bool,
    pub(crate) connections: usize,
    /// How many conversations each connection holds, one after the other.
    pub(crate) conversations: usize,
    /// Where the provider is, for a gateway that is told so with each request.
    pub(crate) told: Option<SocketAddr>,
}

/// How it went.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measured {
    pub(crate) requests: usize,
    pub(crate) elapsed: Duration,
    /// How long each answer took, the shortest first.
    times: Vec<Duration>,
}

impl Measured {
    pub(crate) fn of(mut times: Vec<Duration>, elapsed: Duration) -> Self {
        times.sort_unstable();
        Self { requests: times.len(), elapsed, times }
    }

    /// Answers per second.
    pub(crate) fn rate(&self) -> f64 {
        self.requests as f64 / self.elapsed.as_secs_f64().max(f64::EPSILON)
    }

    /// The time that this share of the answers did not exceed.
    pub(crate) fn within(&self, share: f64) -> Duration {
        let last = self.times.len().saturating_sub(1);
        self.times.get((last as f64 * share) as usize).copied().unwrap_or_default()
    }
}

/// A connection that stays open.
pub(crate) struct Line {
    sender: SendRequest<Full<Bytes>>,
    host: String,
    /// Where the provider is, for a gateway that is told so with each request.
    told: Option<SocketAddr>,
}

impl Line {
    pub(crate) async fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let connection = TcpStream::connect(address).await?;
        connection.set_nodelay(true)?;
        let shaken = hyper::client::conn::http1::handshake(TokioIo::new(connection)).await?;
        let (sender, connection) = shaken;
        tokio::spawn(connection);
        Ok(Self { sender, host: address.to_string(), told: None })
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
            .header("x-api-key", "none")
            .header("authorization", "Bearer none");
        if let Some(provider) = self.told {
            request = request.header("x-portkey-provider", "anthropic");
            request = request.header("x-portkey-custom-host", format!("http://{provider}/v1"));
        }
        Ok(self.sender.send_request(request.body(Full::new(body))?).await?)
    }

    /// Asks for something, and reads all of it.
    pub(crate) async fn get(&mut self, path: &str) -> anyhow::Result<Bytes> {
        self.sender.ready().await?;
        let request = Request::get(path).header("host", &self.host).body(Full::default())?;
        let response = self.sender.send_request(request).await?;
        Ok(response.into_body().collect().await?.to_bytes())
    }

    /// Sends a request, and reads the whole answer.
    pub(crate) async fn whole(&mut self, path: &str, body: Bytes) -> anyhow::Result<Bytes> {
        let response = self.post(path, body).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        anyhow::ensure!(status.is_success(), "{status}: {}", String::from_utf8_lossy(&body));
        Ok(body)
    }
}

/// Sends all of it.
pub(crate) async fn run(address: SocketAddr, work: Work) -> anyhow::Result<Measured> {
    let mut lines = Vec::new();
    for _ in 0..work.connections {
        lines.push(Line { told: work.told, ..Line::open(address).await? });
    }
    let began = Instant::now();
    let mut running = JoinSet::new();
    for line in lines {
        running.spawn(talks(line, work));
    }
    let mut times = Vec::new();
    while let Some(done) = running.join_next().await {
        times.extend(done??);
    }
    Ok(Measured::of(times, began.elapsed()))
}

async fn talks(mut line: Line, work: Work) -> anyhow::Result<Vec<Duration>> {
    let mut times = Vec::with_capacity(work.conversations * work.size.turns());
    for _ in 0..work.conversations {
        let mut talk = Talk::new(work.dialect, Model::Short, work.size, work.lossy);
        for _ in 0..work.size.turns() {
            let body = talk.request(false);
            let began = Instant::now();
            let reply = line.whole(work.dialect.path(), body).await?;
            times.push(began.elapsed());
            let unreadable = || format!("an answer: {}", String::from_utf8_lossy(&reply));
            talk.heard(&reply).with_context(unreadable)?;
        }
    }
    Ok(times)
}

/// How long the first piece of a streamed answer takes, one after the other.
pub(crate) async fn first_pieces(address: SocketAddr, count: usize) -> anyhow::Result<Measured> {
    let mut line = Line::open(address).await?;
    let (mut times, all) = (Vec::with_capacity(count), Instant::now());
    for _ in 0..count {
        let body = Talk::new(Dialect::Messages, Model::Long, Size::Small, false).request(true);
        let began = Instant::now();
        let response = line.post(Dialect::Messages.path(), body).await?;
        anyhow::ensure!(response.status().is_success(), "{}", response.status());
        let mut body = response.into_body();
        body.frame().await.context("a stream without a piece")??;
        times.push(began.elapsed());
        while let Some(frame) = body.frame().await {
            frame?;
        }
    }
    Ok(Measured::of(times, all.elapsed()))
}
