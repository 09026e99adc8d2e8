//! Measures the gateway with its store on PostgreSQL, and the CPU time of the PostgreSQL server.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use tokio::process::Command;

use crate::Options;
use crate::gateway::{self, Capture};
use crate::load::{self, LoadSpec};
use crate::measure::{MANY, ROUNDS, Round, median_by_rate, run_round};
use crate::procfs::{self, ProcessStat};
use crate::units::time_or_dash;

pub(crate) struct PostgresResult {
    pub(crate) name: &'static str,
    /// Name of the row with the same measurement on SQLite.
    pub(crate) sqlite_row: &'static str,
    pub(crate) round: Round,
    /// CPU time of the PostgreSQL server per request, if the server runs on this machine.
    server_cpu: Option<Duration>,
}

/// Measures the selected modes, if there is a PostgreSQL server. `conversations` is the number per
/// connection and round.
pub(crate) async fn run(
    options: &Options,
    upstream: SocketAddr,
    conversations: usize,
) -> anyhow::Result<Vec<PostgresResult>> {
    let mut results = Vec::new();
    let Some(url) = &options.postgres else { return Ok(results) };
    let server = PostgresServer::find(url)?;
    let modes = [
        ("relaxed, PostgreSQL", "throughline relaxed", Capture::Relaxed),
        ("durable, PostgreSQL", "throughline durable", Capture::Durable),
    ];
    for (name, sqlite_row, capture) in modes {
        if !options.selects(name) {
            continue;
        }
        eprintln!("{name} …");
        let gateway = gateway::start_on(upstream, capture, &create_database().await?).await?;
        let address = gateway.server.address;
        // Warm up, so that the connections to the database are open before the measurement.
        load::run(address, LoadSpec::small(MANY, 1)).await?;
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let before = server_cpu_time(server.as_ref())?;
            let load = load::run(address, LoadSpec::small(MANY, conversations));
            let round = run_round(&[&gateway.server], load).await?;
            let after = server_cpu_time(server.as_ref())?;
            let used = before.zip(after).map(|(before, after)| after.saturating_sub(before));
            let server_cpu = used.map(|used| round.load.per_request(used));
            rounds.push(PostgresResult { name, sqlite_row, round, server_cpu });
        }
        results.extend(median_by_rate(rounds, |result| result.round.rate()));
    }
    Ok(results)
}

pub(crate) fn print(results: &[PostgresResult]) {
    if !results.is_empty() {
        println!("\nstore on PostgreSQL, 2 KB over {MANY} connections");
    }
    for PostgresResult { name, round, server_cpu, .. } in results {
        println!(
            "{name:<26} {:>8.0}/s, CPU per request: gateway {}, PostgreSQL {}",
            round.rate(),
            time_or_dash(round.cpu),
            time_or_dash(*server_cpu)
        );
    }
}

/// Creates an empty database and returns its URL.
async fn create_database() -> anyhow::Result<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/postgres");
    let output = Command::new(&script).arg("database").output().await;
    let output = output.with_context(|| format!("cannot run {}", script.display()))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{} database failed: {errors}", script.display());
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

fn server_cpu_time(server: Option<&PostgresServer>) -> anyhow::Result<Option<Duration>> {
    server.map(PostgresServer::cpu_time).transpose()
}

/// A PostgreSQL server on this machine.
pub(crate) struct PostgresServer {
    /// Process id of the postmaster, the parent of all other processes of the server.
    postmaster: u32,
}

impl PostgresServer {
    /// Finds the server that listens on the port of the URL. Returns `None` if the server runs on
    /// another machine.
    pub(crate) fn find(url: &str) -> anyhow::Result<Option<Self>> {
        let port = port(url);
        let mut processes = procfs::processes()?.into_iter();
        let postmaster = processes.find(|process| postmaster_port(process) == Some(port));
        Ok(postmaster.map(|process| Self { postmaster: process.id }))
    }

    /// Returns the CPU time of all processes of the server, including those that exited.
    pub(crate) fn cpu_time(&self) -> anyhow::Result<Duration> {
        let of_process = |process: ProcessStat| {
            if process.id == self.postmaster {
                process.cpu_time + process.exited_children_cpu_time
            } else if process.parent == self.postmaster {
                process.cpu_time
            } else {
                Duration::ZERO
            }
        };
        Ok(procfs::processes()?.into_iter().map(of_process).sum())
    }
}

/// Returns the port of a postmaster, or `None` for any other process.
fn postmaster_port(process: &ProcessStat) -> Option<u16> {
    if process.name != "postgres" {
        return None;
    }
    let arguments = procfs::arguments(process.id).ok()?;
    let mut arguments = arguments.iter().skip_while(|argument| *argument != "-D");
    let folder = Path::new(arguments.nth(1)?);
    // The fourth line of this file is the port.
    let file = std::fs::read_to_string(folder.join("postmaster.pid")).ok()?;
    file.lines().nth(3)?.trim().parse().ok()
}

/// Returns the port of a PostgreSQL URL.
fn port(url: &str) -> u16 {
    let (_, rest) = url.split_once("://").unwrap_or(("", url));
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    authority.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(5432)
}
