//! Tools that run as shell commands, with JSON arguments on standard input and the result on
//! standard output.

use std::process::Stdio;

use throughline_agent::{Tool, ToolAnswer, ToolContext, ToolFuture, ToolSpec};
use throughline_json::{self as json, Json};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// Maximum size of a tool result in bytes.
const MAX_RESULT: usize = 256 << 10;

pub(crate) struct ShellTool {
    pub(super) spec: ToolSpec,
    pub(super) command: String,
}

impl ShellTool {
    async fn execute(&self, args: &Json, context: &ToolContext) -> std::io::Result<ToolAnswer> {
        let ctx = context.ctx.iter().map(|(key, value)| (&**key, value));
        let ctx = json::object_of(ctx);
        let mut child = Command::new("sh")
            .arg("-c")
            .arg(&self.command)
            .env("THROUGHLINE_RUN", &*context.run)
            .env("THROUGHLINE_CALL", &*context.call)
            .env("THROUGHLINE_CTX", ctx.as_str())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        if let Some(mut input) = child.stdin.take() {
            // A command that needs no arguments may close its input without reading it.
            drop(input.write_all(args.as_str().as_bytes()).await);
        }
        let ended = child.wait_with_output().await?;
        let output = truncate_output(&ended.stdout);
        if ended.status.success() {
            return Ok(ToolAnswer::text(output));
        }
        let (name, errors) = (&self.spec.name, truncate_output(&ended.stderr));
        Ok(ToolAnswer::error(format!("{name} failed ({})\n{errors}{output}", ended.status)))
    }
}

impl Tool for ShellTool {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn run<'a>(&'a self, args: &'a Json, context: &'a ToolContext) -> ToolFuture<'a> {
        Box::pin(async move {
            let answer = self.execute(args, context).await;
            answer.unwrap_or_else(|error| {
                ToolAnswer::error(format!("cannot run {}: {error}", self.spec.name))
            })
        })
    }
}

fn truncate_output(output: &[u8]) -> String {
    let mut text = String::from_utf8_lossy(output).into_owned();
    if text.len() > MAX_RESULT {
        text.truncate(text.floor_char_boundary(MAX_RESULT));
        text.push_str("\n… (truncated)");
    }
    text
}
