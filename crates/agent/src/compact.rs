//! Compaction: replaces older exchanges with a summary and archives their tool results.
//!
//! Summarised Items stay in the Thread. The current exchange is never summarised. If the model's
//! Seals are prefix-bound, compaction never happens during an exchange.

use std::ops::Range;

use jiff::Timestamp;
use throughline_core::{Body, Call, Item, ItemPosition, Role};
use throughline_json::{Json, Name, Node, Tree};
use throughline_spec::{
    MemoryFact, ReflectionRecord, SummaryFactItem, SummaryIntegrityCheck, SummaryRecord,
};

use crate::state::State;
use crate::window::{WindowItem, may_be_quoted, readable_text};

const SUMMARISE: &str = "You summarise the earlier part of a conversation so that it can go on without it. Answer with one \
JSON object and nothing else: {\"summary\": text, \"stable_facts\": [{\"key\", \"value\"}], \"active_goals\": [text], \
\"open_questions\": [text], \"discarded_obsolete\": [text]}. Keep names, numbers, decisions and ids exactly. Facts that no \
longer hold go to discarded_obsolete by their keys.";

/// Maximum number of archived results that a summary lists. Also the maximum number of older notes
/// that the summarising model receives. If there are more, the most recent are used.
const MAX_NAMED: usize = 24;
/// Maximum length of one Item in the text that the model summarises.
const LONGEST: usize = 4000;

/// Returns the index in the window before which all Items should be summarised; `None` if no
/// compaction is due.
pub(crate) fn covered_end(state: &State) -> Option<usize> {
    let part = state.current_agent()?;
    if state.progress.compacts {
        // A compaction run covers everything, because no exchange is in progress.
        return Some(state.window.items.len()).filter(|all| *all > 0);
    }
    if !part.config.is_compaction_enabled() || state.progress.no_summary {
        return None;
    }
    let preset = part.config.profile.preset();
    let trigger = part.config.context.trigger_tokens.or(part.config.limits.max_context_tokens);
    let trigger = trigger.unwrap_or(preset.trigger_tokens);
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
    // Keep the configured number of recent exchanges if they fit in half of the trigger size. The
    // current exchange always stays.
    let half = trigger / 2;
    let mut from = current;
    while from > 0 && current - from < keep {
        let start = *exchanges.get(from - 1)?;
        let tokens: u64 = state.window.items.iter().skip(start).map(|entry| entry.tokens).sum();
        if tokens > half {
            break;
        }
        from -= 1;
    }
    exchanges.get(from).copied().filter(|start| *start > 0)
}

/// Adds the summary instructions and the text to summarise to `call`.
pub(crate) fn build_request(state: &State, call: &mut Call) {
    let covered = covered_end(state).unwrap_or(0);
    let mut text = String::new();
    let summary = state.window.summary.as_ref().map(|summary| &summary.item.body);
    if let Some(Body::Summary { text: before, .. }) = summary {
        text = format!("Summary so far:\n{before}\n\n");
    }
    let covered = state.window.items.iter().take(covered);
    for WindowItem { item, .. } in covered.filter(|entry| may_be_quoted(&entry.item)) {
        let excerpt = readable_text(item);
        let excerpt = excerpt.get(..excerpt.floor_char_boundary(LONGEST)).unwrap_or_default();
        if !excerpt.is_empty() {
            text.push_str(&[speaker(item), ": ", excerpt, "\n"].concat());
        }
    }
    for note in older_notes(state) {
        text.push_str(&["note to oneself: ", &*note.text, "\n"].concat());
    }
    call.system = vec![text_item("system", Role::System, SUMMARISE)];
    call.items = vec![text_item("conversation", Role::User, &text)];
}

/// Returns the number of recent reflection notes that are kept verbatim.
fn kept_notes(state: &State) -> usize {
    let keep = state.reflection().map_or(0, |reflection| reflection.keep_last);
    usize::try_from(keep).unwrap_or(usize::MAX)
}

