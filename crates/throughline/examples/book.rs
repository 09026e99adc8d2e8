//! The Rust snippets from the README and the book in one program: `cargo run --example book`.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]
#![expect(
    clippy::disallowed_methods,
    reason = "an example is a program, and reads the environment for the library"
)]

use std::error::Error;

use bytes::Bytes;
use throughline::agent::Runner;
use throughline::codec::{Catalog, DecodeContext, codec};
use throughline::tools::{McpServer, ToolDeclarations};
use throughline::{Call, Wire};

/// A response from Claude with a signed Thought and a tool call.
const ANSWER: &[u8] =
    br#"{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-5-5",
  "content":[{"type":"thinking","thinking":"I need the weather.","signature":"c2lnbmVk"},
             {"type":"tool_use","id":"toolu_1","name":"weather","input":{"city":"Paris"}}],
  "stop_reason":"tool_use","usage":{"input_tokens":9,"output_tokens":20}}"#;

fn main() -> Result<(), Box<dyn Error>> {
    println!("{}", replay_thought(&Bytes::from_static(ANSWER))?);
    Ok(())
}

/// Decodes a response and encodes the next request with the same Thought.
fn replay_thought(body: &Bytes) -> Result<String, Box<dyn Error>> {
    let target = Catalog::builtin().target_for("anthropic", "claude-sonnet-5-5", "work")?;
    let wire = codec(&Wire::ANTHROPIC_MESSAGES).ok_or("built in")?;
    let reply = wire.decode_reply(body, &DecodeContext::of(target.clone()))?;
    let mut call = Call::new(target);
    call.extend(reply.items);
    let request = wire.encode(&call)?;
    Ok(String::from_utf8(request.request.body.to_vec())?)
}

/// Adds the tools of an MCP server, and tools that are declared in TOML.
#[expect(dead_code, reason = "it needs a server")]
async fn with_tools(runner: Runner, path: &str, text: &str) -> Result<Runner, Box<dyn Error>> {
    let server =
        McpServer::spawn("files", "npx", ["-y", "some-server", "."], [("PATH", path)]).await?;
    let runner = runner.with_tools(server.tools().await?);
    let tools = ToolDeclarations::toml(text, &[], &|name| std::env::var(name).ok())?.open().await?;
    Ok(runner.with_tools(tools))
}
