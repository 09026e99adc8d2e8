//! Command-line options.

mod agent;
mod catalog;
mod connect;
mod doctor;
mod gateway;
mod store;

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use jiff::Timestamp;
use throughline_codec::{CODECS, HistoryFormat};
use throughline_core::Wire;
use throughline_json::StringEnum as _;
use throughline_sim::Fault;

pub(crate) use self::agent::*;
pub(crate) use self::catalog::*;
pub(crate) use self::connect::*;
pub(crate) use self::doctor::*;
pub(crate) use self::gateway::*;
pub(crate) use self::store::*;

/// Capture, verify and replay the reasoning state of language models
#[derive(Debug, Parser)]
#[command(
    name = "throughline",
    version,
    arg_required_else_help = true,
    after_help = include_str!("args/help/throughline.md")
)]
pub(crate) struct Options {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a scripted demo against simulated providers; needs no keys, configuration or network
    Demo(Demo),
    /// Show a request, response or stream as a timeline of messages, Thoughts and Seals
    Show(Show),
    /// Translate a request to another provider's API and report what changed
    Translate(Translate),
    /// Check whether a provider would refuse a request, and report where and why
    Audit(Audit),
    /// Fix the parts of a request that a provider would refuse
    Repair(Repair),
    /// List the rules that requests are checked against
    Rules(Rules),
    /// Explain a rule: its cause, a failing request, the fix and the evidence
    Explain(Explain),
    /// Simulate the provider APIs locally, including Seals and errors; needs no keys and no network
    Sim(Sim),
    /// Measure how well a gateway preserves reasoning, with simulators as its providers
    Fidelity(Fidelity),
    /// Run the gateway: accept any supported API, route to any provider, and replay reasoning
    /// correctly
    Serve(Serve),
    /// Point a client such as Claude Code or Codex at the gateway: print, write or undo its
    /// settings, or run it
    Connect(Connect),
    /// Run an agent that can call tools, ask questions, request approvals, and resume after a crash
    Run(Run),
    /// Resume a run from the store or from a snapshot, or follow a run that another process owns
    Resume(Resume),
    /// Export a run as a file from which another store can resume it
    Snapshot(SnapshotArgs),
    /// List pending questions and approvals
    Inbox(Inbox),
    /// Answer an agent's question
    Answer(Answer),
    /// Approve a pending tool call
    Approve(Approve),
    /// Reject a pending tool call
    #[command(after_help = include_str!("args/help/reject.md"))]
    Reject(DecisionArgs),
    /// Stop a run
    Cancel(Cancel),
    /// Print each event of a run, and its reason, as a sentence
    Narrate(Narrate),
    /// List the Threads of a store, most recently updated first
    Threads(Threads),
    /// List the runs of a store, most recently updated first
    Runs(Runs),
    /// Show the records of a Thread or run
    Items(Items),
    /// Export Threads as JSON Lines, with the hashes and signatures needed to verify the export
    Export(Export),
    /// Import exported Threads into a store
    Import(Import),
    /// Create a Thread that shares the history of another Thread
    Fork(Fork),
    /// Verify the integrity of a store or an export
    Verify(Verify),
    /// Permanently erase the content of a Thread or of one Item
    Forget(Forget),
    /// Permanently erase the content of old Threads, by age or total size
    Prune(Prune),
    /// Back up a store to a backup file and a key file; the store can be in use
    Backup(Backup),
    /// Create a store from a backup and its key file
    Restore(Restore),
    /// Copy a store from SQLite to PostgreSQL or back, and verify both
    Migrate(Migrate),
    /// Print the size of a store and the number of its Threads, runs and records
    #[command(after_help = include_str!("args/help/stats.md"))]
    Stats(CommonArgs),
    /// Replace the master key of a store; the store can be in use
    Rotate(Rotate),
    /// Check or show the gateway's configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Show, check, install or sign a catalog of providers and model families
    #[command(subcommand)]
    Catalog(CatalogCommand),
    /// Create, list or revoke API keys for the gateway
    #[command(subcommand)]
    Keys(Keys),
    /// Report the token usage and cost of calls through the gateway
    Usage(Usage),
    /// Export the traces of runs
    #[command(subcommand)]
    Traces(Traces),
    /// Test a configuration against its providers and its store
    Check(CheckArgs),
    /// Print details of this installation for a bug report; the output contains no secrets
    #[command(alias = "doctor", after_help = include_str!("args/help/env.md"))]
    Env(CommonArgs),
    /// Generate man pages
    Man(Man),
    /// Print a shell completion script
    #[command(
        after_help = include_str!("args/help/completions.md")
    )]
    Completions {
        /// Shell to generate the script for
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("args/help/show.md"))]
pub(crate) struct Show {
    /// Wire protocol of the document [default: detected from the document]
    #[arg(long, value_parser = wire())]
    pub(crate) wire: Option<Wire>,
    /// Read a conversation in this documented format instead of a request, response or stream
    #[arg(long, value_parser = history_format(), value_name = "FORMAT", conflicts_with = "wire")]
    pub(crate) from: Option<HistoryFormat>,
    /// Provider that received or sent the document [default: the first provider that uses the wire
    /// protocol]
    #[arg(long, value_name = "PROVIDER")]
    pub(crate) provider: Option<String>,
    /// Model to assume for the document [default: the request's `model`, if the document is a
    /// request]
    #[arg(long, value_parser = non_empty())]
    pub(crate) model: Option<String>,
    /// Output format: text or json
    #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
    pub(crate) format: Format,
    /// Show long texts in full instead of shortening them
    #[arg(long)]
    pub(crate) full: bool,
    #[command(flatten)]
    pub(crate) catalog: CatalogArgs,
    /// Request, response or stream to show, or `-` for standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("args/help/translate.md"))]
pub(crate) struct Translate {
    /// Wire protocol of the input request, or the documented format of a conversation
    #[arg(long, value_parser = document_source(), value_name = "WIRE|FORMAT")]
    pub(crate) from: DocumentSource,
    /// Wire protocol of the translated request
    #[arg(long, value_parser = wire(), value_name = "WIRE")]
    pub(crate) to: Wire,
    /// Target model [default: the request's `model`]
    #[arg(long, value_parser = non_empty())]
    pub(crate) model: Option<String>,
    /// Provider that issued the Seals in the request [default: the first provider that uses the
    /// wire protocol of --from]
    #[arg(long, value_name = "PROVIDER")]
    pub(crate) from_provider: Option<String>,
    /// Model that issued the Seals in a conversation of a documented format [default: the target
    /// model, if the provider stays the same]
    #[arg(long, value_name = "MODEL", value_parser = non_empty())]
    pub(crate) from_model: Option<String>,
    /// Target provider [default: the --from-provider if --from and --to are the same, else the
    /// first provider that uses the wire protocol of --to]
    #[arg(long, value_name = "PROVIDER")]
    pub(crate) to_provider: Option<String>,
    /// Write the Fate of each part and all warnings as JSON to this file, or `-` for standard error
    /// [default: text on standard error]
    #[arg(long, value_name = "FILE")]
    pub(crate) fates: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) catalog: CatalogArgs,
    /// Request to translate, or `-` for standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("args/help/sim.md"))]
pub(crate) struct Sim {
    /// IP address and port to listen on; port 0 picks a free port
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8127", value_parser = listen_address)]
    pub(crate) listen: SocketAddr,
    /// Random seed; the same seed produces the same keys, ids and generated responses
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole_number::<u64>(0..=u64::MAX))]
    pub(crate) seed: u64,
    /// TOML or JSON file with scripted responses, one per turn [default: generated responses]
    #[arg(long, value_name = "FILE")]
    pub(crate) script: Option<PathBuf>,
    /// Fault to inject into responses, such as `429:2` or `cut@400#3`; repeatable
    #[arg(long, value_name = "FAULT")]
    pub(crate) fault: Vec<Fault>,
    /// Call all tools in one response unless the request disables parallel tool calls
    #[arg(long)]
    pub(crate) parallel: bool,
    /// Creation date of the simulated accounts; some rules apply only to new accounts [default:
    /// 2026-09-01]
    #[arg(long, value_name = "DATE", value_parser = doctor::instant)]
    pub(crate) account_created: Option<Timestamp>,
    #[command(flatten)]
    pub(crate) catalog: CatalogArgs,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("args/help/fidelity.md"))]
