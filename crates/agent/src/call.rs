//! Builds the model request for each purpose.
//!
//! A turn sends the conversation unchanged, so each request extends the previous one. The latest
//! reflection notes follow the last tool result, so they change the prefix only from there on. A
//! reflection that shares this prefix appends its question after the conversation. The next turn
//! omits the reflection's question.

use throughline_core::{
    Body, Call, Item, NativeReasoning, OutputFormat, Part, Role, Target, ThreadSecret, ToolChoice,
};
use throughline_json::Name;
use throughline_spec::{ReflectionMode, ReflectionRecord};

use crate::compact::{self, speaker, text_item};
use crate::config::AgentKind;
use crate::progress::Purpose;
use crate::roster::ResolvedAgent;
use crate::state::State;
use crate::window::{WindowItem, may_be_quoted, readable_text};

/// Number of recent messages that a separate reflection quotes.
const REFLECTION_MESSAGES: usize = 8;

const SMART: &str = "Work step by step.";

/// Instructions for an agent that plans. An agent without the tool never reads its name.
const PLANNING: &str =
    "For work of several steps keep a plan with manage_todo_list, one step in progress at a time.";

/// Instructions for an agent whose older exchanges are summarised.
const SUMMARIES: &str = "Treat the summary of earlier messages as final. Use get_tool_response to \
                         read a tool result that the summary mentions.";

/// Title of the reflection notes that follow a tool result.
const NOTES: &str = "[Not from the tool] Notes that you wrote during this work, the latest last:";

const REFLECT: &str = "Before you go on: in a few sentences, note what the latest results mean for the task, what is still \
unknown, and what you will do next. Do not call tools, and do not address the user.";

impl State {
    /// Builds the model request for `purpose`. `secret` is the secret of this run's Thread.
    pub fn call(&self, purpose: Purpose, target: Target, secret: &ThreadSecret) -> Call {
        let mut call = Call::new(target);
        call.stream = true;
        let Some(part) = self.current_agent() else { return call };
        call.replay.me = part.config.identity();
        call.replay.secret = Some(secret.clone());
        call.replay.takes.clone_from(&part.config.accepted_tags);
        call.settings.reasoning.clone_from(&part.reasoning.native);
        match purpose {
            Purpose::Turn => self.build_turn(part, &mut call),
            Purpose::Final => {
                self.build_turn(part, &mut call);
                call.settings.choice = (!call.tools.is_empty()).then_some(ToolChoice::None);
            }
            Purpose::Reflection => self.build_reflection(part, &mut call),
            Purpose::Summary => {
                call.settings.reasoning = reasoning_off(&call);
                compact::build_request(self, &mut call);
            }
        }
        call
    }

    fn build_turn(&self, part: &ResolvedAgent, call: &mut Call) {
        call.system = system(part);
        call.tools.clone_from(&part.offered);
        call.items = self.window.visible_to(&call.replay.me);
        self.insert_ephemeral(&mut call.items);
        self.add_notes(call);
        call.settings.max_tokens = part.config.max_tokens;
        call.settings.temperature.clone_from(&part.config.temperature);
        let output = part.config.output.as_ref().filter(|output| output.native);
        call.settings.output = output.map(|output| {
            let (name, schema) = (output.name.clone(), output.schema.clone());
            OutputFormat::Schema { name, schema, strict: None }
        });
        let exchange = self.progress.gate.iter().flat_map(|gate| &gate.exchange);
        for (number, message) in exchange.enumerate() {
            call.extend([ephemeral_item(number, message.by_model, &message.text)]);
        }
    }

    /// Adds the reflection notes that the model sees to tool results of the request. The Thread
    /// stores the results without notes. A separate message would end the tool loop, and many
    /// models ignore their reasoning of a loop that has ended.
    fn add_notes(&self, call: &mut Call) {
        if !self.is_prefix_bound() {
            let last = call.items.iter_mut().rfind(|item| is_result(item));
            return append_notes(last, self.kept_notes());
        }
        // Each note stays where it was written, because the Seals of later answers are valid only
        // after exactly this prefix. Notes that a summary covers are part of the summary.
        for note in self.notes(usize::MAX) {
            let anchor = note.anchor_message_index.unwrap_or(u64::MAX);
            let is_before = |entry: &&WindowItem| {
                u64::from(entry.item.place.message) <= anchor && is_result(&entry.item)
            };
            let Some(entry) = self.window.items.iter().rfind(is_before) else { continue };
            let result = call.items.iter_mut().find(|item| item.id == entry.item.id);
            append_notes(result, std::slice::from_ref(note));
        }
    }

    /// Returns the estimated number of tokens of the notes in the next request.
    pub(crate) fn note_tokens(&self) -> u64 {
        let bound = self.is_prefix_bound();
        let notes = if bound { self.notes(usize::MAX) } else { self.kept_notes() };
        if notes.is_empty() { 0 } else { self.cast.tokens(&notes_text(notes)) }
    }

    /// Returns the latest notes, at most as many as `keepLast` allows.
    fn kept_notes(&self) -> &[ReflectionRecord] {
        let keep = self.reflection().map_or(0, |reflection| reflection.keep_last);
        self.notes(usize::try_from(keep).unwrap_or(usize::MAX))
    }

    /// Returns the latest notes, at most `most`, that no summary covers.
    fn notes(&self, most: usize) -> &[ReflectionRecord] {
        let is_on = self.reflection().is_some_and(|reflection| reflection.keep_last > 0);
        let notes = self.smart.reflections.as_deref().filter(|_| is_on).unwrap_or_default();
        let is_covered =
            |note: &ReflectionRecord| self.window.summary.is_some() && !self.has_result_of(note);
        let first = notes.iter().rposition(is_covered).map_or(0, |covered| covered + 1);
        notes.get(first.max(notes.len().saturating_sub(most))..).unwrap_or_default()
    }

