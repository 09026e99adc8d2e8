//! Redaction of everything that people and sinks see.
//!
//! A provider must get back exactly what it issued, so redaction never touches the replayed copy.
//! It works on the copies for views, logs and exports, and returns the same value if nothing
//! matches. Sealed values stay unchanged unless the policy's `keys` list their names, because they
//! are unreadable anyway.
//!
//! Patterns use the syntax of the `regex` crate, whose matching time is linear in the text. Matches
//! become [`REDACTED`]. Redaction is idempotent.

mod document;
mod pattern;
mod record;
mod text;
mod tree;

#[cfg(test)]
#[path = "redaction/redaction_tests.rs"]
mod redaction_tests;

use std::borrow::Cow;

use throughline_json::{self as json, Json, Name};

use crate::run_event::{RunEvent, StreamEvent, ThoughtEvent, ThoughtPhase};
use crate::view::{Message, ThinkingBlock};

pub use crate::redaction::pattern::{InvalidPattern, Pattern};

/// The replacement for redacted text.
pub const REDACTED: &str = "[REDACTED]";

/// Defines what to redact. [`RedactionPolicy::default`] matches common secrets only.
#[derive(Clone, Debug, PartialEq)]
pub struct RedactionPolicy {
    /// Names of members whose values are removed at any depth.
    pub keys: Vec<Name>,
    /// Patterns of member names whose values are removed.
    pub patterns: Vec<Pattern>,
    /// Paths below members of these names whose values are removed, such as `address.street`. A
    /// path passes through arrays to all their elements.
    pub fields: Vec<(Name, Vec<Name>)>,
    /// Patterns of event names whose payload is removed.
    pub emit_patterns: Vec<Pattern>,
    /// Patterns that are redacted in Thoughts.
    pub thinking_patterns: Vec<Pattern>,
    /// Patterns that are redacted in all texts, including Thoughts and member names. A Throughline
    /// extension.
    pub secret_patterns: Vec<Pattern>,
    /// Whether [`RedactionPolicy::built_in`] applies too. A Throughline extension.
    pub built_in_secrets: bool,
}

/// Where `thinkingPatterns` apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThoughtRedaction {
    /// To Thoughts, recognized by their position.
    Redact,
    /// Nowhere: Thoughts are treated as other text, so only secrets are redacted.
    Leave,
    /// To every text, because the position in a stored record does not identify Thoughts.
    Anywhere,
}

impl Default for RedactionPolicy {
    fn default() -> Self {
        Self { built_in_secrets: true, ..Self::nothing() }
    }
}

impl RedactionPolicy {
    /// Returns a policy that redacts nothing.
    pub fn nothing() -> Self {
        Self {
            keys: Vec::new(),
            patterns: Vec::new(),
            fields: Vec::new(),
            emit_patterns: Vec::new(),
            thinking_patterns: Vec::new(),
            secret_patterns: Vec::new(),
            built_in_secrets: false,
        }
    }

