//! Builds the thought map of a Thread: which model produced each Thought, and which later calls
//! sent each Thought and Seal back.
//!
//! `items` lists Thoughts and sealed Items in order. The `spans` of a call state what the call did
//! with ranges of that list. Agent calls are the attempts that [`RunFold`] collects, so `runs` has
//! the same counts as the timeline and the trace. For a gateway call, the Fate of an Item is
//! derived from the Item's id, or from its Seal in the sent request.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};

use bytes::Bytes;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use throughline_core::{
    Body, Disposition, ElisionReason, LogHead, LogId, Record, ThoughtKind, kind as record_kind,
    unpack_events,
};
use throughline_json::{self as json, Json, Name, Node, Tree};
use throughline_spec::{Attempt, AttemptEnd, ReplayEvent, RunEvent, RunFold};

use crate::api::{
    AnyObject, ApiRequest, ApiResult, first_words, json_response, parse_counted_event,
};
use crate::console::{calls, parse_stored};
use crate::letta::item_reader::stored_items;
use crate::letta::runs;
use crate::records::RecordPages;
use throughline_replay::{Bodies, is_conversation};

/// Maximum number of calls in a map.
const MOST: usize = 160;
/// Maximum number of runs to read for the map.
const RUNS: usize = 80;

/// The Thoughts of a thread by model, and the calls that sent them back.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ThoughtMap {
    thread: Name,
    /// The number of erased Items.
    forgotten: u64,
    kind: &'static str,
    items: Vec<MapItem>,
    calls: Vec<MapCall>,
    /// The counts of each run.
    #[schemars(with = "Vec<AnyObject>")]
    runs: Vec<Json>,
}

/// A Thought, or another sealed Item.
#[derive(Serialize, JsonSchema)]
struct MapItem {
    id: Name,
    #[serde(skip)]
    seq: u64,
    model: Name,
    provider: Name,
    kind: &'static str,
    bytes: u64,
    text: String,
    /// The sealed bytes, to recognise the Item in a request. Never sent to a reader.
    #[serde(skip)]
    seals: Vec<Bytes>,
}

/// A model call.
#[derive(Default, Serialize, JsonSchema)]
struct MapCall {
    id: Name,
    /// The run, if an agent made the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<Name>,
    turn: u64,
    /// The position among the attempts of the turn, counted from 1.
    attempt: u64,
    #[serde(rename = "discarded", skip_serializing_if = "std::ops::Not::not")]
    is_discarded: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    purpose: Option<Name>,
    model: Name,
    provider: Name,
    at: String,
    /// The positions of the Items that the call returned.
    returned: Vec<usize>,
    /// First place, count and Fate of each range of Items.
    spans: Vec<(usize, u64, Name)>,
}

/// Returns the map of the Thread that the path names.
pub(crate) async fn map(request: &ApiRequest<'_>) -> ApiResult {
    let thread = request.thread_head(&request.id(0)).await?;
    let is_gateway = is_conversation(&thread.log.0);
    let (items, forgotten) = load_items(request, &thread.log, is_gateway).await?;
    let (calls, runs) = if is_gateway {
        (gateway_calls(request, &thread, &items).await?, Vec::new())
    } else {
        agent_calls(request, &thread.log, &items).await?
    };
    let (thread, kind) = (thread.log.0, if is_gateway { "gateway" } else { "agent" });
    Ok(json_response(&ThoughtMap { thread, forgotten, kind, items, calls, runs }))
}