/// Returns the reflection notes for the next summary: the most recent notes before the notes that
/// are kept verbatim.
fn older_notes(state: &State) -> &[ReflectionRecord] {
    let covers = state.reflection().is_some_and(|reflection| reflection.summarize);
    let notes = state.smart.reflections.as_deref().filter(|_| covers).unwrap_or_default();
    let end = notes.len().saturating_sub(kept_notes(state));
    notes.get(end.saturating_sub(MAX_NAMED)..end).unwrap_or_default()
}

/// A parsed summary, merged with the previous summary.
pub(crate) struct Summary {
    pub(crate) text: Name,
    pub(crate) record: SummaryRecord,
}

/// Parses the model's answer. An answer that is not JSON is used as the summary text.
pub(crate) fn parse_summary(
    answer: &str,
    before: Option<&SummaryRecord>,
    at: Timestamp,
) -> Summary {
    let json = answer.find('{').zip(answer.rfind('}')).and_then(|(from, to)| answer.get(from..=to));
    let tree = json.and_then(|json| Tree::parse(json.to_owned()).ok());
    let root = tree.as_ref().map(Tree::root);
    let texts = |key: &str| -> Option<Vec<Name>> {
        let list = root?.present(key)?.elements().filter_map(Node::name).collect::<Vec<_>>();
        (!list.is_empty()).then_some(list)
    };
    let facts = root.and_then(|root| root.present("stable_facts")).into_iter();
    let fact = |f: Node<'_>| Some(SummaryFactItem::new(f.name_of("key")?, f.name_of("value")?));
    let mut facts: Vec<_> = facts.flat_map(Node::elements).filter_map(fact).collect();
    let obsolete = texts("discarded_obsolete").unwrap_or_default();
    let earlier_facts =
        before.and_then(|before| before.stable_facts.as_deref()).unwrap_or_default();
    let discarded =
        before.and_then(|before| before.discarded_obsolete.as_deref()).unwrap_or_default();
    let is_lost = |key: &Name| {
        !facts.iter().any(|fact: &SummaryFactItem| fact.key == *key) && !obsolete.contains(key)
    };
    let lost: Vec<_> = earlier_facts.iter().filter(|fact| is_lost(&fact.key)).cloned().collect();
    let revived = facts.iter().any(|fact| discarded.contains(&fact.key));
    facts.retain(|fact| !discarded.contains(&fact.key));
    let mut integrity = SummaryIntegrityCheck::new(lost.is_empty() && !revived);
    integrity.critical_fact_loss = Some(!lost.is_empty());
    integrity.obsolete_fact_revived = Some(revived);
    facts.extend(lost);
    let text =
        root.and_then(|root| root.name_of("summary")).unwrap_or_else(|| answer.trim().into());
    let all_discarded: Vec<Name> = discarded.iter().chain(&obsolete).cloned().collect();
    let record = SummaryRecord {
        stable_facts: (!facts.is_empty()).then_some(facts),
        active_goals: texts("active_goals"),
        open_questions: texts("open_questions"),
        discarded_obsolete: (!all_discarded.is_empty()).then_some(all_discarded),
        raw_summary: Some(text.clone()),
        integrity: Some(integrity),
        created_at: Some(Name::from(at.to_string())),
        ..SummaryRecord::default()
    };
    Summary { text, record }
}

/// Merges the facts of a summary into the known facts, and marks the facts that the summary
/// declares obsolete.
pub(crate) fn merge_facts(
    existing: &[MemoryFact],
    record: &SummaryRecord,
    turn: u64,
) -> Vec<MemoryFact> {
    let mut facts = existing.to_vec();
    let now = &record.created_at;
    for fact in record.stable_facts.iter().flatten() {
        let index =
            facts.iter().position(|existing| existing.key == fact.key).unwrap_or_else(|| {
                facts.push(MemoryFact::new(fact.key.clone(), Name::default()));
                facts.len() - 1
            });
        let Some(existing) = facts.get_mut(index) else { continue };
        if existing.value != fact.value || existing.obsolete == Some(true) {
            existing.value = fact.value.clone();
            (existing.obsolete, existing.source_turn) = (None, Some(turn));
            existing.last_updated_at.clone_from(now);
        }
    }
    let discarded = record.discarded_obsolete.as_deref().unwrap_or_default();
    for existing in facts.iter_mut().filter(|existing| discarded.contains(&existing.key)) {
        if existing.obsolete != Some(true) {
            existing.obsolete = Some(true);
            existing.last_updated_at.clone_from(now);
        }
    }
    facts
}

