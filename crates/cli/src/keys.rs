//! `throughline keys`: the gateway's own keys. A key is shown once; a store keeps a keyed hash of it.

use comfy_table::{Attribute, Cell, Color};
use owo_colors::OwoColorize as _;
use throughline_core::{Json, Name, json};
use throughline_server::Claims;
use throughline_store::{ApiKey, KeyLimits, NewApiKey};

use crate::amount::dollars;
use crate::failure::Failure;
use crate::listing::{Column, none_of, put_maybe, table};
use crate::options::{Keys, KeysCreate, KeysList, KeysRevoke};
use crate::store::{self, Missing};
use crate::text::{self, plain};

/// What the names of tenants begin with that the gateway keeps for itself: the log of all usage, and callers that bring their own
/// provider key.
const RESERVED: [&str; 2] = ["throughline-", Claims::CALLER];

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
    store::with(&options.at, Missing::IsMade, |opened| {
        if let Some(prefix) = RESERVED.iter().find(|prefix| opened.tenant.0.starts_with(**prefix)) {
            return Err(Failure::Usage(format!(
                "tenants that begin with `{prefix}` are the gateway's own: choose another --tenant"
            )));
        }
        let work = opened.journal.create_api_key(&opened.tenant, &options.label, &limits);
        let NewApiKey { id, secret } = opened.run(work)?;
        let tenant = &opened.tenant.0;
        text::answer(
            &options.printing,
            || {
                let mark = text::mark(true);
                let told = limits_told(&limits);
                let told = if told.is_empty() { "no limits".to_owned() } else { told.join(", ") };
                format!(
                    "{mark} {} for the tenant {}: {}\n\n  {}\n\n{}\n",
                    id.bold(),
                    plain(tenant),
                    plain(&told),
                    secret.bold(),
                    "This is the only time that it is shown: keep it now.".dimmed()
                )
            },
            || {
                json::object(|o| {
                    o.string("id", &id).string("tenant", tenant).string("label", &options.label);
                    o.raw("limits", &limits.json()).string("key", &secret);
                })
            },
        )
    })
}

fn list(options: &KeysList) -> Result<(), Failure> {
    store::with(&options.at, Missing::Fails, |opened| {
        let keys = opened.run(opened.journal.api_keys(&opened.tenant))?;
        let told = if keys.is_empty() { none_of(opened, "keys")? } else { listed(&keys) };
        text::answer(&options.printing, || told, || json_of(&keys))
    })
}

fn listed(keys: &[ApiKey]) -> String {
    let limits = |key: &ApiKey| Cell::new(plain(&limits_told(&key.limits).join(", ")));
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
    columns.push(Column::new("created", keys.iter().map(created)).that_can_go());
    columns.push(Column::new("limits", keys.iter().map(limits)));
    table(columns)
}

fn json_of(keys: &[ApiKey]) -> Json {
    json::object(|o| {
        o.array("keys", |a| {
            for key in keys {
                a.object(|o| {
                    o.string("id", &key.id).string("label", &key.label);
                    o.raw("limits", &key.limits.json());
                    o.string("created", &key.created.to_string());
                    put_maybe(o, "revoked", key.revoked.map(|at| at.to_string()).as_deref());
                });
            }
        });
    })
}

/// What limits say to people; nothing where there are none.
fn limits_told(limits: &KeyLimits) -> Vec<String> {
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
    store::with(&options.at, Missing::Fails, |opened| {
        let id = &options.id;
        if !opened.run(opened.journal.revoke_api_key(&opened.tenant, id))? {
            // Somebody may have given the key itself, so it is not repeated.
            return Err(Failure::Usage(format!(
                "the tenant {} has no good key of that id: `throughline keys list` shows what there is",
                opened.tenant
            )));
        }
        text::answer(
            &options.printing,
            || {
                format!(
                    "{} {} is revoked: nobody gets in with it any more\n",
                    text::mark(true),
                    plain(id)
                )
            },
            || {
                json::object(|o| {
                    o.string("revoked", id);
                })
            },
        )
    })
}
