//! A tool that is a program: it reads its arguments as JSON from standard input, and what it writes is its answer.

use std::process::Stdio;

use throughline_agent::{Tool, ToolAnswer, ToolContext, ToolSpec, Working};
use throughline_core::Json;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// The most that is told of an answer, in bytes.
const LONGEST: usize = 256 << 10;

/// A tool that is a program.
pub(crate) struct Program {
    spec: ToolSpec,
    command: String,
}

impl Program {
    /// A tool of which that is known, which the shell runs so.
    pub(crate) fn new(spec: ToolSpec, command: impl Into<String>) -> Self {
        Self { spec, command: command.into() }
    }

    async fn answer(&self, args: &Json, about: &ToolContext) -> std::io::Result<ToolAnswer> {
        let mut child = Command::new("sh")
            .arg("-c")
            .arg(&self.command)
            .env("THROUGHLINE_RUN", &*about.run)
            .env("THROUGHLINE_CALL", &*about.call)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        if let Some(mut input) = child.stdin.take() {
            // A program that needs no arguments does not read them.
            drop(input.write_all(args.as_str().as_bytes()).await);
        }
        let ended = child.wait_with_output().await?;
        let said = clipped(&ended.stdout);
        if ended.status.success() {
            return Ok(ToolAnswer::text(said));
        }
        let errors = clipped(&ended.stderr);
        Ok(ToolAnswer::error(format!("{} ({})\n{errors}{said}", self.spec.name, ended.status)))
    }
}

impl Tool for Program {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn run<'a>(&'a self, args: &'a Json, about: &'a ToolContext) -> Working<'a> {
        Box::pin(async move {
            let answer = self.answer(args, about).await;
            answer.unwrap_or_else(|error| ToolAnswer::error(format!("it cannot be run: {error}")))
        })
    }
}

fn clipped(said: &[u8]) -> String {
    let mut text = String::from_utf8_lossy(said).into_owned();
    if text.len() > LONGEST {
        text.truncate(text.floor_char_boundary(LONGEST));
        text.push_str("\n… (the rest is left out)");
    }
    text
}