/// Builds the text that replaces the covered Items in requests to the model.
pub(crate) fn summary_text(summary: &Summary, state: &State, covered: &[WindowItem]) -> String {
    let mut text = format!("Summary of the earlier conversation:\n{}", summary.text);
    let list = |text: &mut String, title: &str, lines: Vec<String>| {
        if !lines.is_empty() {
            text.push_str(&["\n\n", title, ":\n- ", &lines.join("\n- ")].concat());
        }
    };
    let record = &summary.record;
    let facts = record.stable_facts.iter().flatten();
    let facts = facts.map(|fact| format!("{}: {}", fact.key, fact.value));
    list(&mut text, "Facts", facts.collect());
    let is_listed = |key: &Name| record.stable_facts.iter().flatten().any(|fact| fact.key == *key);
    let memory = state.smart.memory_facts.iter().flatten();
    let memory = memory.filter(|fact| fact.obsolete != Some(true) && !is_listed(&fact.key));
    let memory = memory.map(|fact| format!("{}: {}", fact.key, fact.value));
    list(&mut text, "Remembered", memory.collect());
    let texts = |list: &Option<Vec<Name>>| list.iter().flatten().map(ToString::to_string).collect();
    list(&mut text, "Goals", texts(&record.active_goals));
    list(&mut text, "Open questions", texts(&record.open_questions));
    let reflections = state.smart.reflections.as_deref().unwrap_or_default();
    let notes = reflections.iter().skip(reflections.len().saturating_sub(kept_notes(state)));
    // The other notes stay with the tool results that they are about.
    let notes = notes.filter(|note| !state.has_result_of(note));
    list(&mut text, "Notes to yourself", notes.map(|note| note.text.to_string()).collect());
    let before = state.smart.tool_history_archived.iter().flatten();
    let before = before.map(|execution| (&*execution.tool_name, &execution.execution_id));
    let now = covered.iter().filter_map(|entry| match &entry.item.body {
        Body::Result(result) => Some((result.name.as_deref().unwrap_or("tool"), &result.call.0)),
        _ => None,
    });
    let archived: Vec<_> = before.chain(now).collect();
    let latest = archived.iter().skip(archived.len().saturating_sub(MAX_NAMED));
    let archived = latest.map(|(tool, id)| format!("{tool} (executionId {id})"));
    list(&mut text, "Archived tool answers, for get_tool_response", archived.collect());
    text
}

/// Returns the Thread sequence numbers that a new summary covers, including the numbers covered by
/// the previous summary `before`.
pub(crate) fn covered_range(covered: &[WindowItem], before: Option<&WindowItem>) -> Range<u64> {
    let seqs = || covered.iter().map(|entry| entry.seq);
    let earlier = before.and_then(|before| match &before.item.body {
        Body::Summary { covers, .. } => Some(covers.start),
        _ => None,
    });
    let start = earlier.or_else(|| seqs().min()).unwrap_or(0);
    start..seqs().max().map_or(start, |last| last + 1)
}

/// Builds the JSON field that records which Items a summary covers.
pub(crate) fn covers_member(covers: &Range<u64>, messages: usize) -> (Name, Json) {
    let covers = throughline_json::object(|out| {
        out.number("from", covers.start).number("before", covers.end);
        out.number("messages", u64::try_from(messages).unwrap_or(u64::MAX));
    });
    (Name::from("covers"), covers)
}

pub(crate) fn text_item(id: &str, role: Role, text: &str) -> Item {
    Item::new(id, ItemPosition::default(), role, Body::Text(text.into()))
}

/// Returns a speaker label for an Item, as used in summaries and reflections.
pub(crate) fn speaker(item: &Item) -> &'static str {
    match (&item.body, item.role) {
        (Body::Thought(_), _) => "assistant (thinking)",
        (Body::Call(_), _) => "assistant calls",
        (Body::Result(_), _) => "tool",
        (Body::Summary { .. }, _) => "summary",
        (_, Role::Assistant) => "assistant",
        (_, Role::System | Role::Developer) => "system",
        (_, Role::User | Role::Tool) => "user",
    }
}
