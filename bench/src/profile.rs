//! Measures how the gateway's time is divided among the stages of a request. Only builds with the
//! cargo feature `profile` measure their stages.

use crate::Options;
use crate::gateway::{self, Capture, Disk};
use crate::load::{self, LoadSpec};
use crate::measure::{MANY, run_round};
use crate::process::Server;
use crate::units::time_or_dash;

/// Start of the lines in `/metrics` that contain the time of a stage.
const METRIC: &str = "throughline_stage_microseconds_total{stage=\"";

/// Prints the share of each stage for requests of 2 KB to a relaxed gateway.
pub(crate) async fn run(options: &Options) -> anyhow::Result<()> {
    let conversations = if options.quick { 120 } else { 600 };
    let upstream = Server::start_self(&["upstream"]).await?;
    let gateway = gateway::start(upstream.address, Capture::Relaxed, Disk::Whole).await?;
    let address = gateway.server.address;
    // Warm up, so that the caches are filled and each stage has run.
    load::run(address, LoadSpec::small(MANY, 5)).await?;
    let before = stages(&gateway.metrics().await?);
    anyhow::ensure!(
        !before.is_empty(),
        "this build of throughline does not measure its stages; run scripts/bench --profile, which \
         builds it with --features profile"
    );
    let load = load::run(address, LoadSpec::small(MANY, conversations));
    let round = run_round(&[&gateway.server], load).await?;
    let after = stages(&gateway.metrics().await?);
    let used: Vec<(&str, f64)> = after
        .iter()
        .map(|(stage, time)| {
            let earlier = before.iter().find(|(other, _)| other == stage);
            (stage.as_str(), time - earlier.map_or(0.0, |(_, time)| *time))
        })
        .collect();
    let requests = round.load.requests.max(1) as f64;
    let in_stages: f64 = used.iter().map(|(_, time)| time / requests).sum();
    // The CPU time outside all stages is HTTP and scheduling.
    let cpu = round.cpu.map_or(in_stages, |cpu| cpu.as_secs_f64() * 1e6);
    let http = ("http", (cpu - in_stages).max(0.0) * requests);
    println!("time per stage and request, relaxed, 2 KB over {MANY} connections");
    for (stage, time) in [http].into_iter().chain(used) {
        let each = time / requests;
        println!("{stage:<12} {each:>8.1} µs {:>6.1} %", 100.0 * each / cpu.max(1.0));
    }
    println!("{:.0} requests/s, CPU per request {}", round.rate(), time_or_dash(round.cpu));
    Ok(())
}

/// Returns the stages in the metrics, each with its total time in microseconds.
fn stages(metrics: &str) -> Vec<(String, f64)> {
    let stage = |line: &str| {
        let (stage, time) = line.strip_prefix(METRIC)?.split_once("\"}")?;
        Some((stage.to_owned(), time.trim().parse::<f64>().ok()?))
    };
    metrics.lines().filter_map(stage).collect()
}
