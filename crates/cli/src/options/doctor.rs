//! What can be asked of the doctor: `audit`, `repair`, `rules` and `explain`.

use std::path::PathBuf;

use clap::Args;
use jiff::Timestamp;
use throughline_core::{RawInstant, Wire};

use super::{Format, model, wire};

/// Whom a request goes to, and what is known of the conversation before it.
#[derive(Debug, Args)]
pub(crate) struct About {
    /// The wire that the request speaks; guessed when not given
    #[arg(long, value_parser = wire())]
    pub(crate) wire: Option<Wire>,
    /// The model, where the request does not name it
    #[arg(long, value_parser = model())]
    pub(crate) model: Option<String>,
    /// The provider that it goes to; the wire's first one when not given
    #[arg(long, value_name = "ROW")]
    pub(crate) provider: Option<String>,
    /// Your name for the account that it is sent from: seals may be bound to it
    #[arg(long, value_name = "ID", default_value = "default", hide_default_value = true)]
    pub(crate) account: String,
    /// When the account was made: some rules began for new accounts
    #[arg(long, value_name = "DATE", value_parser = instant)]
    pub(crate) account_created: Option<Timestamp>,
    /// An earlier request, response, stream or recording of the conversation; repeat it, the oldest first
    #[arg(long, value_name = "FILE")]
    pub(crate) prior: Vec<PathBuf>,
    /// The account that the earlier ones belong to, where it was another
    #[arg(long, value_name = "ID")]
    pub(crate) prior_account: Option<String>,
    // Not parsed here: clap would print a credential that it does not take.
    /// A header that will be sent, as `anthropic-beta: …`; never a credential
    #[arg(long, value_name = "NAME: VALUE")]
    pub(crate) header: Vec<String>,
    /// Rows of your own for model families, beside or instead of the built-in ones
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
    A recording is audited by its last request, with the exchanges before it as prior.\n\
    Seals are shown by length, never by their bytes.\n\n\
    Exit codes:\n  \
    0   it would be accepted, perhaps at a cost\n  \
    1   it would be refused\n  \
    2   wrong usage, or a file that cannot be read\n  \
    65  the input is malformed")]
pub(crate) struct Audit {
    #[command(flatten)]
    pub(crate) about: About,
    /// How to print it: as text for people, or as json for programs
    #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
    pub(crate) format: Format,
    /// The request or recording, or `-` for standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline repair request.json > mended.json\n  \
    throughline repair --prior turn-1.json --prior turn-1.sse turn-2.json > mended.json\n  \
    throughline repair --report changes.json - < request.json\n  \
    throughline repair --session wedged.jsonl --model claude-sonnet-4-5 > mended.jsonl\n\n\
    The request goes to standard output, each change with its rule to standard error or\n\
    to --report. What a provider would take comes out as it went in, byte for byte.\n\
    No signature is invented, and no thought is said aloud.\n\n\
    Exit codes:\n  \
    0   it would be accepted now\n  \
    1   something could not be mended\n  \
    2   wrong usage, or a file that cannot be read or written\n  \
    65  the input is malformed")]
pub(crate) struct Repair {
    #[command(flatten)]
    pub(crate) about: About,
    /// Mend also what would be accepted at a cost
    #[arg(long)]
    pub(crate) degraded: bool,
    /// Write the changes to this file, as JSON; `-` for standard error
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Mend a conversation that is kept as one message or item on each line
    #[arg(long, value_name = "FILE.jsonl", conflicts_with = "file")]
    pub(crate) session: Option<PathBuf>,
    /// The request or recording, or `-` for standard input
    #[arg(value_name = "FILE", required_unless_present = "session")]
    pub(crate) file: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline rules\n  \
    throughline rules --wire gemini --format json\n\n\
    `throughline explain RULE` teaches one of them.")]
pub(crate) struct Rules {
    /// Only the rules of this wire
    #[arg(long, value_parser = wire())]
    pub(crate) wire: Option<Wire>,
    /// Write a page of the documentation instead: all error messages, or with --wire that wire's page
    #[arg(long, conflicts_with = "format")]
    pub(crate) markdown: bool,
    /// How to print them: as text for people, or as json for programs
    #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline explain anthropic/tool-loop-needs-thinking\n  \
    throughline explain details-fragmented\n\n\
    `throughline rules` lists them all.")]
pub(crate) struct Explain {
    /// The rule's name, with or without what stands before the slash
    #[arg(value_name = "RULE")]
    pub(crate) rule: String,
}

/// A date, or a date and time, as people write them.
pub(super) fn instant(text: &str) -> Result<Timestamp, String> {
    let read = RawInstant::from(text).timestamp();
    read.map_err(|_| "write a date as 2026-08-31, or a time as 2026-08-31T12:00:00Z".to_owned())
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline doctor\n  \
    throughline doctor --format json\n\n\
    No key, address or path is told. To look at a request, use `throughline audit`.")]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub(crate) printing: super::store::Printing,
    #[command(flatten)]
    pub(crate) at: super::store::At,
}
