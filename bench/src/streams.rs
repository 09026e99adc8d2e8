//! Measures a thousand concurrent streams. All streams start before the first stream ends.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use tokio::task::JoinSet;

use crate::conversation::{Conversation, Dialect, Size};
use crate::load::Connection;
use crate::process::Server;
use crate::reply::Model;

/// The measurement of a fresh gateway, by which `--only` selects it.
pub(crate) const NAME: &str = "streams";
pub(crate) const STREAMS: usize = 1000;

/// Memory and durations of the concurrent streams.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamResult {
    /// Memory that the server uses per open stream, in bytes.
    pub(crate) each: u64,
    /// Time until all streams have started.
    pub(crate) started: Duration,
    /// Time from the `/release` request until all streams have ended.
    pub(crate) ended: Duration,
}

/// Opens the streams through `server`. After all streams have started, makes the mock provider
/// resume them.
pub(crate) async fn run(server: &Server, upstream: SocketAddr) -> anyhow::Result<StreamResult> {
    let before = server.memory()?;
    let start = Instant::now();
    let mut opening = JoinSet::new();
    for _ in 0..STREAMS {
        let address = server.address;
        opening.spawn(async move {
            let mut connection = Connection::open(address).await?;
            let body =
                Conversation::new(Dialect::Messages, Model::Held, Size::Small, false).request(true);
            let response = connection.post(Dialect::Messages.path(), body).await?;
            anyhow::ensure!(response.status().is_success(), "{}", response.status());
            let mut body = response.into_body();
            body.frame().await.context("the response body is empty")??;
            // Dropping `connection` would close it, so return it with the body.
            Ok((connection, body))
        });
    }
    let mut open = Vec::with_capacity(STREAMS);
    while let Some(opened) = opening.join_next().await {
        open.push(opened??);
    }
    let started = start.elapsed();
    let each = server.memory()?.saturating_sub(before) / STREAMS as u64;
    let release = Instant::now();
    Connection::open(upstream).await?.post_whole("/release", Bytes::new()).await?;
    let mut ending = JoinSet::new();
    for (connection, mut body) in open {
        ending.spawn(async move {
            let mut end = StreamTail::default();
            while let Some(frame) = body.frame().await {
                end.read(frame?.data_ref().map_or(&[], Bytes::as_ref));
            }
            drop(connection);
            anyhow::ensure!(end.is_whole(), "a stream was cut: {end}");
            Ok(())
        });
    }
    while let Some(ended) = ending.join_next().await {
        ended??;
    }
    Ok(StreamResult { each, started, ended: release.elapsed() })
}

/// Keeps the last bytes of a stream, because the final event may be split across chunks.
#[derive(Default)]
pub(crate) struct StreamTail(Vec<u8>);

impl StreamTail {
    const WHOLE: &[u8] = b"{\"type\":\"message_stop\"}\n\n";

    pub(crate) fn read(&mut self, piece: &[u8]) {
        self.0.extend_from_slice(piece);
        self.0.drain(..self.0.len().saturating_sub(Self::WHOLE.len()));
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.0 == Self::WHOLE
    }
}

impl std::fmt::Display for StreamTail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "it ends with {:?}", String::from_utf8_lossy(&self.0))
    }
}
