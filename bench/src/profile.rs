//! Measures where the CPU time of a request is spent: in the kernel, in the thread that writes to
//! the store, and in the stages of a request. Only builds with the cargo feature `profile` measure
//! their stages.

use crate::Options;
use crate::conversation::Dialect;
use crate::gateway::{self, Capture, Disk, Gateway};
use crate::load::{self, LoadSpec};
use crate::measure::MANY;
use crate::process::Server;
use crate::units::time;

/// Start of the lines in `/metrics` that contain the time of a stage.
const METRIC: &str = "throughline_stage_microseconds_total{stage=\"";

/// The modes of the gateway, each with its name, its capture and the dialect of its clients.
const MODES: [(&str, Capture, Dialect); 4] = [
    ("relaxed", Capture::Relaxed, Dialect::Messages),
    ("durable", Capture::Durable, Dialect::Messages),
    ("relaxed, chat → messages", Capture::Relaxed, Dialect::Chat),
    ("replay off", Capture::Off, Dialect::Messages),
];

/// Prints the CPU times of requests of 2 KB to the bare proxy and to a gateway in each mode.
pub(crate) async fn run(options: &Options) -> anyhow::Result<()> {
    let conversations = if options.quick { 120 } else { 600 };
    let upstream = Server::start_self(&["upstream"]).await?;
    let spec = LoadSpec::small(MANY, conversations);
    println!("CPU time per request of 2 KB over {MANY} connections");
    let columns = ["CPU", "in the kernel", "writer thread", "requests/s"];
    let [all, system, writer, rate] = columns;
    println!("{:<26} {all:>9} {system:>14} {writer:>14} {rate:>11}", "");
    let mut stages = Vec::new();
    if options.selects("bare proxy") {
        let proxy = Server::start_self(&["proxy", &format!("http://{}", upstream.address)]).await?;
        measure("bare proxy", &proxy, None, spec).await?;
    }
    for (name, capture, dialect) in MODES.into_iter().filter(|(name, ..)| options.selects(name)) {
        let gateway = gateway::start(upstream.address, capture, Disk::Whole).await?;
        let spec = LoadSpec { dialect, ..spec };
        let used = measure(name, &gateway.server, Some(&gateway), spec).await?;
        stages.push((name, used));
        gateway.stop().await?;
    }
    if stages.iter().all(|(_, used)| used.is_empty()) {
        println!(
            "\nthis build of throughline does not measure its stages; see scripts/bench --help"
        );
        return Ok(());
    }
    for (name, used) in stages {
        println!("\ntime per stage and request, {name}");
        let all: f64 = used.iter().map(|(_, time)| time).sum();
        for (stage, time) in used {
            println!("{stage:<12} {time:>8.1} µs {:>6.1} %", 100.0 * time / all.max(1.0));
        }
    }
    Ok(())
}

/// Runs the load, prints the CPU times, and returns the microseconds per request of each stage.
async fn measure(
    name: &str,
    server: &Server,
    gateway: Option<&Gateway>,
    spec: LoadSpec,
) -> anyhow::Result<Vec<(String, f64)>> {
    // Warm up, so that the caches are filled and each stage has run.
    load::run(server.address, LoadSpec { conversations: 5, ..spec }).await?;
    let stages_before = stages(gateway).await?;
    let before = server.cpu_times()?;
    let load = load::run(server.address, spec).await?;
    let used = server.cpu_times()?.per_request(before, load.requests);
    let (all, system, writer) = (time(used.all), time(used.system), time(used.writer));
    println!("{name:<26} {all:>9} {system:>14} {writer:>14} {:>11.0}", load.rate());
    let stages_after = stages(gateway).await?;
    let mut each: Vec<(String, f64)> = Vec::with_capacity(stages_after.len() + 1);
    for (stage, time) in stages_after {
        let earlier = stages_before.iter().find(|(other, _)| *other == stage);
        let time = time - earlier.map_or(0.0, |(_, time)| *time);
        each.push((stage, time / load.requests.max(1) as f64));
    }
    if !each.is_empty() {
        // The CPU time outside all stages is HTTP and scheduling.
        let in_stages: f64 = each.iter().map(|(_, time)| time).sum();
        let http = (used.all.as_secs_f64() * 1e6 - in_stages).max(0.0);
        each.insert(0, ("http".to_owned(), http));
    }
    Ok(each)
}

/// Returns the stages in the gateway's metrics, each with its total time in microseconds.
async fn stages(gateway: Option<&Gateway>) -> anyhow::Result<Vec<(String, f64)>> {
    let Some(gateway) = gateway else { return Ok(Vec::new()) };
    let stage = |line: &str| {
        let (stage, time) = line.strip_prefix(METRIC)?.split_once("\"}")?;
        Some((stage.to_owned(), time.trim().parse::<f64>().ok()?))
    };
    Ok(gateway.metrics().await?.lines().filter_map(stage).collect())
}
