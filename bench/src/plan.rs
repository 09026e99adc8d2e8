//! What is measured, in which order.

use std::net::SocketAddr;
use std::time::Duration;

use crate::gateway::{self, Capture, Disk};
use crate::load::{self, Measured, Work};
use crate::process::Server;
use crate::streams::{self, Streams};
use crate::table;
use crate::talk::{Dialect, Size};
use crate::{Options, commit, peers};

/// How much is sent.
#[derive(Clone, Copy, Debug)]
struct Amount {
    /// How many times each row is measured. The best time counts.
    rounds: usize,
    /// Conversations per connection: of small requests with one and with many connections, and of large ones.
    small: (usize, usize),
    large: (usize, usize),
    /// Streams whose first piece is waited for.
    first: usize,
}

const QUICK: Amount = Amount { rounds: 2, small: (250, 60), large: (3, 1), first: 300 };
const FULL: Amount = Amount { rounds: 3, small: (1000, 300), large: (8, 3), first: 1000 };
/// The others are a hundred times slower, and need no more to show it.
const OTHERS: Amount = Amount { rounds: 1, small: (50, 5), large: (1, 1), first: 0 };

/// How many connections are many.
pub(crate) const MANY: usize = 32;

/// A line of the table.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) small: Pair,
    pub(crate) large: Pair,
    /// How long the first piece of a stream takes.
    pub(crate) first: Option<Measured>,
    pub(crate) memory: Option<Memory>,
    pub(crate) streams: Option<Streams>,
}

/// The same work with one connection and with many.
#[derive(Default)]
pub(crate) struct Pair {
    pub(crate) one: Measured,
    pub(crate) many: Measured,
    /// What the server computed per request.
    pub(crate) time: Option<Duration>,
}

/// What a server holds in memory.
pub(crate) struct Memory {
    pub(crate) idle: u64,
    pub(crate) loaded: u64,
}

/// Who is measured, and how it is asked.
struct Subject<'s> {
    name: String,
    /// Where it is asked.
    address: SocketAddr,
    /// The process; the provider itself is nobody's cost.
    server: Option<&'s Server>,
    dialect: Dialect,
    lossy: bool,
    /// Whether its streams are measured too.
    streams: bool,
    /// Where the provider is, if each request says so.
    told: Option<SocketAddr>,
}

pub(crate) async fn run(options: &Options) -> anyhow::Result<()> {
    let amount = if options.quick { QUICK } else { FULL };
    let upstream = Server::of_ours(&["upstream"]).await?;
    let at = upstream.address;
    let proxy = Server::of_ours(&["proxy", &format!("http://{at}")]).await?;
    let relaxed = gateway::start(at, Capture::Relaxed, Disk::Whole).await?;
    let durable = gateway::start(at, Capture::Durable, Disk::Whole).await?;
    let crossing = gateway::start(at, Capture::Relaxed, Disk::Whole).await?;
    let lossy = gateway::start(at, Capture::Relaxed, Disk::Whole).await?;
    let off = gateway::start(at, Capture::Off, Disk::Whole).await?;
    let peers = if options.peers { peers::start(at).await } else { Vec::new() };
    let of = |name: &str, server| Subject {
        name: name.to_owned(),
        address: server_address(server, at),
        server,
        dialect: Dialect::Messages,
        lossy: false,
        streams: true,
        told: None,
    };
    let mut subjects = vec![
        of("direct", None),
        of("bare proxy", Some(&proxy)),
        of("throughline relaxed", Some(&relaxed.server)),
        of("throughline durable", Some(&durable.server)),
        Subject {
            lossy: true,
            streams: false,
            ..of("  relaxed, lossy client", Some(&lossy.server))
        },
        Subject {
            dialect: Dialect::Chat,
            streams: false,
            ..of("  relaxed, chat → messages", Some(&crossing.server))
        },
        Subject { streams: false, ..of("  replay off, nothing kept", Some(&off.server)) },
    ];
    let own = subjects.len();
    for peer in &peers {
        let told = peer.is_told.then_some(at);
        subjects.push(Subject { streams: false, told, ..of(peer.name, Some(&peer.server)) });
    }
    // Whoever has worked before has memory to use again: this one has not.
    let begun = match options.only {
        None => {
            let begun = gateway::start(at, Capture::Relaxed, Disk::Whole).await?;
            Some(streams::run(&begun.server, at).await?)
        }
        Some(_) => None,
    };
    let mut rows: Vec<Row> = Vec::new();
    let is_meant = |subject: &&Subject<'_>| {
        options.only.as_ref().is_none_or(|only| subject.name.contains(only.as_str()))
    };
    for (place, subject) in subjects.iter().enumerate().filter(|(_, subject)| is_meant(subject)) {
        eprintln!("{} …", subject.name.trim());
        let amount = if place < own { amount } else { OTHERS };
        rows.push(subject.measure(amount, at).await?);
    }
    table::print(&rows, begun, commit::bare()?);
    Ok(())
}

fn server_address(server: Option<&Server>, upstream: SocketAddr) -> SocketAddr {
    server.map_or(upstream, |server| server.address)
}

impl Subject<'_> {
    async fn measure(&self, amount: Amount, upstream: SocketAddr) -> anyhow::Result<Row> {
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

    async fn pair(&self, size: Size, talks: (usize, usize), rounds: usize) -> anyhow::Result<Pair> {
        let work = |connections, conversations| Work {
            dialect: self.dialect,
            size,
            lossy: self.lossy,
            connections,
            conversations,
            told: self.told,
        };
        // What is done once, as opening connections, is done before.
        load::run(self.address, work(MANY, usize::from(size == Size::Small))).await?;
        let mut best = Pair::default();
        for _ in 0..rounds {
            let one = load::run(self.address, work(1, talks.0)).await?;
            if one.rate() > best.one.rate() {
                best.one = one;
            }
            let before = self.server.map(Server::taken).transpose()?;
            let many = load::run(self.address, work(MANY, talks.1)).await?;
            let after = self.server.map(Server::taken).transpose()?;
            if many.rate() > best.many.rate() {
                let taken =
                    before.zip(after).map(|(before, after)| after.time.saturating_sub(before.time));
                best.time = taken.map(|time| time / many.requests.max(1) as u32);
                best.many = many;
            }
        }
        Ok(best)
    }
}
