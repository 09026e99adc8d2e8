//! An answer that must fit a schema: what does not is told to the model and asked for again, and the thread has only the last.
//!
//! `cargo run --example output_schema` needs no key.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

mod support;

use std::error::Error;

use throughline::agent::{self, AgentConfig, OutputContract, Start};
use throughline::{Json, RunEvent, Tenant};

/// A model that answers in words first, and then with a number that is none.
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
    let place = support::Place::scripted("output-schema", SCRIPT).await?;
    let store = place.store().await?;
    let runner = agent::runner(&store, place.models()?);
    let mut config = AgentConfig::minimal("anthropic/claude-sonnet-4-5");
    let schema =
        r#"{"type":"object","properties":{"degrees":{"type":"number"}},"required":["degrees"]}"#;
    let schema = Json::parse(schema.to_owned())?;
    config.output = Some(OutputContract { schema, name: None, native: false });

    let us = Tenant::from("us");
    let begun = runner.begin(Start::new("us", config, "How warm is it?")).await?;
    let status = runner.drive(&us, &begun.run).await?;
    for event in agent::events(&store, &us, &begun.run).await? {
        match event {
            RunEvent::Gate(event) => {
                println!("{}: {}", event.phase, event.message.unwrap_or_default());
            }
            RunEvent::Message(event) if event.ephemeral == Some(true) => {
                println!("({} said, and no thread keeps: {})", event.role, event.content);
            }
            _ => {}
        }
    }
    let state = runner.state(&us, &begun.run).await?;
    println!("{status}: {}", state.answer().unwrap_or_default());
    println!("the thread has {} messages", state.smart_state().messages.len());
    Ok(())
}
