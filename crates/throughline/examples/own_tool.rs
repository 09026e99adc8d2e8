//! Custom tools: a function with typed arguments, and a type that implements `Tool` and reports
//! progress.
//!
//! `cargo run --example own_tool` prints the schemas that a model would receive and runs each tool
//! once. An agent gets the tools with `runner.with_tools(tools)`. The runner then validates the
//! arguments of each call, and records the call before and after it runs.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use throughline::agent::{Tool, ToolAnswer, ToolContext, ToolFuture, ToolSpec, function_tool};
use throughline::json::{Json, SyntaxError};

/// The arguments from the model. These comments become part of the tool's JSON Schema.
#[derive(JsonSchema, Deserialize)]
struct Sum {
    /// The numbers to add.
    numbers: Vec<f64>,
}

/// Counts to three and reports progress.
struct Count;

impl Tool for Count {
    fn spec(&self) -> ToolSpec {
        // The tool may run again after a crash, and may take a minute.
        ToolSpec::new("count")
            .description("Counts to three.")
            .idempotent()
            .timeout(Duration::from_mins(1))
    }

    fn run<'a>(&'a self, _: &'a Json, about: &'a ToolContext) -> ToolFuture<'a> {
        Box::pin(async move {
            for number in ["one", "two", "three"] {
                (about.progress)(number);
            }
            ToolAnswer::text("Counted.")
        })
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), SyntaxError> {
    let sum = ToolSpec::new("sum").description("Adds numbers.").idempotent();
    let sum = function_tool(sum, |args: Sum| async move {
        match args.numbers.as_slice() {
            [] => ToolAnswer::error("There is nothing to add."),
            numbers => ToolAnswer::text(numbers.iter().sum::<f64>().to_string()),
        }
    });
    let tools: [(Arc<dyn Tool>, &str); 2] =
        [(Arc::new(sum), r#"{"numbers":[1,2,3.5]}"#), (Arc::new(Count), "{}")];
    let about = ToolContext {
        run: "run_1".into(),
        call: "call_1".into(),
        agent: "example".into(),
        ctx: Arc::default(),
        progress: Arc::new(|text: &str| println!("… {text}")),
    };
    for (tool, args) in tools {
        let spec = tool.spec();
        println!("{} {}", spec.name, spec.schema.as_ref().map_or("{}", Json::as_str));
        let answer = tool.run(&Json::parse(args)?, &about).await;
        println!("{:?}: {}", answer.outcome, answer.to_text());
    }
    Ok(())
}
