//! `throughline keys`: manages the gateway's API keys. A key is printed only once, because the
//! store contains only its keyed hash.

use owo_colors::Style;
use serde_json::{Value, json};
use throughline_core::{BudgetPeriod, StoreError};
use throughline_json::Name;
use throughline_replay::Claims;
use throughline_server::reset_budget;
use throughline_store::{ApiKey, KeyLimits, NewApiKey};

use crate::amount::dollars;
use crate::args::{
    CommonArgs, Format, Keys, KeysCreate, KeysReset, KeysRevoke, KeysUpdate, LimitArgs,
    RemovableLimit,
};
use crate::print::failure::{Failure, Result};
use crate::print::listing::{Cell, Column, table};
use crate::print::text::{self, plain};
use crate::retention::OWN_TENANT_PREFIX;
use crate::store::{self, IfMissing, OpenStore};

/// Prefixes that tenant names may not have. Tenants with these prefixes hold the usage log and the
/// data of callers with their own provider key.
const RESERVED: [&str; 2] = [OWN_TENANT_PREFIX, Claims::CALLER_PREFIX];

pub(crate) fn run(keys: &Keys) -> Result<()> {
    match keys {
        Keys::Create(options) => create(options),
        Keys::List(options) => list(options),
        Keys::Update(options) => update(options),
        Keys::Reset(options) => reset(options),
        Keys::Revoke(options) => revoke(options),
    }
}

