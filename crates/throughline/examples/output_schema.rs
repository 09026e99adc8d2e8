//! An answer that must match a schema. If an answer is invalid, the model is called again with the
//! error. The Thread stores only the last answer.
//!
//! `cargo run --example output_schema` needs no key.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

mod support;

use std::error::Error;

use serde::Deserialize;
use throughline::Tenant;
use throughline::agent::{self, AgentConfig, OutputContract, RunRequest};
use throughline::json::Json;
use throughline::spec::RunEvent;

/// The answer that the agent must give.
#[derive(Deserialize)]
struct Weather {
    degrees: f64,
}

/// Script for a model that answers in prose, then with an invalid number, then correctly.
const SCRIPT: &str = r#"
[[turn]]
texts = ["It is warm."]

[[turn]]
texts = ['{"degrees": "warm"}']

[[turn]]
texts = ['{"degrees": 21}']
"#;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let env = support::ExampleEnv::scripted("output-schema", SCRIPT).await?;
    let store = env.store().await?;
    let runner = agent::runner(&store, env.models()?);
    let mut config = AgentConfig::minimal("anthropic/claude-sonnet-5-5");
    let schema =
        r#"{"type":"object","properties":{"degrees":{"type":"number"}},"required":["degrees"]}"#;
    let schema = Json::parse(schema.to_owned())?;
    config.output = Some(OutputContract { schema, name: None, native: false });

    let us = Tenant::from("us");
    let started = runner.start(RunRequest::new("us", config, "How warm is it?")).await?;
    let status = runner.drive(&us, &started.run).await?;
    for event in agent::events(&store, &us, &started.run).await? {
        match event {
            RunEvent::Gate(event) => {
                println!("{}: {}", event.phase, event.message.unwrap_or_default());
            }
            RunEvent::Message(event) if event.ephemeral == Some(true) => {
                println!("ephemeral {} message: {}", event.role, event.content);
            }
            _ => {}
        }
    }
    let state = runner.state(&us, &started.run).await?;
    let Ok(Weather { degrees }) = state.output() else { return Err("no valid answer".into()) };
    println!("{status}: {degrees} degrees");
    println!("the thread has {} messages", state.smart_state().messages.len());
    Ok(())
}
