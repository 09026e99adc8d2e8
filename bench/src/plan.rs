//! Defines the measurements and their order.

use std::net::SocketAddr;
use std::time::Duration;

use crate::conversation::{Dialect, Size};
use crate::gateway::{self, Capture, Disk};
use crate::load::{self, LoadResult, LoadSpec};
use crate::process::Server;
use crate::streams::{self, StreamResult};
use crate::table;
use crate::{Options, commit, peers};

/// Amount of load in one benchmark run.
#[derive(Clone, Copy, Debug)]
struct LoadAmount {
    /// Number of measurements per target. Only the best measurement is reported.
    rounds: usize,
    /// Conversations per connection for small requests: with one connection, and with `MANY`
    /// connections.
    small: (usize, usize),
    large: (usize, usize),
    /// Number of streams used to measure the time to the first chunk.
    first: usize,
}

const QUICK: LoadAmount = LoadAmount { rounds: 2, small: (250, 60), large: (3, 1), first: 300 };
const FULL: LoadAmount = LoadAmount { rounds: 3, small: (1000, 300), large: (8, 3), first: 1000 };
/// Load for other gateways, which are about a hundred times slower than Throughline.
const OTHERS: LoadAmount = LoadAmount { rounds: 1, small: (50, 5), large: (1, 1), first: 0 };

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
#[derive(Default)]
pub(crate) struct Pair {
    pub(crate) one: LoadResult,
    pub(crate) many: LoadResult,
    /// CPU time that the server spends per request.
    pub(crate) time: Option<Duration>,
}

pub(crate) struct Memory {
    pub(crate) idle: u64,
    pub(crate) loaded: u64,
}

/// A server to measure, and the settings for the requests to the server.
struct BenchTarget<'s> {
    name: String,
    address: SocketAddr,
    /// The server process; `None` for the provider itself, whose CPU time is not reported.
    server: Option<&'s Server>,
    dialect: Dialect,
    lossy: bool,
    /// Whether concurrent streams are measured too.
    streams: bool,
    /// The provider's address, if each request must contain this address.
    provider: Option<SocketAddr>,
}

pub(crate) async fn run(options: &Options) -> anyhow::Result<()> {
    let amount = if options.quick { QUICK } else { FULL };
    let upstream = Server::start_self(&["upstream"]).await?;
    let at = upstream.address;
    let proxy = Server::start_self(&["proxy", &format!("http://{at}")]).await?;
    let relaxed = gateway::start(at, Capture::Relaxed, Disk::Whole).await?;
    let durable = gateway::start(at, Capture::Durable, Disk::Whole).await?;
    let crossing = gateway::start(at, Capture::Relaxed, Disk::Whole).await?;
    let lossy = gateway::start(at, Capture::Relaxed, Disk::Whole).await?;
    let off = gateway::start(at, Capture::Off, Disk::Whole).await?;
    let peers = if options.peers { peers::start(at).await } else { Vec::new() };
    let target = |name: &str, server| BenchTarget {
        name: name.to_owned(),
        address: server_address(server, at),
        server,
        dialect: Dialect::Messages,
        lossy: false,
        streams: true,
        provider: None,
    };
    let mut targets = vec![
        target("direct", None),
        target("bare proxy", Some(&proxy)),
        target("throughline relaxed", Some(&relaxed.server)),
        target("throughline durable", Some(&durable.server)),
        BenchTarget {
            lossy: true,
            streams: false,
            ..target("  relaxed, lossy client", Some(&lossy.server))
        },
        BenchTarget {
            dialect: Dialect::Chat,
            streams: false,
            ..target("  relaxed, chat → messages", Some(&crossing.server))
        },
        BenchTarget { streams: false, ..target("  replay off, no capture", Some(&off.server)) },
    ];
    let own = targets.len();
    for peer in &peers {
        let provider = peer.needs_provider.then_some(at);
        targets.push(BenchTarget {
            streams: false,
            provider,
            ..target(peer.name, Some(&peer.server))
        });
    }
    // Streams are measured on a fresh gateway, which has no freed memory to reuse.
    let stream_result = match options.only {
        None => {
            let fresh = gateway::start(at, Capture::Relaxed, Disk::Whole).await?;
            Some(streams::run(&fresh.server, at).await?)
        }
        Some(_) => None,
    };
    let mut rows: Vec<Row> = Vec::new();
    let is_selected =
        |name: &str| options.only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    let numbered = targets.iter().enumerate();
    for (index, target) in numbered.filter(|(_, target)| is_selected(&target.name)) {
        eprintln!("{} …", target.name.trim());
        let amount = if index < own { amount } else { OTHERS };
        rows.push(target.measure(amount, at).await?);
    }
    table::print(&rows, stream_result, commit::median_commit()?);
    Ok(())
}

fn server_address(server: Option<&Server>, upstream: SocketAddr) -> SocketAddr {
    server.map_or(upstream, |server| server.address)
}

impl BenchTarget<'_> {
    async fn measure(&self, amount: LoadAmount, upstream: SocketAddr) -> anyhow::Result<Row> {
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
        let work = |connections, conversations| LoadSpec {
            dialect: self.dialect,
            size,
            lossy: self.lossy,
            connections,
            conversations,
            provider: self.provider,
        };
        // Warm up, so that the connections are open before the measurement.
        load::run(self.address, work(MANY, usize::from(size == Size::Small))).await?;
        let mut best = Pair::default();
        for _ in 0..rounds {
            let one = load::run(self.address, work(1, counts.0)).await?;
            if one.rate() > best.one.rate() {
                best.one = one;
            }
            let before = self.server.map(Server::cpu_time).transpose()?;
            let many = load::run(self.address, work(MANY, counts.1)).await?;
            let after = self.server.map(Server::cpu_time).transpose()?;
            if many.rate() > best.many.rate() {
                let cpu_time =
                    before.zip(after).map(|(before, after)| after.saturating_sub(before));
                best.time = cpu_time.map(|time| time / many.requests.max(1) as u32);
                best.many = many;
            }
        }
        Ok(best)
    }
}
