//! Starts other gateways for comparison. `scripts/peers` installs them under `target/peers`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::Context as _;
use tokio::net::TcpListener;
use tokio::process::Command;

use crate::process::{self, Server};

pub(crate) struct Peer {
    pub(crate) name: &'static str,
    pub(crate) server: Server,
    /// Whether each request must contain the provider's address.
    pub(crate) needs_provider: bool,
}

/// Starts the installed gateways, and prints why each of the other gateways is skipped.
pub(crate) async fn start(upstream: SocketAddr) -> Vec<Peer> {
    let mut started = Vec::new();
    let gateways =
        [("LiteLLM", false, litellm(upstream).await), ("Portkey", true, portkey().await)];
    for (name, needs_provider, server) in gateways {
        match server {
            Ok(server) => started.push(Peer { name, server, needs_provider }),
            Err(error) => println!("{name} is not measured: {error:#}"),
        }
    }
    started
}

fn home() -> anyhow::Result<PathBuf> {
    let release = process::program_folder()?;
    Ok(release
        .parent()
        .with_context(|| format!("{} has no parent directory", release.display()))?
        .join("peers"))
}

async fn free() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    Ok(listener.local_addr()?)
}

async fn litellm(upstream: SocketAddr) -> anyhow::Result<Server> {
    let program = home()?.join("python/bin/litellm");
    anyhow::ensure!(program.exists(), "run scripts/peers to install it");
    let address = free().await?;
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
    Server::start_at(command, address).await
}

async fn portkey() -> anyhow::Result<Server> {
    let program = home()?.join("node/node_modules/@portkey-ai/gateway/build/start-server.js");
    anyhow::ensure!(program.exists(), "run scripts/peers to install it");
    let address = free().await?;
    let mut command = Command::new("node");
    command.arg(program).arg(format!("--port={}", address.port())).arg("--headless");
    Server::start_at(command, address).await
}
