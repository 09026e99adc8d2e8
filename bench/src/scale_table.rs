//! Prints the results of the load test, and checks that no request failed that had to succeed.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::scale::{ScaleResult, StageResult};
use crate::scale_clients::{LoadStage, LoadTally, ScaleLoad, StoreProbe, TURNS};
use crate::units;

const MILLION: f64 = 1_000_000.0;

pub(crate) fn print(result: &ScaleResult, load: &ScaleLoad) {
    let ScaleResult { size, nodes, .. } = result;
    println!(
        "{nodes} gateways, one PostgreSQL server, {} open streams, {} conversations of {TURNS} turns",
        size.streams, size.conversations
    );
    println!(
        "a stream sends a piece every {} s; a conversation sends a turn every {} s",
        size.pace.as_secs(),
        size.think.as_secs()
    );
    println!(
        "\n{:<12} {:>5} {:>9} {:>8} {:>9} {:>9} {:>7} {:>13} {:>13} {:>12}",
        "stage",
        "s",
        "turns/s",
        "p50",
        "p99",
        "streams/s",
        "failed",
        "gateways CPU",
        "PostgreSQL CPU",
        "MiB per node"
    );
    for stage in &result.stages {
        println!("{}", line(stage));
    }
    print_streams(result);
    print_outage(result, load);
    print_turns(result);
}

fn line(result: &StageResult) -> String {
    let seconds = result.load.elapsed.as_secs_f64();
    let share = |time: Duration| format!("{:.0} %", 100.0 * time.as_secs_f64() / seconds);
    format!(
        "{:<12} {seconds:>5.0} {:>9.1} {:>8} {:>9} {:>9.1} {:>7} {:>13} {:>13} {:>12.0}",
        name(result.stage),
        result.load.rate(),
        units::time(result.load.quantile(0.5)),
        units::time(result.load.quantile(0.99)),
        result.streams as f64 / seconds,
        result.failed,
        share(result.gateway_cpu),
        result.postgres_cpu.map_or_else(|| "-".to_owned(), share),
        mebibytes(result.memory),
    )
}

fn name(stage: LoadStage) -> &'static str {
    match stage {
        LoadStage::Steady => "steady",
        LoadStage::Outage => "outage",
        LoadStage::Recovered => "recovered",
        LoadStage::Turns => "turns only",
    }
}

fn print_streams(result: &ScaleResult) {
    let Some(steady) = stage(result, LoadStage::Steady) else { return };
    let used = steady.memory.saturating_sub(result.idle_memory);
    let streams = result.size.streams.div_ceil(result.nodes).max(1);
    println!(
        "\nall streams were open after {:.1} s; a gateway uses {:.0} MiB without load, and {:.1} KiB \
         more per open stream",
        result.opened.as_secs_f64(),
        mebibytes(result.idle_memory),
        used as f64 / 1024.0 / streams as f64
    );
}

fn print_outage(result: &ScaleResult, load: &ScaleLoad) {
    println!("\nrequests that need the store, during the outage");
    for (probe, tally) in StoreProbe::ALL.iter().zip(&load.probes) {
        println!(
            "{:<20} {:>6} refused with 503 and retry-after, {} with another result",
            probe.name(),
            tally.refused.load(Ordering::SeqCst),
            tally.unexpected.load(Ordering::SeqCst)
        );
    }
    println!(
        "the provider received {} of these requests, of which {} succeeded while the store worked",
        result.probes_received,
        probe_calls(load)
    );
    let (kept, lost) = result.captures;
    println!(
        "of {} successful calls, the gateways captured {kept} and counted {lost} as not captured",
        result.calls
    );
    println!(
        "{} of {} gateways reported that they were not ready; all were ready {:.1} s after the \
         start of PostgreSQL",
        result.unready_nodes,
        result.nodes,
        result.ready.as_secs_f64()
    );
}

fn print_turns(result: &ScaleResult) {
    let Some(turns) = stage(result, LoadStage::Turns) else { return };
    let count = turns.load.requests.max(1) as f64;
    let cpu = |time: Duration| time.as_secs_f64() / count * MILLION;
    let gigabytes = |bytes: u64| bytes as f64 / count * MILLION / 1e9;
    println!("\nper million turns, measured over {count} turns at full speed");
    println!("{:<34} {:>8.0} s", "CPU of the gateways", cpu(turns.gateway_cpu));
    if let Some(postgres_cpu) = turns.postgres_cpu {
        println!("{:<34} {:>8.0} s", "CPU of PostgreSQL", cpu(postgres_cpu));
    }
    println!("{:<34} {:>8.1} GB", "growth of tables and indexes", gigabytes(turns.growth));
    println!("{:<34} {:>8.1} GB", "new content", gigabytes(turns.load.content_bytes));
}

/// Returns an error if a request failed that had to succeed, or succeeded without a check.
pub(crate) fn check(result: &ScaleResult, load: &ScaleLoad) -> anyhow::Result<()> {
    let failed: usize = load.tallies.iter().map(|tally| tally.failed.load(Ordering::SeqCst)).sum();
    let unexpected: usize =
        load.probes.iter().map(|tally| tally.unexpected.load(Ordering::SeqCst)).sum();
    let problems = load.problems().join("\n");
    anyhow::ensure!(failed == 0, "{failed} requests that need no stored state failed:\n{problems}");
    anyhow::ensure!(unexpected == 0, "{unexpected} requests were not refused:\n{problems}");
    let forwarded = result.probes_received.saturating_sub(probe_calls(load));
    anyhow::ensure!(forwarded == 0, "{forwarded} refused requests were forwarded to the provider");
    let (kept, lost) = result.captures;
    let counted = kept + lost;
    anyhow::ensure!(
        counted == result.calls as u64,
        "{} calls succeeded, but the gateways counted {counted}",
        result.calls
    );
    anyhow::ensure!(
        result.unready_nodes == result.nodes,
        "only {} of {} gateways reported the outage",
        result.unready_nodes,
        result.nodes
    );
    Ok(())
}

fn stage(result: &ScaleResult, stage: LoadStage) -> Option<&StageResult> {
    result.stages.iter().find(|result| result.stage == stage)
}

/// Returns how many requests that need the store succeeded as model calls.
fn probe_calls(load: &ScaleLoad) -> usize {
    load.probes.iter().map(|tally| tally.calls.load(Ordering::SeqCst)).sum()
}

/// Returns how many model calls succeeded.
pub(crate) fn completed_calls(load: &ScaleLoad) -> usize {
    load.tallies.iter().map(LoadTally::calls).sum::<usize>() + probe_calls(load)
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / 1_048_576.0
}
