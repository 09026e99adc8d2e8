//! Prints the table of results, the concurrent streams and the requests of 800 KB.

use std::fmt::Display;

use crate::measure::{HUGE_CONNECTIONS, Pair, Round, Row};
use crate::streams::{STREAMS, StreamResult};
use crate::units::{added_time, time_or_dash};

const HEADINGS: [[&str; 15]; 2] = [
    [
        "", "2K/s", "2K/s", "2K/s", "200K/s", "200K/s", "+p50", "+p99", "+p50", "+p99", "+first",
        "cpu/req", "cpu/req", "MiB", "MiB",
    ],
    [
        "", "1 conn", "32", "256", "1 conn", "32", "2K", "2K", "200K", "200K", "token", "2K",
        "200K", "idle", "loaded",
    ],
];

/// Prints the results of all targets. `fresh` is the result of the concurrent stream measurement on
/// a fresh gateway.
pub(crate) fn print(rows: &[Row], fresh: Option<StreamResult>) {
    if !rows.is_empty() {
        println!("\nrequests of a growing conversation; replies of 2 KB, streams of 16 KB");
        for headings in HEADINGS {
            println!("{}", columns(&headings));
        }
    }
    let direct = rows.iter().find(|row| row.name == "direct");
    for row in rows {
        println!("{}", line(row, direct));
    }
    print_streams(rows, fresh);
    print_huge(rows);
}

fn print_streams(rows: &[Row], fresh: Option<StreamResult>) {
    let of_rows = rows.iter().map(|row| (row.name.as_str(), row.streams));
    let all = of_rows.chain([("  relaxed, just started", fresh)]);
    let measured: Vec<_> = all.filter_map(|(name, streams)| Some((name, streams?))).collect();
    if !measured.is_empty() {
        println!("\n{STREAMS} concurrent streams");
    }
    for (name, streams) in measured {
        println!(
            "{name:<26} {:>6.1} KiB each, started within {:.2} s, ended {:.2} s after the release",
            streams.each as f64 / 1024.0,
            streams.started.as_secs_f64(),
            streams.ended.as_secs_f64()
        );
    }
}

/// Prints the requests of 800 KB, next to the CPU time of those of 200 KB.
fn print_huge(rows: &[Row]) {
    let measured: Vec<_> = rows.iter().filter_map(|row| Some((row, row.huge.as_ref()?))).collect();
    if !measured.is_empty() {
        println!("\nrequests of 800 KB over {HUGE_CONNECTIONS} connections");
    }
    for (row, huge) in measured {
        println!(
            "{:<26} {:>8.0}/s, CPU per request {}; at 200 KB {}",
            row.name,
            huge.rate(),
            time_or_dash(huge.cpu),
            time_or_dash(row.large.many.cpu)
        );
    }
}

fn line(row: &Row, direct: Option<&Row>) -> String {
    let dash = || "-".to_owned();
    let added = |own: &Pair, theirs: Option<&Pair>, share| {
        let own = own.one.load.quantile(share);
        theirs.map_or_else(dash, |theirs| added_time(own, theirs.one.load.quantile(share)))
    };
    let (small, large) = (direct.map(|row| &row.small), direct.map(|row| &row.large));
    let first = row.first.as_ref().zip(direct.and_then(|row| row.first.as_ref()));
    let first = first.map(|(own, theirs)| added_time(own.quantile(0.5), theirs.quantile(0.5)));
    let memory = |bytes: Option<u64>| {
        bytes.map_or_else(dash, |bytes| format!("{:.1}", bytes as f64 / 1_048_576.0))
    };
    let rate = |round: &Round| format!("{:.0}", round.rate());
    columns(&[
        row.name.clone(),
        rate(&row.small.one),
        rate(&row.small.many),
        row.small_widest.as_ref().map_or_else(dash, rate),
        rate(&row.large.one),
        rate(&row.large.many),
        added(&row.small, small, 0.5),
        added(&row.small, small, 0.99),
        added(&row.large, large, 0.5),
        added(&row.large, large, 0.99),
        first.unwrap_or_else(dash),
        time_or_dash(row.small.many.cpu),
        time_or_dash(row.large.many.cpu),
        memory(row.memory.as_ref().map(|memory| memory.idle)),
        memory(row.memory.as_ref().map(|memory| memory.loaded)),
    ])
}

/// Aligns the cells of a table row.
fn columns(cells: &[impl Display; 15]) -> String {
    let [name, cells @ .., idle, loaded] = cells;
    let cells: Vec<String> = cells.iter().map(|cell| format!("{cell:>8}")).collect();
    format!("{name:<26} {} {idle:>7} {loaded:>7}", cells.join(" "))
}
