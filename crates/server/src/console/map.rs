//! The thought map of a thread: which model had which thought, and in which later calls each thought and seal went back.
//!
//! `items` lists thoughts and sealed Items in their order; `spans` of a call say what the call did with ranges of that list.
//! Calls of agents are attempts as [`RunFold`] folds them, so `runs` has the counts of the timeline and the trace. What a
//! gateway call did with an Item follows from the Item's name, or from its seal in the request that was sent.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};

use bytes::Bytes;
use jiff::Timestamp;
use throughline_core::{
    Attempt, AttemptEnd, Body, Did, LogHead, LogId, Name, Node, Record, ReplayEvent, RunCounts,
    RunEvent, RunFold, ThoughtKind, Tree, Why, json, kind, unpack,
};

use crate::console::summary::parse_event;
use crate::console::{calls, first_words, threads, tree_of};
use crate::gateway::Answered;
use crate::letta::reader::seen;
use crate::letta::{Asked, Denied, Told, runs};
use crate::story::Texts;

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
    /// The sealed bytes, to recognise the Item in a request. Never sent to a reader.
    seals: Vec<Bytes>,
}

/// A call of a model.
struct Called {
    id: Name,
    /// The run, where an agent asked.
    run: Option<Name>,
    turn: u64,
    /// The position among the attempts of the turn, counted from 1.
    attempt: u64,
    is_discarded: bool,
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
    let (called, counted) = if is_gateway {
        (of_gateway(asked, &thread, &held).await?, Vec::new())
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
        o.array("runs", |list| {
            for (run, counts) in &counted {
                list.object(|o| {
                    o.string("id", run);
                    counts.put(o);
                });
            }
        });
    });
    Ok(Answered::json(200, &told))
}

fn put(o: &mut json::Object<'_>, called: &Called) {
    o.string("id", &called.id).maybe_string("run", called.run.as_deref());
    o.number("turn", called.turn).number("attempt", called.attempt);
    if called.is_discarded {
        o.bool("discarded", true);
    }
    o.maybe_string("purpose", called.purpose.as_deref());
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
                seals: seen.item.seals.iter().map(|s| s.reveal_to_tenant().clone()).collect(),
            });
        }
    }
    Ok((held, forgotten))
}

/// The model calls of the runs on a thread, and the counts of each run.
async fn of_agents(
    asked: &Asked<'_>,
    thread: &LogId,
    held: &[Held],
) -> Result<(Vec<Called>, Vec<(Name, RunCounts)>), Denied> {
    let places: HashMap<&str, usize> =
        held.iter().enumerate().map(|(place, held)| (&*held.id, place)).collect();
    let (store, tenant) = (asked.api.store(), &asked.caller.tenant);
    let mut heads = runs::heads(asked, thread, None, RUNS).await?;
    heads.retain(|head| !throughline_agent::is_inbox(&head.log));
    heads.reverse();
    let (mut called, mut counted) = (Vec::new(), Vec::new());
    for head in &heads {
        let mut run = RunCalls::new(head, &places);
        let mut after = 0;
        loop {
            let records = store.read(tenant, &head.log, after, 256).await?;
            let Some(last) = records.last() else { break };
            after = last.seq;
            for record in &records {
                run.take(record);
            }
        }
        counted.push((head.log.0.clone(), run.fold.counts()));
        called.append(&mut run.called);
    }
    let first = called.len().saturating_sub(MOST);
    Ok((called.split_off(first), counted))
}

/// The model calls of one run, from its events.
struct RunCalls<'m> {
    run: &'m Name,
    /// The place of each thought and sealed Item in the map.
    places: &'m HashMap<&'m str, usize>,
    fold: RunFold,
    called: Vec<Called>,
}

impl<'m> RunCalls<'m> {
    fn new(head: &'m LogHead, places: &'m HashMap<&'m str, usize>) -> Self {
        Self { run: &head.log.0, places, fold: RunFold::default(), called: Vec::new() }
    }

    fn take(&mut self, record: &Record) {
        match unpack(record) {
            Ok(events) => {
                for event in events.into_iter().filter_map(|(_, event)| parse_event(event)) {
                    self.event(record.at, &event);
                }
            }
            Err(_) => self.fold.skip_erased(),
        }
    }

    fn event(&mut self, at: Timestamp, event: &RunEvent) {
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
                call.gave.extend(items.filter_map(|item| self.places.get(&**item)));
            }
            RunEvent::Replay(event) => call.spans = spans_of_run(event, self.places),
            _ => {}
        }
    }

    fn open(&mut self, attempt: &Attempt) {
        let Attempt { turn, number, start, model, purpose } = attempt;
        let again = if *number > 1 { format!(".{number}") } else { String::new() };
        self.called.push(Called {
            id: Name::from(format!("{}.{turn}{again}", self.run)),
            run: Some(self.run.clone()),
            turn: *turn,
            attempt: *number,
            is_discarded: false,
            purpose: purpose.clone(),
            model: model.clone().unwrap_or_default(),
            provider: Name::default(),
            at: start.to_string(),
            gave: Vec::new(),
            spans: Vec::new(),
        });
    }
}

