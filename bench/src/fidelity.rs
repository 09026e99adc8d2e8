//! Runs `throughline fidelity` against several gateways, and prints their results side by side.
//!
//! Each gateway gets fresh simulators and is configured as its documentation describes. The raw
//! results and the tables are written to `fidelity/` in the build directory.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::peers::{free_address, installed, node_version, python_version};
use crate::process::{self, Server};
use crate::{Options, fidelity_evidence, fidelity_table, gateway};

#[cfg(test)]
#[path = "fidelity_tests.rs"]
mod fidelity_tests;

/// Seconds that the benchmark waits until a gateway answers.
const GATEWAY_TIMEOUT: &str = "120";

/// A gateway to measure.
struct MeasuredGateway {
    /// Name and version.
    name: String,
    command: Command,
    address: SocketAddr,
    /// The setup file of `throughline fidelity`.
    setup: String,
    /// Wires that this process serves; empty for all wires.
    wires: &'static [&'static str],
}

/// Addresses and temporary files of one measurement.
struct GatewayRun {
    simulators: SocketAddr,
    address: SocketAddr,
    folder: TempDir,
}

impl GatewayRun {
    async fn new() -> anyhow::Result<Self> {
        let folder = process::temporary_folder()?;
        Ok(Self { simulators: free_address().await?, address: free_address().await?, folder })
    }

    fn file(&self, name: &str, text: &str) -> anyhow::Result<PathBuf> {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text)?;
        Ok(path)
    }

    /// Returns the base URL of a simulated provider.
    fn provider(&self, name: &str) -> String {
        format!("http://{}/at/{name}", self.simulators)
    }
}

/// A gateway process that the benchmark can start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GatewayKind {
    Throughline,
    BareProxy,
    LiteLlm,
    Portkey,
    /// SMG has one backend per process.
    SmgAnthropic,
    SmgOpenAi,
    ClaudeCodeRouter,
}

impl GatewayKind {
    const ALL: [Self; 7] = [
        Self::Throughline,
        Self::BareProxy,
        Self::LiteLlm,
        Self::Portkey,
        Self::SmgAnthropic,
        Self::SmgOpenAi,
        Self::ClaudeCodeRouter,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Throughline => "Throughline",
            Self::BareProxy => "bare proxy",
            Self::LiteLlm => "LiteLLM",
            Self::Portkey => "Portkey",
            Self::SmgAnthropic | Self::SmgOpenAi => "SMG",
            Self::ClaudeCodeRouter => "Claude Code Router",
        }
    }

    fn is_peer(self) -> bool {
        !matches!(self, Self::Throughline | Self::BareProxy)
    }

    async fn prepare(self, run: &GatewayRun) -> anyhow::Result<MeasuredGateway> {
        match self {
            Self::Throughline => throughline(run).await,
            Self::BareProxy => bare_proxy(run),
            Self::LiteLlm => litellm(run).await,
            Self::Portkey => portkey(run).await,
            Self::SmgAnthropic => smg(run, "anthropic", &["messages"]).await,
            Self::SmgOpenAi => smg(run, "openai", &["responses", "chat"]).await,
            Self::ClaudeCodeRouter => claude_code_router(run).await,
        }
    }
}

pub(crate) async fn run(options: &Options) -> anyhow::Result<()> {
    let mut reports: Vec<Value> = Vec::new();
    let mut failure = None;
    for kind in GatewayKind::ALL {
        if !options.selects(kind.name()) || (kind.is_peer() && !options.peers) {
            continue;
        }
        let is_own = kind == GatewayKind::Throughline;
        match measure(kind).await {
            Ok(report) => {
                if is_own {
                    failure = first_failed_case(&report);
                }
                add_report(&mut reports, report);
            }
            Err(error) => {
                println!("{} is not measured: {error:#}", kind.name());
                if is_own {
                    failure = Some("Throughline is not measured".to_owned());
                }
            }
        }
    }
    let folder = process::program_folder()?.join("fidelity");
    std::fs::create_dir_all(&folder)?;
    for report in &reports {
        let name = report["gateway"].as_str().unwrap_or_default().replace(' ', "-");
        let file = folder.join(format!("{name}.json"));
        std::fs::write(&file, serde_json::to_vec_pretty(report)?)?;
        println!("raw results: {}", file.display());
    }
    std::fs::write(folder.join("results.csv"), fidelity_table::to_csv(&reports))?;
    let evidence = fidelity_evidence::to_markdown(&reports);
    let tables = format!("{}\n{evidence}", fidelity_table::to_markdown(&reports));
    let file = folder.join("results.md");
    std::fs::write(&file, &tables)?;
    println!("tables: {}\n{tables}", file.display());
    match failure {
        Some(failure) => anyhow::bail!(failure),
        None => Ok(()),
    }
}

