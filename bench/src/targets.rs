//! Prints whether the results meet the targets.

use std::time::Duration;

use crate::measure::{Pair, Round, Row};
use crate::postgres::PostgresResult;
use crate::storage::StorageResult;
use crate::streams::StreamResult;
use crate::units::{kib, time};

/// All results of a run.
pub(crate) struct Results {
    pub(crate) rows: Vec<Row>,
    /// Concurrent streams on a fresh gateway.
    pub(crate) fresh: Option<StreamResult>,
    pub(crate) storage: Option<StorageResult>,
    pub(crate) postgres: Vec<PostgresResult>,
    /// Time of a bare commit to the same disk.
    pub(crate) commit: Duration,
}

impl Results {
    fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name.trim() == name)
    }
}

/// Prints each target whose measurements are complete.
pub(crate) fn print(results: &Results) {
    let mut targets = TargetLines::default();
    add_rates(results, &mut targets);
    add_latencies(results, &mut targets);
    add_size_growth(results, &mut targets);
    add_storage(results, &mut targets);
    add_postgres(results, &mut targets);
    add_memory(results, &mut targets);
    if !targets.0.is_empty() {
        println!("\ntargets");
    }
    for line in targets.0 {
        println!("{line}");
    }
}

/// One line of output per target.
#[derive(Default)]
struct TargetLines(Vec<String>);

impl TargetLines {
    fn at_least(&mut self, label: &str, ratio: f64, least: f64) {
        let met = met(ratio >= least);
        self.0.push(format!("{label:<54} {ratio:>8.2} ≥ {least:<8.2} {met}"));
    }

    fn at_most<T: Copy + PartialOrd>(
        &mut self,
        label: &str,
        own: T,
        most: T,
        show: fn(T) -> String,
    ) {
        let (met, own, most) = (met(own <= most), show(own), show(most));
        self.0.push(format!("{label:<54} {own:>8} ≤ {most:<8} {met}"));
    }
}

fn met(is_met: bool) -> &'static str {
    if is_met { "yes" } else { "NO" }
}

fn add_rates(results: &Results, targets: &mut TargetLines) {
    let Some(proxy) = results.row("bare proxy") else { return };
    let small = [
        ("throughline relaxed", "relaxed", 0.35),
        ("throughline durable", "durable", 0.30),
        ("relaxed, chat → messages", "another dialect", 0.28),
        ("replay off, no capture", "replay off", 0.70),
    ];
    for (name, label, least) in small {
        if let Some(row) = results.row(name) {
            let ratio = row.small.many.rate() / proxy.small.many.rate();
            targets.at_least(&format!("{label} / proxy, rate at 32, 2 KB"), ratio, least);
        }
    }
    let large =
        [("throughline relaxed", "relaxed", 0.35), ("replay off, no capture", "replay off", 0.70)];
    for (name, label, least) in large {
        if let Some(row) = results.row(name) {
            let ratio = row.large.many.rate() / proxy.large.many.rate();
            targets.at_least(&format!("{label} / proxy, rate at 32, 200 KB"), ratio, least);
        }
    }
}

/// Adds the targets for the latency over one connection and for the time to the first token.
fn add_latencies(results: &Results, targets: &mut TargetLines) {
    let names = ["direct", "bare proxy", "throughline relaxed", "throughline durable"];
    let [Some(direct), Some(proxy), Some(relaxed), Some(durable)] =
        names.map(|name| results.row(name))
    else {
        return;
    };
    let sizes = [
        ("2 KB", [&direct.small, &proxy.small, &relaxed.small, &durable.small]),
        ("200 KB", [&direct.large, &proxy.large, &relaxed.large, &durable.large]),
    ];
    for (size, [direct, proxy, relaxed, durable]) in sizes {
        let p50 = |pair: &Pair| pair.one.load.quantile(0.5);
        let added = |pair: &Pair| p50(pair).saturating_sub(p50(direct));
        let most = added(proxy) * 3;
        let label = format!("added p50, relaxed, {size}: 3 times the proxy's");
        targets.at_most(&label, added(relaxed), most, time);
        let most = most + results.commit * 3 / 2;
        let label = format!("added p50, durable, {size}: plus 1.5 commits");
        targets.at_most(&label, added(durable), most, time);
    }
    let firsts = [&direct.first, &proxy.first, &relaxed.first];
    if let [Some(direct), Some(proxy), Some(relaxed)] = firsts {
        let [direct, proxy, relaxed] = [direct, proxy, relaxed].map(|load| load.quantile(0.5));
        let most = proxy.saturating_sub(direct) * 3 / 2;
        let own = relaxed.saturating_sub(direct);
        targets.at_most("added time to the first token: 1.5 times the proxy's", own, most, time);
    }
}

/// Adds the targets for the growth of the CPU time from requests of 200 KB to those of 800 KB.
fn add_size_growth(results: &Results, targets: &mut TargetLines) {
    let Some(proxy) = results.row("bare proxy") else { return };
    let names = [("throughline relaxed", "relaxed"), ("replay off, no capture", "replay off")];
    for (name, label) in names {
        let Some(row) = results.row(name) else { continue };
        let large = added_cpu(Some(&row.large.many), Some(&proxy.large.many));
        let huge = added_cpu(row.huge.as_ref(), proxy.huge.as_ref());
        if let Some((large, huge)) = large.zip(huge) {
            let ratio = huge.as_secs_f64() / large.as_secs_f64();
            let label = format!("added CPU at 800 KB / 200 KB, {label}");
            targets.at_most(&label, ratio, 1.5, decimal);
        }
    }
}

/// Returns the CPU time per request that the gateway uses in addition to the proxy.
fn added_cpu(own: Option<&Round>, proxy: Option<&Round>) -> Option<Duration> {
    Some(own?.cpu?.saturating_sub(proxy?.cpu?))
}

fn add_storage(results: &Results, targets: &mut TargetLines) {
    if let Some(storage) = &results.storage {
        if let Some(pages) = storage.wal_pages {
            targets.at_most("WAL pages per turn", pages, 3.0, decimal);
        }
        let label = "growth per turn: 2.5 times the new content + 600 B";
        targets.at_most(label, storage.growth, storage.growth_target(), whole_bytes);
    }
}

fn add_postgres(results: &Results, targets: &mut TargetLines) {
    for result in &results.postgres {
        if let Some(sqlite) = results.row(result.sqlite_row) {
            let ratio = result.round.rate() / sqlite.small.many.rate();
            targets.at_least(&format!("{} / SQLite, rate at 32, 2 KB", result.name), ratio, 0.5);
        }
    }
}

fn decimal(number: f64) -> String {
    format!("{number:.2}")
}

fn whole_bytes(number: f64) -> String {
    format!("{number:.0} B")
}

fn add_memory(results: &Results, targets: &mut TargetLines) {
    if let Some(relaxed) = results.row("throughline relaxed") {
        if let Some(memory) = &relaxed.memory {
            targets.at_most("memory when idle", memory.idle, 25 << 20, kib);
        }
        if let Some(streams) = relaxed.streams {
            targets.at_most("memory per open stream", streams.each, 40 << 10, kib);
        }
    }
    if let Some(streams) = results.fresh {
        let label = "memory per open stream, gateway just started";
        targets.at_most(label, streams.each, 40 << 10, kib);
    }
}
