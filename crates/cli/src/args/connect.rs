//! Options of `connect`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::PossibleValuesParser;

use super::non_empty;
use crate::clients;

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/connect.md"))]
#[expect(clippy::struct_excessive_bools, reason = "each flag is an option of the command line")]
pub(crate) struct Connect {
    /// Client to connect [default: list the clients]
    #[arg(value_name = "CLIENT", value_parser = PossibleValuesParser::new(clients::names()))]
    pub(crate) client: Option<String>,
    /// Model that the client uses [default: the client's usual model, or its simulation if the
    /// configuration and the environment of this command have no key for its provider]
    #[arg(long, value_name = "NAME", value_parser = non_empty(), requires = "client")]
    pub(crate) model: Option<String>,
    /// Address of the gateway [default: the configured address, else `http://127.0.0.1:4400`]
    #[arg(long, value_name = "URL", requires = "client")]
    pub(crate) url: Option<String>,
    /// API key of the gateway, or `env` to read it from `THROUGHLINE_KEY` [default: the value of
    /// `THROUGHLINE_KEY`, else no key]
    #[arg(long, value_name = "KEY|env", value_parser = non_empty(), requires = "client")]
    pub(crate) key: Option<String>,
    /// Print the settings; this is the default
    #[arg(long, group = "action", requires = "client")]
    pub(crate) print: bool,
    /// Write the settings to the client's configuration files, each with a backup beside it
    #[arg(long, group = "action", requires = "client")]
    pub(crate) write: bool,
    /// Run the client with the settings; no file is changed
    #[arg(long, group = "action", requires = "client")]
    pub(crate) run: bool,
    /// Restore the configuration files that --write changed
    #[arg(long, group = "action", requires = "client", conflicts_with_all = ["model", "url", "key"])]
    pub(crate) undo: bool,
    /// With --undo, restore files that were changed after --write; keep the changed file as
    /// FILE.throughline-changed
    #[arg(long, requires = "undo")]
    pub(crate) force: bool,
    /// Configuration file of the gateway [default: ./throughline.toml, else
    /// throughline/throughline.toml in your configuration directory]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Arguments for the client with --run; for a library, the program and its arguments
    // `requires` does not apply if the required option conflicts with a present one.
    #[arg(
        last = true,
        value_name = "ARGS",
        requires = "run",
        conflicts_with_all = ["print", "write", "undo"]
    )]
    pub(crate) arguments: Vec<String>,
}
