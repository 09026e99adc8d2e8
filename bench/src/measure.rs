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
    /// Number of rounds per load.
    pub(crate) rounds: usize,
    /// Conversations per connection for small requests: with one connection, and with `MANY`
    /// connections.
    pub(crate) small: (usize, usize),
    /// Conversations per connection for small requests over `MAX_CONNECTIONS` connections.
    pub(crate) small_widest: usize,
    pub(crate) large: (usize, usize),
    /// Conversations per connection for requests of 800 KB.
    pub(crate) huge: usize,
    /// Number of streams used to measure the time to the first chunk.
    pub(crate) first: usize,
}

/// Number of rounds per load of the gateway. Only the round with the median rate is reported.
pub(crate) const ROUNDS: usize = 3;
/// Number of connections in the parallel measurements.
pub(crate) const MANY: usize = 32;
/// Largest number of connections, for small requests.
pub(crate) const MAX_CONNECTIONS: usize = 256;
/// Number of connections for requests of 800 KB: a quarter of `MANY`, so that as many bytes are in
/// flight as with requests of 200 KB.
pub(crate) const HUGE_CONNECTIONS: usize = 8;

/// Results for one target, printed as a row of the table.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) small: Pair,
    /// Small requests over `MAX_CONNECTIONS` connections.
    pub(crate) small_widest: Option<Round>,
    pub(crate) large: Pair,
    /// Requests of 800 KB over `HUGE_CONNECTIONS` connections.
    pub(crate) huge: Option<Round>,
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
    /// Whether `MAX_CONNECTIONS` connections and requests of 800 KB are measured too.
    pub(crate) extremes: bool,
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
        let widest = self.spec(Size::Small, MAX_CONNECTIONS, amount.small_widest);
        let small_widest = self.extreme(widest, amount.rounds).await?;
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
        // Huge requests come last, because they increase the memory. Only their CPU time is of
        // interest, so the provider itself is skipped.
        let huge = self.spec(Size::Huge, HUGE_CONNECTIONS, amount.huge);
        let huge = match self.server {
            Some(_) => self.extreme(huge, amount.rounds).await?,
            None => None,
        };
        let name = self.name.clone();
        Ok(Row { name, small, small_widest, large, huge, first, memory, streams })
    }

    /// Measures a load that only targets with `extremes` have.
    async fn extreme(&self, spec: LoadSpec, rounds: usize) -> anyhow::Result<Option<Round>> {
        if !self.extremes {
            return Ok(None);
        }
        let mut measured = Vec::new();
        for _ in 0..rounds {
            measured.push(self.round(spec).await?);
        }
        Ok(Some(median_round(measured)))
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
