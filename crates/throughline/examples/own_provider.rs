//! A custom provider. One catalog entry specifies the provider's wire and address, and another
//! entry specifies the requirements of its models.
//!
//! `cargo run --example own_provider` needs no key.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

mod support;

use std::error::Error;

use throughline::Tenant;
use throughline::agent::{self, AgentConfig, RunRequest};
use throughline::codec::Catalog;
use throughline::models::{self, Credential, CredentialSource, Endpoint};

/// Catalog entry for an endpoint that uses a supported wire.
const ROW: &str = r#"
[[provider]]
name = "basement"
wire = "openai-chat"
base-url = "https://llm.basement.example/v1"
key-env = "BASEMENT_KEY"
dialect = { channel = "reasoning-content", switch = "toggle", demanded-with-tools = true, stand-in = "" }
"#;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let env = support::ExampleEnv::new("own-provider").await?;
    let catalog = Catalog::builtin().with_providers(ROW)?;
    let row = catalog.provider("basement").ok_or("it was just added")?;
    println!("{}: wire {} at {}", row.name, row.wire, row.base_url);
    // A simulator replaces the real endpoint here.
    let address = format!("{}/at/deepseek", env.simulator.url());
    let basement =
        Endpoint::new("basement", row, &address, CredentialSource::Key(Credential::new("none")))?;
    let models = models::with_endpoints(catalog, [basement])?;

    let store = env.store().await?;
    let runner = agent::runner(&store, models);
    let us = Tenant::from("us");
    let config = AgentConfig::minimal("basement/deepseek-v4-pro");
    let started = runner.start(RunRequest::new("us", config, "Are you there?")).await?;
    let status = runner.drive(&us, &started.run).await?;
    let answer = runner.state(&us, &started.run).await?.answer();
    println!("{status}: {}", answer.unwrap_or_default());
    Ok(())
}
