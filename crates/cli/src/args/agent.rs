//! Options of the agent commands: `run`, `resume`, `inbox`, `answer`, `approve`, `reject`, `cancel`
//! and `narrate`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;

use super::store::{OutputArgs, StoreArgs};
use super::{Format, model};

/// Options that select the agent, its tools, its prompts and its output.
#[derive(Debug, Args)]
pub(crate) struct AgentArgs {
    /// Agent declaration as TOML: `model`, `instructions`, `tools`, `limits`, …; see docs/agents.md
    #[arg(long, value_name = "FILE")]
    pub(crate) agent: Option<PathBuf>,
    /// Tool: `NAME=COMMAND`, a program that reads its arguments as JSON and prints its result; or
    /// `mcp:…` or `http:…`, see docs/tools.md; repeatable
    #[arg(long, value_name = "TOOL", value_parser = NonEmptyStringValueParser::new())]
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
#[command(after_help = "Examples:\n  \
    throughline run \"What is the time?\" --model sim/claude-sonnet-4-5 --tool now=date\n  \
    throughline run \"Fix the build\" --agent agent.toml --detach\n  \
    throughline run \"And then?\" --thread thread_01k8 --model openai/gpt-5.2\n  \
    echo \"A long question\" | throughline run - --model claude-sonnet-5\n\n\
    The model's text is written to standard output, its thoughts and tool calls to standard error.\n\
    Questions and approvals are prompted for at the terminal. Ctrl-C leaves a resumable run.\n\n\
    Exit codes:\n  \
    0   answered, or waiting for an answer or approval\n  \
    1   the run failed\n  \
    2   usage error: for example an unknown model or an invalid tool\n  \
    65  the agent declaration is invalid\n  \
    130 interrupted; the run can be resumed")]
pub(crate) struct Run {
    /// Model to use instead of the agent's: `sim/claude-sonnet-4-5`, `openai/gpt-5.2`
    #[arg(long, value_parser = model())]
    pub(crate) model: Option<String>,
    /// Continue this thread; a new thread is created when omitted
    #[arg(long, value_name = "THREAD", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) thread: Option<String>,
    /// Require approval for each call of the matching tools; `*` matches any text
    #[arg(long, value_name = "PATTERN", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) approve: Vec<String>,
    /// Run in the background and print only the run id
    #[arg(long, conflicts_with = "ask")]
    pub(crate) detach: bool,
    #[command(flatten)]
    pub(crate) using: AgentArgs,
    /// Message for the agent, or `-` for standard input
    #[arg(value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) text: String,
    #[command(flatten)]
    pub(crate) at: StoreArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline resume run_01k8\n  \
    throughline resume run_01k8 --model sim/gpt-5.2\n  \
    throughline resume run_01k8 --tool now=date\n\n\
    Follows a run owned by another process and takes it over if that process exits. Pass the\n\
    tools again. Exit codes: as for `throughline run`")]
pub(crate) struct Resume {
    /// Use this model from now on
    #[arg(long, value_parser = model())]
    pub(crate) model: Option<String>,
    #[command(flatten)]
    pub(crate) using: AgentArgs,
    /// Run to resume
    #[arg(value_name = "RUN", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) at: StoreArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline inbox\n  \
    throughline inbox --run run_01k8 --format json\n\n\
    JSON: `waiting`, a list of `id`, `kind` (approval, question or client_tool), `run`, `opened`,\n\
    `expires`, and `tool` and `args`, or `questions`.")]
pub(crate) struct Inbox {
    /// Show only the requests of this run
    #[arg(long, value_name = "RUN", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) run: Option<String>,
    #[command(flatten)]
    pub(crate) printing: OutputArgs,
    #[command(flatten)]
    pub(crate) at: StoreArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline answer question_01k8 Blue\n  \
    throughline answer question_01k8 2 \"as soon as you can\"\n  \
    throughline answer question_01k8 --cancel --notes \"not now\"\n\n\
    Give one answer per question, in order: an option's number, name or value; several options\n\
    separated by commas where the question allows it; or free text where the question allows it.")]
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
    #[arg(value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) id: String,
    /// Answers, one per question
    #[arg(value_name = "ANSWER", required_unless_present = "cancel")]
    pub(crate) answers: Vec<String>,
    #[command(flatten)]
    pub(crate) at: StoreArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline approve approval_01k8\n  \
    throughline approve approval_01k8 --args '{\"path\": \"/srv/new\"}' --by ann\n\n\
    Approves one call of the tool with exactly these arguments.")]
pub(crate) struct Approve {
    /// Arguments to run with instead of the model's, as JSON
    #[arg(long, value_name = "JSON")]
    pub(crate) args: Option<String>,
    #[command(flatten)]
    pub(crate) deciding: DecisionArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  \
    throughline reject approval_01k8 --comment \"too expensive\"")]
pub(crate) struct Reject {
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
    #[arg(value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) at: StoreArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  \
    throughline cancel run_01k8 --reason \"asked for the wrong thing\"\n\n\
    The process that owns the run stops it. A new run can continue the thread.")]
pub(crate) struct Cancel {
    /// Reason for the cancellation
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Run to cancel
    #[arg(value_name = "RUN", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) at: StoreArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline narrate run_01k8\n  \
    throughline narrate run_01k8 --redaction policy.json\n\n\
    Messages that reached the model but are not part of the thread are marked as ephemeral.")]
pub(crate) struct Narrate {
    /// Redaction policy as JSON: `keys`, `patterns`, `thinkingPatterns`, …
    #[arg(long, value_name = "FILE", conflicts_with = "no_redaction")]
    pub(crate) redaction: Option<PathBuf>,
    /// Redact nothing except seals
    #[arg(long)]
    pub(crate) no_redaction: bool,
    /// Run to print
    #[arg(value_name = "RUN", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) at: StoreArgs,
}
