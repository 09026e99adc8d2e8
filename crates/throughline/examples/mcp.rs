//! Lists the tools of an MCP server or HTTP endpoint, and calls one of them.
//!
//! ```text
//! cargo run --example mcp -- 'mcp:npx -y @modelcontextprotocol/server-everything'
//! cargo run --example mcp -- 'mcp:npx -y @modelcontextprotocol/server-everything' npx__echo
//! '{"message":"hello"}'
//! cargo run --example mcp -- 'http:page=https://example.com/{page}' page '{"page":"index.html"}'
//! ```
//!
//! An agent gets the same tools with `runner.with_tools(tools)`.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]
#![expect(
    clippy::disallowed_methods,
    reason = "an example is a program, and reads the environment for the library"
)]

use std::error::Error;
use std::sync::Arc;

use throughline::agent::ToolContext;
use throughline::json::Json;
use throughline::tools::ToolDeclarations;

const USAGE: &str = "usage: mcp 'mcp:COMMAND' | 'mcp:URL' | 'http:NAME=URL' [TOOL ARGUMENTS]";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let server = arguments.next().ok_or(USAGE)?;
    // An MCP server receives common variables and those that its declaration names. This closure
    // looks them up.
    let variables = |name: &str| std::env::var(name).ok();
    let tools = ToolDeclarations::line(&server, &variables)?.open().await?;
    let Some(name) = arguments.next() else {
        for tool in &tools {
            let spec = tool.spec();
            println!(
                "{}: {}",
                spec.name,
                spec.description.as_deref().unwrap_or("(no description)")
            );
            println!("    {}", spec.schema.as_ref().map_or("{}", Json::as_str));
        }
        return Ok(());
    };
    let tool =
        tools.iter().find(|tool| *tool.spec().name == *name).ok_or("there is no such tool")?;
    let args = Json::parse(arguments.next().unwrap_or_else(|| "{}".to_owned()))?;
    let context = ToolContext {
        run: "run_1".into(),
        call: "call_1".into(),
        agent: "example".into(),
        ctx: Arc::default(),
        progress: Arc::new(|text: &str| println!("… {text}")),
    };
    let answer = tool.run(&args, &context).await;
    println!("{:?}: {}", answer.outcome, answer.to_text());
    Ok(())
}
