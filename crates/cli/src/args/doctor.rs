//! Options of the doctor commands: `audit`, `repair`, `rules`, `explain` and `doctor`.

use std::path::PathBuf;

use clap::Args;
use jiff::Timestamp;
use throughline_core::Wire;
use throughline_spec::RawInstant;

use super::store::{OutputArgs, StoreArgs};
use super::{model, wire};

/// Target of a request, and the known conversation before it.
#[derive(Debug, Args)]
pub(crate) struct RequestArgs {
    /// Wire of the request; detected when omitted
    #[arg(long, value_parser = wire())]
    pub(crate) wire: Option<Wire>,
    /// Model, if the request does not name it
    #[arg(long, value_parser = model())]
    pub(crate) model: Option<String>,
    /// Provider that receives the request; defaults to the first provider of the wire
    #[arg(long, value_name = "ROW")]
    pub(crate) provider: Option<String>,
    /// Your label for the sending account; seals may be bound to an account
    #[arg(long, value_name = "ID", default_value = "default", hide_default_value = true)]
    pub(crate) account: String,
    /// Creation date of the account; some rules apply to new accounts only
    #[arg(long, value_name = "DATE", value_parser = instant)]
    pub(crate) account_created: Option<Timestamp>,
    /// Earlier request, response, stream or recording of the conversation; repeatable, oldest first
    #[arg(long, value_name = "FILE")]
    pub(crate) prior: Vec<PathBuf>,
    /// Account of the earlier exchanges, if it differs
    #[arg(long, value_name = "ID")]
    pub(crate) prior_account: Option<String>,
    // Parsed later, because clap would print a rejected credential in its error.
    /// Header that will be sent, such as `anthropic-beta: …`; never a credential
    #[arg(long, value_name = "NAME: VALUE")]
    pub(crate) header: Vec<String>,
    /// File with your own model family rows, which extend or replace the built-in ones
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) profiles: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline audit request.json\n  \
    throughline audit --prior turn-1.json --prior turn-1.sse turn-2.json\n  \
    throughline audit --provider deepseek --model deepseek-reasoner - < request.json\n  \
    throughline audit --header 'anthropic-beta: interleaved-thinking-2025-05-14' request.json\n  \
    throughline audit --format json recording.json\n\n\
    For a recording, the last request is audited; earlier exchanges count as --prior.\n\
    Seals are shown by length; their bytes are never printed.\n\n\
    Exit codes:\n  \
    0   the request would be accepted, possibly degraded\n  \
    1   the request would be refused\n  \
    2   usage error, or a file cannot be read\n  \
    65  the input is malformed")]
pub(crate) struct Audit {
    #[command(flatten)]
    pub(crate) about: RequestArgs,
    #[command(flatten)]
    pub(crate) printing: OutputArgs,
    /// Request or recording, or `-` for standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline repair request.json > fixed.json\n  \
    throughline repair --prior turn-1.json --prior turn-1.sse turn-2.json > fixed.json\n  \
    throughline repair --report changes.json - < request.json\n  \
    throughline repair --session wedged.jsonl --model claude-sonnet-4-5 > fixed.jsonl\n\n\
    The request is written to standard output; each change and its rule are written to standard\n\
    error or to --report. An acceptable request is passed through byte for byte. Repair never\n\
    invents signatures and never turns thoughts into text.\n\n\
    Exit codes:\n  \
    0   the repaired request would be accepted\n  \
    1   a problem could not be repaired\n  \
    2   usage error, or a file cannot be read or written\n  \
    65  the input is malformed")]
pub(crate) struct Repair {
    #[command(flatten)]
    pub(crate) about: RequestArgs,
    /// Also fix problems that would only degrade the answer
    #[arg(long)]
    pub(crate) degraded: bool,
    /// Write the changes as JSON to this file; `-` for standard error
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Repair a conversation stored as one message or item per line
    #[arg(long, value_name = "FILE.jsonl", conflicts_with = "file")]
    pub(crate) session: Option<PathBuf>,
    /// Request or recording, or `-` for standard input
    #[arg(value_name = "FILE", required_unless_present = "session")]
    pub(crate) file: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline rules\n  \
    throughline rules --wire gemini --format json\n\n\
    `throughline explain RULE` explains one of them.")]
pub(crate) struct Rules {
    /// List only the rules of this wire
    #[arg(long, value_parser = wire())]
    pub(crate) wire: Option<Wire>,
    /// Print a documentation page instead: all error messages, or with --wire the page of that wire
    #[arg(long, conflicts_with = "format")]
    pub(crate) markdown: bool,
    #[command(flatten)]
    pub(crate) printing: OutputArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline explain anthropic/tool-loop-needs-thinking\n  \
    throughline explain details-fragmented\n\n\
    `throughline rules` lists them all.")]
pub(crate) struct Explain {
    /// Rule id; the part before the slash is optional
    #[arg(value_name = "RULE")]
    pub(crate) rule: String,
}

/// Parses a date, or a date and time.
pub(super) fn instant(text: &str) -> Result<Timestamp, String> {
    let read = RawInstant::from(text).timestamp();
    read.map_err(|_| {
        "expected a date such as 2026-08-31, or a time such as 2026-08-31T12:00:00Z".to_owned()
    })
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline doctor\n  \
    throughline doctor --format json\n\n\
    No key, address or path is printed. To check a request, use `throughline audit`.")]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub(crate) printing: OutputArgs,
    #[command(flatten)]
    pub(crate) at: StoreArgs,
}
