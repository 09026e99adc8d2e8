//! Options of the `catalog` commands, and the option that selects the catalog of other commands.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{Format, non_empty};

/// Selects the configuration whose catalog a command uses.
#[derive(Debug, Args)]
pub(crate) struct CatalogArgs {
    /// Configuration file whose `[catalog]` table selects the installed catalog [default:
    /// ./throughline.toml, else throughline/throughline.toml in your configuration directory]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CatalogCommand {
    /// Show the rows in effect, or the row that applies to a model
    Show(CatalogShow),
    /// Check a catalog file, or the installed one, and list its errors
    Check(CatalogCheck),
    /// Verify a signed catalog file and install it; running gateways use it within a second
    Update(CatalogInstall),
    /// Sign a catalog file in place and print the public key
    Sign(CatalogSign),
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/catalog-show.md"))]
pub(crate) struct CatalogShow {
    /// Show only the row that applies to this model name
    #[arg(value_name = "MODEL", value_parser = non_empty())]
    pub(crate) model: Option<String>,
    #[command(flatten)]
    pub(crate) catalog: CatalogArgs,
    /// Output format: text or json
    #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/catalog-check.md"))]
pub(crate) struct CatalogCheck {
    /// Catalog file to check [default: the installed file]
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) catalog: CatalogArgs,
    /// Output format: text or json
    #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/catalog-update.md"))]
pub(crate) struct CatalogInstall {
    /// Signed catalog file to install
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) catalog: CatalogArgs,
    /// Output format: text or json
    #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/catalog-sign.md"))]
pub(crate) struct CatalogSign {
    /// Catalog file to sign; an existing signature is replaced
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// File that contains the secret key, as 64 hexadecimal digits
    #[arg(long, value_name = "KEYFILE")]
    pub(crate) key: PathBuf,
    /// Output format: text or json
    #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
    pub(crate) format: Format,
}
