//! `throughline keys`: API keys of the gateway. A key is printed once; the store contains a keyed
//! hash.

use comfy_table::{Attribute, Cell, Color};
use owo_colors::OwoColorize as _;
use serde_json::{Value, json};
use throughline_json::Name;
use throughline_replay::Claims;
use throughline_store::{ApiKey, KeyLimits, NewApiKey};

use crate::amount::dollars;
use crate::args::{Keys, KeysCreate, KeysList, KeysRevoke};
use crate::print::failure::Failure;
use crate::print::listing::{Column, table};
use crate::print::text::{self, plain};
use crate::store::{self, IfMissing};

/// Reserved prefixes of tenant names: the usage log, and callers with their own provider key.
const RESERVED: [&str; 2] = ["throughline-", Claims::CALLER_PREFIX];

pub(crate) fn run(keys: &Keys) -> Result<(), Failure> {
    match keys {
        Keys::Create(options) => create(options),
        Keys::List(options) => list(options),
        Keys::Revoke(options) => revoke(options),
    }
}

fn create(options: &KeysCreate) -> Result<(), Failure> {
    let limits = KeyLimits {
        models: options.models.iter().map(|pattern| Name::from(pattern.as_str())).collect(),
        budget_micro_usd: options.budget_usd,
        budget_tokens: options.budget_tokens,
        requests_per_minute: options.rate,
    };
    store::with(&options.at, IfMissing::IsMade, |opened| {
        if let Some(prefix) = RESERVED.iter().find(|prefix| opened.tenant.0.starts_with(**prefix)) {
            return Err(Failure::Usage(format!(
                "tenant names that start with `{prefix}` are reserved; choose another --tenant"
            )));
        }
        let work = opened.journal.create_api_key(&opened.tenant, &options.label, &limits);
        let NewApiKey { id, secret } = opened.run(work)?;
        let tenant = &opened.tenant.0;
        text::answer(
            &options.printing,
            || {
                let mark = text::mark(true);
                let told = describe_limits(&limits);
                let told = if told.is_empty() { "no limits".to_owned() } else { told.join(", ") };
                format!(
                    "{mark} {} for the tenant {}: {}\n\n  {}\n\n{}\n",
                    id.bold(),
                    plain(tenant),
                    plain(&told),
                    secret.bold(),
                    "This key is shown only once. Store it now.".dimmed()
                )
            },
            || {
                json!({
                    "id": id,
                    "tenant": tenant,
                    "label": options.label,
                    "limits": limits.json(),
                    "key": secret,
                })
            },
        )
    })
}

fn list(options: &KeysList) -> Result<(), Failure> {
    store::with(&options.at, IfMissing::Fails, |opened| {
        let keys = opened.run(opened.journal.api_keys(&opened.tenant))?;
        let told = if keys.is_empty() { opened.empty_message("keys")? } else { keys_table(&keys) };
        text::answer(&options.printing, || told, || json_of(&keys))
    })
}

fn keys_table(keys: &[ApiKey]) -> String {
    let limits = |key: &ApiKey| Cell::new(plain(&describe_limits(&key.limits).join(", ")));
    let mut columns = vec![
        Column::new("id", keys.iter().map(|key| Cell::new(plain(&key.id)))),
        Column::new("label", keys.iter().map(|key| Cell::new(plain(&key.label)))),
    ];
    if keys.iter().any(|key| key.revoked.is_some()) {
        columns.push(Column::new(
            "status",
            keys.iter().map(|key| match key.revoked {
                Some(at) => Cell::new(format!("revoked {}", text::day(at))).fg(Color::Red),
                None => Cell::new("good"),
            }),
        ));
    }
    let created = |key: &ApiKey| Cell::new(text::day(key.created)).add_attribute(Attribute::Dim);
    columns.push(Column::new("created", keys.iter().map(created)).droppable());
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

/// Describes limits for people; empty if there are none.
fn describe_limits(limits: &KeyLimits) -> Vec<String> {
    let mut told = Vec::new();
    if !limits.models.is_empty() {
        told.push(limits.models.join(" "));
    }
    told.extend(limits.budget_micro_usd.map(dollars));
    told.extend(limits.budget_tokens.map(|tokens| format!("{tokens} tokens")));
    told.extend(limits.requests_per_minute.map(|rate| format!("{rate}/min")));
    told
}

fn revoke(options: &KeysRevoke) -> Result<(), Failure> {
    store::with(&options.at, IfMissing::Fails, |opened| {
        let id = &options.id;
        if !opened.run(opened.journal.revoke_api_key(&opened.tenant, id))? {
            // The argument may be the key itself, so the message does not repeat it.
            return Err(Failure::Usage(format!(
                "the tenant {} has no valid key with that id; `throughline keys list` lists the keys",
                opened.tenant
            )));
        }
        text::answer(
            &options.printing,
            || format!("{} {} is revoked and no longer accepted\n", text::mark(true), plain(id)),
            || json!({ "revoked": id }),
        )
    })
}