/// Describes the first case that the gateway does not support or in which it lost reasoning; `None`
/// if there is no such case.
fn first_failed_case(report: &Value) -> Option<String> {
    let cases = report["cases"].as_array().filter(|cases| !cases.is_empty());
    let Some(cases) = cases else { return Some("the results contain no case".to_owned()) };
    let is_failed = |case: &&Value| {
        let counts = ["lost", "altered", "refused", "errors"];
        !case["unsupported"].is_null() || counts.iter().any(|name| case[*name] != 0)
    };
    let case = cases.iter().find(is_failed)?;
    let text = |name: &str| case[name].as_str().unwrap_or_default();
    let (wire, name) = (text("wire"), text("case"));
    Some(format!("Throughline failed the case {name} on {wire}; see the raw results"))
}

/// Adds a report. The cases of two processes of the same gateway become one report.
fn add_report(reports: &mut Vec<Value>, mut report: Value) {
    let known = reports.iter_mut().find(|known| known.get("gateway") == report.get("gateway"));
    let known = known.and_then(|known| known.get_mut("cases")?.as_array_mut());
    match (known, report.get_mut("cases").and_then(Value::as_array_mut)) {
        (Some(known), Some(cases)) => known.append(cases),
        (_, _) => reports.push(report),
    }
}

/// Measures one gateway: starts the benchmark with its simulators, then the gateway.
async fn measure(kind: GatewayKind) -> anyhow::Result<Value> {
    let run = GatewayRun::new().await?;
    let gateway = kind.prepare(&run).await?;
    let MeasuredGateway { name, command, address, setup, wires } = gateway;
    println!("measuring {name}");
    let mut benchmark = Command::new(gateway::program()?);
    benchmark.args(["fidelity", "--format", "json", "--wait", GATEWAY_TIMEOUT, "--name", &name]);
    benchmark.arg("--gateway").arg(format!("http://{address}"));
    benchmark.arg("--listen").arg(run.simulators.to_string());
    benchmark.arg("--setup").arg(run.file("setup.toml", &setup)?);
    for wire in wires {
        benchmark.args(["--wire", wire]);
    }
    benchmark.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let benchmark = benchmark.kill_on_drop(true).spawn()?;
    wait_until_open(run.simulators).await?;
    let _server = Server::start_at(command, address).await?;
    let output = benchmark.wait_with_output().await?;
    let is_measured = matches!(output.status.code(), Some(0 | 1));
    let errors = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(is_measured, "{}", errors.trim());
    serde_json::from_slice(&output.stdout).context("the results are not valid JSON")
}

