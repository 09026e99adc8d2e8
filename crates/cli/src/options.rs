//! What can be asked for on the command line.

mod agent;
mod demo;
mod doctor;
mod gateway;
mod store;
mod traces;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use jiff::Timestamp;
use throughline_codec::CODECS;
use throughline_core::Wire;
use throughline_sim::Fault;

pub(crate) use crate::options::agent::{
    Answer, Approve, Cancel, Deciding, Inbox, Narrate, Reject, Resume, Run, Using,
};
pub(crate) use crate::options::demo::Demo;
pub(crate) use crate::options::doctor::{About, Audit, Doctor, Explain, Repair, Rules};
pub(crate) use crate::options::gateway::{
    Config, ConfigCheck, ConfigShow, Keys, KeysCreate, KeysList, KeysRevoke, Serve, Usage, UsageBy,
};
pub(crate) use crate::options::store::{
    At, Backup, Export, Forget, Fork, Import, Items, Paging, Printing, Prune, Restore, Rotate,
    Runs, Stats, Threads, Verify,
};
pub(crate) use crate::options::traces::{TraceFormat, Traces, TracesExport};

/// Keeps a model's train of thought unbroken.
#[derive(Debug, Parser)]
#[command(
    name = "throughline",
    version,
    arg_required_else_help = true,
    after_help = "Exit codes:\n  \
                  0   done\n  \
                  1   something outside failed; audit, repair: the request would be refused;\n      \
                      verify: broken; forget, prune: a key file could not be reached; config check: errors\n  \
                  2   wrong usage\n  \
                  65  the input is not what it should be\n  \
                  69  the store cannot be opened or reached\n  \
                  130 interrupted, or not confirmed\n\n\
                  Colours follow the terminal; NO_COLOR=1 switches them off."
)]
pub(crate) struct Options {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Play a short story with real processes, and no key, no configuration and no network
    Demo(Demo),
    /// Show a request, response or stream as a timeline of who said, thought and sealed what
    Show(Show),
    /// Say a request in another provider's words, and account for every part of it
    Translate(Translate),
    /// Say before a request is sent whether its provider would refuse it, why, and where
    Audit(Audit),
    /// Mend what a provider would refuse, and nothing else
    Repair(Repair),
    /// List what the providers refuse, rule by rule
    Rules(Rules),
    /// Teach one rule: what, why, a request that breaks it, the same mended, and how it is known
    Explain(Explain),
    /// Stand in for the providers: think, sign, verify and refuse as they do, without keys or network
    Sim(Sim),
    /// Be a gateway for the official clients: any dialect in, any provider out, reasoning always right
    Serve(Serve),
    /// Let an agent work: with tools, questions and approvals, so that it can go on after anything
    Run(Run),
    /// Go on with a run, whoever was at it, or watch it
    Resume(Resume),
    /// List what waits for somebody: questions and approvals
    Inbox(Inbox),
    /// Answer a question of an agent
    Answer(Answer),
    /// Allow a tool call that waits for somebody
    Approve(Approve),
    /// Refuse a tool call that waits for somebody
    Reject(Reject),
    /// Stop a run
    Cancel(Cancel),
    /// Tell what happened in a run, and why
    Narrate(Narrate),
    /// List the threads of a store, the one that was written to last first
    Threads(Threads),
    /// List the runs of a store, the one that was written to last first
    Runs(Runs),
    /// Show what a thread or a run holds, record by record
    Items(Items),
    /// Write threads as lines of JSON: exact, and still provable
    Export(Export),
    /// Bring exported threads into a store
    Import(Import),
    /// Begin a thread that shares another one's history
    Fork(Fork),
    /// Prove that a store, or an export, is as it was written
    Verify(Verify),
    /// Destroy the content of a thread, or of one item of it, for good
    Forget(Forget),
    /// Destroy the content of threads whose time is up
    Prune(Prune),
    /// Copy a store to a new file and its key file, while it is in use
    Backup(Backup),
    /// Make a store from a backup and its key file
    Restore(Restore),
    /// Say how much there is in a store
    Stats(Stats),
    /// Give a store a new master key, while it is in use
    Rotate(Rotate),
    /// Check and show the configuration of the gateway
    #[command(subcommand)]
    Config(Config),
    /// Make, list and revoke the keys that callers of the gateway need
    #[command(subcommand)]
    Keys(Keys),
    /// Say what was used through the gateway, and what it cost
    Usage(Usage),
    /// Write or send the traces of runs
    #[command(subcommand)]
    Traces(Traces),
    /// Print the environment for a bug report, without any secret
    Doctor(Doctor),
    /// Write pages for `man`
    Man(Man),
    /// Print a completion script for a shell
    #[command(
        after_help = "Example:\n  throughline completions bash \\\n      > ~/.local/share/bash-completion/completions/throughline"
    )]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline show request.json\n  \
    throughline show - < stream.sse\n  \
    throughline show --wire gemini --provider vertex --format json response.json\n\n\
    Seals are shown by length and owner, never by their bytes.")]
