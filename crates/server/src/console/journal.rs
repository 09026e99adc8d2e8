//! The journal, its keys, and what was used: what an operator looks at.

use std::collections::BTreeMap;

use bytes::Bytes;
use throughline_core::{Json, LogId, Name, StoreError, json};

use crate::console::archive;
use crate::gateway::{Answered, Outgoing};
use crate::letta::{Asked, Denied, Told};
use crate::operations::{Used, UsedFor, usage_log};

/// How many records of the account are looked at.
const MOST: u64 = 50_000;

/// Who signs, and the signed heads of the tenant's chains.
pub(crate) async fn head(asked: &Asked<'_>) -> Told {
    let archive = archive(asked)?;
    let manifest = archive.manifest(&asked.caller.tenant).await?;
    let told = json::object(|o| {
        o.string("store", &archive.public_key());
        for (name, value) in manifest.tree().root().members() {
            o.node(&name.text().unwrap_or_default(), value);
        }
    });
    Ok(Answered::json(200, &told))
}

/// Proves the journal. What is broken in another tenant's part is told without its place.
pub(crate) async fn verify(asked: &Asked<'_>) -> Told {
    let archive = archive(asked)?;
    let Ok(_one_at_a_time) = asked.api.proving.try_lock() else {
        return Err(Denied::new(409, "it is being verified already: wait for that"));
    };
    let proven = archive.prove().await?;
    let told = json::object(|o| {
        o.string("verdict", if proven.broken.is_some() { "broken" } else { "intact" });
        o.string("store", &archive.public_key()).number("records", proven.records);
        o.number("without_content", proven.gone).number("segments", proven.segments);
        o.number("manifests", proven.manifests);
        if let Some(fault) = &proven.broken {
            let own = format!("(tenant {})", asked.caller.tenant);
            let is_other = fault.place.contains("(tenant ") && !fault.place.contains(&own);
            o.object("broken", |o| {
                let place = if is_other { "another tenant's record" } else { &fault.place };
                o.string("place", place).string("problem", &fault.problem);
            });
        }
    });
    Ok(Answered::json(200, &told))
}

/// The tenant's threads as lines of JSON, without the usual secrets: one thread, or all.
pub(crate) async fn export(asked: &Asked<'_>) -> Told {
    let threads: Vec<LogId> = asked.query.all("thread").into_iter().map(LogId).collect();
    let lines = archive(asked)?.export(&asked.caller.tenant, &threads).await?;
    let headers = [
        ("content-type", "application/jsonl; charset=utf-8"),
        ("content-disposition", "attachment; filename=\"throughline-export.jsonl\""),
    ];
    let headers = headers.map(|(name, value)| (Name::from(name), Name::from(value)));
    let body = Outgoing::Whole(Bytes::from(lines));
    Ok(Answered { status: 200, headers: headers.into(), body })
}

/// The tenant's keys, by what they may do.
pub(crate) async fn keys(asked: &Asked<'_>) -> Told {
    let keys = archive(asked)?.keys(&asked.caller.tenant).await?;
    let told = json::object(|o| {
        o.array("keys", |list| {
            for key in &keys {
                list.object(|o| {
                    o.string("id", &key.id).string("label", &key.label).raw("limits", &key.limits);
                    o.string("created", &key.created.to_string());
                    o.maybe_string("revoked", key.revoked.map(|at| at.to_string()).as_deref());
                });
            }
        });
    });
    Ok(Answered::json(200, &told))
}

/// What the tenant used, hour by hour, for each key and model.
pub(crate) async fn usage(asked: &Asked<'_>) -> Told {
    let meter = &asked.gateway.operations.meter;
    meter.settle().await?;
    let sums = sums(asked).await?;
    let told = json::object(|o| {
        o.string("prices", meter.prices()).raw("hours", &hours(&sums));
    });
    Ok(Answered::json(200, &told))
}

/// An hour, and for whom something was used in it.
type Sums = BTreeMap<(String, UsedFor), Used>;

async fn sums(asked: &Asked<'_>) -> Result<Sums, StoreError> {
    let (store, (tenant, log)) = (asked.api.store(), usage_log());
    let mut sums = Sums::new();
    let Some(head) = store.log(&tenant, &log).await? else { return Ok(sums) };
    let mut after = head.last.saturating_sub(MOST);
    loop {
        let records = store.read(&tenant, &log, after, 1000).await?;
        let Some(last) = records.last() else { return Ok(sums) };
        after = last.seq;
        for record in &records {
            let hour: String = record.at.to_string().chars().take("2026-01-01T00".len()).collect();
            let lines = record.content.bytes().map(UsedFor::lines).unwrap_or_default();
            for (whom, used) in lines {
                if whom.tenant == asked.caller.tenant {
                    sums.entry((hour.clone(), whom)).or_default().add(&used);
                }
            }
        }
    }
}

fn hours(sums: &Sums) -> Json {
    json::array(|list| {
        for ((hour, whom), used) in sums {
            list.object(|o| {
                o.string("hour", hour).maybe_string("key", whom.key.as_deref());
                o.string("provider", &whom.provider).string("model", &whom.model);
                o.number("calls", used.calls).number("unpriced", used.unpriced);
                o.number("input", used.tokens.input).number("cached", used.tokens.cached);
                o.number("output", used.tokens.output).number("thought", used.tokens.thought);
                o.number("micro_usd", used.micro_usd());
            });
        }
    })
}
