//! A provider of one's own: a row of data says which wire it speaks and where it is, and another one what its models demand.
//!
//! `cargo run --example own_provider` needs no key.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

mod support;

use std::error::Error;

use throughline::agent::{self, AgentConfig, Start};
use throughline::models::{self, Endpoint, Source};
use throughline::{Catalog, Credential, Tenant};

/// An endpoint that speaks a wire we know.
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
    let place = support::Place::new("own-provider").await?;
    let catalog = Catalog::builtin().with_providers(ROW)?;
    let row = catalog.provider("basement").ok_or("it was just added")?;
    println!("{} speaks {} at {}", row.name, row.wire, row.base_url);
    // Here a simulator answers in its place.
    let address = format!("{}/at/deepseek", place.simulator.url());
    let basement = Endpoint::new("basement", row, &address, Source::Key(Credential::new("none")))?;
    let models = models::at(catalog, [basement])?;

    let store = place.store().await?;
    let runner = agent::runner(&store, models);
    let us = Tenant::from("us");
    let config = AgentConfig::minimal("basement/deepseek-v4-pro");
    let begun = runner.begin(Start::new("us", config, "Are you there?")).await?;
    let status = runner.drive(&us, &begun.run).await?;
    let answer = runner.state(&us, &begun.run).await?.answer();
    println!("{status}: {}", answer.unwrap_or_default());
    Ok(())
}
