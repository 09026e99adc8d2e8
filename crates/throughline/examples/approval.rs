//! A tool that needs a user's approval, with a restart before the decision. The waiting run is
//! stored, so any process that opens the store can resume it.
//!
//! `cargo run --example approval` needs no key.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

mod support;

use std::error::Error;

use schemars::JsonSchema;
use serde::Deserialize;
use throughline::agent::{
    self, AgentConfig, RunCommand, RunRequest, RunStatus, Runner, ToolAnswer, ToolSpec,
    function_tool,
};
use throughline::models::EndpointModels;
use throughline::spec::ToolApprovalResolution;
use throughline::store::Journal;
use throughline::{LogId, Tenant};

#[derive(JsonSchema, Deserialize)]
struct Mail {
    /// The recipient.
    to: String,
}

fn runner(store: &Journal, models: EndpointModels) -> Runner {
    let mail = ToolSpec::new("send_mail").description("Sends a mail.").needs_approval();
    let mail = function_tool(mail, |mail: Mail| async move {
        println!("sending the mail");
        ToolAnswer::text(format!("Sent to {}.", mail.to))
    });
    agent::runner(store, models).with_tool(mail)
}

/// Runs in the first process: starts the run, which then waits for approval.
async fn start_run(env: &support::ExampleEnv) -> Result<LogId, Box<dyn Error>> {
    let store = env.store().await?;
    let runner = runner(&store, env.models()?);
    let config = AgentConfig::minimal("anthropic/claude-sonnet-5-5");
    let started = runner.start(RunRequest::new("us", config, "Write to Ann.")).await?;
    let status = runner.drive(&Tenant::from("us"), &started.run).await?;
    println!("{status}");
    store.close().await?;
    Ok(started.run)
}

/// Runs in the second process: approves the tool call and resumes the run.
async fn resume_run(env: &support::ExampleEnv, run: &LogId) -> Result<RunStatus, Box<dyn Error>> {
    let store = env.store().await?;
    let (runner, us) = (runner(&store, env.models()?), Tenant::from("us"));
    let state = runner.state(&us, run).await?;
    let approval = state.smart.pending_approvals.iter().flatten().next().ok_or("it waits")?;
    println!("may {} run with {}?", approval.tool_name, approval.args.as_str());
    let mut decision = ToolApprovalResolution::new(approval.id.clone(), true);
    decision.decided_by = Some("ann".into());
    runner.send_command(&us, run, RunCommand::Decide(decision.clone())).await?;
    if let Err(refused) = runner.send_command(&us, run, RunCommand::Decide(decision)).await {
        println!("second decision refused: {refused}");
    }
    let status = runner.drive(&us, run).await?;
    store.close().await?;
    Ok(status)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let env = support::ExampleEnv::new("approval").await?;
    let run = start_run(&env).await?;
    println!("{}", resume_run(&env, &run).await?);
    Ok(())
}
