//! Command-line options.

mod agent;
mod doctor;
mod gateway;
mod store;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use jiff::Timestamp;
use throughline_codec::CODECS;
use throughline_core::Wire;
use throughline_sim::Fault;

pub(crate) use self::agent::*;
pub(crate) use self::doctor::*;
pub(crate) use self::gateway::*;
pub(crate) use self::store::*;

/// Keep the reasoning state of language models intact: capture, verify and replay it
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
    /// Run a scripted demo with real processes; needs no key, configuration or network
    Demo(Demo),
    /// Show a request, response or stream as a timeline of messages, thoughts and seals
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
    /// Simulate the providers locally: sign, verify and refuse as they do, without keys or network
    Sim(Sim),
    /// Run the gateway: accept any supported API, route to any provider, and replay reasoning
    /// correctly
    Serve(Serve),
    /// Run an agent with tools, questions and approvals; a run survives crashes and can be resumed
    Run(Run),
    /// Resume a run, or follow it while another process owns it
    Resume(Resume),
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
    /// Print the timeline of a run with the reason for each step
    Narrate(Narrate),
    /// List the threads of a store, most recently written first
    Threads(Threads),
    /// List the runs of a store, most recently written first
    Runs(Runs),
    /// Show the records of a thread or run
    Items(Items),
    /// Export threads as JSON lines with their proofs
    Export(Export),
    /// Import exported threads into a store
    Import(Import),
    /// Create a thread that shares the history of another thread
    Fork(Fork),
    /// Verify that a store or an export is unchanged
    Verify(Verify),
    /// Erase the content of a thread or of one item permanently
    Forget(Forget),
    /// Erase the content of expired threads
    Prune(Prune),
    /// Back up a store to a new file and a key file while it is in use
    Backup(Backup),
    /// Create a store from a backup and its key file
    Restore(Restore),
    /// Print counts and sizes of a store
    #[command(after_help = include_str!("args/help/stats.md"))]
    Stats(CommonArgs),
    /// Replace the master key of a store while it is in use
    Rotate(Rotate),
    /// Check or show the configuration of the gateway
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Create, list and revoke the API keys of the gateway
    #[command(subcommand)]
    Keys(Keys),
    /// Report usage and cost of calls through the gateway
    Usage(Usage),
    /// Write or send the traces of runs
    #[command(subcommand)]
    Traces(Traces),
    /// Print environment details for a bug report, without secrets
    #[command(after_help = include_str!("args/help/doctor.md"))]
    Doctor(CommonArgs),
    /// Write man pages
    Man(Man),
    /// Print a completion script for a shell
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
    /// Wire of the document; detected when omitted
    #[arg(long, value_parser = wire())]
    pub(crate) wire: Option<Wire>,
    /// Provider that receives or sent the document; defaults to the first provider of the wire
    #[arg(long, value_name = "PROVIDER")]
    pub(crate) provider: Option<String>,
    /// Model, if the document does not name it
    #[arg(long, value_parser = non_empty())]
    pub(crate) model: Option<String>,
    /// Output format: text or json
    #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
    pub(crate) format: Format,
    /// Show long texts in full
    #[arg(long)]
    pub(crate) full: bool,
    /// Document to show, or `-` for standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("args/help/translate.md"))]
pub(crate) struct Translate {
    /// Wire of the input request
    #[arg(long, value_parser = wire(), value_name = "WIRE")]
    pub(crate) from: Wire,
    /// Wire to translate to
    #[arg(long, value_parser = wire(), value_name = "WIRE")]
    pub(crate) to: Wire,
    /// Target model; defaults to the model in the request
    #[arg(long, value_parser = non_empty())]
    pub(crate) model: Option<String>,
    /// Provider that issued the seals in the request; defaults to the first provider of the wire
    #[arg(long, value_name = "PROVIDER")]
    pub(crate) from_provider: Option<String>,
    /// Target provider; defaults to the source provider on the same wire, else to the first
    /// provider of the target wire
    #[arg(long, value_name = "PROVIDER")]
    pub(crate) to_provider: Option<String>,
    /// Write fates and warnings as JSON to this file; `-` for standard error
    #[arg(long, value_name = "FILE")]
    pub(crate) fates: Option<PathBuf>,
    /// Request to translate, or `-` for standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("args/help/sim.md"))]
pub(crate) struct Sim {
    /// Address to listen on; port 0 picks a free port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8127")]
    pub(crate) listen: SocketAddr,
    /// Seed for all keys, ids and choices
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Scripted answers, turn by turn, as TOML or JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) script: Option<PathBuf>,
    /// Fault to inject into answers; repeatable
    #[arg(long, value_name = "FAULT")]
    pub(crate) fault: Vec<Fault>,
    /// Call all tools in parallel if the request does not specify it
    #[arg(long)]
    pub(crate) parallel: bool,
    /// Creation date of the simulated accounts; some rules apply to new accounts only
    #[arg(long, value_name = "DATE", value_parser = doctor::instant)]
    pub(crate) account_created: Option<Timestamp>,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("args/help/man.md"))]
pub(crate) struct Man {
    /// Write one page per command into this folder; without it, print the main page
    #[arg(long, value_name = "FOLDER")]
    pub(crate) output: Option<PathBuf>,
}

/// Output format.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum Format {
    /// Text for people
    #[default]
    Text,
    /// JSON for programs
    Json,
}

fn wire() -> impl TypedValueParser<Value = Wire> {
    let names = CODECS.iter().map(|codec| codec.wire().as_str().to_owned());
    PossibleValuesParser::new(names.collect::<Vec<_>>()).map(Wire::new)
}

fn non_empty() -> NonEmptyStringValueParser {
    NonEmptyStringValueParser::new()
}