fn create(options: &KeysCreate) -> Result<()> {
    let limits = changed_limits(KeyLimits::default(), &options.limits, &[]);
    check_budget(&options.limits, &limits).map_err(Failure::Usage)?;
    check_label(&options.label)?;
    store::with(&options.common.at, IfMissing::IsMade, |store| {
        if let Some(prefix) = RESERVED.iter().find(|prefix| store.tenant.0.starts_with(**prefix)) {
            return Err(Failure::Usage(format!(
                "tenant names that start with `{prefix}` are reserved; choose another --tenant"
            )));
        }
        let work = store.journal.create_api_key(&store.tenant, &options.label, &limits);
        let NewApiKey { id, secret } = store.run(work)?;
        let tenant = &store.tenant.0;
        if options.common.format == Format::Text {
            let described = describe_limits(&limits);
            let limits = if described.is_empty() { "no limits" } else { &described };
            let (tenant, limits) = (plain(tenant), plain(limits));
            let once = "This key is shown only once. Store it now.";
            text::note(&format!("created {id} for the tenant {tenant}: {limits}. {once}"));
        }
        // Only the key is written to standard output, so that scripts can capture it.
        let text = || format!("{secret}\n");
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

/// Checks the label of a new key. The error does not repeat the label, which may be long.
fn check_label(label: &str) -> Result<()> {
    const LONGEST: usize = 200;
    if label.len() <= LONGEST && !label.chars().any(char::is_control) {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "--label is not valid: use at most {LONGEST} bytes, without control characters"
    )))
}

/// Fails if an option applies to a budget, but the key has no budget, so that the option would have
/// no effect.
fn check_budget(given: &LimitArgs, limits: &KeyLimits) -> Result<(), String> {
    if has_budget(limits) {
        return Ok(());
    }
    let option = match (given.per, given.soft_limit) {
        (Some(_), _) => "--per",
        (None, Some(_)) => "--soft-limit",
        (None, None) => return Ok(()),
    };
    Err(format!("{option} needs a budget: add --budget-usd or --budget-tokens"))
}

fn has_budget(limits: &KeyLimits) -> bool {
    limits.budget_micro_usd.is_some() || limits.budget_tokens.is_some()
}

/// Returns the limits without those to remove, and with those that are given. If the last budget is
/// removed, its period and soft limit are removed too.
fn changed_limits(known: KeyLimits, given: &LimitArgs, removed: &[RemovableLimit]) -> KeyLimits {
    let stays = |limit| !removed.contains(&limit);
    let models = match &given.models[..] {
        [] if stays(RemovableLimit::Models) => known.models,
        given => given.iter().map(|pattern| Name::from(pattern.as_str())).collect(),
    };
    let stays = |limit| Some(()).filter(|()| stays(limit));
    let known_usd = stays(RemovableLimit::BudgetUsd).and(known.budget_micro_usd);
    let known_tokens = stays(RemovableLimit::BudgetTokens).and(known.budget_tokens);
    let known_soft = stays(RemovableLimit::SoftLimit).and(known.soft_limit_percent);
    let known_rate = stays(RemovableLimit::Rate).and(known.requests_per_minute);
    let known_token_rate = stays(RemovableLimit::TokensPerMinute).and(known.tokens_per_minute);
    let known_role = stays(RemovableLimit::Role).and(known.role);
    let budget_micro_usd = given.budget_usd.or(known_usd);
    let budget_tokens = given.budget_tokens.or(known_tokens);
    let budget = budget_micro_usd.or(budget_tokens);
    // A total budget has no stored period, so that earlier versions can read the limits.
    let period = given.per.or(known.budget_period);
    let period = period.filter(|period| *period != BudgetPeriod::Total);
    KeyLimits {
        role: given.role.or(known_role),
        models,
        budget_micro_usd,
        budget_tokens,
        budget_period: budget.and(period),
        soft_limit_percent: budget.and(given.soft_limit.or(known_soft)),
        requests_per_minute: given.rate.or(known_rate),
        tokens_per_minute: given.tokens_per_minute.or(known_token_rate),
    }
}

fn list(options: &CommonArgs) -> Result<()> {
    store::with(&options.at, IfMissing::FailsReadOnly, |store| {
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
    parts.extend(limits.role.map(|role| role.to_string()));
    parts.extend((!limits.models.is_empty()).then(|| limits.models.join(" ")));
    let period = limits.budget_period.map(|period| format!(" per {period}")).unwrap_or_default();
    let usd = limits.budget_micro_usd.map(dollars);
    parts.extend(usd.map(|usd| format!("{usd}{period}")));
    parts.extend(limits.budget_tokens.map(|tokens| format!("{tokens} tokens{period}")));
    parts.extend(limits.soft_limit_percent.map(|percent| format!("message at {percent}%")));
    parts.extend(limits.requests_per_minute.map(|rate| format!("{rate}/min")));
    parts.extend(limits.tokens_per_minute.map(|tokens| format!("{tokens} tokens/min")));
    parts.join(", ")
}

fn update(options: &KeysUpdate) -> Result<()> {
    store::with(&options.common.at, IfMissing::Fails, |store| {
        let key = active_key(store, &options.id)?;
        let change = |limits: KeyLimits| -> Result<KeyLimits, StoreError> {
            let limits = changed_limits(limits, &options.limits, &options.remove);
            check_budget(&options.limits, &limits).map_err(StoreError::invalid)?;
            Ok(limits)
        };
        let changed = store.journal.update_api_key_limits(&store.tenant, &key.id, change);
        let limits = store.run(changed)?.ok_or_else(|| no_key(store))?;
        let text = || {
            let described = describe_limits(&limits);
            let limits = if described.is_empty() { "no limits" } else { &described };
            format!("{} {} has {}\n", text::mark(true), plain(&key.id), plain(limits))
        };
        options.common.format.print(text, || json!({ "id": key.id, "limits": limits.json() }))
    })
}

fn reset(options: &KeysReset) -> Result<()> {
    store::with(&options.common.at, IfMissing::Fails, |store| {
        let key = active_key(store, &options.id)?;
        if has_budget(&key.limits) {
            store.run(reset_budget(&store.journal, &store.tenant, &key.id))?;
        }
        let (mark, shown) = (text::mark(true), plain(&key.id));
        let text = || {
            if has_budget(&key.limits) {
                format!("{mark} the budgets of {shown} count from zero\n")
            } else {
                format!(
                    "{shown} has no budget, so nothing changes; `throughline keys update {shown} \
                     --budget-usd USD` sets one\n"
                )
            }
        };
        options.common.format.print(text, || json!({ "reset": key.id }))
    })
}

/// Returns the active key with this id.
fn active_key(store: &OpenStore, id: &str) -> Result<ApiKey> {
    let mut keys = store.run(store.journal.api_keys(&store.tenant))?.into_iter();
    let key = keys.find(|key| *key.id == *id && key.revoked.is_none());
    key.ok_or_else(|| no_key(store))
}

/// The argument may be the key itself, so the message does not repeat it.
fn no_key(store: &OpenStore) -> Failure {
    Failure::Usage(format!(
        "the tenant {} has no valid key with that id; `throughline keys list` lists the keys",
        store.tenant
    ))
}

fn revoke(options: &KeysRevoke) -> Result<()> {
    store::with(&options.common.at, IfMissing::Fails, |store| {
        let id = &options.id;
        if !store.run(store.journal.revoke_api_key(&store.tenant, id))? {
            return Err(no_key(store));
        }
        let (mark, shown) = (text::mark(true), plain(id));
        let text = || format!("{mark} {shown} is revoked and no longer accepted\n");
        options.common.format.print(text, || json!({ "revoked": id }))
    })
}
