//! The overview: calls, errors, latencies, tokens, cost and restored Thoughts in a range of time,
//! in total and by day (UTC).
//!
//! The usage comes from the usage log, which `throughline usage` also reads, so both report the
//! same numbers. Errors, latencies and restored Thoughts come from the call records. A rejection
//! was avoided if the audit expects the provider to reject the request as the client sent it, and
//! the call succeeded with restored Thoughts.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use throughline_codec::{Transcript, Verdict, audit, codec};
use throughline_core::{LogHead, LogId, LogKind, Request, TurnId, Wire};
use throughline_json::{Json, Name, Node, Object};

use crate::api::{ApiRequest, ApiResult, CallFigures, json_response};
use crate::console::time_range::TimeRange;
use crate::console::{LogList, erasure_epoch};
use crate::object::to_json;
use crate::records::{RecordPages, StoreResult, seq_before_time};
use crate::telemetry::{UsageAmount, UsageKey, usage_log};
use throughline_replay::is_conversation;
use tokio::time::Instant;

/// Maximum number of logs with calls that an overview covers.
const MAX_LOGS: usize = 50_000;
/// Time after which an overview reads no further logs from the store, and audits no further
/// requests. Later overviews continue.
const READ_TIME: Duration = Duration::from_millis(500);
/// Maximum number of requests to audit for one overview. Later requests audit the rest.
const MAX_AUDITS: usize = 50;
/// Maximum difference between the clocks of nodes that write to the usage log.
const CLOCK_SLACK: SignedDuration = SignedDuration::from_mins(10);

/// The part of the calls in the range that an overview covers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Coverage {
    All,
    /// The calls of the most recently written logs. The next overview covers more of them.
    Reading,
    /// The calls of the [`MAX_LOGS`] most recently written logs.
    Newest,
}

/// The numbers of one day, or of the whole range.
#[derive(Default)]
struct OverviewFigures {
    usage: UsageAmount,
    /// Estimated savings from prompt caches in trillionths of a dollar; negative if writing to the
    /// caches cost more.
    saved: i128,
    recorded: u64,
    failed: u64,
    restored: u64,
    restored_calls: u64,
    avoided: u64,
    /// Calls with restored Thoughts whose original request was not audited yet.
    unchecked: u64,
    first_byte: Vec<u64>,
    end: Vec<u64>,
}

/// Returns the overview of the caller's tenant.
pub(crate) async fn show(request: &ApiRequest<'_>) -> ApiResult {
    let range = TimeRange::from_query(request)?;
    request.gateway.operations.meter.settle().await?;
    let mut days: BTreeMap<String, OverviewFigures> = BTreeMap::new();
    add_usage(request, range, &mut days).await?;
    let coverage = add_calls(request, range, &mut days).await?;
    let mut total = OverviewFigures::default();
    for sums in days.values() {
        total.add(sums);
    }
    let body = throughline_json::object(|o| {
        o.maybe_string("since", range.since.map(|at| at.to_string()).as_deref());
        o.maybe_string("until", range.until.map(|at| at.to_string()).as_deref());
        o.bool("complete", coverage == Coverage::All);
        o.bool("reading", coverage == Coverage::Reading);
        o.object("total", |o| total.put(o));
        o.objects("days", &mut days, |o, (day, sums)| {
            o.string("day", day);
            sums.put(o);
        });
    });
    Ok(json_response(&body))
}

/// Returns the day of a time in UTC, such as `2026-01-31`.
fn day(at: Timestamp) -> String {
    at.to_string().chars().take("2026-01-31".len()).collect()
}

/// Adds the usage by day.
async fn add_usage(
    request: &ApiRequest<'_>,
    range: TimeRange,
    days: &mut BTreeMap<String, OverviewFigures>,
) -> StoreResult<()> {
    let (store, (tenant, log)) = (request.api.store(), usage_log());
    let Some(head) = store.log(&tenant, &log).await? else { return Ok(()) };
    let meter = &request.gateway.operations.meter;
    let start = match range.since.and_then(|since| since.checked_sub(CLOCK_SLACK).ok()) {
        Some(start) => seq_before_time(store, &tenant, &head, start).await?,
        None => 0,
    };
    let mut pages = RecordPages::new(store, &tenant, &log, start);
    while let Some(records) = pages.next().await? {
        let end = range.until.and_then(|until| until.checked_add(CLOCK_SLACK).ok());
        if end.is_some_and(|end| records.first().is_some_and(|record| record.at > end)) {
            break;
        }
        for record in records.iter().filter(|record| range.contains(record.at)) {
            let rows = record.content.bytes().map(UsageKey::lines).unwrap_or_default();
            for (row, used) in rows.iter().filter(|(row, _)| row.tenant == request.caller.tenant) {
                let sums = days.entry(day(record.at)).or_default();
                sums.usage.add(used);
                let price = meter.price(&row.provider, &row.model);
                sums.saved += price.map_or(0, |price| price.cache_savings(&used.tokens));
            }
        }
    }
    Ok(())
}

