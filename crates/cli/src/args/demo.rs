//! Options of `demo`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline demo\n  \
    throughline demo --interactive\n  \
    throughline demo --no-serve --home demo\n\n\
    An agent reasons and calls tools, is killed and resumed, asks a question, requests an approval,\n\
    switches its provider and back, and is summarised. Then a lossy client tries the same. The\n\
    providers are the built-in simulators: they sign, verify and refuse. Only the script is fixed:\n\
    each count comes from the store or from the simulators' ledger. Ctrl-C ends the demo.\n\n\
    Exit codes:\n  \
    0   every step succeeded\n  \
    1   a step failed, or an external failure\n  \
    130 interrupted")]
pub(crate) struct Demo {
    /// Answer the question and decide on the approval yourself
    #[arg(long)]
    pub(crate) interactive: bool,
    /// Exit after the last step instead of keeping the gateway open on the demo's thread
    #[arg(long)]
    pub(crate) no_serve: bool,
    /// Keep the store, the configuration and the agent in this folder, which must be empty or
    /// absent; without it they are deleted after the demo
    #[arg(long, value_name = "FOLDER")]
    pub(crate) home: Option<PathBuf>,
}
