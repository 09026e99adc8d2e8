//! `throughline sim`: runs the provider simulators in the foreground.

use std::path::Path;

use anyhow::Context as _;
use jiff::tz::TimeZone;
use owo_colors::OwoColorize as _;
use throughline_codec::{CODECS, Catalog};
use throughline_core::Wire;
use throughline_sim::{Options, Script, Simulator, start};

use crate::args::Sim;
use crate::print::failure::Failure;
use crate::print::text;
use crate::store::Signals;

pub(crate) fn run(sim: &Sim) -> Result<(), Failure> {
    let script = sim.script.as_deref().map(script).transpose()?.unwrap_or_default();
    let mut options = Options {
        listen: sim.listen,
        seed: sim.seed,
        script,
        faults: sim.fault.clone(),
        parallel: sim.parallel,
        ..Options::default()
    };
    if let Some(created) = sim.account_created {
        options.account_created = created.to_zoned(TimeZone::UTC).date();
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("the simulator cannot be started")?.block_on(serve(options))
}

fn script(file: &Path) -> Result<Script, Failure> {
    let name = file.display();
    let text = std::fs::read_to_string(file).with_context(|| format!("{name} cannot be read"))?;
    text.parse().map_err(|error: throughline_sim::ScriptError| {
        Failure::Usage(format!("{name}:{}: {}", error.line, error.message))
    })
}

async fn serve(options: Options) -> Result<(), Failure> {
    let (listen, seed) = (options.listen, options.seed);
    let simulator = start(options).await;
    let simulator = simulator.map_err(|error| Failure::from_listen(listen, error))?;
    text::write_styled(&welcome(&simulator, seed))?;
    Signals::new().context("signal handlers cannot be installed")?.wait_for_stop().await;
    simulator.stop().await;
    Ok(())
}

/// Formats the startup message: address, an example request per wire, and settings of official
/// clients.
fn welcome(simulator: &Simulator, seed: u64) -> String {
    let url = simulator.url();
    let seed = format!("seed {seed}").dimmed().to_string();
    let mut lines = vec![
        format!("{} {}  {seed}", "throughline sim".bold(), url.cyan().bold()),
        format!("\n{}", "Try it".bold()),
    ];
    let catalog = Catalog::builtin();
    for codec in CODECS {
        let wire = codec.wire();
        let Some((model, body)) = question(&wire) else { continue };
        let Some(row) = catalog.default_provider(&wire) else { continue };
        // Some base URLs include the version, as in the official clients.
        let version = if row.base_url.ends_with("/v1") { "/v1" } else { "" };
        let path = codec.path(&catalog.target(&row, model, "default"), false);
        lines.push(format!("  {}", wire.as_str().dimmed()));
        lines.push(format!("  curl {url}{version}{path} --json '{body}'"));
    }
    lines.push(format!("\n{}", "Point an official client at it, with any key".bold()));
    for (variable, path) in [
        ("ANTHROPIC_BASE_URL", ""),
        ("OPENAI_BASE_URL", "/v1"),
        ("GOOGLE_GEMINI_BASE_URL", ""),
        ("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", ""),
    ] {
        lines.push(format!("  export {variable}={url}{path}"));
    }
    lines.push(format!("\n{}", "See issued and returned seals".bold()));
    lines.push(format!("  curl {url}/sim/ledger"));
    lines.push(format!("\n{}\n", "Ctrl-C stops the simulators".dimmed()));
    lines.join("\n")
}

/// Returns a model of a wire, and a request with reasoning.
fn question(wire: &Wire) -> Option<(&'static str, &'static str)> {
    match wire.as_str() {
        "anthropic-messages" => Some((
            "claude-sonnet-4-5",
            r#"{"model":"claude-sonnet-4-5","max_tokens":4096,"thinking":{"type":"enabled","budget_tokens":2048},"messages":[{"role":"user","content":"Hello"}]}"#,
        )),
        "openai-responses" => {
            Some(("gpt-5.2", r#"{"model":"gpt-5.2","reasoning":{"effort":"low"},"input":"Hello"}"#))
        }
        "gemini" => Some((
            "gemini-3-pro-preview",
            r#"{"contents":[{"role":"user","parts":[{"text":"Hello"}]}]}"#,
        )),
        "bedrock-converse" => Some((
            "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
            r#"{"messages":[{"role":"user","content":[{"text":"Hello"}]}]}"#,
        )),
        "openai-chat" => Some((
            "deepseek-reasoner",
            r#"{"model":"deepseek-reasoner","messages":[{"role":"user","content":"Hello"}]}"#,
        )),
        _ => None,
    }
}