/// Adds the numbers of the call records by day, starting with the most recently written logs.
async fn add_calls(
    request: &ApiRequest<'_>,
    range: TimeRange,
    days: &mut BTreeMap<String, OverviewFigures>,
) -> ApiResult<Coverage> {
    let (store, tenant) = (request.api.store(), &request.caller.tenant);
    let (figures, era) = (&request.api.call_figures, erasure_epoch(request).await?);
    let mut logs = CallLogs::new(request).await?;
    let (mut looked, mut new, mut audits) = (0, 0, AuditAllowance::new());
    while let Some(head) = logs.next().await?.filter(|head| !range.is_before(head.updated)) {
        if looked >= MAX_LOGS {
            return Ok(Coverage::Newest);
        }
        looked += 1;
        let calls = match figures.cached(tenant, &head, era) {
            Some(calls) => calls,
            // Each overview reads at least one log, so that later overviews cover more.
            None if new > 0 && audits.is_late() => return Ok(Coverage::Reading),
            None => {
                new += 1;
                figures.get(store, tenant, &head, era).await?
            }
        };
        for call in calls.iter().filter(|call| range.contains(call.at)) {
            let sums = days.entry(day(call.at)).or_default();
            sums.add_call(call);
            let id = call.id.as_ref().filter(|_| call.restored > 0 && !call.is_failed);
            let Some(id) = id else { continue };
            match is_rejected(request, id, &mut audits).await? {
                Some(is_rejected) => sums.avoided += u64::from(is_rejected),
                None => sums.unchecked += 1,
            }
        }
    }
    Ok(Coverage::All)
}

/// Limits the audits of one overview, in number and time.
struct AuditAllowance {
    start: Instant,
    used: usize,
}

impl AuditAllowance {
    fn new() -> Self {
        Self { start: Instant::now(), used: 0 }
    }

    fn is_late(&self) -> bool {
        self.start.elapsed() >= READ_TIME
    }

    /// Returns whether one more request may be audited.
    fn take(&mut self) -> bool {
        let is_left = self.used == 0 || (self.used < MAX_AUDITS && !self.is_late());
        self.used += usize::from(is_left);
        is_left
    }
}

/// Lists the logs that may contain calls, most recently written first. Answered calls are in the
/// logs of their conversations. Each call without a reply has its own log, which belongs to a
/// conversation or stands alone.
struct CallLogs<'r> {
    threads: PeekableList<'r>,
    runs: PeekableList<'r>,
    /// The logs listed so far. A log that is written while the logs are listed could be listed
    /// again.
    listed: HashSet<LogId>,
}

impl<'r> CallLogs<'r> {
    async fn new(request: &'r ApiRequest<'r>) -> ApiResult<Self> {
        let [threads, runs] =
            [LogKind::Thread, LogKind::Run].map(|kind| LogList::of_all(request, kind));
        let [threads, runs] = [PeekableList::new(threads).await?, PeekableList::new(runs).await?];
        Ok(Self { threads, runs, listed: HashSet::new() })
    }

    async fn next(&mut self) -> ApiResult<Option<LogHead>> {
        loop {
            let is_run_newer = self.runs.updated() > self.threads.updated();
            let newest = if is_run_newer { &mut self.runs } else { &mut self.threads };
            let Some(head) = newest.next().await? else { return Ok(None) };
            if is_conversation(&head.log.0) && self.listed.insert(head.log.clone()) {
                return Ok(Some(head));
            }
        }
    }
}

/// A list of logs whose next log is already read.
struct PeekableList<'r> {
    list: LogList<'r>,
    head: Option<LogHead>,
}

impl<'r> PeekableList<'r> {
    async fn new(mut list: LogList<'r>) -> ApiResult<Self> {
        let head = list.next().await?;
        Ok(Self { list, head })
    }

    /// Returns the time of the last write to the next log.
    fn updated(&self) -> Option<Timestamp> {
        self.head.as_ref().map(|head| head.updated)
    }

    async fn next(&mut self) -> ApiResult<Option<LogHead>> {
        let Some(head) = self.head.take() else { return Ok(None) };
        self.head = self.list.next().await?;
        Ok(Some(head))
    }
}

