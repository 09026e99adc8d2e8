//! The README's example. It needs a provider's API key, such as `ANTHROPIC_API_KEY`.

#![allow(missing_docs, clippy::print_stdout, clippy::disallowed_methods, reason = "an example")]

use std::error::Error;

use throughline::agent::{AgentConfig, RunRequest, ToolAnswer, ToolSpec, function_tool, runner};
use throughline::{Tenant, models, store};

#[derive(schemars::JsonSchema, serde::Deserialize)]
struct Weather {
    city: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = store::open("sqlite://agents.db", &store::Options::default()).await?;
    let models = models::from_env(&|name| std::env::var(name).ok())?;
    let weather = ToolSpec::new("weather").description("The weather of a city.").idempotent();
    let weather = function_tool(weather, |at: Weather| async move {
        ToolAnswer::text(format!("It is sunny in {}.", at.city))
    });
    let runner = runner(&store, models).with_tool(weather);
    let (us, agent) = (Tenant::from("us"), AgentConfig::smart("anthropic/claude-sonnet-5-5"));
    let begun = runner.start(RunRequest::new("us", agent, "What is the weather in Paris?")).await?;
    runner.drive(&us, &begun.run).await?; // any process with the store can resume it
    println!("{}", runner.state(&us, &begun.run).await?.answer().unwrap_or_default());
    Ok(())
}
