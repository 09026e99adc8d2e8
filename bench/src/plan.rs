//! Defines the measurements and their order.

use std::net::SocketAddr;

use crate::conversation::Dialect;
use crate::gateway::{self, Capture, Disk, Gateway};
use crate::measure::{BenchTarget, LoadAmount, ROUNDS, Row};
use crate::process::Server;
use crate::targets::{self, Results};
use crate::{Options, commit, continuation, peers, postgres, storage, streams, table, units};

const QUICK: LoadAmount = LoadAmount {
    rounds: ROUNDS,
    small: (200, 40),
    small_widest: 5,
    large: (2, 1),
    huge: 1,
    first: 300,
};
const FULL: LoadAmount = LoadAmount {
    rounds: ROUNDS,
    small: (1000, 300),
    small_widest: 38,
    large: (8, 3),
    huge: 3,
    first: 1000,
};
/// Load for gateways that are much slower than Throughline.
const SLOW: LoadAmount =
    LoadAmount { rounds: 1, small: (50, 5), small_widest: 0, large: (1, 1), huge: 0, first: 0 };

pub(crate) async fn run(options: &Options) -> anyhow::Result<()> {
    let amount = if options.quick { QUICK } else { FULL };
    let upstream = Server::start_self(&["upstream"]).await?;
    let at = upstream.address;
    // Streams are measured on a fresh gateway, which has no freed memory to reuse.
    let fresh = if options.selects(streams::NAME) {
        let fresh = gateway::start(at, Capture::Relaxed, Disk::Whole).await?;
        let result = streams::run(&fresh.server, at).await?;
        stop(fresh).await;
        Some(result)
    } else {
        None
    };
    let rows = measure_rows(options, amount, at).await?;
    let continued = continuation::run(options, at).await?;
    let storage = storage::run(options, at).await?;
    let postgres = postgres::run(options, at, amount.small.1).await?;
    let commit = commit::median_commit()?;
    let results = Results { rows, fresh, storage, postgres, commit };
    table::print(&results.rows, results.fresh);
    continuation::print(&continued);
    if let Some(storage) = &results.storage {
        storage.print();
    }
    postgres::print(&results.postgres);
    println!("\na bare commit to the same disk: {}", units::time(commit));
    targets::print(&results);
    Ok(())
}

/// Measures the selected targets: the provider, the proxy, the gateway and other gateways.
async fn measure_rows(
    options: &Options,
    amount: LoadAmount,
    at: SocketAddr,
) -> anyhow::Result<Vec<Row>> {
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
        extremes: false,
        provider: None,
    };
    let targets = [
        BenchTarget { extremes: true, ..target("direct", None) },
        BenchTarget { extremes: true, ..target("bare proxy", Some(&proxy)) },
        BenchTarget { extremes: true, ..target("throughline relaxed", Some(&relaxed.server)) },
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
        BenchTarget {
            streams: false,
            extremes: true,
            ..target("  replay off, no capture", Some(&off.server))
        },
    ];
    let mut targets: Vec<_> = targets.into_iter().map(|target| (target, amount)).collect();
    for peer in &peers {
        let target = BenchTarget {
            streams: false,
            provider: peer.provider,
            ..target(&peer.name, Some(&peer.server))
        };
        targets.push((target, if peer.is_slow { SLOW } else { amount }));
    }
    let mut rows = Vec::new();
    for (target, amount) in targets.iter().filter(|(target, _)| options.selects(&target.name)) {
        eprintln!("{} …", target.name.trim());
        rows.push(target.measure(*amount, at).await?);
    }
    for gateway in [relaxed, durable, crossing, lossy, off] {
        stop(gateway).await;
    }
    Ok(rows)
}

/// Stops a gateway with SIGTERM, because an instrumented gateway writes its profile when it exits;
/// see scripts/dist.
async fn stop(gateway: Gateway) {
    if let Err(error) = gateway.stop().await {
        eprintln!("warning: a gateway did not stop: {error:#}");
    }
}

fn server_address(server: Option<&Server>, upstream: SocketAddr) -> SocketAddr {
    server.map_or(upstream, |server| server.address)
}
