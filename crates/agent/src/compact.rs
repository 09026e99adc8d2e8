//! Older parts of a conversation are summarised, in whole exchanges, and their tools' answers archived.
//!
//! What is covered stays in the Thread. The exchange that is under way is never cut, and where a model's seals are bound to
//! all that stood before them, nothing is covered while it is.

use jiff::Timestamp;
use throughline_core::{
    Body, Call, Item, ItemId, Json, MemoryFact, Name, Node, Place, ReflectionRecord, Role,
    SummaryFactItem, SummaryIntegrityCheck, SummaryRecord, Tree,
};

use crate::call::{said, speaker};
use crate::state::State;
use crate::window::{Kept, may_be_quoted, readable};

const SUMMARISE: &str = "You summarise the earlier part of a conversation so that it can go on without it. Answer with one \
JSON object and nothing else: {\"summary\": text, \"stable_facts\": [{\"key\", \"value\"}], \"active_goals\": [text], \
\"open_questions\": [text], \"discarded_obsolete\": [text]}. Keep names, numbers, decisions and ids exactly. Facts that no \
longer hold go to discarded_obsolete by their keys.";

/// How many archived answers a summary names, and how many older notes it covers: the latest.
const MOST_NAMED: usize = 24;
/// The longest piece of one Item that a summary is made from.
const LONGEST: usize = 4000;

/// Up to where the window is to be covered, if it is time for that.
pub(crate) fn due(state: &State) -> Option<usize> {
    let part = state.part()?;
    if state.progress.compacts {
        // Everything is covered: no exchange is under way.
        return Some(state.window.items.len()).filter(|all| *all > 0);
    }
    if !part.config.summarises() || state.progress.no_summary {
        return None;
    }
    let preset = part.config.profile.preset();
    let trigger = part.config.context.trigger_tokens;
    let trigger =
        trigger.or(part.config.limits.max_context_tokens).unwrap_or(preset.trigger_tokens);
    if state.window.tokens() <= trigger {
        return None;
    }
    let is_loop = state.progress.turn > 0;
    if is_loop && state.is_prefix_bound() {
        return None;
    }
    let exchanges = state.window.exchanges();
    let current = exchanges.len().checked_sub(1)?;
    let keep = part.config.context.keep_turns.unwrap_or(preset.keep_turns);
    let keep = usize::try_from(keep).unwrap_or(usize::MAX);
    // As many of the latest exchanges stay as are wanted, if they leave room; the one under way always does.
    let half = trigger / 2;
    let mut from = current;
    while from > 0 && current - from < keep {
        let start = *exchanges.get(from - 1)?;
        let tokens: u64 = state.window.items.iter().skip(start).map(|kept| kept.tokens).sum();
        if tokens > half {
            break;
        }
        from -= 1;
    }
    exchanges.get(from).copied().filter(|start| *start > 0)
}

/// Asks for the summary.
pub(crate) fn ask(state: &State, call: &mut Call) {
    let covered = due(state).unwrap_or(0);
    let mut text = String::new();
    if let Some(Body::Summary { text: before, .. }) =
        state.window.summary.as_ref().map(|summary| &summary.item.body)
    {
        text.push_str("Summary so far:\n");
        text.push_str(before);
        text.push_str("\n\n");
    }
    let covered = state.window.items.iter().take(covered);
    for Kept { item, .. } in covered.filter(|kept| may_be_quoted(&kept.item)) {
        let words = readable(item);
        let words = words.get(..words.floor_char_boundary(LONGEST)).unwrap_or_default();
        if !words.is_empty() {
            text.push_str(speaker(item));
            text.push_str(": ");
            text.push_str(words);
            text.push('\n');
        }
    }
    for note in older_notes(state) {
        text.push_str("note to oneself: ");
        text.push_str(&note.text);
        text.push('\n');
    }
    call.system = vec![said("system", 0, Role::System, SUMMARISE)];
    call.items = vec![said("conversation", 0, Role::User, &text)];
}

