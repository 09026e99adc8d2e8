//! Traces a run with a custom sink, and prints the run's progress while it is driven.
//!
//! `cargo run --example custom_sink` needs no key.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

mod support;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use throughline::agent::{
    self, AgentConfig, RunError, RunRequest, Runner, Stage, ToolAnswer, ToolSpec, function_tool,
};
use throughline::trace::{self, DeliveryMode, SendFuture, Sink, TraceBatch, TraceOptions};
use throughline::{LogId, Tenant};
use tokio::sync::Notify;
use tokio::time::sleep;

/// Prints each span. A real sink returns a `SinkError` if delivery fails. The tracer then retries
/// the delivery, and the run is not affected.
struct PrintSink;

impl Sink for PrintSink {
    fn name(&self) -> &'static str {
        "print"
    }

    fn send<'a>(&'a self, batch: &'a TraceBatch) -> SendFuture<'a> {
        Box::pin(async move {
            for span in batch.all() {
                println!("span: {} ({})", span.name, span.kind.as_str());
            }
            Ok(())
        })
    }
}

#[derive(JsonSchema, Deserialize)]
struct Survey {
    /// The area to survey.
    area: String,
}

/// Waits until the run executes a tool, and prints the progress of the run.
async fn print_progress(runner: &Runner, tenant: &Tenant, run: &LogId) -> Result<(), RunError> {
    loop {
        let (_, progress) = runner.progress(tenant, run).await?;
        if let Some(call) = progress.calls.iter().find(|call| call.stage == Stage::Begun) {
            let tokens = progress.spent.output;
            println!("turn {}: {} is running, {tokens} tokens used", progress.turn, call.tool);
            return Ok(());
        }
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let env = support::ExampleEnv::new("custom-sink").await?;
    let store = env.store().await?;

    // This tool runs until the progress was printed.
    let printed = Arc::new(Notify::new());
    let until = Arc::clone(&printed);
    let survey = ToolSpec::new("survey").description("Surveys an area.").idempotent();
    let survey = function_tool(survey, move |input: Survey| {
        let until = Arc::clone(&until);
        async move {
            until.notified().await;
            ToolAnswer::text(format!("{}: all quiet.", input.area))
        }
    });
    let mut runner = agent::runner(&store, env.models()?).with_tool(survey);
    let content = TraceOptions { log_data: true, ..TraceOptions::default() };
    let sinks: Vec<Arc<dyn Sink>> = vec![Arc::new(PrintSink)];
    let tracer = trace::attach(&mut runner, DeliveryMode::Streaming, content, sinks);

    let us = Tenant::from("us");
    let config = AgentConfig::minimal("anthropic/claude-sonnet-5-5");
    let started = runner.start(RunRequest::new("us", config, "Survey the north.")).await?;
    let watch = async {
        let result = print_progress(&runner, &us, &started.run).await;
        printed.notify_one();
        result
    };
    let (status, ()) = tokio::try_join!(runner.drive(&us, &started.run), watch)?;
    println!("run: {status}");
    for report in tracer.finish().await {
        println!("trace {}: {:?}, {} spans lost", report.session, report.status, report.dropped);
    }
    Ok(())
}
