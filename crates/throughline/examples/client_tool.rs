//! A client-side tool: the run stops at the tool call, the calling program executes the tool, and
//! the run continues with the result.
//!
//! `cargo run --example client_tool` needs no key.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

mod support;

use std::error::Error;

use schemars::JsonSchema;
use serde::Deserialize;
use throughline::Tenant;
use throughline::agent::{
    self, AgentConfig, RunCommand, RunRequest, RunStatus, ToolAnswer, ToolCompletion, ToolSpec,
};

/// The arguments from the model. These comments become part of the tool's JSON Schema.
#[derive(JsonSchema, Deserialize)]
struct PickSeat {
    /// The flight number.
    flight: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let env = support::ExampleEnv::new("client-tool").await?;
    let store = env.store().await?;
    let runner = agent::runner(&store, env.models()?);

    // The runner has no code for this tool, only its specification.
    let pick_seat = ToolSpec::new("pick_seat").description("Shows the seats of a flight.");
    let config = AgentConfig::minimal("anthropic/claude-sonnet-5-5");
    let mut request = RunRequest::new("us", config, "Book me a seat.");
    request.casting.tools.push(pick_seat.arguments::<PickSeat>().client());

    let us = Tenant::from("us");
    let started = runner.start(request).await?;
    let mut status = runner.drive(&us, &started.run).await?;
    while status == RunStatus::Waiting {
        println!("{status}");
        let state = runner.state(&us, &started.run).await?;
        let mut results = Vec::new();
        for call in agent::client_calls(&state) {
            let input: PickSeat = serde_json::from_str(call.args.as_str())?;
            println!("the client runs {} for flight {}", call.name, input.flight);
            let answer = ToolAnswer::text("The user picked seat 12A.");
            results.push(ToolCompletion { call: call.id.0, answer });
        }
        // Any process with the store can return the results, also after a restart.
        runner.send_command(&us, &started.run, RunCommand::Return(results)).await?;
        status = runner.drive(&us, &started.run).await?;
    }
    let answer = runner.state(&us, &started.run).await?.answer();
    println!("{status}: {}", answer.unwrap_or_default());
    println!("every Seal was replayed unchanged: {}", env.simulator.ledger().all_verified());
    Ok(())
}