/// Returns the Thoughts and sealed Items of a Thread, and the number of erased Items.
async fn load_items(
    request: &ApiRequest<'_>,
    thread: &LogId,
    only_sealed: bool,
) -> ApiResult<(Vec<MapItem>, u64)> {
    let (store, tenant) = (request.api.store(), &request.caller.tenant);
    let policy = request.policy();
    let (mut held, mut forgotten) = (Vec::new(), 0);
    let mut pages = RecordPages::new(store, tenant, thread, 0);
    while let Some(records) = pages.next().await? {
        let items = records.iter().filter(|record| &*record.kind == record_kind::ITEM);
        forgotten += items.filter(|record| record.content.bytes().is_none()).count() as u64;
        for stored in stored_items(&records)? {
            let bytes: usize = stored.item.seals.iter().map(throughline_core::Seal::len).sum();
            let (kind, text) = match &stored.item.body {
                Body::Thought(thought) if thought.kind == ThoughtKind::Summary => {
                    ("summary", policy.redact_thought(&thought.content).into_owned())
                }
                Body::Thought(thought) => {
                    ("thought", policy.redact_thought(&thought.content).into_owned())
                }
                Body::Call(call) => ("call", call.name.to_string()),
                Body::Text(text) => ("text", policy.redact_text(text).into_owned()),
                _ => ("other", String::new()),
            };
            let is_thought = matches!(kind, "thought" | "summary");
            if bytes == 0 && (only_sealed || !is_thought) {
                continue;
            }
            let owner = stored.item.seals.first().map(|seal| &seal.owner);
            let origin = stored.item.origin.as_ref().or(owner);
            held.push(MapItem {
                id: stored.item.id.0.clone(),
                seq: stored.seq,
                model: origin.map(|origin| origin.asked.clone()).unwrap_or_default(),
                provider: origin.map(|origin| origin.provider.clone()).unwrap_or_default(),
                kind,
                bytes: bytes as u64,
                text: first_words(&text, 160),
                seals: stored.item.seals.iter().map(|s| s.reveal_to_tenant().clone()).collect(),
            });
        }
    }
    Ok((held, forgotten))
}

/// Returns the model calls of the runs on a Thread, and the counts of each run.
async fn agent_calls(
    request: &ApiRequest<'_>,
    thread: &LogId,
    held: &[MapItem],
) -> ApiResult<(Vec<MapCall>, Vec<Json>)> {
    let positions: HashMap<&str, usize> =
        held.iter().enumerate().map(|(position, held)| (&*held.id, position)).collect();
    let (store, tenant) = (request.api.store(), &request.caller.tenant);
    let mut heads = runs::run_heads(request, thread, None, RUNS).await?;
    heads.retain(|head| !throughline_agent::is_inbox(&head.log));
    heads.reverse();
    let (mut called, mut counted) = (Vec::new(), Vec::new());
    for head in &heads {
        let (fold, called_by_run) = (RunFold::default(), Vec::new());
        let mut run =
            RunCalls { run: &head.log.0, positions: &positions, fold, called: called_by_run };
        let mut pages = RecordPages::new(store, tenant, &head.log, 0);
        while let Some(records) = pages.next().await? {
            for record in &records {
                run.push_record(record);
            }
        }
        counted.push(json::object(|o| {
            o.string("id", &head.log.0);
            run.fold.counts().write_members(o);
        }));
        called.append(&mut run.called);
    }
    let first = called.len().saturating_sub(MOST);
    Ok((called.split_off(first), counted))
}

/// Collects the model calls of one run from its events.
struct RunCalls<'m> {
    run: &'m Name,
    /// The index of each Thought and sealed Item in the map.
    positions: &'m HashMap<&'m str, usize>,
    fold: RunFold,
    called: Vec<MapCall>,
}

impl RunCalls<'_> {
    fn push_record(&mut self, record: &Record) {
        match unpack_events(record) {
            Ok(events) => {
                for event in events.into_iter().filter_map(|(_, event)| parse_counted_event(event))
                {
                    self.push_event(record.at, &event);
                }
            }
            Err(_) => self.fold.skip_erased(),
        }
    }

    fn push_event(&mut self, at: Timestamp, event: &RunEvent) {
        let change = self.fold.push(at, event);
        if let Some(attempt) = &change.opened {
            self.open(attempt);
        }
        let is_open = self.fold.open().is_some() || change.ended.is_some();
        let Some(call) = self.called.last_mut().filter(|_| is_open) else { return };
        if let Some((_, end)) = &change.ended {
            call.is_discarded = *end == AttemptEnd::Discarded;
        }
        match event {
            RunEvent::Turn(event) => {
                let items = event.items.iter().flatten();
                call.returned.extend(items.filter_map(|item| self.positions.get(&**item)));
            }
            RunEvent::Replay(event) => call.spans = spans_of_run(event, self.positions),
            _ => {}
        }
    }

    fn open(&mut self, attempt: &Attempt) {
        let Attempt { turn, number, start, model, purpose } = attempt;
        let again = if *number > 1 { format!(".{number}") } else { String::new() };
        self.called.push(MapCall {
            id: Name::from(format!("{}.{turn}{again}", self.run)),
            run: Some(self.run.clone()),
            turn: *turn,
            attempt: *number,
            purpose: purpose.clone(),
            model: model.clone().unwrap_or_default(),
            at: start.to_string(),
            ..MapCall::default()
        });
    }
}

