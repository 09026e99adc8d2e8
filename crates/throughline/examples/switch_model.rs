//! A model switch in mid-run: Claude calls a tool, and GPT gets the answer and goes on. Each gets back what it sealed, and
//! nothing that the other did.
//!
//! `cargo run --example switch_model` needs no key.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

mod support;

use std::error::Error;

use schemars::JsonSchema;
use serde::Deserialize;
use throughline::agent::{self, AgentConfig, Start, ToolAnswer, ToolSpec, Word, function_tool};
use throughline::{RunEvent, Tenant, ToolApprovalResolution};

#[derive(JsonSchema, Deserialize)]
struct Question {
    /// What to look up.
    what: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let place = support::Place::new("switch-model").await?;
    let store = place.store().await?;
    // A person has a say, so the run pauses in the middle of its tool loop.
    let look = ToolSpec::new("look_up").description("Looks something up.").needs_approval();
    let look = function_tool(look, |question: Question| async move {
        ToolAnswer::text(format!("{}: it is so.", question.what))
    });
    let runner = agent::runner(&store, place.models()?).with_tool(look);
    let us = Tenant::from("us");
    let config = AgentConfig::minimal("anthropic/claude-sonnet-4-5");
    let begun = runner.begin(Start::new("us", config, "Is it so?")).await?;
    println!("{}", runner.drive(&us, &begun.run).await?);

    let state = runner.state(&us, &begun.run).await?;
    let asked = state.smart.pending_approvals.iter().flatten().next().ok_or("it waits")?;
    runner.tell(&us, &begun.run, Word::Switch("openai/gpt-5.2".into())).await?;
    let yes = ToolApprovalResolution::new(asked.id.clone(), true);
    runner.tell(&us, &begun.run, Word::Decide(yes)).await?;
    println!("{}", runner.drive(&us, &begun.run).await?);

    for event in agent::events(&store, &us, &begun.run).await? {
        match event {
            RunEvent::Handoff(event) => println!("from {:?} to {:?}", event.from, event.to),
            RunEvent::Usage(event) => println!("answered: {}", event.model.unwrap_or_default()),
            RunEvent::Replay(event) => {
                println!("thoughts: {:?} kept, {:?} left out", event.kept, event.elided);
            }
            _ => {}
        }
    }
    println!("nothing was refused: {}", place.simulator.ledger().is_content());
    Ok(())
}
