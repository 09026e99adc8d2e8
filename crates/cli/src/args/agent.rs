//! Options of the agent commands: `demo`, `run`, `resume`, `inbox`, `answer`, `approve`, `reject`,
//! `cancel`, `narrate` and `traces`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{CommonArgs, Format, StoreArgs, non_empty};

/// Options that select the agent, its tools, its prompts and its output.
#[derive(Debug, Args)]
pub(crate) struct AgentArgs {
    /// Agent declaration as TOML: `model`, `instructions`, `tools`, `limits`, …; see docs/agents.md
    #[arg(long, value_name = "FILE")]
    pub(crate) agent: Option<PathBuf>,
    /// Tool: `NAME=COMMAND`, a program that reads its arguments as JSON and prints its result; or
    /// `mcp:…` or `http:…`, see docs/tools.md; repeatable
    #[arg(long, value_name = "TOOL", value_parser = non_empty())]
    pub(crate) tool: Vec<String>,
    /// Prompt for questions and approvals even if standard input is not a terminal
    #[arg(long, conflicts_with = "no_ask")]
    pub(crate) ask: bool,
    /// Never prompt; questions and approvals stay pending in the inbox
    #[arg(long)]
    pub(crate) no_ask: bool,
    /// Lease duration in seconds; another process can take over after it expires [default: 15]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) lease: Option<u64>,
    /// Output format: text, or json with one event per line
    #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/run.md"))]
pub(crate) struct Run {
    /// Model to use instead of the agent's: `sim/claude-sonnet-5-5`, `openai/gpt-5.6-sol`
    #[arg(long, value_parser = non_empty())]
    pub(crate) model: Option<String>,
    /// Continue this thread; a new thread is created when omitted
    #[arg(long, value_name = "THREAD", value_parser = non_empty())]
    pub(crate) thread: Option<String>,
    /// Require approval for each call of the matching tools; `*` matches any text
    #[arg(long, value_name = "PATTERN", value_parser = non_empty())]
    pub(crate) approve: Vec<String>,
    /// Run in the background and print only the run id
    #[arg(long, conflicts_with = "ask")]
    pub(crate) detach: bool,
    #[command(flatten)]
    pub(crate) using: AgentArgs,
    /// Message for the agent, or `-` for standard input
    #[arg(value_name = "TEXT", value_parser = non_empty())]
    pub(crate) text: String,
    #[command(flatten)]
    pub(crate) at: StoreArgs,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/resume.md"))]
pub(crate) struct Resume {
    /// Use this model from now on
    #[arg(long, value_parser = non_empty())]
    pub(crate) model: Option<String>,
    #[command(flatten)]
    pub(crate) using: AgentArgs,
    /// Run to resume
    #[arg(value_name = "RUN", value_parser = non_empty())]
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) at: StoreArgs,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/inbox.md"))]
pub(crate) struct Inbox {
    /// Show only the requests of this run
    #[arg(long, value_name = "RUN", value_parser = non_empty())]
    pub(crate) run: Option<String>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/answer.md"))]
pub(crate) struct Answer {
    /// Decline to answer
    #[arg(long, conflicts_with = "answers")]
    pub(crate) cancel: bool,
    /// Additional notes for the agent
    #[arg(long, value_name = "TEXT")]
    pub(crate) notes: Option<String>,
    /// Name of the person who answers
    #[arg(long, value_name = "NAME")]
    pub(crate) by: Option<String>,
    /// Id of the pending request, as shown by `throughline inbox`
    #[arg(value_name = "ID", value_parser = non_empty())]
    pub(crate) id: String,
    /// Answers, one per question
    #[arg(value_name = "ANSWER", required_unless_present = "cancel")]
    pub(crate) answers: Vec<String>,
    #[command(flatten)]
    pub(crate) at: StoreArgs,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/approve.md"))]
pub(crate) struct Approve {
    /// Arguments to run with instead of the model's, as JSON
    #[arg(long, value_name = "JSON")]
    pub(crate) args: Option<String>,
    #[command(flatten)]
    pub(crate) deciding: DecisionArgs,
}

/// Options of a decision on a pending tool call.
#[derive(Debug, Args)]
pub(crate) struct DecisionArgs {
    /// Comment that is sent to the model
    #[arg(long, value_name = "TEXT")]
    pub(crate) comment: Option<String>,
    /// Name of the person who decides
    #[arg(long, value_name = "NAME")]
    pub(crate) by: Option<String>,
    /// Id of the pending request, as shown by `throughline inbox`
    #[arg(value_name = "ID", value_parser = non_empty())]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) at: StoreArgs,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/cancel.md"))]
pub(crate) struct Cancel {
    /// Reason for the cancellation
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Run to cancel
    #[arg(value_name = "RUN", value_parser = non_empty())]
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) at: StoreArgs,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/narrate.md"))]
pub(crate) struct Narrate {
    /// Redaction policy as JSON: `keys`, `patterns`, `thinkingPatterns`, …
    #[arg(long, value_name = "FILE", conflicts_with = "no_redaction")]
    pub(crate) redaction: Option<PathBuf>,
    /// Redact nothing except seals
    #[arg(long)]
    pub(crate) no_redaction: bool,
    /// Run to print
    #[arg(value_name = "RUN", value_parser = non_empty())]
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) at: StoreArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Traces {
    /// Write the trace of a run, or send it to the configured sinks
    Export(TracesExport),
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/traces-export.md"))]
pub(crate) struct TracesExport {
    /// Trace format: the session as one JSON document, or OpenTelemetry protobuf
    #[arg(long = "as", value_name = "FORMAT", value_enum, default_value_t)]
    pub(crate) trace_format: TraceFormat,
    /// Output file; `-` for standard output
    #[arg(long, value_name = "FILE", conflicts_with = "send")]
    pub(crate) output: Option<PathBuf>,
    /// Send the trace to the sinks of throughline.toml instead
    #[arg(long)]
    pub(crate) send: bool,
    /// Omit message contents; record only that a message was sent
    #[arg(long)]
    pub(crate) no_data: bool,
    /// Run to export
    #[arg(value_name = "RUN", value_parser = non_empty())]
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// Output format of a trace.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum TraceFormat {
    /// One JSON document
    #[default]
    Session,
    /// OpenTelemetry protobuf
    Otlp,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/demo.md"))]
pub(crate) struct Demo {
    /// Answer the question and decide on the approval yourself
    #[arg(long)]
    pub(crate) interactive: bool,
    /// Exit after the last step instead of keeping the gateway open on the demo's thread
    #[arg(long)]
    pub(crate) no_serve: bool,
    /// Keep the store, the configuration and the agent in this folder, which must be empty or
    /// absent; without it they are deleted after the demo
    #[arg(long, value_name = "FOLDER")]
    pub(crate) home: Option<PathBuf>,
}
