//! The thought map of a thread: which model thought what, and in which later calls each thought and seal went back.
//!
//! Items that are thoughts or sealed are told in their order; what a call did with them is told as spans over that order.

use std::collections::HashMap;

use bytes::Bytes;
use throughline_core::{
    Body, Did, LogHead, LogId, Name, Node, ThoughtKind, Why, json, kind, unpack,
};

use crate::console::{calls, first_words, threads, tree_of};
use crate::gateway::Answered;
use crate::letta::reader::seen;
use crate::letta::{Asked, Denied, Told, runs};

/// The most calls of a map.
const MOST: usize = 160;
/// How many runs are looked at for them.
const RUNS: usize = 80;

/// A thought, or another Item that is sealed.
struct Held {
    id: Name,
    seq: u64,
    model: Name,
    provider: Name,
    what: &'static str,
    bytes: u64,
    text: String,
}

/// A call of a model.
struct Called {
    id: Name,
    /// The run, where an agent asked.
    run: Option<Name>,
    turn: u64,
    purpose: Option<Name>,
    model: Name,
    provider: Name,
    at: String,
    /// The Items that it gave, by their places.
    gave: Vec<usize>,
    /// Place, number, what happened.
    spans: Vec<(usize, u64, Name)>,
}

/// The map of the thread that the path names.
pub(crate) async fn map(asked: &Asked<'_>) -> Told {
    let thread = threads::of(asked).await?;
    let is_gateway = calls::is_conversation(&thread.log.0);
    let (held, forgotten) = held(asked, &thread.log, is_gateway).await?;
    let called = if is_gateway {
        of_gateway(asked, &thread, &held).await?
    } else {
        of_agents(asked, &thread.log, &held).await?
    };
    let told = json::object(|o| {
        o.string("thread", &thread.log.0).number("forgotten", forgotten);
        o.string("kind", if is_gateway { "gateway" } else { "agent" });
        o.array("items", |list| {
            for held in &held {
                list.object(|o| {
                    o.string("id", &held.id).string("model", &held.model);
                    o.string("provider", &held.provider).string("kind", held.what);
                    o.number("bytes", held.bytes).string("text", &held.text);
                });
            }
        });
        o.array("calls", |list| {
            for called in &called {
                list.object(|o| put(o, called));
            }
        });
    });
    Ok(Answered::json(200, &told))
}

fn put(o: &mut json::Object<'_>, called: &Called) {
    o.string("id", &called.id).maybe_string("run", called.run.as_deref());
    o.number("turn", called.turn).maybe_string("purpose", called.purpose.as_deref());
    o.string("model", &called.model).string("provider", &called.provider);
    o.string("at", &called.at);
    o.array("gave", |list| {
        for place in &called.gave {
            list.number(*place as u64);
        }
    });
    o.array("spans", |list| {
        for (place, count, did) in &called.spans {
            list.array(|span| {
                span.number(*place as u64).number(*count).string(did);
            });
        }
    });
}