pub(crate) struct Fidelity {
    /// Base URL of the gateway to measure
    #[arg(long, value_name = "URL", value_parser = non_empty())]
    pub(crate) gateway: String,
    /// Name of the gateway in the results [default: its URL]
    #[arg(long, value_name = "NAME", value_parser = non_empty())]
    pub(crate) name: Option<String>,
    /// IP address and port of the simulators that the gateway uses as its providers
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8128", value_parser = listen_address)]
    pub(crate) listen: SocketAddr,
    /// Environment variable that holds the gateway's API key [default: send the key `sim-key`]
    #[arg(long, value_name = "NAME", value_parser = non_empty())]
    pub(crate) key_env: Option<String>,
    /// TOML file with the gateway's paths, headers and model names, and with what it does not
    /// support
    #[arg(long, value_name = "FILE")]
    pub(crate) setup: Option<PathBuf>,
    /// Measure only this wire: messages, responses, chat, gemini, converse or chat-translated;
    /// repeatable [default: all]
    #[arg(long, value_name = "WIRE", value_delimiter = ',', hide_possible_values = true, value_parser = ["messages", "responses", "chat", "gemini", "converse", "chat-translated"])]
    pub(crate) wire: Vec<String>,
    /// Measure only this case: tool-loop, parallel-calls, lossy-client, model-switch, prefix-change
    /// or compaction; repeatable [default: all]
    #[arg(long, value_name = "CASE", value_delimiter = ',', hide_possible_values = true, value_parser = ["tool-loop", "parallel-calls", "lossy-client", "model-switch", "prefix-change", "compaction"])]
    pub(crate) case: Vec<String>,
    /// Time in seconds to wait until the gateway answers
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = whole_number::<u64>(0..=u64::MAX))]
    pub(crate) wait: u64,
    /// Output format: text or json
    #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("args/help/man.md"))]
