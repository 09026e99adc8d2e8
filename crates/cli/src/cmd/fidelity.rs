//! `throughline fidelity`: measures how well a gateway preserves reasoning.
//!
//! The command starts strict simulators and sends scripted conversations to a gateway that uses
//! these simulators as its providers. The simulators' ledger then shows which Seals came back, what
//! was refused, and how much of the prompt cache was used.

mod assembly;
mod case_run;
mod client;
mod dialect;
mod report;
mod scenario;
mod score;
mod setup;

use std::process::ExitCode;
use std::time::Duration;

use throughline_sim::{Options, Simulator, start};
use tokio::runtime::Builder;

use self::case_run::{Bench, CaseRun, not_connected};
use self::client::FidelityClient;
use self::dialect::RequestParts;
use self::report::{CaseReport, FidelityReport};
use self::scenario::Scenario;
use self::score::CaseScore;
use self::setup::{GatewaySetup, WIRES, WireTarget};
use crate::args::{Fidelity, Format};
use crate::clock;
use crate::print::failure::{Failure, Result};
use crate::print::progress::Progress;
use crate::print::text;
use crate::store::{Signals, runtime};

/// The key that the client sends if no other key is configured.
const DEFAULT_KEY: &str = "sim-key";

/// Pause between two attempts to reach the gateway.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

pub(crate) fn run(options: &Fidelity) -> Result<ExitCode> {
    let setup = options.setup.as_deref().map(GatewaySetup::read).transpose()?.unwrap_or_default();
    let key = options.key_env.as_deref().map(key_from_env).transpose()?;
    let client = FidelityClient::new(&options.gateway, key.as_deref().unwrap_or(DEFAULT_KEY))?;
    runtime(Builder::new_multi_thread())?.block_on(async {
        let simulator = start(simulator_options(options)).await;
        let simulator = simulator.map_err(|e| Failure::from_listen(options.listen, &e))?;
        let mut signals = Signals::new()?;
        let report = tokio::select! {
            report = measure(options, &setup, &client, &simulator) => report?,
            () = signals.wait_for_stop() => {
                return Err(Failure::Interrupted("interrupted; the results are incomplete".into()));
            }
        };
        simulator.stop().await;
        report.print(options.format).or_else(Failure::ignore_closed_pipe)?;
        if !report.is_measured() {
            return Err(Failure::Usage(format!(
                "the gateway at {} supports none of the {} selected cases, so nothing was \
                 measured; check --gateway and the paths in the setup file",
                report.url,
                report.cases.len()
            )));
        }
        Ok(if report.is_faithful() { ExitCode::SUCCESS } else { ExitCode::from(1) })
    })
}

#[expect(clippy::disallowed_methods, reason = "the cli reads the environment")]
fn key_from_env(variable: &str) -> Result<String> {
    std::env::var(variable).map_err(|_| {
        Failure::Usage(format!("--key-env: the environment variable {variable} is not set"))
    })
}

fn simulator_options(options: &Fidelity) -> Options {
    Options { listen: options.listen, keep_bodies: true, ..Options::default() }
}

/// Runs all selected cases.
async fn measure(
    options: &Fidelity,
    setup: &GatewaySetup,
    client: &FidelityClient,
    simulator: &Simulator,
) -> Result<FidelityReport> {
    if matches!(options.format, Format::Text) {
        text::note(&format!("the simulators listen on {}", simulator.url()));
    }
    let is_selected = |names: &[String], name: &str| {
        names.is_empty() || names.iter().any(|selected| selected == name)
    };
    let wires = WIRES.iter().filter(|wire| is_selected(&options.wire, wire.name));
    let targets: Vec<WireTarget> = wires.map(|wire| setup.target(*wire)).collect();
    let scenarios: Vec<Scenario> = Scenario::ALL
        .into_iter()
        .filter(|scenario| is_selected(&options.case, scenario.name()))
        .collect();
    let bench = Bench { client, simulator };
    wait_for_gateway(&bench, &targets, Duration::from_secs(options.wait)).await?;
    let progress = Progress::new("measuring", options.format);
    let total = targets.len() * scenarios.len() * 2;
    let started = clock::now();
    let mut cases = Vec::new();
    for target in &targets {
        for scenario in &scenarios {
            for is_streamed in [false, true] {
                let score = run_case(&bench, target, *scenario, is_streamed, &started).await?;
                cases.push(CaseReport::new(target.wire.name, scenario.name(), is_streamed, score));
                #[expect(clippy::cast_precision_loss, reason = "a share for a progress bar")]
                progress.set_fraction(cases.len() as f64 / total as f64);
            }
        }
    }
    let name = options.name.clone().unwrap_or_else(|| client.url().to_owned());
    let report = FidelityReport {
        gateway: name,
        url: client.url().to_owned(),
        throughline: env!("CARGO_PKG_VERSION"),
        started: started.to_string(),
        cases,
    };
    // The gateway rejected every request itself, so the results would state nothing about it.
    if report.is_measured() && simulator.ledger().entries.is_empty() {
        return Err(not_connected(&bench, report.first_note()));
    }
    Ok(report)
}

async fn run_case(
    bench: &Bench<'_>,
    target: &WireTarget,
    scenario: Scenario,
    is_streamed: bool,
    started: &jiff::Timestamp,
) -> Result<CaseScore> {
    if let Some(reason) = target.unsupported(scenario) {
        return Ok(CaseScore::unsupported(reason));
    }
    let mode = if is_streamed { "streamed" } else { "whole" };
    let (wire, case, run) = (target.wire.name, scenario.name(), started.as_millisecond());
    let mut running = CaseRun::new(bench, target, scenario, is_streamed);
    running.run(&format!("{wire} {case} {mode} {run}")).await?;
    Ok(running.into_score())
}

/// Waits until the gateway answers a request. Some gateways accept connections before they know
/// their providers, and return a server error until then.
async fn wait_for_gateway(
    bench: &Bench<'_>,
    targets: &[WireTarget],
    limit: Duration,
) -> Result<()> {
    let is_supported = |target: &&WireTarget| {
        Scenario::ALL.iter().any(|scenario| target.unsupported(*scenario).is_none())
    };
    let Some(target) = targets.iter().find(is_supported) else { return Ok(()) };
    let dialect = target.wire.dialect;
    let history = [dialect.user_message("Are you there?")];
    let system = "Answer briefly.";
    let parts =
        RequestParts { model: &target.model, system, history: &history, is_streamed: false };
    let body = dialect.request(&parts).to_string();
    let (url, started) = (bench.client.url(), clock::instant());
    loop {
        let response = bench.client.post(target, &target.model, &[], false, body.clone()).await;
        let is_late = started.elapsed() >= limit;
        match response {
            Ok(response) if response.status < 300 => {
                let has_arrived = !bench.simulator.ledger().entries.is_empty();
                return if has_arrived { Ok(()) } else { Err(not_connected(bench, None)) };
            }
            Ok(response) if response.status < 500 || is_late => return Ok(()),
            Err(error) if is_late => {
                return Err(Failure::Usage(format!(
                    "cannot reach the gateway at {url}: {error}; start the gateway, or wait \
                     longer with --wait"
                )));
            }
            Ok(_) | Err(_) => tokio::time::sleep(RETRY_PAUSE).await,
        }
    }
}