/// Returns the Fates of Thoughts and sealed Items in a run's model call, as ranges of map indexes.
fn spans_of_run(event: &ReplayEvent, positions: &HashMap<&str, usize>) -> Vec<(usize, u64, Name)> {
    let tree = event.fates.as_ref().map(Json::tree);
    let fates = tree.as_ref().into_iter().flat_map(|tree| tree.root().elements());
    let span = |span: Node<'_>| {
        let mut parts = span.elements();
        let first = *positions.get(&*parts.next()?.text()?)?;
        let did = parts.next()?.name()?;
        Some((first, parts.next()?.u64()?, did))
    };
    fates.filter_map(span).collect()
}

/// Reads a client's gateway calls from their records.
async fn gateway_calls(
    request: &ApiRequest<'_>,
    thread: &LogHead,
    held: &[MapItem],
) -> ApiResult<Vec<MapCall>> {
    let mut kept = calls::calls_of_thread(request, thread, MOST).await?;
    kept.reverse();
    let mut called = Vec::new();
    for (number, call) in kept.iter().enumerate() {
        let is_own = call.thread == thread.log;
        let until = kept.iter().skip(number + 1).map(|next| next.seq).find(|seq| *seq > call.seq);
        let between =
            |held: &MapItem| held.seq > call.seq && until.is_none_or(|until| held.seq < until);
        let positions = held.iter().enumerate().filter(|(_, held)| is_own && between(held));
        let returned: Vec<usize> = positions.map(|(position, _)| position).collect();
        let before = returned.first().copied().unwrap_or(held.len());
        let found = request.gateway.replay.calls().find(&request.caller.tenant, &call.id).await?;
        let texts = found.and_then(|found| found.texts.ok());
        let (model, provider) = call.model();
        let before = held.get(..before).unwrap_or_default();
        let spans = texts.and_then(|texts| gateway_spans(&texts, before, &provider));
        let spans = spans.unwrap_or_default();
        called.push(MapCall {
            id: call.id.0.clone(),
            turn: number as u64 + 1,
            attempt: 1,
            model,
            provider,
            at: call.at.to_string(),
            returned,
            spans,
            ..MapCall::default()
        });
    }
    Ok(called)
}

/// Returns the Fate that each sealed Item of an earlier call had in this gateway call.
///
/// A restored Item is listed in the report by its own id. Any other Item is recognised by its Seal.
/// The Item was kept if the sent request contains the Seal. The Item was left out if the client
/// sent the Seal but the gateway did not. Another provider's Seal is foreign if neither the
/// client's request nor the sent request contains it.
fn gateway_spans(
    texts: &Bodies,
    before: &[MapItem],
    provider: &str,
) -> Option<Vec<(usize, u64, Name)>> {
    let account = parse_stored(&texts.account)?;
    let dids: Vec<Name> = account.root().get("dids")?.elements().filter_map(Node::name).collect();
    let fates = account.root().get("fates")?.elements().filter_map(|fate| {
        let mut parts = fate.elements();
        let item = parts.next()?.name()?;
        let seal = usize::try_from(parts.nth(1)?.u64()?).ok()?;
        Some((item, dids.get(seal)?.clone()))
    });
    let fates: Vec<(Name, Name)> = fates.collect();
    let known: HashSet<&str> = before.iter().map(|held| &*held.id).collect();
    let (named, unnamed): (Vec<_>, Vec<_>) =
        fates.into_iter().partition(|(item, _)| known.contains(&**item));
    let named: HashMap<Name, Name> = named.into_iter().collect();
    let left_out = unnamed.into_iter().map(|(_, did)| did).filter(|did| did.starts_with("elided"));
    let mut left_out: VecDeque<Name> = left_out.collect();
    let trees = [&texts.sent, &texts.received, &texts.expanded].map(parse_stored);
    let [sent, received, expanded] = trees.each_ref().map(|tree| strings(tree.as_ref()));
    let has = |strings: &HashSet<Cow<'_, str>>, held: &MapItem| {
        let mut seals = held.seals.iter().filter_map(|seal| std::str::from_utf8(seal).ok());
        seals.any(|seal| strings.contains(seal))
    };
    let (kept, foreign) =
        (Disposition::Kept.to_string(), Disposition::Elided(ElisionReason::Foreign).to_string());
    let mut spans: Vec<(usize, u64, Name)> = Vec::new();
    for (position, held) in before.iter().enumerate() {
        let did = if let Some(did) = named.get(&held.id) {
            did.clone()
        } else if has(&sent, held) {
            Name::from(&*kept)
        } else if has(&received, held) || has(&expanded, held) {
            // The report and the map have the same order, so the reasons are in the same order too.
            left_out.pop_front().unwrap_or_else(|| Name::from(&*foreign))
        } else if *held.provider != *provider {
            Name::from(&*foreign)
        } else {
            continue;
        };
        match spans.last_mut() {
            Some((first, count, known))
                if *known == did && *first + usize::try_from(*count).unwrap_or(0) == position =>
            {
                *count += 1;
            }
            _ => spans.push((position, 1, did)),
        }
    }
    Some(spans)
}

