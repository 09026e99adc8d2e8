//! Serves the Journal and the usage for the console.

use std::collections::BTreeMap;

use bytes::Bytes;
use throughline_core::{LogId, StoreError, StoreFuture};
use throughline_spec::ExportSink;

use crate::access::Admission;
use crate::api::{ApiError, ApiRequest, ApiResult, ChunkSender, json_response, stream_response};
use crate::console::{archive, no_archive};
use crate::object::{join_objects, object};
use crate::records::{RecordPages, StoreResult};
use crate::telemetry::{UsageAmount, UsageKey, usage_log};

/// Maximum number of usage records to read.
const MOST: u64 = 50_000;
/// Number of export chunks to buffer for a slow reader.
const CHUNKS: usize = 2;

/// Returns the store's public key and the signed heads of the tenant's chains.
pub(crate) async fn manifest(request: &ApiRequest<'_>) -> ApiResult {
    let archive = archive(request)?;
    let manifest = archive.manifest(&request.caller.tenant).await?;
    let store = object! { "store": archive.public_key() };
    Ok(json_response(&join_objects(&store, &manifest)))
}

/// Verifies the tenant's own chains. On a gateway without keys, which serves this machine only,
/// verifies the whole Journal.
pub(crate) async fn verify(request: &ApiRequest<'_>) -> ApiResult {
    let archive = archive(request)?;
    let tenant = &request.caller.tenant;
    let scope = match request.caller.admission {
        Admission::Open if !request.gateway.allow_open => None,
        Admission::Open | Admission::Key { .. } | Admission::Refused => Some(tenant),
    };
    let Some(_turn) = request.api.proofs.acquire(tenant).await else {
        return Err(ApiError::new(
            409,
            "your journal is already being verified; wait until the verification ends",
        ));
    };
    let proven = archive.verify(scope).await?;
    let fault = proven.broken.as_ref();
    Ok(json_response(&object! {
        "verdict": if fault.is_some() { "broken" } else { "intact" },
        "store": archive.public_key(), "records": proven.records, "without_content": proven.gone,
        "segments": proven.segments, "manifests": proven.manifests,
        "broken"? fault.map(|fault| object! { "place": fault.place, "problem": fault.problem }),
    }))
}

/// Streams Threads of the tenant as redacted JSON lines: the Threads listed in the query, or all of
/// them. A full export requires the operator's command line.
pub(crate) async fn export(request: &ApiRequest<'_>) -> ApiResult {
    let archive = request.api.archive.clone().ok_or_else(no_archive)?;
    let (tenant, policy) = (request.caller.tenant.clone(), request.policy());
    let threads: Vec<LogId> = request.query.all("thread").into_iter().map(LogId).collect();
    for thread in &threads {
        request.thread_head(&thread.0).await?;
    }
    let headers = [
        ("content-type", "application/jsonl; charset=utf-8"),
        ("content-disposition", "attachment; filename=\"throughline-export.jsonl\""),
    ];
    // The export ends when everything is written, or when the reader disconnects.
    Ok(stream_response(headers, CHUNKS, |sender| async move {
        archive.export(&tenant, &threads, &policy, &mut ExportChunks(sender)).await
    }))
}

/// Sends chunks to the response body, and waits while the reader is slow.
struct ExportChunks(ChunkSender);

impl ExportSink for ExportChunks {
    fn write(&mut self, chunk: Bytes) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let sent = self.0.send(Ok(chunk)).await;
            sent.map_err(|_| {
                StoreError::invalid("the client closed the connection during the export")
            })
        })
    }
}

/// Returns the tenant's usage, grouped by hour, key and model.
pub(crate) async fn usage(request: &ApiRequest<'_>) -> ApiResult {
    let meter = &request.gateway.operations.meter;
    meter.settle().await?;
    let sums = hourly_usage(request).await?;
    let hours = sums.iter().map(|((hour, row), used)| {
        object! {
            "hour": hour, "key"? row.key, "provider": row.provider, "model": row.model,
            "calls": used.calls, "unpriced": used.unpriced, "input": used.tokens.input,
            "cached": used.tokens.cached, "output": used.tokens.output,
            "thought": used.tokens.thought, "micro_usd": used.micro_usd(),
        }
    });
    Ok(json_response(&object! { "prices": meter.prices(), "hours": hours.collect::<Vec<_>>() }))
}

/// Usage per hour, key and model.
type HourlyUsage = BTreeMap<(String, UsageKey), UsageAmount>;

async fn hourly_usage(request: &ApiRequest<'_>) -> StoreResult<HourlyUsage> {
    let (store, (tenant, log)) = (request.api.store(), usage_log());
    let mut sums = HourlyUsage::new();
    let Some(head) = store.log(&tenant, &log).await? else { return Ok(sums) };
    let mut pages = RecordPages::new(store, &tenant, &log, head.last.saturating_sub(MOST));
    while let Some(records) = pages.next().await? {
        for record in &records {
            let hour: String = record.at.to_string().chars().take("2026-01-01T00".len()).collect();
            let rows = record.content.bytes().map(UsageKey::lines).unwrap_or_default();
            for (row, used) in
                rows.into_iter().filter(|(row, _)| row.tenant == request.caller.tenant)
            {
                sums.entry((hour.clone(), row)).or_default().add(&used);
            }
        }
    }
    Ok(sums)
}