/// Returns whether the provider would have rejected a call's request as the client sent it; `None`
/// if this overview already audited enough requests.
async fn is_rejected(
    request: &ApiRequest<'_>,
    id: &TurnId,
    audits: &mut AuditAllowance,
) -> ApiResult<Option<bool>> {
    let (facts, tenant) = (&request.api.call_figures, &request.caller.tenant);
    if let Some(known) = facts.rejection(tenant, id) {
        return Ok(Some(known));
    }
    if !audits.take() {
        return Ok(None);
    }
    let found = request.gateway.replay.calls().find(tenant, id).await?;
    let bodies = found.and_then(|found| Some((found.account, found.texts.ok()?.received)));
    let rejected = match bodies {
        Some((account, received)) => {
            let (heavy, length) = (&request.gateway.operations.heavy, received.len());
            let audited = async { audit_received(request, &account, received) };
            heavy.run(request.caller, length, audited).await?
        }
        None => None,
    };
    facts.set_rejection(tenant, id, rejected.unwrap_or(false));
    Ok(Some(rejected.unwrap_or(false)))
}

/// Audits a request as the client sent it. Returns `None` if the gateway translated the request, so
/// that the provider could not have received it.
fn audit_received(request: &ApiRequest<'_>, account: &Json, received: Bytes) -> Option<bool> {
    let tree = account.tree();
    let (root, target) = (tree.root(), tree.root().get("target")?);
    let wire = root
        .name_of("dialect")
        .filter(|dialect| target.get("wire").is_some_and(|wire| wire.is(dialect)))?;
    let wire = Wire::new(wire.to_string());
    let codec = codec(&wire)?;
    let catalog = request.gateway.catalog.current();
    let row = catalog.provider_on_wire(&target.name_of("provider")?, &wire)?;
    let target = catalog.target(&row, &target.name_of("model")?, "default");
    let headers = root.get("headers").into_iter().flat_map(Node::elements).filter_map(|pair| {
        let mut parts = pair.elements();
        Some((parts.next()?.name()?, parts.next()?.name()?))
    });
    let path = Name::from(codec.path(&target, false));
    let received = Request { path, headers: headers.collect(), body: received };
    let audited = audit(&Transcript::new(codec, &received), &target).ok()?;
    Some(audited.verdict() == Verdict::Refuse)
}

impl OverviewFigures {
    fn add_call(&mut self, call: &CallFigures) {
        self.recorded += 1;
        self.failed += u64::from(call.is_failed);
        if !call.is_failed {
            self.restored += call.restored;
            self.restored_calls += u64::from(call.restored > 0);
            self.first_byte.extend(call.first_byte);
            self.end.extend(call.end);
        }
    }

    fn add(&mut self, other: &Self) {
        self.usage.add(&other.usage);
        self.saved += other.saved;
        self.recorded += other.recorded;
        self.failed += other.failed;
        self.restored += other.restored;
        self.restored_calls += other.restored_calls;
        self.avoided += other.avoided;
        self.unchecked += other.unchecked;
        self.first_byte.extend(&other.first_byte);
        self.end.extend(&other.end);
    }

    fn put(&mut self, o: &mut Object<'_>) {
        let UsageAmount { calls, unpriced, tokens, .. } = self.usage;
        o.number("calls", calls).number("unpriced", unpriced).number("input", tokens.input);
        o.number("cached", tokens.cached).number("written", tokens.written);
        o.number("output", tokens.output).number("thought", tokens.thought);
        o.number("micro_usd", self.usage.micro_usd());
        let saved = i64::try_from(self.saved / 1_000_000).unwrap_or(0);
        o.raw("cache_saved_micro_usd", &to_json(&saved));
        o.number("recorded", self.recorded).number("failed", self.failed);
        o.number("restored", self.restored).number("restored_calls", self.restored_calls);
        o.number("rejections_avoided", self.avoided);
        o.number("rejections_unchecked", self.unchecked);
        let [first_byte, end] = [&mut self.first_byte, &mut self.end];
        first_byte.sort_unstable();
        end.sort_unstable();
        o.maybe("first_byte_p50", percentile(first_byte, 50));
        o.maybe("first_byte_p95", percentile(first_byte, 95));
        o.maybe("duration_p50", percentile(end, 50)).maybe("duration_p95", percentile(end, 95));
    }
}

/// Returns the smallest value that at least `percent` percent of the sorted values do not exceed.
fn percentile(sorted: &[u64], percent: usize) -> Option<u64> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentile_is_the_nearest_rank() {
        let values: Vec<u64> = (1..=20).collect();
        assert_eq!(percentile(&values, 50), Some(10));
        assert_eq!(percentile(&values, 95), Some(19));
        assert_eq!(percentile(&[7], 95), Some(7));
        assert_eq!(percentile(&[], 50), None);
    }
}
