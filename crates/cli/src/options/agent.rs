//! What can be asked of agents: `run`, `resume`, `inbox`, `answer`, `approve`, `reject`, `cancel` and `narrate`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;

use super::store::{At, Printing};
use super::{Format, model};

/// What an agent may use, and who is asked.
#[derive(Debug, Args)]
pub(crate) struct Using {
    /// The agent, as TOML: `model`, `instructions`, `tools`, `limits`, … as docs/agents.md says
    #[arg(long, value_name = "FILE")]
    pub(crate) agent: Option<PathBuf>,
    /// A tool: `NAME=COMMAND`, a program that reads its arguments as JSON and writes its answer; or
    /// `mcp:…` or `http:…`, as docs/tools.md says; repeat it for more
    #[arg(long, value_name = "TOOL", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) tool: Vec<String>,
    /// Ask questions here, although this is no terminal
    #[arg(long, conflicts_with = "no_ask")]
    pub(crate) ask: bool,
    /// Ask nothing here: whatever waits for somebody is left waiting
    #[arg(long)]
    pub(crate) no_ask: bool,
    /// Hold the run for so many seconds without a word: so long others wait when this process dies; 15
    /// when not given
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) lease: Option<u64>,
    /// How to print it: as text for people, or as json for programs, an event on each line
    #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline run \"What is the time?\" --model sim/claude-sonnet-4-5 --tool now=date\n  \
    throughline run \"Mend the build\" --agent agent.toml --detach\n  \
    throughline run \"And then?\" --thread thread_01k8 --model openai/gpt-5.2\n  \
    echo \"A long question\" | throughline run - --model claude-sonnet-5\n\n\
    What the model says goes to standard output, what it thinks and does to standard error.\n\
    Questions and approvals are asked at the terminal. Ctrl-C leaves a run that can be resumed.\n\n\
    Exit codes:\n  \
    0   answered, or waiting for somebody\n  \
    1   the run failed\n  \
    2   wrong usage: an unknown model, a tool that is none\n  \
    65  the agent's declaration is not what it should be\n  \
    130 interrupted: it can be resumed")]
pub(crate) struct Run {
    /// The model to ask, instead of the agent's own: `sim/claude-sonnet-4-5`, `openai/gpt-5.2`
    #[arg(long, value_parser = model())]
    pub(crate) model: Option<String>,
    /// Go on with this thread; a new one when not given
    #[arg(long, value_name = "THREAD", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) thread: Option<String>,
    /// Let a person allow these tools each time; `*` stands for anything
    #[arg(long, value_name = "PATTERN", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) approve: Vec<String>,
    /// Let it go on in the background, and only say its name
    #[arg(long, conflicts_with = "ask")]
    pub(crate) detach: bool,
    #[command(flatten)]
    pub(crate) using: Using,
    /// What to say to the agent, or `-` for standard input
    #[arg(value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) text: String,
    #[command(flatten)]
    pub(crate) at: At,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline resume run_01k8\n  \
    throughline resume run_01k8 --model sim/gpt-5.2\n  \
    throughline resume run_01k8 --tool now=date\n\n\
    A run that another process is at is followed; when that process is gone, it is gone on with\n\
    here. Tools must be given again. Exit codes: as of `throughline run`")]
pub(crate) struct Resume {
    /// Ask this model from now on
    #[arg(long, value_parser = model())]
    pub(crate) model: Option<String>,
    #[command(flatten)]
    pub(crate) using: Using,
    /// The run
    #[arg(value_name = "RUN", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) at: At,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline inbox\n  \
    throughline inbox --run run_01k8 --format json\n\n\
    JSON: `waiting`, a list of `id`, `kind` (approval, question or client_tool), `run`, `opened`,\n\
    `expires`, and `tool` and `args`, or `questions`.")]
pub(crate) struct Inbox {
    /// Only of this run
    #[arg(long, value_name = "RUN", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) run: Option<String>,
    #[command(flatten)]
    pub(crate) printing: Printing,
    #[command(flatten)]
    pub(crate) at: At,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline answer question_01k8 Blue\n  \
    throughline answer question_01k8 2 \"as soon as you can\"\n  \
    throughline answer question_01k8 --cancel --notes \"not now\"\n\n\
    One answer for each question, in their order: an option by its number, its name or its value,\n\
    several behind commas where several may be chosen, or words of one's own where that is allowed.")]
pub(crate) struct Answer {
    /// Refuse to answer
    #[arg(long, conflicts_with = "answers")]
    pub(crate) cancel: bool,
    /// What else there is to say
    #[arg(long, value_name = "TEXT")]
    pub(crate) notes: Option<String>,
    /// Who answers
    #[arg(long, value_name = "NAME")]
    pub(crate) by: Option<String>,
    /// What waits, as `throughline inbox` names it
    #[arg(value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) id: String,
    /// The answers
    #[arg(value_name = "ANSWER", required_unless_present = "cancel")]
    pub(crate) answers: Vec<String>,
    #[command(flatten)]
    pub(crate) at: At,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline approve approval_01k8\n  \
    throughline approve approval_01k8 --args '{\"path\": \"/srv/new\"}' --by ann\n\n\
    What is allowed is the tool with exactly these arguments, once.")]
pub(crate) struct Approve {
    /// The arguments that it may run with, as JSON, instead of the model's
    #[arg(long, value_name = "JSON")]
    pub(crate) args: Option<String>,
    #[command(flatten)]
    pub(crate) deciding: Deciding,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  \
    throughline reject approval_01k8 --comment \"too dear\"")]
pub(crate) struct Reject {
    #[command(flatten)]
    pub(crate) deciding: Deciding,
}

/// A decision on a tool call.
#[derive(Debug, Args)]
pub(crate) struct Deciding {
    /// What the model is told about it
    #[arg(long, value_name = "TEXT")]
    pub(crate) comment: Option<String>,
    /// Who decides
    #[arg(long, value_name = "NAME")]
    pub(crate) by: Option<String>,
    /// What waits, as `throughline inbox` names it
    #[arg(value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) at: At,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  \
    throughline cancel run_01k8 --reason \"asked for the wrong thing\"\n\n\
    Whoever is at it stops. Its thread can go on with another run.")]
pub(crate) struct Cancel {
    /// Why
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// The run
    #[arg(value_name = "RUN", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) at: At,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline narrate run_01k8\n  \
    throughline narrate run_01k8 --redaction policy.json\n\n\
    What was said to the model and is kept in no thread is marked as ephemeral.")]
pub(crate) struct Narrate {
    /// Leave out what this policy says, as JSON: `keys`, `patterns`, `thinkingPatterns`, …
    #[arg(long, value_name = "FILE", conflicts_with = "no_redaction")]
    pub(crate) redaction: Option<PathBuf>,
    /// Leave out nothing but what is sealed
    #[arg(long)]
    pub(crate) no_redaction: bool,
    /// The run
    #[arg(value_name = "RUN", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) at: At,
}
