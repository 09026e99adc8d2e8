//! Options of the gateway commands: `serve`, `config`, `keys` and `usage`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand, ValueEnum};
use throughline_server::Level;

use super::model;
use super::store::{OutputArgs, StoreArgs};
use crate::amount;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline serve\n  \
    throughline serve --listen 127.0.0.1:0\n  \
    throughline serve --config staging.toml --store postgres://app@db/throughline\n\n\
    Without a configuration and without any key the gateway serves `sim/claude-sonnet-4-5`,\n\
    `sim/gpt-5.2`, `sim/gemini-3-pro-preview` and `sim/deepseek-v4-pro`. Real providers are available\n\
    when their usual key variables are set or the caller sends a provider key. Ctrl-C drains open\n\
    streams and stops the gateway.")]
pub(crate) struct Serve {
    /// Address to listen on; overrides the configuration; port 0 picks a free port
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<SocketAddr>,
    /// Accept requests from other machines without API keys
    #[arg(long)]
    pub(crate) allow_open: bool,
    /// Log level of the JSON lines on standard error: off, error, warn, info or debug; overrides
    /// the configuration
    #[arg(long, value_name = "LEVEL", value_parser = log_level)]
    pub(crate) log: Option<LogLevel>,
    #[command(flatten)]
    pub(crate) at: StoreArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check a configuration and list its errors and warnings
    Check(ConfigCheck),
    /// Show the effective configuration and the source of each value
    Show(ConfigShow),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline config check\n  \
    throughline config check --config staging.toml\n\n\
    JSON: `verdict` (ok or wrong), `file` or null, `errors` and `warnings` (`line`, `column`,\n\
    `message`).\n\n\
    Exit codes:\n  \
    0   the configuration is valid\n  \
    1   the configuration has errors\n  \
    2   usage error, or a file cannot be read")]
pub(crate) struct ConfigCheck {
    /// Configuration file; defaults to ./throughline.toml, else to the one in your configuration
    /// directory
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) printing: OutputArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline config show\n  \
    throughline config show --model fast\n  \
    throughline config show --config staging.toml --format json\n\n\
    Secrets are replaced by … and never printed, not even in part.\n\n\
    JSON: `file` or null, `values` (`key`, `value`, `from`), `providers` (`name`, `wire`, `address`,\n\
    `key`, `models`, `from`), `routes` (`model`, `targets`, `from`) and `prices`; with --model\n\
    `targets`, in the order they are tried.")]
pub(crate) struct ConfigShow {
    /// Configuration file; defaults to ./throughline.toml, else to the one in your configuration
    /// directory
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Show only the targets that this model name routes to
    #[arg(long, value_name = "NAME", value_parser = model())]
    pub(crate) model: Option<String>,
    #[command(flatten)]
    pub(crate) printing: OutputArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Keys {
    /// Create a key and print it once
    Create(KeysCreate),
    /// List the keys of a tenant, oldest first
    List(KeysList),
    /// Revoke a key permanently
    Revoke(KeysRevoke),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline keys create --label laptop\n  \
    throughline keys create --tenant acme --label ci --models 'claude-*' --models fast \\\n      \
        --budget-usd 20 --budget-tokens 5000000 --rate 60/min\n\n\
    The key is printed once: the store contains only a keyed hash. Omitted limits are unlimited.\n\
    A missing store is created.\n\n\
    JSON: `id`, `tenant`, `label`, `limits` (`models`, `budget_micro_usd`, `budget_tokens`,\n\
    `requests_per_minute`, each only if set) and `key`.")]
pub(crate) struct KeysCreate {
    /// Label for the key
    #[arg(long, value_name = "TEXT", default_value = "unnamed", hide_default_value = true, value_parser = NonEmptyStringValueParser::new())]
    pub(crate) label: String,
    /// Allow only models that match this pattern, where `*` matches any text; repeatable
    #[arg(long, value_name = "PATTERN", value_delimiter = ',', value_parser = NonEmptyStringValueParser::new())]
    pub(crate) models: Vec<String>,
    /// Budget in US dollars
    #[arg(long, value_name = "USD", value_parser = dollars)]
    pub(crate) budget_usd: Option<u64>,
    /// Budget in tokens, input and output together
    #[arg(long, value_name = "N")]
    pub(crate) budget_tokens: Option<u64>,
    /// Maximum number of requests per minute, such as 60/min
    #[arg(long, value_name = "N/min", value_parser = rate)]
    pub(crate) rate: Option<u32>,
    #[command(flatten)]
    pub(crate) printing: OutputArgs,
    #[command(flatten)]
    pub(crate) at: StoreArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline keys list\n  \
    throughline keys list --tenant acme --format json\n\n\
    JSON: `keys`, a list of `id`, `label`, `limits`, `created` and `revoked`, which is null for a\n\
    valid key.")]
pub(crate) struct KeysList {
    #[command(flatten)]
    pub(crate) printing: OutputArgs,
    #[command(flatten)]
    pub(crate) at: StoreArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  \
    throughline keys revoke key_0123456789ab\n\n\
    JSON: `revoked`, the id.")]
pub(crate) struct KeysRevoke {
    #[command(flatten)]
    pub(crate) printing: OutputArgs,
    /// Id of the key, as shown by `throughline keys list`
    #[arg(value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) at: StoreArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline usage\n  \
    throughline usage --by day\n  \
    throughline usage --tenant acme --by key,model --format json\n\n\
    Usage is recorded within about a second. Calls to models without a price have no cost: add the\n\
    price to throughline.toml, under [prices].\n\n\
    JSON: `tenant` and `usage`, a list with the fields of --by (`key` is null if the gateway was open),\n\
    `calls`, `unpriced` (number of calls without a price), `input`, `cached`, `written`, `output`,\n\
    `thought` and `micro_usd` (millionths of a dollar).")]
pub(crate) struct Usage {
    /// Fields to group by: key, provider, model, day
    #[arg(long, value_name = "WHAT", value_enum, value_delimiter = ',', default_values_t = [UsageBy::Key, UsageBy::Provider, UsageBy::Model], hide_possible_values = true)]
    pub(crate) by: Vec<UsageBy>,
    #[command(flatten)]
    pub(crate) printing: OutputArgs,
    #[command(flatten)]
    pub(crate) at: StoreArgs,
}

/// A field that usage is grouped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum UsageBy {
    Key,
    Provider,
    Model,
    Day,
}

impl UsageBy {
    /// Returns the name of the field in options and JSON.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            UsageBy::Key => "key",
            UsageBy::Provider => "provider",
            UsageBy::Model => "model",
            UsageBy::Day => "day",
        }
    }
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
    sum.ok_or_else(|| "expected an amount in dollars, such as 20 or 2.50".to_owned())
}

fn rate(text: &str) -> Result<u32, String> {
    let number = text.strip_suffix("/min").and_then(|number| number.trim().parse().ok());
    let number = number.filter(|number| *number > 0);
    number.ok_or_else(|| "expected requests per minute, such as 60/min".to_owned())
}

/// Minimum level of log lines; `None` disables the log.
pub(crate) type LogLevel = Option<Level>;

/// All log levels by their names in the configuration.
pub(crate) const LOG_LEVELS: &[(&str, LogLevel)] = &[
    ("off", None),
    ("error", Some(Level::Error)),
    ("warn", Some(Level::Warn)),
    ("info", Some(Level::Info)),
    ("debug", Some(Level::Debug)),
];
