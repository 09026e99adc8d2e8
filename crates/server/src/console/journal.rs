//! Serves the journal, the keys and the usage to operators.

use std::collections::BTreeMap;

use bytes::Bytes;
use throughline_core::{LogId, LogKind, StoreError, StoreFuture};
use throughline_json::{self as json, Json};
use throughline_spec::ExportSink;
use tokio::sync::mpsc::{Sender, channel};

use crate::access::Admission;
use crate::api::{ApiError, ApiRequest, ApiResult, stream_response};
use crate::console::{archive, no_archive};
use crate::response::{GatewayResponse, StreamAborted};
use crate::telemetry::{UsageAmount, UsageKey, usage_log};

/// How many usage records are read.
const MOST: u64 = 50_000;
/// How many chunks of an export are buffered for a slow reader.
const CHUNKS: usize = 2;

/// Returns the store's public key and the signed heads of the tenant's chains.
pub(crate) async fn manifest(asked: &ApiRequest<'_>) -> ApiResult {
    let archive = archive(asked)?;
    let manifest = archive.manifest(&asked.caller.tenant).await?;
    let told = json::object(|o| {
        o.string("store", &archive.public_key());
        for (name, value) in manifest.tree().root().members() {
            o.node(&name.text().unwrap_or_default(), value);
        }
    });
    Ok(GatewayResponse::json(200, &told))
}

/// Verifies the tenant's own chains. On a gateway without keys, which serves this machine only,
/// verifies the whole journal.
pub(crate) async fn verify(asked: &ApiRequest<'_>) -> ApiResult {
    let archive = archive(asked)?;
    let tenant = &asked.caller.tenant;
    let scope = match asked.caller.admission {
        Admission::Open if !asked.gateway.allow_open => None,
        Admission::Open | Admission::Key { .. } | Admission::Refused => Some(tenant),
    };
    let Some(_turn) = asked.api.proofs.acquire(tenant).await else {
        return Err(ApiError::new(409, "your journal is already being verified: wait for it"));
    };
    let proven = archive.verify(scope).await?;
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
    Ok(GatewayResponse::json(200, &told))
}

/// Streams the tenant's threads as redacted lines of JSON: the named ones, or all. A full export is
/// an operator's command.
pub(crate) async fn export(asked: &ApiRequest<'_>) -> ApiResult {
    let archive = asked.api.archive.clone().ok_or_else(no_archive)?;
    let (tenant, policy) = (asked.caller.tenant.clone(), asked.policy());
    let threads: Vec<LogId> = asked.query.all("thread").into_iter().map(LogId).collect();
    for thread in &threads {
        let head = asked.api.store().log(&tenant, thread).await?;
        let head = head.filter(|head| head.kind == LogKind::Thread);
        head.ok_or_else(|| ApiError::not_found("thread", &thread.0))?;
    }
    let (sender, receiver) = channel::<Result<Bytes, StreamAborted>>(CHUNKS);
    // The export ends when everything is written, or when the reader disconnects.
    tokio::spawn(async move {
        let mut out = ChunkSender(sender);
        if let Err(error) = archive.export(&tenant, &threads, &policy, &mut out).await {
            // The connection breaks, so that a reader does not mistake a part for the whole.
            drop(out.0.send(Err(StreamAborted(error.to_string()))).await);
        }
    });
    let headers = [
        ("content-type", "application/jsonl; charset=utf-8"),
        ("content-disposition", "attachment; filename=\"throughline-export.jsonl\""),
    ];
    Ok(stream_response(headers, receiver))
}

/// Sends chunks to the response body, and waits while the reader is slow.
struct ChunkSender(Sender<Result<Bytes, StreamAborted>>);

impl ExportSink for ChunkSender {
    fn write(&mut self, chunk: Bytes) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let sent = self.0.send(Ok(chunk)).await;
            sent.map_err(|_| StoreError::invalid("the reader of the export closed the connection"))
        })
    }
}

/// Lists the tenant's keys with their limits.
pub(crate) async fn keys(asked: &ApiRequest<'_>) -> ApiResult {
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
    Ok(GatewayResponse::json(200, &told))
}

/// Returns the tenant's usage by hour, key and model.
pub(crate) async fn usage(asked: &ApiRequest<'_>) -> ApiResult {
    let meter = &asked.gateway.operations.meter;
    meter.settle().await?;
    let sums = hourly_usage(asked).await?;
    let told = json::object(|o| {
        o.string("prices", meter.prices()).raw("hours", &hourly_usage_json(&sums));
    });
    Ok(GatewayResponse::json(200, &told))
}

/// Usage by hour, and by the key and model it is charged to.
type HourlyUsage = BTreeMap<(String, UsageKey), UsageAmount>;

async fn hourly_usage(asked: &ApiRequest<'_>) -> Result<HourlyUsage, StoreError> {
    let (store, (tenant, log)) = (asked.api.store(), usage_log());
    let mut sums = HourlyUsage::new();
    let Some(head) = store.log(&tenant, &log).await? else { return Ok(sums) };
    let mut after = head.last.saturating_sub(MOST);
    loop {
        let records = store.read(&tenant, &log, after, 1000).await?;
        let Some(last) = records.last() else { return Ok(sums) };
        after = last.seq;
        for record in &records {
            let hour: String = record.at.to_string().chars().take("2026-01-01T00".len()).collect();
            let lines = record.content.bytes().map(UsageKey::lines).unwrap_or_default();
            for (line, used) in lines {
                if line.tenant == asked.caller.tenant {
                    sums.entry((hour.clone(), line)).or_default().add(&used);
                }
            }
        }
    }
}

fn hourly_usage_json(sums: &HourlyUsage) -> Json {
    json::array(|list| {
        for ((hour, line), used) in sums {
            list.object(|o| {
                o.string("hour", hour).maybe_string("key", line.key.as_deref());
                o.string("provider", &line.provider).string("model", &line.model);
                o.number("calls", used.calls).number("unpriced", used.unpriced);
                o.number("input", used.tokens.input).number("cached", used.tokens.cached);
                o.number("output", used.tokens.output).number("thought", used.tokens.thought);
                o.number("micro_usd", used.micro_usd());
            });
        }
    })
}