/// The thoughts and sealed Items of a thread, and how many Items were forgotten.
async fn held(
    asked: &Asked<'_>,
    thread: &LogId,
    only_sealed: bool,
) -> Result<(Vec<Held>, u64), Denied> {
    let (store, tenant) = (asked.api.store(), &asked.caller.tenant);
    let policy = asked.policy();
    let (mut held, mut forgotten, mut after) = (Vec::new(), 0, 0);
    loop {
        let records = store.read(tenant, thread, after, 256).await?;
        let Some(last) = records.last() else { break };
        after = last.seq;
        let items = records.iter().filter(|record| &*record.kind == kind::ITEM);
        forgotten += items.filter(|record| record.content.bytes().is_none()).count() as u64;
        for seen in seen(&records)? {
            let bytes: usize = seen.item.seals.iter().map(throughline_core::Seal::len).sum();
            let (what, text) = match &seen.item.body {
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
            let is_thought = matches!(what, "thought" | "summary");
            if bytes == 0 && (only_sealed || !is_thought) {
                continue;
            }
            let owner = seen.item.seals.first().map(|seal| &seal.owner);
            let origin = seen.item.origin.as_ref().or(owner);
            held.push(Held {
                id: seen.item.id.0.clone(),
                seq: seen.seq,
                model: origin.map(|origin| origin.asked.clone()).unwrap_or_default(),
                provider: origin.map(|origin| origin.provider.clone()).unwrap_or_default(),
                what,
                bytes: bytes as u64,
                text: first_words(&text, 160),
            });
        }
    }
    Ok((held, forgotten))
}

/// The calls of the agents that ran on a thread, as their events tell them.
async fn of_agents(
    asked: &Asked<'_>,
    thread: &LogId,
    held: &[Held],
) -> Result<Vec<Called>, Denied> {
    let places: HashMap<&str, usize> =
        held.iter().enumerate().map(|(place, held)| (&*held.id, place)).collect();
    let (store, tenant) = (asked.api.store(), &asked.caller.tenant);
    let mut heads = runs::heads(asked, thread, None, RUNS).await?;
    heads.retain(|head| !throughline_agent::is_inbox(&head.log));
    heads.reverse();
    let mut called: Vec<Called> = Vec::new();
    for head in &heads {
        let mut after = 0;
        loop {
            let records = store.read(tenant, &head.log, after, 256).await?;
            let Some(last) = records.last() else { break };
            after = last.seq;
            for record in &records {
                for (_, event) in unpack(record).unwrap_or_default() {
                    // Pieces say nothing of calls.
                    if event.starts_with(br#"{"type":"stream""#) {
                        continue;
                    }
                    let Some(tree) = tree_of(&event) else { continue };
                    hear(&mut called, &places, head, record.at.to_string(), tree.root());
                }
            }
        }
    }
    let first = called.len().saturating_sub(MOST);
    Ok(called.split_off(first))
}

/// An event, as far as it tells of calls.
fn hear(
    called: &mut Vec<Called>,
    places: &HashMap<&str, usize>,
    head: &LogHead,
    at: String,
    said: Node<'_>,
) {
    let is = |name: &str, value: &str| said.get(name).is_some_and(|node| node.is(value));
    let place = |node: Node<'_>| places.get(&*node.text()?).copied();
    if is("type", "turn") && is("phase", "start") {
        let turn = said.get("turn").and_then(Node::u64).unwrap_or(0);
        called.push(Called {
            id: Name::from(format!("{}.{turn}", head.log)),
            run: Some(head.log.0.clone()),
            turn,
            purpose: said.name_of("purpose"),
            model: said.name_of("model").unwrap_or_default(),
            provider: Name::default(),
            at,
            gave: Vec::new(),
            spans: Vec::new(),
        });
        return;
    }
    let Some(call) = called.last_mut() else { return };
    if is("type", "turn") && is("phase", "end") {
        let items = said.get("items").into_iter().flat_map(Node::elements);
        call.gave = items.filter_map(place).collect();
    } else if is("type", "turn") && is("phase", "discarded") {
        called.pop();
    } else if is("type", "replay") {
        let fates = said.get("fates").into_iter().flat_map(Node::elements);
        call.spans = fates
            .filter_map(|span| {
                let mut parts = span.elements();
                let first = place(parts.next()?)?;
                let did = parts.next()?.name()?;
                Some((first, parts.next()?.u64()?, did))
            })
            .collect();
    }
}

/// The calls of a client through the gateway, as their stories tell them.
async fn of_gateway(
    asked: &Asked<'_>,
    thread: &LogHead,
    held: &[Held],
) -> Result<Vec<Called>, Denied> {
    let mut kept = calls::of_thread(asked, thread, MOST).await?;
    kept.reverse();
    let mut called = Vec::new();
    for (number, call) in kept.iter().enumerate() {
        let is_own = call.thread == thread.log;
        let until = kept.iter().skip(number + 1).map(|next| next.seq).find(|seq| *seq > call.seq);
        let between =
            |held: &Held| held.seq > call.seq && until.is_none_or(|until| held.seq < until);
        let places = held.iter().enumerate().filter(|(_, held)| is_own && between(held));
        let gave: Vec<usize> = places.map(|(place, _)| place).collect();
        let before = gave.first().copied().unwrap_or(held.len());
        let found = asked.gateway.replay.stories().find(&asked.caller.tenant, &call.id).await?;
        let account = found.and_then(|found| found.texts.ok()).map(|texts| texts.account);
        let (model, provider) = call.model();
        let before = held.get(..before).unwrap_or_default();
        let spans = account.and_then(|account| spans(&account, before, &provider));
        let spans = spans.unwrap_or_default();
        let (turn, at) = (number as u64 + 1, call.at.to_string());
        let id = call.id.0.clone();
        called.push(Called {
            id,
            run: None,
            turn,
            purpose: None,
            model,
            provider,
            at,
            gave,
            spans,
        });
    }
    Ok(called)
}

/// What happened to the sealed Items that were given before a call. What was restored is known by its name, and the rest by
/// its place, if all are there. A seal that is not there at all, and is another provider's, was foreign.
fn spans(account: &Bytes, before: &[Held], provider: &str) -> Option<Vec<(usize, u64, Name)>> {
    let tree = tree_of(account)?;
    let dids: Vec<Name> = tree.root().get("dids")?.elements().filter_map(Node::name).collect();
    let sealed = tree.root().get("fates")?.elements().filter_map(|fate| {
        let mut parts = fate.elements();
        let item = parts.next()?.name()?;
        let seal = usize::try_from(parts.nth(1)?.u64()?).ok()?;
        Some((item, dids.get(seal)?.clone()))
    });
    let sealed: Vec<(Name, Name)> = sealed.collect();
    let is_whole = sealed.len() == before.len();
    let foreign = Name::from(Did::Elided(Why::Foreign).to_string());
    let mut spans: Vec<(usize, u64, Name)> = Vec::new();
    for (place, held) in before.iter().enumerate() {
        let named = sealed.iter().find(|(item, _)| *item == held.id);
        let placed = sealed.get(place).filter(|_| is_whole);
        let did = named.or(placed).map(|(_, did)| did.clone());
        let Some(did) = did.or_else(|| (*held.provider != *provider).then(|| foreign.clone()))
        else {
            continue;
        };
        match spans.last_mut() {
            Some((first, count, known))
                if *known == did && *first + usize::try_from(*count).unwrap_or(0) == place =>
            {
                *count += 1;
            }
            _ => spans.push((place, 1, did)),
        }
    }
    Some(spans)
}

#[cfg(test)]
mod tests {
    use throughline_core::Json;

    use super::*;

    fn held(id: &str, provider: &str) -> Held {
        let (id, provider) = (Name::from(id), Name::from(provider));
        let (model, what, text) = (Name::default(), "thought", String::new());
        Held { id, seq: 0, model, provider, what, bytes: 1, text }
    }

    #[test]
    fn spans_stand_over_what_was_given_before() {
        let account = |text: &str| Json::parse(text.to_owned()).map(|json| json.bytes().clone());
        let (kept, foreign) =
            (Name::from("kept"), Name::from(Did::Elided(Why::Foreign).to_string()));
        let before = ["a", "b", "c"].map(|id| held(id, if id == "b" { "other" } else { "own" }));
        // All are there, under names of the request's own.
        let whole = account(r#"{"fates":[["1",0],["2",0,0],["3",0,0],["4",0,0]],"dids":["kept"]}"#);
        let told = spans(&whole.unwrap_or_default(), &before, "own");
        assert_eq!(told, Some(vec![(0, 3, kept.clone())]));
        // Two were put back, and the third is another's.
        let some = account(r#"{"fates":[["1",0],["a",0,0],["c",0,0]],"dids":["kept"]}"#);
        let told = spans(&some.unwrap_or_default(), &before, "own");
        assert_eq!(told, Some(vec![(0, 1, kept.clone()), (1, 1, foreign), (2, 1, kept)]));
    }
}