    /// Returns the patterns of common secrets: provider keys, bearer tokens, cloud credentials,
    /// private keys.
    pub fn built_in() -> &'static [Pattern] {
        pattern::built_in()
    }

    /// Redacts the secrets in a text.
    pub fn redact_text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        text::redact(text, &self.active_secret_patterns())
    }

    /// Redacts the secrets and the thinking patterns in a Thought.
    pub fn redact_thought<'t>(&self, text: &'t str) -> Cow<'t, str> {
        text::redact(text, &self.active_thought_patterns())
    }

    /// Redacts the content of thinking blocks. Signatures, sealed data and provider extras stay
    /// unchanged.
    pub fn redact_thinking_blocks<'b>(
        &self,
        blocks: &'b [ThinkingBlock],
    ) -> Cow<'b, [ThinkingBlock]> {
        let mut redacted = Cow::Borrowed(blocks);
        for (place, block) in blocks.iter().enumerate() {
            if let Cow::Owned(content) = self.redact_thought(&block.content)
                && let Some(copy) = redacted.to_mut().get_mut(place)
            {
                copy.content = content.into();
            }
        }
        redacted
    }

    /// Redacts all readable content of a message: its text, Thoughts, tool arguments and unknown
    /// members.
    pub fn redact_message<'m>(&self, message: &'m Message) -> Cow<'m, Message> {
        let mut redacted = Cow::Borrowed(message);
        if let Cow::Owned(content) = self.redact_text(&message.content) {
            redacted.to_mut().content = content.into();
        }
        if let Cow::Owned(blocks) = self.redact_thinking_blocks(&message.thinking_blocks) {
            redacted.to_mut().thinking_blocks = blocks;
        }
        for (place, call) in message.tool_calls.iter().enumerate() {
            if let Cow::Owned(args) = self.redact_json(&call.args, ThoughtRedaction::Redact)
                && let Some(copy) = redacted.to_mut().tool_calls.get_mut(place)
            {
                copy.args = args;
            }
        }
        for (place, (name, value)) in message.extras.iter().enumerate() {
            if let Cow::Owned(value) = self.redact_member(name, value)
                && let Some((_, copy)) = redacted.to_mut().extras.get_mut(place)
            {
                *copy = value;
            }
        }
        redacted
    }

    /// Redacts a JSON value; all other bytes stay unchanged. Secrets in strings and the values of
    /// members are removed as the policy specifies.
    ///
    /// A Thought is recognized by its position: in an object whose `type` contains thinking,
    /// thought, reasoning or reflection, in a part with `"thought": true`, or in a member such as
    /// `thinking`, `reasoning` or `reasoning_content`.
    pub fn redact_json<'j>(&self, value: &'j Json, thoughts: ThoughtRedaction) -> Cow<'j, Json> {
        tree::redact(self, value, thoughts)
    }

    /// Redacts the payload of a named event; the whole payload if an emit pattern matches.
    pub fn redact_event<'p>(&self, name: &str, payload: &'p Json) -> Cow<'p, Json> {
        if self.emit_patterns.iter().any(|pattern| pattern.is_match(name)) {
            return Cow::Owned(json::string(REDACTED));
        }
        self.redact_json(payload, ThoughtRedaction::Redact)
    }

    /// Redacts a run event. A match may span several stream pieces, so pieces are removed whole if
    /// the policy has its own patterns. A later event contains the complete text.
    pub fn redact_run_event(&self, event: &RunEvent) -> Json {
        let looks = !self.thinking_patterns.is_empty() || !self.secret_patterns.is_empty();
        let piece = Some(event).filter(|_| looks).and_then(without_piece);
        let document = piece.unwrap_or_else(|| event.json());
        self.redact_event(&event.name(), &document).into_owned()
    }

    fn redact_member<'j>(&self, name: &str, value: &'j Json) -> Cow<'j, Json> {
        if self.removes_member(name) {
            return Cow::Owned(json::string(REDACTED));
        }
        self.redact_json(value, ThoughtRedaction::Redact)
    }

    /// Whether members of that name lose their values.
    fn removes_member(&self, name: &str) -> bool {
        self.keys.iter().any(|key| &**key == name)
            || self.patterns.iter().any(|pattern| pattern.is_match(name))
    }

    fn active_secret_patterns(&self) -> Vec<&Pattern> {
        let built_in = if self.built_in_secrets { pattern::built_in() } else { &[] };
        built_in.iter().chain(&self.secret_patterns).collect()
    }

    fn active_thought_patterns(&self) -> Vec<&Pattern> {
        self.thinking_patterns.iter().chain(self.active_secret_patterns()).collect()
    }
}

/// Returns the document of a stream piece without its text; `None` for all other events.
fn without_piece(event: &RunEvent) -> Option<Json> {
    if let RunEvent::Thought(thought) = event
        && thought.phase == ThoughtPhase::Delta
    {
        let text = thought.text.as_ref().map(|_| REDACTED.into());
        return Some(ThoughtEvent { text, ..thought.clone() }.json());
    }
    let RunEvent::Stream(piece) = event else { return None };
    Some(StreamEvent { text: REDACTED.into(), ..piece.clone() }.json())
}
