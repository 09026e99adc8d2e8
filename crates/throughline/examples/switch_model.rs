//! A model switch during a run: Claude calls a tool, and GPT receives the result and continues.
//! Each model gets back only its own Seals.
//!
//! `cargo run --example switch_model` needs no key.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

mod support;

use std::error::Error;

use schemars::JsonSchema;
use serde::Deserialize;
use throughline::Tenant;
use throughline::agent::{
    self, AgentConfig, RunCommand, RunRequest, ToolAnswer, ToolSpec, function_tool,
};
use throughline::spec::{RunEvent, ToolApprovalResolution};

#[derive(JsonSchema, Deserialize)]
struct Question {
    /// The subject to look up.
    what: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let place = support::ExampleEnv::new("switch-model").await?;
    let store = place.store().await?;
    // The tool needs approval, so the run pauses inside its tool loop.
    let look = ToolSpec::new("look_up").description("Looks something up.").needs_approval();
    let look = function_tool(look, |question: Question| async move {
        ToolAnswer::text(format!("{}: it is so.", question.what))
    });
    let runner = agent::runner(&store, place.models()?).with_tool(look);
    let us = Tenant::from("us");
    let config = AgentConfig::minimal("anthropic/claude-sonnet-5-5");
    let begun = runner.start(RunRequest::new("us", config, "Is it so?")).await?;
    println!("{}", runner.drive(&us, &begun.run).await?);

    let state = runner.state(&us, &begun.run).await?;
    let asked = state.smart.pending_approvals.iter().flatten().next().ok_or("it waits")?;
    runner.send_command(&us, &begun.run, RunCommand::Switch("openai/gpt-5.6-sol".into())).await?;
    let yes = ToolApprovalResolution::new(asked.id.clone(), true);
    runner.send_command(&us, &begun.run, RunCommand::Decide(yes)).await?;
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
    println!("no request was refused: {}", place.simulator.ledger().all_verified());
    Ok(())
}