async fn wait_until_open(address: SocketAddr) -> anyhow::Result<()> {
    for _ in 0..300 {
        if TcpStream::connect(address).await.is_ok() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    anyhow::bail!("the simulators at {address} did not start within 30 seconds")
}

async fn throughline(run: &GatewayRun) -> anyhow::Result<MeasuredGateway> {
    let program = gateway::program()?;
    let providers =
        [("anthropic", ""), ("openai", "/v1"), ("deepseek", ""), ("gemini", ""), ("bedrock", "")];
    let tables = providers.map(|(name, version)| {
        let base_url = run.provider(name);
        format!("[providers.{name}]\nbase_url = \"{base_url}{version}\"\napi_key = \"sim-key\"\n")
    });
    let config = run.file("throughline.toml", &tables.concat())?;
    let store = run.folder.path().join("store.db");
    let output = Command::new(&program).arg("--version").output().await?;
    let version = String::from_utf8(output.stdout)?;
    let version = version.split_whitespace().nth(1).unwrap_or_default();
    let mut command = Command::new(program);
    command.arg("serve").args(["--log", "off"]).arg("--config").arg(config);
    command.args(["--listen", &run.address.to_string()]);
    command.arg("--store").arg(format!("sqlite://{}", store.display()));
    Ok(MeasuredGateway {
        name: format!("Throughline {version}"),
        command,
        address: run.address,
        setup: String::new(),
        wires: &[],
    })
}

fn bare_proxy(run: &GatewayRun) -> anyhow::Result<MeasuredGateway> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("proxy").arg(format!("http://{}", run.simulators));
    command.args(["--listen", &run.address.to_string()]);
    let setup = "[wires.chat-translated]\nunsupported = \"a bare proxy translates nothing\"\n";
    Ok(MeasuredGateway {
        name: "bare proxy".to_owned(),
        command,
        address: run.address,
        setup: setup.to_owned(),
        wires: &[],
    })
}

/// Configures `LiteLLM` with one entry per model, and its pass-through endpoint for Bedrock.
async fn litellm(run: &GatewayRun) -> anyhow::Result<MeasuredGateway> {
    let (program, python) = (installed("python/bin/litellm")?, installed("python/bin/python")?);
    let version = python_version(&python, "litellm").await?;
    let models = [
        ("claude-sonnet-5-5", "anthropic", "anthropic", ""),
        ("claude-opus-4-5", "anthropic", "anthropic", ""),
        ("gpt-5.6-sol", "openai", "openai", "/v1"),
        ("gpt-5.5", "openai", "openai", "/v1"),
        ("deepseek-v4-pro", "deepseek", "deepseek", ""),
        ("deepseek-v4-flash", "deepseek", "deepseek", ""),
        ("gemini-3.8-flash", "gemini", "gemini", "/v1beta"),
        ("gemini-3.1-pro", "gemini", "gemini", "/v1beta"),
    ];
    let models = models.map(|(model, prefix, provider, version)| {
        let base_url = run.provider(provider);
        format!(
            "  - model_name: {model}\n    litellm_params:\n      model: {prefix}/{model}\n      \
             api_base: {base_url}{version}\n      api_key: sim-key\n"
        )
    });
    let bedrock = ["us.anthropic.claude-sonnet-5-5", "us.anthropic.claude-opus-4-6"].map(|model| {
        let base_url = run.provider("bedrock");
        format!(
            "  - model_name: {model}\n    litellm_params:\n      model: bedrock/{model}\n      \
             aws_bedrock_runtime_endpoint: {base_url}\n      aws_access_key_id: sim-key\n      \
             aws_secret_access_key: sim-secret\n      aws_region_name: us-east-1\n"
        )
    });
    let (models, bedrock) = (models.concat(), bedrock.concat());
    let config = format!(
        "model_list:\n{models}{bedrock}general_settings:\n  \
         dangerously_permit_weak_or_unset_master_key: true\n"
    );
    let config = run.file("litellm.yaml", &config)?;
    let mut command = Command::new(program);
    command.arg("--config").arg(config).args(["--host", "127.0.0.1", "--telemetry", "False"]);
    command.args(["--port", &run.address.port().to_string()]);
    command.env("LITELLM_LOCAL_MODEL_COST_MAP", "True").env("HOME", run.folder.path());
    Ok(MeasuredGateway {
        name: format!("LiteLLM {version}"),
        command,
        address: run.address,
        setup: "[wires.converse]\npath = \"/bedrock\"\n".to_owned(),
        wires: &[],
    })
}

