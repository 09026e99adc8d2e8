//! `throughline sim`: runs the provider simulators in the foreground.

use std::path::Path;

use jiff::tz::TimeZone;
use owo_colors::OwoColorize as _;
use throughline_codec::{CODECS, Catalog};
use throughline_sim::{Options, Script, Simulator, start};
use tokio::runtime::Builder;

use crate::args::Sim;
use crate::catalog_watch::watch;
use crate::config::{InstalledCatalog, load_catalog};
use crate::print::failure::{Failure, Result};
use crate::print::text;
use crate::store::{Signals, runtime};

pub(crate) fn run(sim: &Sim) -> Result<()> {
    let script = sim.script.as_deref().map(load_script).transpose()?.unwrap_or_default();
    let catalog = load_catalog(sim.catalog.config.as_deref())?;
    let mut options = Options {
        catalog: catalog.shared.clone(),
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
    runtime(Builder::new_current_thread())?.block_on(serve(options, catalog))
}

/// Loads a script. An error names the file and the line.
pub(crate) fn load_script(file: &Path) -> Result<Script> {
    text::read_file(file)?.parse().map_err(|error: throughline_sim::ScriptError| {
        Failure::Usage(format!("{}:{}: {}", file.display(), error.line, error.message))
    })
}

async fn serve(options: Options, catalog: InstalledCatalog) -> Result<()> {
    let (listen, seed) = (options.listen, options.seed);
    let simulator = start(options).await;
    let simulator = simulator.map_err(|error| Failure::from_listen(listen, &error))?;
    text::write_styled(&welcome(&simulator, &catalog.shared.current(), seed))?;
    let mut signals = Signals::new()?;
    tokio::select! {
        () = signals.wait_for_stop() => {}
        () = watch(catalog, |change| text::note(&change.to_string())) => {}
    }
    simulator.stop().await;
    Ok(())
}

/// Formats the startup message: the address, an example request per wire, and settings for official
/// clients.
fn welcome(simulator: &Simulator, catalog: &Catalog, seed: u64) -> String {
    let url = simulator.url();
    let seed = format!("seed {seed}").dimmed().to_string();
    let mut lines = vec![
        format!("{} {}  {seed}", "throughline sim".bold(), url.cyan().bold()),
        format!("\n{}", "Try it".bold()),
    ];
    for codec in CODECS {
        let wire = codec.wire();
        let example = EXAMPLES.iter().find(|(name, ..)| wire.as_str() == *name);
        let Some((&(_, model, body), row)) = example.zip(catalog.default_provider(&wire)) else {
            continue;
        };
        // Some base URLs include the version, as in the vendors' official clients.
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

/// Wire, model and example request with reasoning enabled, for each wire.
const EXAMPLES: [(&str, &str, &str); 5] = [
    (
        "anthropic-messages",
        "claude-sonnet-4-6",
        r#"{"model":"claude-sonnet-4-6","max_tokens":4096,"thinking":{"type":"enabled","budget_tokens":2048},"messages":[{"role":"user","content":"Hello"}]}"#,
    ),
    (
        "openai-responses",
        "gpt-5.6-sol",
        r#"{"model":"gpt-5.6-sol","reasoning":{"effort":"low"},"input":"Hello"}"#,
    ),
    ("gemini", "gemini-3.8-flash", r#"{"contents":[{"role":"user","parts":[{"text":"Hello"}]}]}"#),
    (
        "bedrock-converse",
        "us.anthropic.claude-sonnet-4-6",
        r#"{"messages":[{"role":"user","content":[{"text":"Hello"}]}]}"#,
    ),
    (
        "openai-chat",
        "deepseek-reasoner",
        r#"{"model":"deepseek-reasoner","messages":[{"role":"user","content":"Hello"}]}"#,
    ),
];
