//! Options of the gateway commands: `serve`, `check`, `config`, `keys` and `usage`.

use std::path::PathBuf;

use clap::{Arg, Args, Subcommand, ValueEnum};
use throughline_core::{BudgetPeriod, KeyRole};
use throughline_server::Level;

use super::{CommonArgs, Format, StoreArgs, non_empty, whole_number};
use crate::amount;
use crate::listen_address::{InvalidListenAddress, ListenAddress};

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/serve.md"))]
pub(crate) struct Serve {
    /// Address to listen on: HOST:PORT, :PORT for all interfaces, or `unix:/PATH` for a Unix
    /// socket; port 0 picks a free port; overrides the configuration
    #[arg(long, value_name = "ADDRESS", value_parser = serve_address)]
    pub(crate) listen: Option<ListenAddress>,
    /// PEM file with the certificate and its intermediate certificates; enables TLS and overrides
    /// the configuration
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// PEM file with the private key of the certificate
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Accept requests from other machines even while no API keys exist
    #[arg(long)]
    pub(crate) allow_open: bool,
    /// If no API keys exist, create one and write it to this file, readable only by this user
    #[arg(long, value_name = "FILE")]
    pub(crate) first_key_file: Option<PathBuf>,
    /// Minimum level of the JSON log lines on standard error: off, error, warn, info or debug;
    /// overrides the configuration
    #[arg(long, value_name = "LEVEL", value_parser = log_level)]
    pub(crate) log: Option<LogLevel>,
    /// TOML or JSON file with scripted responses of the built-in simulators, one per turn [default:
    /// generated responses]
    #[arg(long, value_name = "FILE")]
    pub(crate) script: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) at: StoreArgs,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/check.md"))]