/// Configures Portkey through the headers of each request. Portkey returns reasoning only without
/// strict compliance with `OpenAI`'s API.
async fn portkey(run: &GatewayRun) -> anyhow::Result<MeasuredGateway> {
    let package = Path::new("node/node_modules/@portkey-ai/gateway");
    let program = installed(&package.join("build/start-server.js").to_string_lossy())?;
    let version = node_version(&package.join("package.json").to_string_lossy()).await?;
    let wires = [
        ("messages", "anthropic", "anthropic", "/v1"),
        ("responses", "openai", "openai", "/v1"),
        // Portkey's own provider for DeepSeek does not forward `tools`. For such APIs, Portkey
        // documents the provider `openai` with the host of the API.
        ("chat", "openai", "deepseek", ""),
        ("chat-translated", "anthropic", "anthropic", "/v1"),
    ];
    let wires = wires.map(|(wire, provider, row, version)| {
        let host = run.provider(row);
        format!(
            "[wires.{wire}.headers]\nx-portkey-provider = \"{provider}\"\n\
             x-portkey-custom-host = \"{host}{version}\"\n\n"
        )
    });
    let (wires, google) = (wires.concat(), run.provider("gemini"));
    let setup = format!(
        "[headers]\nx-portkey-strict-open-ai-compliance = \"false\"\n\n{wires}\
         [wires.chat-translated.other_headers]\nx-portkey-provider = \"google\"\n\
         x-portkey-custom-host = \"{google}\"\n"
    );
    let mut command = Command::new("node");
    command.arg(program).arg(format!("--port={}", run.address.port())).arg("--headless");
    Ok(MeasuredGateway {
        name: format!("Portkey {version}"),
        command,
        address: run.address,
        setup,
        wires: &[],
    })
}

/// Configures Shepherd Model Gateway with one of its backends, which serves these wires.
async fn smg(
    run: &GatewayRun,
    backend: &str,
    wires: &'static [&'static str],
) -> anyhow::Result<MeasuredGateway> {
    let (program, python) = (installed("smg/bin/smg")?, installed("smg/bin/python")?);
    let version = python_version(&python, "smg").await?;
    let metrics = free_address().await?;
    let mut command = Command::new(program);
    command.args(["launch", "--backend", backend, "--log-level", "error"]);
    command.args(["--worker-urls", &format!("http://{}", run.simulators)]);
    command.args(["--host", "127.0.0.1", "--port", &run.address.port().to_string()]);
    command.args(["--prometheus-host", "127.0.0.1"]);
    command.args(["--prometheus-port", &metrics.port().to_string()]);
    Ok(MeasuredGateway {
        name: format!("SMG {version}"),
        command,
        address: run.address,
        setup: String::new(),
        wires,
    })
}

/// Configures Claude Code Router, which serves only the Messages API. A model name contains the
/// provider's name.
async fn claude_code_router(run: &GatewayRun) -> anyhow::Result<MeasuredGateway> {
    let package = Path::new("node/node_modules/@musistudio/claude-code-router");
    let program = installed(&package.join("dist/cli.js").to_string_lossy())?;
    let version = node_version(&package.join("package.json").to_string_lossy()).await?;
    let models = ["claude-sonnet-5-5", "claude-opus-4-5"];
    let provider = json!({
        "name": "anthropic",
        "api_base_url": format!("{}/v1/messages", run.provider("anthropic")),
        "api_key": "sim-key",
        "models": models,
        "transformer": {"use": ["Anthropic"]},
    });
    let config = json!({
        "HOST": "127.0.0.1",
        "PORT": run.address.port(),
        "LOG": false,
        "NON_INTERACTIVE_MODE": true,
        "Providers": [provider],
        "Router": {"default": "anthropic,claude-sonnet-5-5"},
    });
    let home = run.folder.path();
    std::fs::create_dir_all(home.join(".claude-code-router"))?;
    run.file(".claude-code-router/config.json", &config.to_string())?;
    let [model, other_model] = models.map(|model| format!("anthropic,{model}"));
    let mut command = Command::new("node");
    command.arg(program).arg("start").env("HOME", home);
    Ok(MeasuredGateway {
        name: format!("Claude Code Router {version}"),
        command,
        address: run.address,
        setup: format!("[wires.messages]\nmodel = \"{model}\"\nother_model = \"{other_model}\"\n"),
        wires: &["messages"],
    })
}
