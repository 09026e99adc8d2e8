//! Starts other gateways for comparison. `scripts/peers` installs them under `target/peers`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use tokio::net::TcpListener;
use tokio::process::Command;

use crate::load::{self, LoadSpec};
use crate::process::{self, Server};

pub(crate) struct Peer {
    /// Name and version.
    pub(crate) name: String,
    pub(crate) server: Server,
    /// The provider's address, if each request must contain this address.
    pub(crate) provider: Option<SocketAddr>,
    /// Whether the gateway is so slow that it gets less load than Throughline.
    pub(crate) is_slow: bool,
}

/// Starts the installed gateways, and prints why each of the other gateways is skipped.
pub(crate) async fn start(upstream: SocketAddr) -> Vec<Peer> {
    let mut started = Vec::new();
    let peers = [
        ("LiteLLM", litellm(upstream).await),
        ("Portkey", portkey(upstream).await),
        ("SMG", smg(upstream).await),
    ];
    for (name, peer) in peers {
        match peer {
            Ok(peer) => started.push(peer),
            Err(error) => println!("{name} is not measured: {error:#}"),
        }
    }
    started
}

async fn litellm(upstream: SocketAddr) -> anyhow::Result<Peer> {
    let (program, python) = (installed("python/bin/litellm")?, installed("python/bin/python")?);
    let version = python_version(&python, "litellm").await?;
    let address = free_address().await?;
    let config = home()?.join("litellm.yaml");
    let text = format!(
        "model_list:\n  - model_name: \"*\"\n    litellm_params:\n      model: anthropic/*\n      \
         api_base: http://{upstream}\n      api_key: none\n\
         general_settings:\n  dangerously_permit_weak_or_unset_master_key: true\n"
    );
    std::fs::write(&config, text)?;
    let mut command = Command::new(program);
    command.arg("--config").arg(&config).args(["--host", "127.0.0.1"]);
    command.args(["--port", &address.port().to_string()]);
    let server = Server::start_at(command, address).await?;
    let name = format!("LiteLLM {version}");
    Peer { name, server, provider: None, is_slow: true }.wait_until_ready().await
}

async fn portkey(upstream: SocketAddr) -> anyhow::Result<Peer> {
    let program = installed("node/node_modules/@portkey-ai/gateway/build/start-server.js")?;
    let version = node_version("node/node_modules/@portkey-ai/gateway/package.json").await?;
    let address = free_address().await?;
    let mut command = Command::new("node");
    command.arg(program).arg(format!("--port={}", address.port())).arg("--headless");
    let server = Server::start_at(command, address).await?;
    let name = format!("Portkey {version}");
    Peer { name, server, provider: Some(upstream), is_slow: true }.wait_until_ready().await
}

/// Starts Shepherd Model Gateway, which is written in Rust and installed as a Python package.
async fn smg(upstream: SocketAddr) -> anyhow::Result<Peer> {
    let (program, python) = (installed("smg/bin/smg")?, installed("smg/bin/python")?);
    let version = python_version(&python, "smg").await?;
    let (address, metrics) = (free_address().await?, free_address().await?);
    let mut command = Command::new(program);
    command.args(["launch", "--backend", "anthropic", "--log-level", "error"]);
    command.args(["--worker-urls", &format!("http://{upstream}")]);
    command.args(["--host", "127.0.0.1", "--port", &address.port().to_string()]);
    command.args(["--prometheus-host", "127.0.0.1"]);
    command.args(["--prometheus-port", &metrics.port().to_string()]);
    let server = Server::start_at(command, address).await?;
    let name = format!("SMG {version}");
    Peer { name, server, provider: None, is_slow: false }.wait_until_ready().await
}

impl Peer {
    /// Waits until the gateway serves a conversation. Some gateways accept connections before they
    /// know their provider.
    async fn wait_until_ready(self) -> anyhow::Result<Self> {
        let probe = LoadSpec { provider: self.provider, ..LoadSpec::small(1, 1) };
        let mut result = load::run(self.server.address, probe).await;
        for _ in 0..300 {
            if result.is_ok() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            result = load::run(self.server.address, probe).await;
        }
        result.context("it did not serve a conversation within 30 seconds")?;
        Ok(self)
    }
}

fn home() -> anyhow::Result<PathBuf> {
    let release = process::program_folder()?;
    Ok(release
        .parent()
        .with_context(|| format!("{} has no parent directory", release.display()))?
        .join("peers"))
}

/// Returns the path of a file that `scripts/peers` installs.
pub(crate) fn installed(file: &str) -> anyhow::Result<PathBuf> {
    let path = home()?.join(file);
    anyhow::ensure!(path.exists(), "run scripts/peers to install it");
    Ok(path)
}

pub(crate) async fn free_address() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    Ok(listener.local_addr()?)
}

/// Returns the version of a Python package.
pub(crate) async fn python_version(python: &Path, package: &str) -> anyhow::Result<String> {
    let code = "import sys; from importlib.metadata import version; print(version(sys.argv[1]))";
    let mut command = Command::new(python);
    command.args(["-c", code, package]);
    output_of(command).await
}

/// Returns the version in the manifest of a Node package.
pub(crate) async fn node_version(manifest: &str) -> anyhow::Result<String> {
    let mut command = Command::new("node");
    command.args(["-p", "require(process.argv[1]).version"]).arg(installed(manifest)?);
    output_of(command).await
}

async fn output_of(mut command: Command) -> anyhow::Result<String> {
    let output = command.output().await;
    let output = output.with_context(|| format!("cannot run {command:?}"))?;
    anyhow::ensure!(output.status.success(), "{command:?} failed with {}", output.status);
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
