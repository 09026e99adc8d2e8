//! Parses the accounts of a provider's pool.

use std::time::Duration;

use throughline_codec::is_provider_name;
use throughline_json::Name;
use throughline_server::{Balance, BoundPolicy, PoolOptions};
use throughline_tools::reader::{Diagnostics, Section};

use super::key::{SOURCES, own_key, with_credential_keys};
use super::routes::{AccountSettings, PoolSettings};

/// Keys of a `[[providers.NAME.pool]]` table.
const KEYS: &[&str] = &["name", "api_key_env", "api_key", "weight"];

/// Keys of a provider that apply only to its pool.
const POOL_ONLY: [&str; 3] = ["balance", "when_unavailable", "cooldown"];

/// The largest accepted weight.
const LARGEST_WEIGHT: u32 = 1000;

/// The longest accepted cooldown.
const LONGEST_COOLDOWN: Duration = Duration::from_hours(1);

/// The configurable ways to choose an account.
pub(crate) const BALANCES: &[(&str, Balance)] =
    &[("weighted", Balance::Weighted), ("least-busy", Balance::LeastBusy)];

/// The configurable ways to treat a conversation whose account cannot be used.
pub(crate) const BOUND_POLICIES: &[(&str, BoundPolicy)] =
    &[("move", BoundPolicy::Move), ("stay", BoundPolicy::Stay)];

/// Parses the pool of a provider; `None` if the provider has no pool.
pub(super) fn read(
    provider: &str,
    section: &Section<'_>,
    notes: &mut Diagnostics<'_>,
) -> Option<PoolSettings> {
    if !section.has("pool") {
        for key in POOL_ONLY.into_iter().filter(|key| section.has(key)) {
            let message =
                format!("`{key}` applies to a pool only: add [[providers.{provider}.pool]]");
            notes.error(section.key_at(key), message);
        }
        return None;
    }
    for key in SOURCES.iter().filter(|key| section.has(key)) {
        let message = format!(
            "`{key}` cannot be combined with `pool`: move the key to an account of the pool; an \
             account with the name `{provider}` continues its conversations"
        );
        notes.error(section.key_at(key), message);
    }
    let problems = notes.errors.len();
    let tables = section.list("pool", notes);
    if tables.is_empty() && notes.errors.len() == problems {
        let message = "`pool` needs at least one account: write pool = [{ name = \"a\", \
                       api_key_env = \"KEY_A\" }]";
        notes.error(section.value_at("pool"), message);
    }
    let mut accounts: Vec<AccountSettings> = Vec::new();
    for table in &tables {
        if let Some(account) = account(table, notes) {
            if accounts.iter().any(|known| known.name == account.name) {
                let message = format!("the pool has two accounts with the name `{}`", account.name);
                notes.error(table.value_at("name"), message);
            }
            accounts.push(account);
        }
    }
    let mut options = PoolOptions::default();
    options.balance = section.choice("balance", BALANCES, notes).unwrap_or(options.balance);
    options.bound =
        section.choice("when_unavailable", BOUND_POLICIES, notes).unwrap_or(options.bound);
    let cooldown = section.time("cooldown", notes);
    if cooldown.is_some_and(|cooldown| cooldown > LONGEST_COOLDOWN) {
        let message = "`cooldown` is longer than one hour: write cooldown = \"30s\"";
        notes.error(section.value_at("cooldown"), message);
    }
    options.cooldown = cooldown.unwrap_or(options.cooldown);
    (!accounts.is_empty()).then(|| PoolSettings {
        provider: Name::from(provider),
        accounts,
        options,
    })
}

/// Parses one account of a pool.
fn account(table: &Section<'_>, notes: &mut Diagnostics<'_>) -> Option<AccountSettings> {
    table.reject_unknown_keys(&with_credential_keys(KEYS), notes);
    let credential = own_key(table, "account", notes);
    if credential.is_none() && !SOURCES.iter().any(|key| table.has(key)) {
        let message = "an account needs a key: write api_key_env = \"KEY_A\"";
        notes.error(table.at, message);
    }
    if !table.has("name") {
        notes.error(table.at, "an account needs a name: write name = \"team-a\"");
    }
    let weight = table.count("weight", 2, notes).unwrap_or(1);
    if weight > LARGEST_WEIGHT {
        let message = format!("`weight` must be at most {LARGEST_WEIGHT}: write weight = 2");
        notes.error(table.value_at("weight"), message);
    }
    let name = table.text("name", "team-a", notes)?;
    if !is_provider_name(name) {
        let message = "an account's name may contain only letters, digits, `-`, `_` and `.`";
        notes.error(table.value_at("name"), message);
        return None;
    }
    Some(AccountSettings { name: Name::from(name), credential: credential?, weight })
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod pool_tests;