/// What a model call of a run did with thoughts and sealed Items, by their places in the map.
fn spans_of_run(event: &ReplayEvent, places: &HashMap<&str, usize>) -> Vec<(usize, u64, Name)> {
    let tree = event.fates.as_ref().map(throughline_core::Json::tree);
    let fates = tree.as_ref().into_iter().flat_map(|tree| tree.root().elements());
    let span = |span: Node<'_>| {
        let mut parts = span.elements();
        let first = *places.get(&*parts.next()?.text()?)?;
        let did = parts.next()?.name()?;
        Some((first, parts.next()?.u64()?, did))
    };
    fates.filter_map(span).collect()
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
        let texts = found.and_then(|found| found.texts.ok());
        let (model, provider) = call.model();
        let before = held.get(..before).unwrap_or_default();
        let spans = texts.and_then(|texts| spans(&texts, before, &provider));
        let spans = spans.unwrap_or_default();
        let (turn, at) = (number as u64 + 1, call.at.to_string());
        let id = call.id.0.clone();
        called.push(Called {
            id,
            run: None,
            turn,
            attempt: 1,
            is_discarded: false,
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

/// What a gateway call did with the sealed Items that earlier calls gave.
///
/// A restored Item has its own name in the account. Any other Item is recognised by its seal: it was kept if the seal is in
/// the request that was sent, and left out if the client sent the seal and the gateway did not. A seal of another provider
/// that is in neither is foreign.
fn spans(texts: &Texts, before: &[Held], provider: &str) -> Option<Vec<(usize, u64, Name)>> {
    let account = tree_of(&texts.account)?;
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
    let trees = [&texts.sent, &texts.came, &texts.whole].map(tree_of);
    let [sent, came, whole] = trees.each_ref().map(|tree| strings(tree.as_ref()));
    let has = |strings: &HashSet<Cow<'_, str>>, held: &Held| {
        let mut seals = held.seals.iter().filter_map(|seal| std::str::from_utf8(seal).ok());
        seals.any(|seal| strings.contains(seal))
    };
    let (kept, foreign) = (Did::Kept.to_string(), Did::Elided(Why::Foreign).to_string());
    let mut spans: Vec<(usize, u64, Name)> = Vec::new();
    for (place, held) in before.iter().enumerate() {
        let did = if let Some(did) = named.get(&held.id) {
            did.clone()
        } else if has(&sent, held) {
            Name::from(&*kept)
        } else if has(&came, held) || has(&whole, held) {
            // The account and the map have the same order, so the reasons come in the same order too.
            left_out.pop_front().unwrap_or_else(|| Name::from(&*foreign))
        } else if *held.provider != *provider {
            Name::from(&*foreign)
        } else {
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

/// All strings of a document.
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

    fn held(id: &str, provider: &str) -> Held {
        let seals = vec![Bytes::from(format!("seal of {id}"))];
        let (id, provider) = (Name::from(id), Name::from(provider));
        let (model, what, text) = (Name::default(), "thought", String::new());
        Held { id, seq: 0, model, provider, what, bytes: 1, text, seals }
    }

    fn texts(came: &'static str, sent: &'static str, account: &'static str) -> Texts {
        let [came, sent, account] = [came, sent, account].map(|s| Bytes::from_static(s.as_bytes()));
        Texts { whole: came.clone(), came, sent, account }
    }

    #[test]
    fn spans_follow_names_and_seals() {
        let foreign = Name::from(Did::Elided(Why::Foreign).to_string());
        let kept = Name::from("kept");
        let before = ["a", "b", "c"].map(|id| held(id, if id == "b" { "other" } else { "own" }));
        // The client sends all three under its own names, and one seal is another provider's.
        let all = r#"{"input":[{"s":"seal of a"},{"s":"seal of b"},{"s":"seal of c"}]}"#;
        let two = r#"{"input":[{"s":"seal of a"},{"s":"seal of c"}]}"#;
        let account = r#"{"fates":[["1",0],["2",0,0],["3",1,1],["4",0,0]],"dids":["kept","elided: foreign: another provider issued it"]}"#;
        let expected = vec![(0, 1, kept.clone()), (1, 1, foreign.clone()), (2, 1, kept.clone())];
        assert_eq!(spans(&texts(all, two, account), &before, "own"), Some(expected.clone()));
        // The client lost all of them: two were put back under their own names.
        let account = r#"{"fates":[["1",0],["a",0,0],["c",0,0]],"dids":["kept"]}"#;
        assert_eq!(spans(&texts("{}", two, account), &before, "own"), Some(expected));
        // The client dropped `c` only, so the counts differ; `a` is still recognised.
        let one = r#"{"input":[{"s":"seal of a"}]}"#;
        let account = r#"{"fates":[["1",0],["2",0,0]],"dids":["kept"]}"#;
        let told = spans(&texts(one, one, account), &before, "own");
        assert_eq!(told, Some(vec![(0, 1, kept), (1, 1, foreign)]));
    }
}
