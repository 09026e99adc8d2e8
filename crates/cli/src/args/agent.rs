//! Options of the agent commands: `demo`, `run`, `resume`, `snapshot`, `inbox`, `answer`,
//! `approve`, `reject`, `cancel`, `narrate` and `traces`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{CommonArgs, Format, StoreArgs, non_empty, whole_number};

/// Options that configure an agent: its declaration, tools, prompts, lease and output.
#[derive(Debug, Args)]
pub(crate) struct AgentArgs {
    /// TOML file that declares the agent: `model`, `instructions`, `tools`, `limits` and more; see
    /// docs/agents.md
    #[arg(long, value_name = "FILE")]
    pub(crate) agent: Option<PathBuf>,
    /// Add a tool: `mcp:…`, `http:…` (see docs/tools.md) or `NAME=COMMAND`, a program that reads
    /// JSON arguments from standard input and prints a result; repeatable
    #[arg(long, value_name = "TOOL", value_parser = non_empty())]
    pub(crate) tool: Vec<String>,
    /// Prompt for questions and approvals even if standard input is not a terminal
    #[arg(long, conflicts_with = "no_ask")]
    pub(crate) ask: bool,
    /// Never prompt; leave questions and approvals pending in the inbox
    #[arg(long)]
    pub(crate) no_ask: bool,
    /// Lease duration in seconds; another process can take over the run after the lease expires
    /// [default: 15]
    #[arg(long, value_name = "SECONDS", value_parser = whole_number::<u64>(1..=3600))]
    pub(crate) lease: Option<u64>,
    /// Output format: text, or json with one event per line
    #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/run.md"))]
pub(crate) struct Run {
    /// Model, such as `sim/claude-sonnet-5-5` or `openai/gpt-5.6-sol` [default: the model in
    /// --agent]
    #[arg(long, value_parser = non_empty())]
    pub(crate) model: Option<String>,
    /// Id of the Thread to continue [default: a new Thread]
    #[arg(long, value_name = "THREAD", value_parser = non_empty())]
    pub(crate) thread: Option<String>,
    /// Require approval for calls to tools whose name matches this pattern, where `*` matches any
    /// text; repeatable
    #[arg(long, value_name = "PATTERN", value_parser = non_empty())]
    pub(crate) approve: Vec<String>,
    /// Store a value that tools can read, as KEY=VALUE; VALUE is JSON, or text if it is not valid
    /// JSON; repeatable
    #[arg(long, value_name = "KEY=VALUE", value_parser = non_empty())]
    pub(crate) ctx: Vec<String>,
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
    /// Switch the run to this model [default: the run's current model]
    #[arg(long, value_parser = non_empty())]
    pub(crate) model: Option<String>,
    #[command(flatten)]
    pub(crate) using: AgentArgs,
    /// Restore the run from a snapshot file and resume it, or `-` for standard input
    #[arg(long, value_name = "FILE", conflicts_with = "run")]
    pub(crate) snapshot: Option<PathBuf>,
    /// Id of the run to resume
    #[arg(value_name = "RUN", value_parser = non_empty(), required_unless_present = "snapshot")]
    pub(crate) run: Option<String>,
    #[command(flatten)]
    pub(crate) at: StoreArgs,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/snapshot.md"))]
pub(crate) struct SnapshotArgs {
    /// Output file, or `-` for standard output [default: -]
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Label to store in the snapshot
    #[arg(long, value_name = "TEXT", value_parser = non_empty())]
    pub(crate) tag: Option<String>,
    /// Id of the run to export
    #[arg(value_name = "RUN", value_parser = non_empty())]
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) at: StoreArgs,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/inbox.md"))]
pub(crate) struct Inbox {
    /// List only the pending requests of the run with this id
    #[arg(long, value_name = "RUN", value_parser = non_empty())]
    pub(crate) run: Option<String>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/answer.md"))]
pub(crate) struct Answer {
    /// Decline to answer the question
    #[arg(long, conflicts_with = "answers")]
    pub(crate) cancel: bool,
    /// Notes to send to the agent, with the answers or with --cancel
    #[arg(long, value_name = "TEXT")]
    pub(crate) notes: Option<String>,
    /// Name of the person who answers, to record with the answer
    #[arg(long, value_name = "NAME")]
    pub(crate) by: Option<String>,
    /// Id of the pending request, as shown by `throughline inbox`
    #[arg(value_name = "ID", value_parser = non_empty())]
    pub(crate) id: String,
    /// Answers, one per question, in order
    #[arg(value_name = "ANSWER", required_unless_present = "cancel")]
    pub(crate) answers: Vec<String>,
    #[command(flatten)]
    pub(crate) at: StoreArgs,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/approve.md"))]
pub(crate) struct Approve {
    /// JSON arguments to call the tool with, instead of the arguments that the model chose
    #[arg(long, value_name = "JSON")]
    pub(crate) args: Option<String>,
    #[command(flatten)]
    pub(crate) deciding: DecisionArgs,
}

/// Options for approving or rejecting a pending tool call.
#[derive(Debug, Args)]
pub(crate) struct DecisionArgs {
    /// Comment to send to the model
    #[arg(long, value_name = "TEXT")]
    pub(crate) comment: Option<String>,
    /// Name of the person who decides, to record with the decision
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
    /// Reason for the cancellation, to record with the run
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Id of the run to cancel
    #[arg(value_name = "RUN", value_parser = non_empty())]
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) at: StoreArgs,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/narrate.md"))]
pub(crate) struct Narrate {
    /// JSON file with the redaction policy; overrides `[redaction]` in throughline.toml
    #[arg(long, value_name = "FILE", conflicts_with = "no_redaction")]
    pub(crate) redaction: Option<PathBuf>,
    /// Disable redaction; Seals are still hidden
    #[arg(long)]
    pub(crate) no_redaction: bool,
    /// Output format: text, or json with one sentence per line
    #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
    pub(crate) format: Format,
    /// Id of the run to print
    #[arg(value_name = "RUN", value_parser = non_empty())]
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) at: StoreArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Traces {
    /// Write the trace of a run to a file, or send it to the configured sinks
    Export(TracesExport),
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/traces-export.md"))]
pub(crate) struct TracesExport {
    /// Trace format: one JSON document, or OpenTelemetry protobuf
    #[arg(long = "as", value_name = "FORMAT", value_enum, default_value_t)]
    pub(crate) trace_format: TraceFormat,
    /// Output file, or `-` for standard output [default: -]
    #[arg(long, value_name = "FILE", conflicts_with = "send")]
    pub(crate) output: Option<PathBuf>,
    /// Send the trace to the sinks configured in throughline.toml instead of writing a file
    #[arg(long)]
    pub(crate) send: bool,
    /// Omit the text of messages, Thoughts and tool calls from the trace
    #[arg(long)]
    pub(crate) no_data: bool,
    /// Id of the run to export
    #[arg(value_name = "RUN", value_parser = non_empty())]
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

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
#[expect(clippy::struct_excessive_bools, reason = "each flag is an option of the command line")]
pub(crate) struct Demo {
    /// Prompt for the answer and the approval instead of choosing them automatically
    #[arg(long)]
    pub(crate) interactive: bool,
    /// Do not pause after each scene; the demo pauses only at a terminal
    #[arg(long)]
    pub(crate) fast: bool,
    /// Wait for Enter after each scene
    #[arg(long, conflicts_with = "fast")]
    pub(crate) step: bool,
    /// Exit after the last step instead of keeping the gateway and its console running
    #[arg(long)]
    pub(crate) no_serve: bool,
    /// Keep the demo's store, configuration and agent files in this new or empty folder [default: a
    /// temporary folder that is deleted after the demo]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) home: Option<PathBuf>,
}
