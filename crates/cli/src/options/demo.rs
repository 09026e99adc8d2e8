//! How `demo` is played.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline demo\n  \
    throughline demo --interactive\n  \
    throughline demo --no-serve --home story\n\n\
    An agent thinks and calls tools, is killed and resumed, asks a question and an approval, changes\n\
    its provider and back, and is summarised; then a naive client tries the same. Providers are the\n\
    built-in simulators: they sign, verify and refuse. Nothing is hard-coded but the story: each count\n\
    comes from the store or from the simulators' ledger. Ctrl-C ends it.\n\n\
    Exit codes:\n  \
    0   all of it went as it should\n  \
    1   it did not, or something outside failed\n  \
    130 interrupted")]
pub(crate) struct Demo {
    /// Answer the question and decide on the approval yourself
    #[arg(long)]
    pub(crate) interactive: bool,
    /// End when the story is told, instead of leaving the gateway open on its thread
    #[arg(long)]
    pub(crate) no_serve: bool,
    /// Keep the store, the configuration and the agent in this folder, which must be empty or not there
    /// yet; without it they go away with the demo
    #[arg(long, value_name = "FOLDER")]
    pub(crate) home: Option<PathBuf>,
}
