//! What can be asked of the gateway, its configuration, its keys and what they used: `serve`, `config`, `keys` and `usage`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand, ValueEnum};

use super::model;
use super::store::{At, Printing};
use crate::amount;
use crate::config::LogLevel;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline serve\n  \
    throughline serve --listen 127.0.0.1:0\n  \
    throughline serve --config staging.toml --store postgres://app@db/throughline\n\n\
    Without a configuration and without any key it answers as `sim/claude-sonnet-4-5`, `sim/gpt-5.2`,\n\
    `sim/gemini-3-pro-preview` and `sim/deepseek-v4-pro`. Real providers are there as soon as their\n\
    usual key variables are set, or a caller brings its own key. Ctrl-C lets streams end and stops it.")]
pub(crate) struct Serve {
    /// Where to listen, instead of where the configuration says; port 0 for any that is free
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<SocketAddr>,
    /// Answer other machines although there are no keys
    #[arg(long)]
    pub(crate) allow_open: bool,
    /// What is written to standard error, as lines of JSON, instead of what the configuration says:
    /// off, error, warn, info or debug
    #[arg(long, value_name = "LEVEL", value_parser = log_level)]
    pub(crate) log: Option<LogLevel>,
    #[command(flatten)]
    pub(crate) at: At,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    /// Say whether a configuration holds, and what must be mended
    Check(ConfigCheck),
    /// Show the configuration as it holds, and where each value comes from
    Show(ConfigShow),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline config check\n  \
    throughline config check --config staging.toml\n\n\
    JSON: `verdict` (ok or wrong), `file` or null, `errors` and `warnings` (`line`, `column`,\n\
    `message`).\n\n\
    Exit codes:\n  \
    0   it holds\n  \
    1   it has errors\n  \
    2   wrong usage, or a file that cannot be read")]
pub(crate) struct ConfigCheck {
    /// The configuration; ./throughline.toml when not given, else the one in your configuration directory
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) printing: Printing,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline config show\n  \
    throughline config show --model fast\n  \
    throughline config show --config staging.toml --format json\n\n\
    No secret is shown, nor any part of one: … stands for it.\n\n\
    JSON: `file` or null, `values` (`key`, `value`, `from`), `providers` (`name`, `wire`, `address`,\n\
    `key`, `models`, `from`), `routes` (`model`, `targets`, `from`) and `prices`; with --model\n\
    `targets`, in the order in which they are tried.")]
pub(crate) struct ConfigShow {
    /// The configuration; ./throughline.toml when not given, else the one in your configuration directory
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Show only whom a model's name reaches
    #[arg(long, value_name = "NAME", value_parser = model())]
    pub(crate) model: Option<String>,
    #[command(flatten)]
    pub(crate) printing: Printing,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Keys {
    /// Make a key, and show it once
    Create(KeysCreate),
    /// List a tenant's keys, the oldest first
    List(KeysList),
    /// End a key for good
    Revoke(KeysRevoke),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline keys create --label laptop\n  \
    throughline keys create --tenant acme --label ci --models 'claude-*' --models fast \\\n      \
        --budget-usd 20 --budget-tokens 5000000 --rate 60/min\n\n\
    The key is shown now and never again: only a keyed hash of it is kept. What is not limited is\n\
    allowed. A store that is not there yet is made.\n\n\
    JSON: `id`, `tenant`, `label`, `limits` (`models`, `budget_micro_usd`, `budget_tokens`,\n\
    `requests_per_minute`, each where there is one) and `key`.")]
pub(crate) struct KeysCreate {
    /// What you call it
    #[arg(long, value_name = "TEXT", default_value = "unnamed", hide_default_value = true, value_parser = NonEmptyStringValueParser::new())]
    pub(crate) label: String,
    /// Only models whose names fit this pattern, where `*` stands for anything; repeat it for more
    #[arg(long, value_name = "PATTERN", value_delimiter = ',', value_parser = NonEmptyStringValueParser::new())]
    pub(crate) models: Vec<String>,
    /// It may spend so many dollars
    #[arg(long, value_name = "USD", value_parser = dollars)]
    pub(crate) budget_usd: Option<u64>,
    /// It may use so many tokens, those asked and those answered together
    #[arg(long, value_name = "N")]
    pub(crate) budget_tokens: Option<u64>,
    /// It may make so many requests in a minute: 60/min
    #[arg(long, value_name = "N/min", value_parser = rate)]
    pub(crate) rate: Option<u32>,
    #[command(flatten)]
    pub(crate) printing: Printing,
    #[command(flatten)]
    pub(crate) at: At,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline keys list\n  \
    throughline keys list --tenant acme --format json\n\n\
    JSON: `keys`, a list of `id`, `label`, `limits`, `created` and `revoked`, which is null for a key\n\
    that is good.")]
pub(crate) struct KeysList {
    #[command(flatten)]
    pub(crate) printing: Printing,
    #[command(flatten)]
    pub(crate) at: At,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  \
    throughline keys revoke key_0123456789ab\n\n\
    JSON: `revoked`, the id.")]
pub(crate) struct KeysRevoke {
    #[command(flatten)]
    pub(crate) printing: Printing,
    /// The id of the key, as `throughline keys list` shows it
    #[arg(value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) at: At,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline usage\n  \
    throughline usage --by day\n  \
    throughline usage --tenant acme --by key,model --format json\n\n\
    What was used is counted within about a second. A call whose price nobody knows has no cost: write\n\
    its price into throughline.toml, under [prices].\n\n\
    JSON: `tenant` and `usage`, a list of what --by asks for (`key` is null where the gateway was open),\n\
    `calls`, `unpriced` (how many of them have no price), `input`, `cached`, `written`, `output`,\n\
    `thought` and `micro_usd`, millionths of a dollar.")]
pub(crate) struct Usage {
    /// What is told apart: key, provider, model, day
    #[arg(long, value_name = "WHAT", value_enum, value_delimiter = ',', default_values_t = [UsageBy::Key, UsageBy::Provider, UsageBy::Model], hide_possible_values = true)]
    pub(crate) by: Vec<UsageBy>,
    #[command(flatten)]
    pub(crate) printing: Printing,
    #[command(flatten)]
    pub(crate) at: At,
}

/// What usage is told apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum UsageBy {
    Key,
    Provider,
    Model,
    Day,
}

impl UsageBy {
    /// The word for it.
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
    let known = LogLevel::ALL.iter().find(|(word, _)| *word == text);
    known.map(|(_, level)| *level).ok_or_else(|| "write off, error, warn, info or debug".to_owned())
}

fn dollars(text: &str) -> Result<u64, String> {
    let number = text.trim().trim_start_matches('$').parse().ok();
    let sum = number.and_then(amount::micro_dollars).filter(|sum| *sum > 0);
    sum.ok_or_else(|| "write a sum of dollars as 20 or 2.50".to_owned())
}

fn rate(text: &str) -> Result<u32, String> {
    let number = text.strip_suffix("/min").and_then(|number| number.trim().parse().ok());
    let number = number.filter(|number| *number > 0);
    number.ok_or_else(|| "write a number of requests in a minute as 60/min".to_owned())
}
