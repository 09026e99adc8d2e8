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
    /// Run a scripted demo against simulated providers, without keys, configuration or network
    /// access
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
    /// Simulate the provider APIs locally, including seals and errors, without keys or network
    /// access
    Sim(Sim),
    /// Run the gateway: accept any supported API, route to any provider, and replay reasoning
    /// correctly
    Serve(Serve),
    /// Run an agent that can call tools, ask questions, request approvals, and resume after a crash
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
    /// Print the events of a run and their reasons as sentences
    Narrate(Narrate),
    /// List the threads of a store, most recently updated first
    Threads(Threads),
    /// List the runs of a store, most recently updated first
    Runs(Runs),
    /// Show the records of a thread or run
    Items(Items),
    /// Export threads as JSON Lines, with the data needed to verify them
    Export(Export),
    /// Import exported threads into a store
    Import(Import),
    /// Create a thread that shares the history of another thread
    Fork(Fork),
    /// Verify the integrity of a store or an export
    Verify(Verify),
    /// Permanently erase the content of a thread or of one item
    Forget(Forget),
    /// Permanently erase the content of old threads, by age or total size
    Prune(Prune),
    /// Back up a store, even while it is in use, to a backup file and a key file
    Backup(Backup),
    /// Create a store from a backup and its key file
    Restore(Restore),
    /// Print the size of a store and its number of threads, runs and records
    #[command(after_help = include_str!("args/help/stats.md"))]
    Stats(CommonArgs),
    /// Replace the master key of a store while it is in use
    Rotate(Rotate),
    /// Check or show the gateway's configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Create, list or revoke API keys for the gateway
    #[command(subcommand)]
    Keys(Keys),
    /// Report the token usage and cost of calls through the gateway
    Usage(Usage),
    /// Export the traces of runs
    #[command(subcommand)]
    Traces(Traces),
    /// Print environment details for a bug report, without secrets
    #[command(after_help = include_str!("args/help/doctor.md"))]
    Doctor(CommonArgs),
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
    /// Wire protocol of the document; detected if omitted
    #[arg(long, value_parser = wire())]
    pub(crate) wire: Option<Wire>,
    /// Provider that the document was sent to or received from; defaults to the first provider that
    /// uses the wire
    #[arg(long, value_name = "PROVIDER")]
    pub(crate) provider: Option<String>,
    /// Model to assume for the document; defaults to the model named in a request
    #[arg(long, value_parser = non_empty())]
    pub(crate) model: Option<String>,
    /// Output format: text or json
    #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
    pub(crate) format: Format,
    /// Show long texts in full instead of shortening them
    #[arg(long)]
    pub(crate) full: bool,
    /// Request, response or stream to show, or `-` for standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("args/help/translate.md"))]
pub(crate) struct Translate {
    /// Wire protocol of the input request
    #[arg(long, value_parser = wire(), value_name = "WIRE")]
    pub(crate) from: Wire,
    /// Wire protocol of the translated request
    #[arg(long, value_parser = wire(), value_name = "WIRE")]
    pub(crate) to: Wire,
    /// Target model; defaults to the model in the request
    #[arg(long, value_parser = non_empty())]
    pub(crate) model: Option<String>,
    /// Provider that issued the seals in the request; defaults to the first provider that uses the
    /// input wire
    #[arg(long, value_name = "PROVIDER")]
    pub(crate) from_provider: Option<String>,
    /// Target provider; defaults to --from-provider if both wires are the same, else to the first
    /// provider that uses the target wire
    #[arg(long, value_name = "PROVIDER")]
    pub(crate) to_provider: Option<String>,
    /// Write the fate of each part and all warnings as JSON to this file; `-` for standard error
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
    /// Random seed that determines all keys, ids and generated responses
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// TOML or JSON file with scripted responses, one per turn
    #[arg(long, value_name = "FILE")]
    pub(crate) script: Option<PathBuf>,
    /// Fault to inject into responses, such as `429:2` or `cut@400#3`; repeatable
    #[arg(long, value_name = "FAULT")]
    pub(crate) fault: Vec<Fault>,
    /// Call all tools in one response unless the request disables parallel tool calls
    #[arg(long)]
    pub(crate) parallel: bool,
    /// Creation date of the simulated accounts; some rules apply only to new accounts
    #[arg(long, value_name = "DATE", value_parser = doctor::instant)]
    pub(crate) account_created: Option<Timestamp>,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("args/help/man.md"))]
pub(crate) struct Man {
    /// Write one page per command to this folder; if omitted, print only the main page
    #[arg(long, value_name = "FOLDER")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum Format {
    /// Human-readable text
    #[default]
    Text,
    /// JSON
    Json,
}

fn wire() -> impl TypedValueParser<Value = Wire> {
    let names = CODECS.iter().map(|codec| codec.wire().as_str().to_owned());
    PossibleValuesParser::new(names.collect::<Vec<_>>()).map(Wire::new)
}

fn non_empty() -> NonEmptyStringValueParser {
    NonEmptyStringValueParser::new()
}
