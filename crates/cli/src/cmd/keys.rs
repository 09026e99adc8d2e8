//! `throughline keys`: manages the gateway's API keys. A key is printed only once, because the
//! store contains only its keyed hash.

use owo_colors::{OwoColorize as _, Style};
use serde_json::{Value, json};
use throughline_json::Name;
use throughline_replay::Claims;
use throughline_store::{ApiKey, KeyLimits, NewApiKey};

use crate::amount::dollars;
use crate::args::{CommonArgs, Keys, KeysCreate, KeysRevoke};
use crate::print::failure::{Failure, Result};
use crate::print::listing::{Cell, Column, table};
use crate::print::text::{self, plain};
use crate::store::{self, IfMissing};

/// Prefixes that tenant names may not have. Tenants with these prefixes hold the usage log and the
/// data of callers with their own provider key.
const RESERVED: [&str; 2] = ["throughline-", Claims::CALLER_PREFIX];

pub(crate) fn run(keys: &Keys) -> Result<()> {
    match keys {
        Keys::Create(options) => create(options),
        Keys::List(options) => list(options),
        Keys::Revoke(options) => revoke(options),
    }
}

fn create(options: &KeysCreate) -> Result<()> {
    let limits = KeyLimits {
        models: options.models.iter().map(|pattern| Name::from(pattern.as_str())).collect(),
        budget_micro_usd: options.budget_usd,
        budget_tokens: options.budget_tokens,
        requests_per_minute: options.rate,
    };
    store::with(&options.common.at, IfMissing::IsMade, |store| {
        if let Some(prefix) = RESERVED.iter().find(|prefix| store.tenant.0.starts_with(**prefix)) {
            return Err(Failure::Usage(format!(
                "tenant names that start with `{prefix}` are reserved; choose another --tenant"
            )));
        }
        let work = store.journal.create_api_key(&store.tenant, &options.label, &limits);
        let NewApiKey { id, secret } = store.run(work)?;
        let tenant = &store.tenant.0;
        let text = || {
            let described = describe_limits(&limits);
            let limits = if described.is_empty() { "no limits" } else { &described };
            let (mark, id, secret) = (text::mark(true), id.bold(), secret.bold());
            let (tenant, limits) = (plain(tenant), plain(limits));
            let once = "This key is shown only once. Store it now.".dimmed();
            format!("{mark} {id} for the tenant {tenant}: {limits}\n\n  {secret}\n\n{once}\n")
        };
        let json = || {
            json!({
                "id": id,
                "tenant": tenant,
                "label": options.label,
                "limits": limits.json(),
                "key": secret,
            })
        };
        options.common.format.print(text, json)
    })
}

fn list(options: &CommonArgs) -> Result<()> {
    store::with(&options.at, IfMissing::Fails, |store| {
        let keys = store.run(store.journal.api_keys(&store.tenant))?;
        let text = if keys.is_empty() { store.empty_message("keys")? } else { keys_table(&keys) };
        options.format.print(|| text, || json_of(&keys))
    })
}

fn keys_table(keys: &[ApiKey]) -> String {
    let limits = |key: &ApiKey| plain(&describe_limits(&key.limits));
    let mut columns = vec![
        Column::new("id", keys.iter().map(|key| plain(&key.id))),
        Column::new("label", keys.iter().map(|key| plain(&key.label))),
    ];
    if keys.iter().any(|key| key.revoked.is_some()) {
        let status = |key: &ApiKey| match key.revoked {
            Some(at) => Cell::styled(format!("revoked {}", text::day(at)), Style::new().red()),
            None => "good".into(),
        };
        columns.push(Column::new("status", keys.iter().map(status)));
    }
    let created = keys.iter().map(|key| text::day(key.created));
    columns.push(Column::new("created", created).droppable().dimmed());
    columns.push(Column::new("limits", keys.iter().map(limits)));
    table(columns)
}

fn json_of(keys: &[ApiKey]) -> Value {
    let keys = keys.iter().map(|key| {
        json!({
            "id": key.id,
            "label": key.label,
            "limits": key.limits.json(),
            "created": key.created.to_string(),
            "revoked": key.revoked.map(|at| at.to_string()),
        })
    });
    json!({ "keys": keys.collect::<Vec<_>>() })
}

/// Describes the limits of a key in plain text; empty if the key has no limits.
fn describe_limits(limits: &KeyLimits) -> String {
    let mut parts = Vec::new();
    parts.extend((!limits.models.is_empty()).then(|| limits.models.join(" ")));
    parts.extend(limits.budget_micro_usd.map(dollars));
    parts.extend(limits.budget_tokens.map(|tokens| format!("{tokens} tokens")));
    parts.extend(limits.requests_per_minute.map(|rate| format!("{rate}/min")));
    parts.join(", ")
}

fn revoke(options: &KeysRevoke) -> Result<()> {
    store::with(&options.common.at, IfMissing::Fails, |store| {
        let id = &options.id;
        if !store.run(store.journal.revoke_api_key(&store.tenant, id))? {
            // The argument may be the key itself, so the message does not repeat it.
            return Err(Failure::Usage(format!(
                "the tenant {} has no valid key with that id; `throughline keys list` lists the keys",
                store.tenant
            )));
        }
        let (mark, shown) = (text::mark(true), plain(id));
        let text = || format!("{mark} {shown} is revoked and no longer accepted\n");
        options.common.format.print(text, || json!({ "revoked": id }))
    })
}
