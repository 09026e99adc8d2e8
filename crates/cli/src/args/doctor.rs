//! Options of the doctor commands: `audit`, `repair`, `rules` and `explain`.

use std::path::PathBuf;

use clap::Args;
use jiff::Timestamp;
use throughline_codec::HistoryFormat;
use throughline_core::Wire;
use throughline_spec::RawInstant;

use super::{CatalogArgs, Format, history_format, non_empty, wire};

/// Options that describe a request: its target, its headers and the conversation before it.
#[derive(Debug, Args)]
pub(crate) struct RequestArgs {
    /// Wire protocol of the request [default: detected from the request]
    #[arg(long, value_parser = wire())]
    pub(crate) wire: Option<Wire>,
    /// Model that receives the request [default: the request's `model`]
    #[arg(long, value_parser = non_empty())]
    pub(crate) model: Option<String>,
    /// Provider that receives the request [default: inferred from the recording, the model or the
    /// wire protocol]
    #[arg(long, value_name = "PROVIDER")]
    pub(crate) provider: Option<String>,
    /// Label for the account that sends the request; some Seals are valid for only one account
    /// [default: `default`]
    #[arg(long, value_name = "ID", default_value = "default", hide_default_value = true)]
    pub(crate) account: String,
    /// Creation date of the account that sends the request; some rules apply only to new accounts
    #[arg(long, value_name = "DATE", value_parser = instant)]
    pub(crate) account_created: Option<Timestamp>,
    /// Earlier request, response, stream or recording of the conversation; repeatable, oldest first
    #[arg(long, value_name = "FILE")]
    pub(crate) prior: Vec<PathBuf>,
    /// Label for the account that sent the earlier requests [default: the value of --account]
    #[arg(long, value_name = "ID")]
    pub(crate) prior_account: Option<String>,
    // Parsed later, because clap would print a rejected credential in its error.
    /// HTTP header of the request, such as `anthropic-beta: …`, but not a credential; repeatable
    #[arg(long, value_name = "NAME: VALUE")]
    pub(crate) header: Vec<String>,
    /// TOML file that adds model families or replaces built-in ones
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) profiles: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) catalog: CatalogArgs,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/audit.md"))]
pub(crate) struct Audit {
    #[command(flatten)]
    pub(crate) request: RequestArgs,
    /// Read a conversation in this documented format instead of a request; also audits the
    /// reasoning of each assistant turn
    #[arg(
        long,
        value_parser = history_format(),
        value_name = "FORMAT",
        conflicts_with_all = ["wire", "prior", "header"]
    )]
    pub(crate) from: Option<HistoryFormat>,
    /// Output format: text or json
    #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
    pub(crate) format: Format,
    /// Request or recording to check, or `-` for standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/repair.md"))]
pub(crate) struct Repair {
    #[command(flatten)]
    pub(crate) request: RequestArgs,
    /// Also fix problems that degrade the response although the provider accepts the request
    #[arg(long)]
    pub(crate) degraded: bool,
    /// Write the changes as JSON to this file, or `-` for standard error [default: text on standard
    /// error]
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Repair the conversation in this file, which has one message or item per line
    #[arg(long, value_name = "FILE.jsonl", conflicts_with = "file")]
    pub(crate) session: Option<PathBuf>,
    /// Request or recording to repair, or `-` for standard input
    #[arg(value_name = "FILE", required_unless_present = "session")]
    pub(crate) file: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/rules.md"))]
pub(crate) struct Rules {
    /// List only the rules of this wire protocol
    #[arg(long, value_parser = wire())]
    pub(crate) wire: Option<Wire>,
    /// Print Markdown instead: a page of all provider error messages or, with --wire, a page of the
    /// rules of that wire protocol
    #[arg(long, conflicts_with = "format")]
    pub(crate) markdown: bool,
    /// Write one Markdown page per rule to this directory instead, as `RULE.md`
    #[arg(long, value_name = "DIR", conflicts_with_all = ["wire", "markdown", "format"])]
    pub(crate) pages: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) catalog: CatalogArgs,
    /// Output format: text or json
    #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/explain.md"))]
pub(crate) struct Explain {
    #[command(flatten)]
    pub(crate) catalog: CatalogArgs,
    /// Id of the rule; you can omit the part before the slash if the rest of the id is unique
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
