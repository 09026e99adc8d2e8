//! The journal, its keys, and what was used: what an operator looks at.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures_util::stream;
use throughline_core::{Boxed, ExportSink, Json, LogId, LogKind, Name, StoreError, Tenant, json};
use tokio::sync::mpsc::{Sender, channel};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::access::Admission;
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

/// Proves the tenant's own chains; on a gateway without keys, which serves this machine only, all of the journal.
pub(crate) async fn verify(asked: &Asked<'_>) -> Told {
    let archive = archive(asked)?;
    let tenant = &asked.caller.tenant;
    let scope = match asked.caller.admission {
        Admission::Open if !asked.gateway.allow_open => None,
        Admission::Open | Admission::Key { .. } | Admission::Refused => Some(tenant),
    };
    let Some(_turn) = asked.api.proofs.begin(tenant).await else {
        return Err(Denied::new(409, "your journal is being verified already: wait for that"));
    };
    let proven = archive.prove(scope).await?;
    let told = json::object(|o| {
        o.string("verdict", if proven.broken.is_some() { "broken" } else { "intact" });
        o.string("store", &archive.public_key()).number("records", proven.records);
        o.number("without_content", proven.gone).number("segments", proven.segments);
        o.number("manifests", proven.manifests);
        if let Some(fault) = &proven.broken {
            o.object("broken", |o| {
                o.string("place", &fault.place).string("problem", &fault.problem);
            });
        }
    });
    Ok(Answered::json(200, &told))
}

/// Proofs that are under way: one for each tenant, and few at once. Tenants take turns in the order in which they ask.
pub(crate) struct Proofs {
    tenants: Arc<Mutex<HashSet<Tenant>>>,
    slots: Semaphore,
}

impl Default for Proofs {
    fn default() -> Self {
        const AT_ONCE: usize = 2;
        Self { tenants: Arc::default(), slots: Semaphore::new(AT_ONCE) }
    }
}

/// A proof that is under way.
pub(crate) struct ProofTurn<'p> {
    tenants: Arc<Mutex<HashSet<Tenant>>>,
    tenant: Tenant,
    /// Nothing while it waits.
    slot: Option<SemaphorePermit<'p>>,
}

impl Proofs {
    /// Waits for its turn; nothing if one of the tenant's is under way.
    pub(crate) async fn begin(&self, tenant: &Tenant) -> Option<ProofTurn<'_>> {
        let begun =
            self.tenants.lock().unwrap_or_else(PoisonError::into_inner).insert(tenant.clone());
        if !begun {
            return None;
        }
        let (tenants, tenant) = (Arc::clone(&self.tenants), tenant.clone());
        // A caller that goes away while it waits gives its place back, too.
        let mut turn = ProofTurn { tenants, tenant, slot: None };
        turn.slot = self.slots.acquire().await.ok();
        turn.slot.is_some().then_some(turn)
    }
}

impl Drop for ProofTurn<'_> {
    fn drop(&mut self) {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.tenant);
    }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

    use super::*;
    use futures_util::FutureExt as _;

    #[tokio::test]
    async fn one_tenants_proof_does_not_keep_another_from_its_own() {
        let proofs = Proofs::default();
        let tenants = ["a", "b", "c"].map(Tenant::from);
        let first = proofs.begin(&tenants[0]).await.unwrap();
        assert!(proofs.begin(&tenants[0]).await.is_none(), "one at a time for each tenant");
        let second = proofs.begin(&tenants[1]).now_or_never().unwrap().unwrap();
        // Two are under way, so the third waits; a caller that goes away does not keep its place.
        assert!(proofs.begin(&tenants[2]).now_or_never().is_none());
        drop(first);
        let third = proofs.begin(&tenants[2]).now_or_never().unwrap().unwrap();
        drop((second, third));
        assert!(proofs.begin(&tenants[0]).now_or_never().unwrap().is_some());
    }
}