pub(crate) struct Man {
    /// Write one page per command to this folder [default: print only the main page]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Human-readable text
    #[default]
    Text,
    /// JSON
    Json,
}

/// The format of the input of `translate`.
#[derive(Clone, Debug)]
pub(crate) enum DocumentSource {
    /// A request on this wire.
    Wire(Wire),
    /// A conversation in this documented format.
    History(HistoryFormat),
}

impl DocumentSource {
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Wire(wire) => wire.as_str(),
            Self::History(format) => format.as_str(),
        }
    }
}

fn document_source() -> impl TypedValueParser<Value = DocumentSource> {
    let wires = CODECS.iter().map(|codec| codec.wire().as_str().to_owned());
    let formats = HistoryFormat::ALL.iter().map(|format| format.as_str().to_owned());
    PossibleValuesParser::new(wires.chain(formats).collect::<Vec<_>>()).map(|name| {
        match HistoryFormat::parse(&name) {
            Some(format) => DocumentSource::History(format),
            None => DocumentSource::Wire(Wire::new(name)),
        }
    })
}

pub(crate) fn history_format() -> impl TypedValueParser<Value = HistoryFormat> {
    let names = HistoryFormat::ALL.iter().map(|format| format.as_str());
    PossibleValuesParser::new(names.collect::<Vec<_>>())
        .map(|name| HistoryFormat::parse(&name).unwrap_or(HistoryFormat::LlmMessage))
}

fn wire() -> impl TypedValueParser<Value = Wire> {
    let names = CODECS.iter().map(|codec| codec.wire().as_str().to_owned());
    PossibleValuesParser::new(names.collect::<Vec<_>>()).map(Wire::new)
}

/// Parses the address of `--listen`.
fn listen_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "expected HOST:PORT, where HOST is an IP address, such as 127.0.0.1:4400 or [::1]:4400"
            .to_owned()
    })
}

/// Parses a whole number in this range. The parser of clap prints `invalid digit found in string`.
fn whole_number<N>(range: RangeInclusive<u64>) -> impl TypedValueParser<Value = N>
where
    N: TryFrom<u64> + Clone + Send + Sync + 'static,
{
    move |text: &str| {
        let number = text.parse::<u64>().ok().filter(|number| range.contains(number));
        let number = number.and_then(|number| N::try_from(number).ok());
        number.ok_or_else(|| match (*range.start(), *range.end()) {
            (0, u64::MAX) => "expected a whole number".to_owned(),
            (1, u64::MAX) => "expected a whole number greater than 0".to_owned(),
            (least, most) => format!("expected a whole number from {least} to {most}"),
        })
    }
}

fn non_empty() -> NonEmptyStringValueParser {
    NonEmptyStringValueParser::new()
}
