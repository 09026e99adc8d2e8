//! Measures one server: request rates, latencies, CPU time, memory and concurrent streams.

use std::net::SocketAddr;
use std::time::Duration;

use crate::conversation::{Dialect, Size};
use crate::load::{self, LoadResult, LoadSpec};
use crate::process::Server;
use crate::streams::{self, StreamResult};

/// Amount of load for one server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadAmount {
    /// Number of rounds per load. Only the round with the median rate is reported.
    pub(crate) rounds: usize,
    /// Conversations per connection for small requests: with one connection, and with `MANY`
    /// connections.
    pub(crate) small: (usize, usize),
    pub(crate) large: (usize, usize),
    /// Number of streams used to measure the time to the first chunk.
    pub(crate) first: usize,
}

/// Number of connections in the parallel measurements.
pub(crate) const MANY: usize = 32;

/// Results for one target, printed as a row of the table.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) small: Pair,
    pub(crate) large: Pair,
    /// Time to the first chunk of a stream.
    pub(crate) first: Option<LoadResult>,
    pub(crate) memory: Option<Memory>,
    pub(crate) streams: Option<StreamResult>,
}

/// Results for the same load over one connection and over `MANY` connections.
pub(crate) struct Pair {
    pub(crate) one: Round,
    pub(crate) many: Round,
}

/// Result of one round of load.
#[derive(Debug, Default)]
pub(crate) struct Round {
    pub(crate) load: LoadResult,
    /// CPU time that the servers spend per request, if they are measured.
    pub(crate) cpu: Option<Duration>,
}

impl Round {
    /// Returns the number of replies per second.
    pub(crate) fn rate(&self) -> f64 {
        self.load.rate()
    }
}

pub(crate) struct Memory {
    pub(crate) idle: u64,
    pub(crate) loaded: u64,
}

/// A server to measure, and the settings for the requests to the server.
pub(crate) struct BenchTarget<'s> {
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
    /// The server process; `None` for the provider itself, whose CPU time is not reported.
    pub(crate) server: Option<&'s Server>,
    pub(crate) dialect: Dialect,
    pub(crate) lossy: bool,
    /// Whether concurrent streams are measured too.
    pub(crate) streams: bool,
    /// The provider's address, if each request must contain this address.
    pub(crate) provider: Option<SocketAddr>,
}

impl BenchTarget<'_> {
    pub(crate) async fn measure(
        &self,
        amount: LoadAmount,
        upstream: SocketAddr,
    ) -> anyhow::Result<Row> {
        let idle = self.server.map(Server::memory).transpose()?;
        let small = self.pair(Size::Small, amount.small, amount.rounds).await?;
        let large = self.pair(Size::Large, amount.large, amount.rounds).await?;
        let loaded = self.server.map(Server::memory).transpose()?;
        let memory = idle.zip(loaded).map(|(idle, loaded)| Memory { idle, loaded });
        let first = if self.streams {
            Some(load::first_pieces(self.address, amount.first).await?)
        } else {
            None
        };
        let streams = match self.server.filter(|_| self.streams) {
            Some(server) => Some(streams::run(server, upstream).await?),
            None => None,
        };
        Ok(Row { name: self.name.clone(), small, large, first, memory, streams })
    }

    async fn pair(
        &self,
        size: Size,
        counts: (usize, usize),
        rounds: usize,
    ) -> anyhow::Result<Pair> {
        // Warm up, so that the connections are open before the measurement.
        let warm_up = self.spec(size, MANY, usize::from(size == Size::Small));
        load::run(self.address, warm_up).await?;
        let (mut one, mut many) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            one.push(self.round(self.spec(size, 1, counts.0)).await?);
            many.push(self.round(self.spec(size, MANY, counts.1)).await?);
        }
        Ok(Pair { one: median_round(one), many: median_round(many) })
    }

    async fn round(&self, spec: LoadSpec) -> anyhow::Result<Round> {
        run_round(self.server.as_slice(), load::run(self.address, spec)).await
    }

    fn spec(&self, size: Size, connections: usize, conversations: usize) -> LoadSpec {
        LoadSpec {
            dialect: self.dialect,
            size,
            lossy: self.lossy,
            connections,
            conversations,
            provider: self.provider,
        }
    }
}

/// Runs a load and measures the CPU time that the servers spend per request.
pub(crate) async fn run_round(
    servers: &[&Server],
    load: impl Future<Output = anyhow::Result<LoadResult>>,
) -> anyhow::Result<Round> {
    let before = total_cpu_time(servers)?;
    let load = load.await?;
    let used = total_cpu_time(servers)?.saturating_sub(before);
    let cpu = (!servers.is_empty()).then(|| load.per_request(used));
    Ok(Round { load, cpu })
}

fn total_cpu_time(servers: &[&Server]) -> anyhow::Result<Duration> {
    servers.iter().copied().map(Server::cpu_time).sum()
}

/// Returns the round with the median rate.
pub(crate) fn median_round(rounds: Vec<Round>) -> Round {
    median_by_rate(rounds, Round::rate).unwrap_or_default()
}

/// Returns the result with the median rate.
pub(crate) fn median_by_rate<T>(mut results: Vec<T>, rate: impl Fn(&T) -> f64) -> Option<T> {
    results.sort_by(|left, right| rate(left).total_cmp(&rate(right)));
    let middle = results.len() / 2;
    results.into_iter().nth(middle)
}
