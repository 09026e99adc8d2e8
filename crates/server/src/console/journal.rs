//! The journal, its keys, and what was used: what an operator looks at.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures_util::stream;
use throughline_core::{Boxed, ExportSink, Json, LogId, LogKind, Name, StoreError, json};
use tokio::sync::mpsc::{Sender, channel};

use crate::console::{archive, no_archive};
use crate::exchange::Cut;
use crate::gateway::{Answered, Outgoing};
use crate::letta::{Asked, Denied, Told};
use crate::operations::{Used, UsedFor, usage_log};

/// How many records of the account are looked at.
const MOST: u64 = 50_000;
/// How many chunks of an export wait for a slow reader.
const CHUNKS: usize = 2;

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

/// Streams the tenant's threads as redacted lines of JSON: the named ones, or all. A full export is a command of the operator.
pub(crate) async fn export(asked: &Asked<'_>) -> Told {
    let archive = asked.api.archive.clone().ok_or_else(no_archive)?;
    let (tenant, policy) = (asked.caller.tenant.clone(), asked.policy());
    let threads: Vec<LogId> = asked.query.all("thread").into_iter().map(LogId).collect();
    for thread in &threads {
        let head = asked.api.store().log(&tenant, thread).await?;
        let head = head.filter(|head| head.kind == LogKind::Thread);
        head.ok_or_else(|| Denied::missing("thread", &thread.0))?;
    }
    let (sender, receiver) = channel::<Result<Bytes, Cut>>(CHUNKS);
    // The export ends when all is written, or when the reader is gone.
    tokio::spawn(async move {
        let mut out = ChunkSender(sender);
        if let Err(error) = archive.export(&tenant, &threads, &policy, &mut out).await {
            // The connection breaks: a reader must not take a part for the whole.
            drop(out.0.send(Err(Cut(error.to_string()))).await);
        }
    });
    let chunks = stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|chunk| (chunk, receiver))
    });
    let headers = [
        ("content-type", "application/jsonl; charset=utf-8"),
        ("content-disposition", "attachment; filename=\"throughline-export.jsonl\""),
    ];
    let headers = headers.map(|(name, value)| (Name::from(name), Name::from(value)));
    Ok(Answered { status: 200, headers: headers.into(), body: Outgoing::Stream(Box::pin(chunks)) })
}

/// Sends chunks to the response body, and waits while the reader is slow.
struct ChunkSender(Sender<Result<Bytes, Cut>>);

impl ExportSink for ChunkSender {
    fn write(&mut self, chunk: Bytes) -> Boxed<'_, ()> {
        Box::pin(async move {
            let sent = self.0.send(Ok(chunk)).await;
            sent.map_err(|_| StoreError::invalid("the reader of the export closed the connection"))
        })
    }
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
