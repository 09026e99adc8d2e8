//! A tool that a person must allow, and a restart before the person decides: the run waits in the store, and whoever opens it
//! goes on.
//!
//! `cargo run --example approval` needs no key.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

mod support;

use std::error::Error;

use schemars::JsonSchema;
use serde::Deserialize;
use throughline::agent::{
    self, AgentConfig, RunStatus, Runner, Start, ToolAnswer, ToolSpec, Word, function_tool,
};
use throughline::models::EndpointModels;
use throughline::{Journal, LogId, Tenant, ToolApprovalResolution};

#[derive(JsonSchema, Deserialize)]
struct Mail {
    /// Whom to write to.
    to: String,
}

fn runner(store: &Journal, models: EndpointModels) -> Runner {
    let mail = ToolSpec::new("send_mail").description("Sends a mail.").needs_approval();
    let mail = function_tool(mail, |mail: Mail| async move {
        println!("a mail goes out");
        ToolAnswer::text(format!("Sent to {}.", mail.to))
    });
    agent::runner(store, models).with_tool(mail)
}

/// One process begins, and ends while the run waits.
async fn first(place: &support::Place) -> Result<LogId, Box<dyn Error>> {
    let store = place.store().await?;
    let runner = runner(&store, place.models()?);
    let config = AgentConfig::minimal("anthropic/claude-sonnet-4-5");
    let begun = runner.begin(Start::new("us", config, "Write to Ann.")).await?;
    let status = runner.drive(&Tenant::from("us"), &begun.run).await?;
    println!("{status}");
    store.close().await?;
    Ok(begun.run)
}

/// Another one hears what the person says, and goes on.
async fn second(place: &support::Place, run: &LogId) -> Result<RunStatus, Box<dyn Error>> {
    let store = place.store().await?;
    let (runner, us) = (runner(&store, place.models()?), Tenant::from("us"));
    let state = runner.state(&us, run).await?;
    let asked = state.smart.pending_approvals.iter().flatten().next().ok_or("it waits")?;
    println!("may {} run with {}?", asked.tool_name, asked.args.as_str());
    let mut yes = ToolApprovalResolution::new(asked.id.clone(), true);
    yes.decided_by = Some("ann".into());
    runner.tell(&us, run, Word::Decide(yes.clone())).await?;
    if let Err(refused) = runner.tell(&us, run, Word::Decide(yes)).await {
        println!("and once more: {refused}");
    }
    let status = runner.drive(&us, run).await?;
    store.close().await?;
    Ok(status)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let place = support::Place::new("approval").await?;
    let run = first(&place).await?;
    println!("{}", second(&place, &run).await?);
    Ok(())
}
