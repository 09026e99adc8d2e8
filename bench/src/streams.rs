//! A thousand streams at once: all of them have begun, and none has ended.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use tokio::task::JoinSet;

use crate::load::Line;
use crate::process::Server;
use crate::reply::Model;
use crate::talk::{Dialect, Size, Talk};

/// How many at once.
pub(crate) const STREAMS: usize = 1000;

/// What they took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Streams {
    /// How much memory each took, once it had begun.
    pub(crate) each: u64,
    /// How long it took until all had begun.
    pub(crate) begun: Duration,
    /// How long it took, from when they were let go on, until all had ended.
    pub(crate) ended: Duration,
}

/// Opens them at the server, and lets them go on at the provider.
pub(crate) async fn run(server: &Server, upstream: SocketAddr) -> anyhow::Result<Streams> {
    let before = server.memory()?;
    let start = Instant::now();
    let mut opening = JoinSet::new();
    for _ in 0..STREAMS {
        let address = server.address;
        opening.spawn(async move {
            let mut line = Line::open(address).await?;
            let body = Talk::new(Dialect::Messages, Model::Held, Size::Small, false).request(true);
            let response = line.post(Dialect::Messages.path(), body).await?;
            anyhow::ensure!(response.status().is_success(), "{}", response.status());
            let mut body = response.into_body();
            body.frame().await.context("a stream without a piece")??;
            // The connection lives as long as its line.
            Ok((line, body))
        });
    }
    let mut open = Vec::with_capacity(STREAMS);
    while let Some(opened) = opening.join_next().await {
        open.push(opened??);
    }
    let begun = start.elapsed();
    let each = server.memory()?.saturating_sub(before) / STREAMS as u64;
    let release = Instant::now();
    Line::open(upstream).await?.whole("/release", Bytes::new()).await?;
    let mut ending = JoinSet::new();
    for (line, mut body) in open {
        ending.spawn(async move {
            let mut end = End::default();
            while let Some(frame) = body.frame().await {
                end.read(frame?.data_ref().map_or(&[], Bytes::as_ref));
            }
            drop(line);
            anyhow::ensure!(end.is_whole(), "a stream was cut: {end}");
            Ok(())
        });
    }
    while let Some(ended) = ending.join_next().await {
        ended??;
    }
    Ok(Streams { each, begun, ended: release.elapsed() })
}

/// The end of a stream, as far as it was read: the last event may come in pieces.
#[derive(Default)]
struct End(Vec<u8>);

impl End {
    const WHOLE: &[u8] = b"{\"type\":\"message_stop\"}\n\n";

    fn read(&mut self, piece: &[u8]) {
        self.0.extend_from_slice(piece);
        self.0.drain(..self.0.len().saturating_sub(Self::WHOLE.len()));
    }

    fn is_whole(&self) -> bool {
        self.0 == Self::WHOLE
    }
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "its end is {:?}", String::from_utf8_lossy(&self.0))
    }
}