/// Returns all strings in a JSON document.
fn strings(tree: Option<&Tree>) -> HashSet<Cow<'_, str>> {
    let mut found = HashSet::new();
    let mut waiting: Vec<Node<'_>> = tree.map(Tree::root).into_iter().collect();
    while let Some(node) = waiting.pop() {
        found.extend(node.text());
        waiting.extend(node.elements());
        waiting.extend(node.members().map(|(_, value)| value));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(id: &str, provider: &str) -> MapItem {
        let seals = vec![Bytes::from(format!("seal of {id}"))];
        let (id, provider) = (Name::from(id), Name::from(provider));
        let (model, kind, text) = (Name::default(), "thought", String::new());
        MapItem { id, seq: 0, model, provider, kind, bytes: 1, text, seals }
    }

    fn texts(received: &'static str, sent: &'static str, account: &'static str) -> Bodies {
        let [received, sent, account] =
            [received, sent, account].map(|s| Bytes::from_static(s.as_bytes()));
        Bodies { expanded: received.clone(), received, sent, account }
    }

    #[test]
    fn spans_match_item_ids_and_seals() {
        let foreign = Name::from(Disposition::Elided(ElisionReason::Foreign).to_string());
        let kept = Name::from("kept");
        let before = ["a", "b", "c"].map(|id| held(id, if id == "b" { "other" } else { "own" }));
        // The client sends all three under its own ids, and one Seal is another provider's.
        let all = r#"{"input":[{"s":"seal of a"},{"s":"seal of b"},{"s":"seal of c"}]}"#;
        let two = r#"{"input":[{"s":"seal of a"},{"s":"seal of c"}]}"#;
        let account = r#"{"fates":[["1",0],["2",0,0],["3",1,1],["4",0,0]],"dids":["kept","elided: foreign: another provider issued it"]}"#;
        let expected = vec![(0, 1, kept.clone()), (1, 1, foreign.clone()), (2, 1, kept.clone())];
        assert_eq!(
            gateway_spans(&texts(all, two, account), &before, "own"),
            Some(expected.clone())
        );
        // The client dropped all three, and two were restored under their own ids.
        let account = r#"{"fates":[["1",0],["a",0,0],["c",0,0]],"dids":["kept"]}"#;
        assert_eq!(gateway_spans(&texts("{}", two, account), &before, "own"), Some(expected));
        // The client dropped only `c`, so the counts differ; `a` is still recognised.
        let one = r#"{"input":[{"s":"seal of a"}]}"#;
        let account = r#"{"fates":[["1",0],["2",0,0]],"dids":["kept"]}"#;
        let spans = gateway_spans(&texts(one, one, account), &before, "own");
        assert_eq!(spans, Some(vec![(0, 1, kept), (1, 1, foreign)]));
    }
}