/// How many of the latest notes stay as they are.
fn kept_notes(state: &State) -> usize {
    let keep = state.part().and_then(|part| part.reflection());
    keep.map_or(0, |reflection| usize::try_from(reflection.keep_last).unwrap_or(usize::MAX))
}

/// The notes that a summary is to cover, where it is to: the latest of those that do not stay as they are.
fn older_notes(state: &State) -> &[ReflectionRecord] {
    let covers =
        state.part().and_then(|part| part.reflection()).is_some_and(|config| config.summarize);
    let notes = state.smart.reflections.as_deref().filter(|_| covers).unwrap_or_default();
    let end = notes.len().saturating_sub(kept_notes(state));
    notes.get(end.saturating_sub(MOST_NAMED)..end).unwrap_or_default()
}

/// A summary, taken apart and held against the one before.
pub(crate) struct Summary {
    pub(crate) text: Name,
    pub(crate) record: SummaryRecord,
}

/// Reads what the model wrote. What is no JSON is a summary all the same.
pub(crate) fn read(said: &str, before: Option<&SummaryRecord>, at: Timestamp) -> Summary {
    let json = said.find('{').zip(said.rfind('}')).and_then(|(from, to)| said.get(from..=to));
    let tree = json.and_then(|json| Tree::parse(json.to_owned()).ok());
    let root = tree.as_ref().map(Tree::root);
    let texts = |key: &str| -> Option<Vec<Name>> {
        let list = root?.present(key)?.elements().filter_map(Node::name).collect::<Vec<_>>();
        (!list.is_empty()).then_some(list)
    };
    let facts = root.and_then(|root| root.present("stable_facts")).into_iter();
    let mut facts: Vec<SummaryFactItem> = facts
        .flat_map(Node::elements)
        .filter_map(|fact| Some(SummaryFactItem::new(fact.name_of("key")?, fact.name_of("value")?)))
        .collect();
    let obsolete = texts("discarded_obsolete").unwrap_or_default();
    let known = before.and_then(|before| before.stable_facts.as_deref()).unwrap_or_default();
    let gone = before.and_then(|before| before.discarded_obsolete.as_deref()).unwrap_or_default();
    let has = |facts: &[SummaryFactItem], key: &Name| facts.iter().any(|fact| fact.key == *key);
    let lost: Vec<_> = known
        .iter()
        .filter(|fact| !has(&facts, &fact.key) && !obsolete.contains(&fact.key))
        .cloned()
        .collect();
    let revived = facts.iter().any(|fact| gone.contains(&fact.key));
    facts.retain(|fact| !gone.contains(&fact.key));
    let mut integrity = SummaryIntegrityCheck::new(lost.is_empty() && !revived);
    integrity.critical_fact_loss = Some(!lost.is_empty());
    integrity.obsolete_fact_revived = Some(revived);
    facts.extend(lost);
    let text =
        root.and_then(|root| root.name_of("summary")).unwrap_or_else(|| Name::from(said.trim()));
    let mut record = SummaryRecord {
        stable_facts: (!facts.is_empty()).then_some(facts),
        active_goals: texts("active_goals"),
        open_questions: texts("open_questions"),
        raw_summary: Some(text.clone()),
        integrity: Some(integrity),
        created_at: Some(Name::from(at.to_string())),
        ..SummaryRecord::default()
    };
    let all_gone: Vec<Name> = gone.iter().chain(&obsolete).cloned().collect();
    record.discarded_obsolete = (!all_gone.is_empty()).then_some(all_gone);
    Summary { text, record }
}

/// The facts that are remembered after a summary: what it holds for settled, over what was known. What it says no longer holds
/// is marked as that.
pub(crate) fn remembered(
    known: &[MemoryFact],
    record: &SummaryRecord,
    turn: u64,
) -> Vec<MemoryFact> {
    let mut facts = known.to_vec();
    let now = &record.created_at;
    for fact in record.stable_facts.iter().flatten() {
        let place = facts.iter().position(|known| known.key == fact.key).unwrap_or_else(|| {
            facts.push(MemoryFact::new(fact.key.clone(), Name::default()));
            facts.len() - 1
        });
        let Some(known) = facts.get_mut(place) else { continue };
        if known.value != fact.value || known.obsolete == Some(true) {
            known.value = fact.value.clone();
            (known.obsolete, known.source_turn) = (None, Some(turn));
            known.last_updated_at.clone_from(now);
        }
    }
    let gone = record.discarded_obsolete.as_deref().unwrap_or_default();
    for known in facts.iter_mut().filter(|known| gone.contains(&known.key)) {
        if known.obsolete != Some(true) {
            known.obsolete = Some(true);
            known.last_updated_at.clone_from(now);
        }
    }
    facts
}