pub(crate) struct Show {
    /// The wire that the document speaks; guessed when not given
    #[arg(long, value_parser = wire())]
    pub(crate) wire: Option<Wire>,
    /// The provider that it goes to or comes from; the wire's first one when not given
    #[arg(long, value_name = "ROW")]
    pub(crate) provider: Option<String>,
    /// The model, where the document does not name it
    #[arg(long, value_parser = model())]
    pub(crate) model: Option<String>,
    /// How to print it: as text for people, or as json for programs
    #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
    pub(crate) format: Format,
    /// Show long texts whole
    #[arg(long)]
    pub(crate) full: bool,
    /// The document, or `-` for standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline translate --from anthropic-messages --to openai-responses \\\n      \
        --model gpt-5.2 request.json\n  \
    throughline translate --from openai-chat --from-provider deepseek \\\n      \
        --to gemini --model gemini-3-pro-preview - < request.json\n  \
    throughline translate --from openai-chat --to openai-chat \\\n      \
        --to-provider mistral --fates fates.json request.json\n\n\
    The request goes to standard output, what became of each part to standard error\n\
    or to --fates.\n\
    On the same wire and owner, what comes out is what went in.")]
pub(crate) struct Translate {
    /// The wire that the request speaks
    #[arg(long, value_parser = wire(), value_name = "WIRE")]
    pub(crate) from: Wire,
    /// The wire to say it on
    #[arg(long, value_parser = wire(), value_name = "WIRE")]
    pub(crate) to: Wire,
    /// The model to ask; the request's own when not given
    #[arg(long, value_parser = model())]
    pub(crate) model: Option<String>,
    /// The provider whose seals the request carries; the wire's first one when not given
    #[arg(long, value_name = "ROW")]
    pub(crate) from_provider: Option<String>,
    /// The provider that the translation goes to; on the same wire the one it comes from, else the wire's first
    #[arg(long, value_name = "ROW")]
    pub(crate) to_provider: Option<String>,
    /// Write fates and warnings to this file, as JSON; `-` for standard error
    #[arg(long, value_name = "FILE")]
    pub(crate) fates: Option<PathBuf>,
    /// The request, or `-` for standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline sim\n  \
    throughline sim --listen 127.0.0.1:0 --seed 7 --parallel\n  \
    throughline sim --script turns.toml --fault 429:2#1 --fault cut@400#3\n\n\
    Faults: cut@BYTE, 429[:SECONDS], 500, 503, 529, stall, drip, garbage@BYTE, duplicate;\n\
    with #N behind it, only the N-th request is spoiled. One request asks for its own with\n\
    the header x-sim-fault. Ctrl-C stops it.")]
pub(crate) struct Sim {
    /// Where to listen; port 0 for any that is free
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8127")]
    pub(crate) listen: SocketAddr,
    /// Where all keys, ids and choices follow from
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// What to answer, turn by turn, as TOML or JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) script: Option<PathBuf>,
    /// A way to spoil answers; repeat it for more
    #[arg(long, value_name = "FAULT")]
    pub(crate) fault: Vec<Fault>,
    /// Call all tools at once where the request does not say
    #[arg(long)]
    pub(crate) parallel: bool,
    /// When the accounts were made: some rules began for new accounts
    #[arg(long, value_name = "DATE", value_parser = doctor::instant)]
    pub(crate) account_created: Option<Timestamp>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline man | man -l -\n  \
    throughline man --output /usr/local/share/man/man1")]
pub(crate) struct Man {
    /// Write a page for each command into this folder, instead of the first to standard output
    #[arg(long, value_name = "FOLDER")]
    pub(crate) output: Option<PathBuf>,
}

/// How to print.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum Format {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}

fn wire() -> impl TypedValueParser<Value = Wire> {
    let names = CODECS.iter().map(|codec| codec.wire().as_str().to_owned());
    PossibleValuesParser::new(names.collect::<Vec<_>>()).map(Wire::new)
}

fn model() -> NonEmptyStringValueParser {
    NonEmptyStringValueParser::new()
}
