//! Prints the results and whether they meet the targets.

use std::fmt::Display;
use std::time::Duration;

use crate::measure::{Pair, Round, Row};
use crate::streams::{STREAMS, StreamResult};

const HEADINGS: [[&str; 14]; 2] = [
    [
        "", "2K/s", "2K/s", "200K/s", "200K/s", "+p50", "+p99", "+p50", "+p99", "+first",
        "cpu/req", "cpu/req", "MiB", "MiB",
    ],
    [
        "", "1 conn", "32", "1 conn", "32", "2K", "2K", "200K", "200K", "token", "2K", "200K",
        "idle", "loaded",
    ],
];

/// Prints the results and whether they meet the targets. `fresh` is the result of the concurrent
/// stream measurement on a fresh gateway.
pub(crate) fn print(rows: &[Row], fresh: Option<StreamResult>, commit: Duration) {
    println!("\nrequests of a growing conversation; replies of 2 KB, streams of 16 KB");
    for headings in HEADINGS {
        println!("{}", columns(&headings));
    }
    let direct = rows.iter().find(|row| row.name == "direct");
    for row in rows {
        println!("{}", line(row, direct));
    }
    println!("\n{STREAMS} concurrent streams");
    let of_rows = rows.iter().map(|row| (row.name.as_str(), row.streams));
    for (name, streams) in of_rows.chain([("  relaxed, just started", fresh)]) {
        if let Some(streams) = streams {
            println!(
                "{name:<26} {:>6.1} KiB each, started within {:.2} s, ended {:.2} s after the release",
                streams.each as f64 / 1024.0,
                streams.started.as_secs_f64(),
                streams.ended.as_secs_f64()
            );
        }
    }
    println!("\na bare commit to the same disk: {}", time(commit));
    targets(rows, fresh, commit);
}

fn line(row: &Row, direct: Option<&Row>) -> String {
    let added = |own: &Pair, theirs: Option<&Pair>, share| {
        let own = own.one.load.quantile(share);
        theirs.map_or_else(String::new, |theirs| added_time(own, theirs.one.load.quantile(share)))
    };
    let (small, large) = (direct.map(|row| &row.small), direct.map(|row| &row.large));
    let first = row.first.as_ref().zip(direct.and_then(|row| row.first.as_ref()));
    let first = first.map(|(own, theirs)| added_time(own.quantile(0.5), theirs.quantile(0.5)));
    let memory = |bytes: Option<u64>| {
        bytes.map_or_else(|| "-".to_owned(), |bytes| format!("{:.1}", bytes as f64 / 1_048_576.0))
    };
    let cpu = |pair: &Pair| pair.many.cpu.map_or_else(|| "-".to_owned(), time);
    let rate = |round: &Round| format!("{:.0}", round.rate());
    columns(&[
        row.name.clone(),
        rate(&row.small.one),
        rate(&row.small.many),
        rate(&row.large.one),
        rate(&row.large.many),
        added(&row.small, small, 0.5),
        added(&row.small, small, 0.99),
        added(&row.large, large, 0.5),
        added(&row.large, large, 0.99),
        first.unwrap_or_else(|| "-".to_owned()),
        cpu(&row.small),
        cpu(&row.large),
        memory(row.memory.as_ref().map(|memory| memory.idle)),
        memory(row.memory.as_ref().map(|memory| memory.loaded)),
    ])
}

/// Aligns the cells of a table row.
fn columns(cells: &[impl Display; 14]) -> String {
    let [name, cells @ .., idle, loaded] = cells;
    let cells: Vec<String> = cells.iter().map(|cell| format!("{cell:>8}")).collect();
    format!("{name:<26} {} {idle:>7} {loaded:>7}", cells.join(" "))
}

/// Prints whether the targets are met.
fn targets(rows: &[Row], fresh: Option<StreamResult>, commit: Duration) {
    let row_named = |name: &str| rows.iter().find(|row| row.name.trim() == name);
    let (Some(direct), Some(proxy)) = (row_named("direct"), row_named("bare proxy")) else {
        return;
    };
    let (Some(relaxed), Some(durable)) =
        (row_named("throughline relaxed"), row_named("throughline durable"))
    else {
        return;
    };
    println!("\ntargets");
    let ratio = |own: &Pair, theirs: &Pair| own.many.rate() / theirs.many.rate();
    let at_least = |label: &str, ratio: f64, least: f64| {
        println!("{:<52} {ratio:>8.2} ≥ {least:<8} {}", label, met(ratio >= least));
    };
    at_least("relaxed / proxy, rate at 32, 2 KB", ratio(&relaxed.small, &proxy.small), 0.6);
    at_least("relaxed / proxy, rate at 32, 200 KB", ratio(&relaxed.large, &proxy.large), 0.4);
    if let Some(crossing) = row_named("relaxed, chat → messages") {
        at_least("another dialect / proxy, 2 KB", ratio(&crossing.small, &proxy.small), 0.4);
    }
    let at_most = |label: &str, own: Duration, most: Duration| {
        println!("{:<52} {:>8} ≤ {:<8} {}", label, time(own), time(most), met(own <= most));
    };
    for (size, is_small) in [("2 KB", true), ("200 KB", false)] {
        let of = |row: &Row| {
            if is_small {
                row.small.one.load.quantile(0.5)
            } else {
                row.large.one.load.quantile(0.5)
            }
        };
        let added = |row: &Row| of(row).saturating_sub(of(direct));
        let most = added(proxy) * 2;
        at_most(&format!("added p50, relaxed, {size}: twice the proxy's"), added(relaxed), most);
        let most = most + commit * 3 / 2;
        at_most(&format!("added p50, durable, {size}: plus 1.5 commits"), added(durable), most);
    }
    let at_most = |label: &str, own: u64, most: u64| {
        let kib = |bytes: u64| format!("{:.0} KiB", bytes as f64 / 1024.0);
        println!("{:<52} {:>8} ≤ {:<8} {}", label, kib(own), kib(most), met(own <= most));
    };
    if let Some(memory) = &relaxed.memory {
        at_most("memory when idle", memory.idle, 40 << 20);
    }
    if let Some(streams) = relaxed.streams {
        at_most("memory per open stream", streams.each, 64 << 10);
    }
    if let Some(streams) = fresh {
        at_most("memory per open stream, gateway just started", streams.each, 64 << 10);
    }
}

fn met(is_met: bool) -> &'static str {
    if is_met { "yes" } else { "NO" }
}

fn time(time: Duration) -> String {
    let microseconds = time.as_micros();
    if microseconds < 10_000 {
        format!("{microseconds} µs")
    } else {
        format!("{:.1} ms", time.as_secs_f64() * 1000.0)
    }
}

fn added_time(own: Duration, theirs: Duration) -> String {
    match own.checked_sub(theirs) {
        Some(added) => time(added),
        None => format!("-{}", time(theirs.saturating_sub(own))),
    }
}