/// What the model is shown instead of what is covered.
pub(crate) fn words(summary: &Summary, state: &State, covered: &[Kept]) -> String {
    let mut text = format!("Summary of the earlier conversation:\n{}", summary.text);
    let list = |text: &mut String, title: &str, lines: Vec<String>| {
        if !lines.is_empty() {
            text.push_str(&["\n\n", title, ":\n- ", &lines.join("\n- ")].concat());
        }
    };
    let record = &summary.record;
    let facts =
        record.stable_facts.iter().flatten().map(|fact| format!("{}: {}", fact.key, fact.value));
    list(&mut text, "Facts", facts.collect());
    let is_told = |key: &Name| record.stable_facts.iter().flatten().any(|fact| fact.key == *key);
    let memory = state.smart.memory_facts.iter().flatten();
    let memory = memory.filter(|fact| fact.obsolete != Some(true) && !is_told(&fact.key));
    list(
        &mut text,
        "Remembered",
        memory.map(|fact| format!("{}: {}", fact.key, fact.value)).collect(),
    );
    let texts = |list: &Option<Vec<Name>>| list.iter().flatten().map(ToString::to_string).collect();
    list(&mut text, "Goals", texts(&record.active_goals));
    list(&mut text, "Open questions", texts(&record.open_questions));
    let reflections = state.smart.reflections.as_deref().unwrap_or_default();
    let notes = reflections.iter().skip(reflections.len().saturating_sub(kept_notes(state)));
    list(&mut text, "Notes to yourself", notes.map(|note| note.text.to_string()).collect());
    let before = state.smart.tool_history_archived.iter().flatten();
    let before =
        before.map(|execution| (execution.tool_name.clone(), execution.execution_id.clone()));
    let now = covered.iter().filter_map(|kept| match &kept.item.body {
        Body::Result(result) => {
            let name = result.name.clone().unwrap_or_else(|| Name::from("tool"));
            Some((name, result.call.0.clone()))
        }
        _ => None,
    });
    let archived: Vec<(Name, Name)> = before.chain(now).collect();
    let latest = archived.iter().skip(archived.len().saturating_sub(MOST_NAMED));
    let archived = latest.map(|(tool, id)| format!("{tool} (executionId {id})"));
    list(&mut text, "Archived tool answers, for get_tool_response", archived.collect());
    text
}

/// The Item that stands for what is covered.
pub(crate) fn item(id: Name, text: &str, covered: &[Kept], before: Option<&Kept>) -> Item {
    let seqs = || covered.iter().map(|kept| kept.seq);
    let earlier = before.and_then(|before| match &before.item.body {
        Body::Summary { covers, .. } => Some(covers.start),
        _ => None,
    });
    let start = earlier.or_else(|| seqs().min()).unwrap_or(0);
    let end = seqs().max().map_or(start, |last| last + 1);
    let place = covered.first().map_or(Place::default(), |kept| kept.item.place);
    let body = Body::Summary { text: text.into(), covers: start..end };
    Item::new(ItemId(id), place, Role::User, body)
}

/// What a record says that it covers.
pub(crate) fn covers(item: &Item, messages: usize) -> (Name, Json) {
    let covers = match &item.body {
        Body::Summary { covers, .. } => covers.clone(),
        _ => 0..0,
    };
    let covers = throughline_core::json::object(|out| {
        out.number("from", covers.start);
        out.number("before", covers.end);
        out.number("messages", u64::try_from(messages).unwrap_or(u64::MAX));
    });
    (Name::from("covers"), covers)
}