    /// Returns whether the window contains a tool result that the note is about. A summary covers
    /// all other notes.
    pub(crate) fn has_result_of(&self, note: &ReflectionRecord) -> bool {
        let anchor = note.anchor_message_index.unwrap_or(u64::MAX);
        self.window.items.iter().any(|WindowItem { item, .. }| match &item.body {
            Body::Result(result) => {
                let calls = note.tool_call_ids.as_ref();
                u64::from(item.place.message) <= anchor
                    && calls.is_none_or(|calls| calls.contains(&result.call.0))
            }
            _ => false,
        })
    }

    /// Inserts the caller's ephemeral messages after the Items that they followed. If a summary
    /// covers such an Item, the message follows the summary.
    fn insert_ephemeral(&self, items: &mut Vec<Item>) {
        for (number, placed) in self.progress.ephemeral.iter().enumerate() {
            let is_before = |item: &Item| Some(&item.id.0) == placed.after.as_ref();
            let summaries = usize::from(self.window.summary.is_some());
            let before = items.iter().rposition(is_before);
            // Several messages after one Item keep their order.
            let mut at = before.map_or(summaries, |position| position + 1);
            while items.get(at).is_some_and(|item| item.ephemeral) {
                at += 1;
            }
            let mut item = ephemeral_item(number, placed.message.by_model, &placed.message.text);
            item.id = format!("ephemeral-history-{number}").into();
            let previous = at.checked_sub(1).and_then(|before| items.get(before));
            item.place.message = previous.map_or(0, |previous| previous.place.message);
            items.insert(at, item);
        }
    }

    fn build_reflection(&self, part: &ResolvedAgent, call: &mut Call) {
        let Some(reflection) = &part.reasoning.reflection else { return };
        let template = reflection.prompt_template.as_deref().unwrap_or(REFLECT);
        if reflection.mode == ReflectionMode::Piggyback {
            self.build_turn(part, call);
            call.settings.choice = (!call.tools.is_empty()).then_some(ToolChoice::None);
            call.settings.output = None;
            let question = ephemeral_item(0, false, template);
            call.extend([Item { id: "reflection-question".into(), ..question }]);
        } else {
            // A separate reflection quotes a few messages as text, which is cheap and leaves the
            // cached prefix untouched.
            call.settings.reasoning = reasoning_off(call);
            call.system = system(part);
            let items = self.window.items.iter().rev().map(|entry| &entry.item);
            let latest = items.filter(|item| may_be_quoted(item)).take(REFLECTION_MESSAGES);
            let latest = latest.map(|item| format!("{}: {}", speaker(item), readable_text(item)));
            let mut latest: Vec<String> = latest.collect();
            latest.reverse();
            let text = format!("{}\n\n{template}", latest.join("\n"));
            call.items = vec![text_item("reflection", Role::User, &text)];
        }
        let max_tokens = reflection.max_tokens.saturating_add(reasoning_budget(call));
        call.settings.max_tokens = Some(max_tokens);
    }
}

/// Returns the reasoning budget, which is added to the limit of a note, because providers count
/// reasoning as output. Returns 0 if there is no budget.
fn reasoning_budget(call: &Call) -> u64 {
    let reasoning = call.settings.reasoning.as_ref().filter(|reasoning| !reasoning.is_off());
    reasoning.and_then(|reasoning| reasoning.budget_tokens).unwrap_or(0)
}

fn reasoning_off(call: &Call) -> Option<NativeReasoning> {
    let reasoning = call.settings.reasoning.as_ref()?;
    Some(NativeReasoning {
        effort: Some(Name::from("low")),
        budget_tokens: None,
        ..reasoning.clone()
    })
}

/// Returns the system message, which is identical in every request.
fn system(part: &ResolvedAgent) -> Vec<Item> {
    let instructions = part.config.instructions.as_deref();
    let smart = (part.config.kind == AgentKind::Smart).then(|| {
        let planning = part.config.is_planning_enabled().then_some(PLANNING);
        let summaries = part.config.is_compaction_enabled().then_some(SUMMARIES);
        let sentences = [Some(SMART), planning, summaries].into_iter().flatten();
        sentences.collect::<Vec<_>>().join(" ")
    });
    let texts: Vec<&str> = instructions.into_iter().chain(smart.as_deref()).collect();
    if texts.is_empty() {
        return Vec::new();
    }
    vec![text_item("system", Role::System, &texts.join("\n\n"))]
}

fn notes_text(notes: &[ReflectionRecord]) -> String {
    let notes = notes.iter().map(|note| &*note.text);
    [NOTES].into_iter().chain(notes).collect::<Vec<_>>().join("\n- ")
}

fn is_result(item: &Item) -> bool {
    matches!(item.body, Body::Result(_))
}

/// Appends notes to the text of a tool result.
fn append_notes(item: Option<&mut Item>, notes: &[ReflectionRecord]) {
    let Some(Body::Result(result)) = item.map(|item| &mut item.body) else { return };
    if notes.is_empty() {
        return;
    }
    let notes = notes_text(notes);
    match result.parts.last_mut() {
        Some(Part::Text(text)) => *text = Name::from(format!("{text}\n\n{notes}")),
        Some(Part::Value(_) | Part::Media(_) | Part::Unknown(..)) | None => {
            result.parts.push(Part::Text(notes.into()));
        }
    }
}

fn ephemeral_item(number: usize, is_by_model: bool, text: &str) -> Item {
    let role = if is_by_model { Role::Assistant } else { Role::User };
    let mut item = text_item(&format!("ephemeral-{number}"), role, text);
    item.ephemeral = true;
    item
}
