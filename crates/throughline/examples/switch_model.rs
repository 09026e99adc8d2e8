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
    let env = support::ExampleEnv::new("switch-model").await?;
    let store = env.store().await?;
    // The tool needs approval, so the run pauses inside its tool loop.
    let look = ToolSpec::new("look_up").description("Looks something up.").needs_approval();
    let look = function_tool(look, |question: Question| async move {
        ToolAnswer::text(format!("{}: it is so.", question.what))
    });
    let runner = agent::runner(&store, env.models()?).with_tool(look);
    let us = Tenant::from("us");
    let config = AgentConfig::minimal("anthropic/claude-sonnet-5-5");
    let started = runner.start(RunRequest::new("us", config, "Is it so?")).await?;
    println!("{}", runner.drive(&us, &started.run).await?);

    let state = runner.state(&us, &started.run).await?;
    let approval = state.smart.pending_approvals.iter().flatten().next().ok_or("it waits")?;
    runner.send_command(&us, &started.run, RunCommand::Switch("openai/gpt-5.6-sol".into())).await?;
    let decision = ToolApprovalResolution::new(approval.id.clone(), true);
    runner.send_command(&us, &started.run, RunCommand::Decide(decision)).await?;
    println!("{}", runner.drive(&us, &started.run).await?);

    for event in agent::events(&store, &us, &started.run).await? {
        match event {
            RunEvent::Handoff(event) => println!("from {:?} to {:?}", event.from, event.to),
            RunEvent::Usage(event) => println!("answered: {}", event.model.unwrap_or_default()),
            RunEvent::Replay(event) => {
                println!("thoughts: {:?} kept, {:?} left out", event.kept, event.elided);
            }
            _ => {}
        }
    }
    println!("no request was refused: {}", env.simulator.ledger().all_verified());
    Ok(())
}