pub(crate) struct CheckArgs {
    /// Time limit of each check in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = whole_number::<u64>(1..=600))]
    pub(crate) timeout: u64,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check a configuration and list its errors and warnings
    Check(ConfigCheck),
    /// Show the effective configuration and the source of each value
    Show(ConfigShow),
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/config-check.md"))]
pub(crate) struct ConfigCheck {
    /// Configuration file [default: ./throughline.toml, else throughline/throughline.toml in your
    /// configuration directory]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Output format: text or json
    #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/config-show.md"))]
pub(crate) struct ConfigShow {
    /// Configuration file [default: ./throughline.toml, else throughline/throughline.toml in your
    /// configuration directory]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Show only the targets that this model name routes to
    #[arg(long, value_name = "NAME", value_parser = non_empty())]
    pub(crate) model: Option<String>,
    /// Output format: text or json
    #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
    pub(crate) format: Format,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Keys {
    /// Create an API key and print it; the key cannot be shown again
    Create(KeysCreate),
    /// List the API keys of a tenant, oldest first
    #[command(after_help = include_str!("help/keys-list.md"))]
    List(CommonArgs),
    /// Change the limits of an API key
    Update(KeysUpdate),
    /// Set the usage that counts against the budgets of an API key to zero
    Reset(KeysReset),
    /// Permanently revoke an API key
    Revoke(KeysRevoke),
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/keys-create.md"))]
pub(crate) struct KeysCreate {
    /// Label for the key [default: unnamed]
    #[arg(long, value_name = "TEXT", default_value = "unnamed", hide_default_value = true, value_parser = non_empty())]
    pub(crate) label: String,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// Limits of a key.
#[derive(Debug, Args)]
pub(crate) struct LimitArgs {
    /// What the key may do: operator, app or viewer [default: everything except managing keys]
    #[arg(long, value_name = "ROLE", value_parser = role)]
    pub(crate) role: Option<KeyRole>,
    /// Allow only models whose name matches this pattern, where `*` matches any text; repeatable
    /// [default: all models]
    #[arg(long, value_name = "PATTERN", value_delimiter = ',', value_parser = non_empty())]
    pub(crate) models: Vec<String>,
    /// Maximum cost of the key's calls, in US dollars [default: unlimited]
    #[arg(long, value_name = "USD", value_parser = dollars)]
    pub(crate) budget_usd: Option<u64>,
    /// Maximum number of input and output tokens of the key's calls [default: unlimited]
    #[arg(long, value_name = "N", value_parser = whole_number::<u64>(1..=u64::MAX))]
    pub(crate) budget_tokens: Option<u64>,
    /// Period after which the budgets start again, in UTC: day, week, month or total [default:
    /// total]
    #[arg(long, value_name = "PERIOD", value_parser = period)]
    pub(crate) per: Option<BudgetPeriod>,
    /// Share of a budget in percent, such as 80, at which the gateway sends a message to
    /// `budget_webhook` [default: no message]
    #[arg(long, value_name = "PERCENT", value_parser = whole_number::<u32>(1..=100))]
    pub(crate) soft_limit: Option<u32>,
    /// Maximum number of the key's requests per minute, such as 60/min [default: unlimited]
    #[arg(long, value_name = "N/min", value_parser = rate)]
    pub(crate) rate: Option<u32>,
    /// Maximum number of input and output tokens per minute [default: unlimited]
    #[arg(long, value_name = "N", value_parser = whole_number::<u64>(1..=u64::MAX))]
    pub(crate) tokens_per_minute: Option<u64>,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/keys-update.md"), mut_args(without_default))]
pub(crate) struct KeysUpdate {
    /// Id of the key, as shown by `throughline keys list`
    #[arg(value_name = "ID", value_parser = non_empty())]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    /// Limits to remove, separated by commas: role, models, budget-usd, budget-tokens, soft-limit,
    /// rate or tokens-per-minute. Without a budget, the key has no period and no soft limit
    #[arg(
        long,
        value_name = "LIMIT",
        value_enum,
        value_delimiter = ',',
        hide_possible_values = true
    )]
    pub(crate) remove: Vec<RemovableLimit>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// Removes the default from the help of a limit, because `keys update` does not change the limits
/// that are not given.
fn without_default(argument: Arg) -> Arg {
    const LIMITS: [&str; 8] = [
        "role",
        "models",
        "budget_usd",
        "budget_tokens",
        "per",
        "soft_limit",
        "rate",
        "tokens_per_minute",
    ];
    let help = argument.get_help().map(ToString::to_string);
    match help.as_deref().and_then(|help| help.rsplit_once(" [default: ")) {
        Some((effect, _)) if LIMITS.contains(&argument.get_id().as_str()) => {
            let help = format!("{effect} [default: unchanged]");
            argument.help(help)
        }
        Some(_) | None => argument,
    }
}

/// A limit that `keys update --remove` removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RemovableLimit {
    Role,
    Models,
    BudgetUsd,
    BudgetTokens,
    SoftLimit,
    Rate,
    TokensPerMinute,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/keys-reset.md"))]
pub(crate) struct KeysReset {
    /// Id of the key, as shown by `throughline keys list`
    #[arg(value_name = "ID", value_parser = non_empty())]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/keys-revoke.md"))]
pub(crate) struct KeysRevoke {
    /// Id of the key, as shown by `throughline keys list`
    #[arg(value_name = "ID", value_parser = non_empty())]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/usage.md"))]
pub(crate) struct Usage {
    /// Fields to group by, separated by commas: key, provider, model or day
    #[arg(long, value_name = "FIELD", value_enum, value_delimiter = ',', default_values_t = [UsageBy::Key, UsageBy::Provider, UsageBy::Model], hide_possible_values = true)]
    pub(crate) by: Vec<UsageBy>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// A field that the usage report can be grouped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum UsageBy {
    Key,
    Provider,
    Model,
    Day,
}

impl UsageBy {
    /// Returns the field's name, as used by `--by` and in JSON output.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            UsageBy::Key => "key",
            UsageBy::Provider => "provider",
            UsageBy::Model => "model",
            UsageBy::Day => "day",
        }
    }
}

fn serve_address(text: &str) -> Result<ListenAddress, InvalidListenAddress> {
    text.parse()
}

fn log_level(text: &str) -> Result<LogLevel, String> {
    let known = LOG_LEVELS.iter().find(|(word, _)| *word == text);
    known
        .map(|(_, level)| *level)
        .ok_or_else(|| "expected off, error, warn, info or debug".to_owned())
}

fn dollars(text: &str) -> Result<u64, String> {
    let number = text.trim().trim_start_matches('$').parse().ok();
    let sum = number.and_then(amount::micro_dollars).filter(|sum| *sum > 0);
    sum.ok_or_else(|| "expected an amount in dollars greater than 0, such as 20 or 2.50".to_owned())
}

fn role(text: &str) -> Result<KeyRole, String> {
    KeyRole::parse(text).ok_or_else(|| "expected operator, app or viewer".to_owned())
}

fn period(text: &str) -> Result<BudgetPeriod, String> {
    let period = BudgetPeriod::parse(text).filter(|period| *period != BudgetPeriod::Minute);
    period.ok_or_else(|| "expected day, week, month or total".to_owned())
}

fn rate(text: &str) -> Result<u32, String> {
    let number = text.strip_suffix("/min").and_then(|number| number.trim().parse().ok());
    let number = number.filter(|number| *number > 0);
    number.ok_or_else(|| "expected requests per minute greater than 0, such as 60/min".to_owned())
}

/// Minimum level of the log lines that are written; `None` disables logging.
pub(crate) type LogLevel = Option<Level>;

/// All log levels, with their names in options and in the configuration.
pub(crate) const LOG_LEVELS: &[(&str, LogLevel)] = &[
    ("off", None),
    ("error", Some(Level::Error)),
    ("warn", Some(Level::Warn)),
    ("info", Some(Level::Info)),
    ("debug", Some(Level::Debug)),
];
