//! A tool loop: the model thinks and calls a tool. The model then receives its signed Thoughts
//! together with the tool's result, and answers.
//!
//! `cargo run --example tool_loop` needs no key.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

mod support;

use std::error::Error;

use schemars::JsonSchema;
use serde::Deserialize;
use throughline::Tenant;
use throughline::agent::{self, AgentConfig, RunRequest, ToolAnswer, ToolSpec, function_tool};
use throughline::spec::RedactionPolicy;

/// The arguments from the model. These comments become part of the tool's JSON Schema.
#[derive(JsonSchema, Deserialize)]
struct Weather {
    /// The city.
    city: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let env = support::ExampleEnv::new("tool-loop").await?;
    let store = env.store().await?;
    let weather = ToolSpec::new("weather").description("The weather of a city.").idempotent();
    let weather = function_tool(weather, |at: Weather| async move {
        ToolAnswer::text(format!("It is sunny in {}.", at.city))
    });
    let runner = agent::runner(&store, env.models()?).with_tool(weather);

    let us = Tenant::from("us");
    let config = AgentConfig::minimal("anthropic/claude-sonnet-5-5");
    let started =
        runner.start(RunRequest::new("us", config, "What is the weather in Paris?")).await?;
    let status = runner.drive(&us, &started.run).await?;

    let events = agent::events(&store, &us, &started.run).await?;
    print!("{}", agent::narrate(&events, &RedactionPolicy::default()));
    let answer = runner.state(&us, &started.run).await?.answer();
    println!("{status}: {}", answer.unwrap_or_default());
    println!("every Seal was replayed unchanged: {}", env.simulator.ledger().all_verified());
    Ok(())
}
