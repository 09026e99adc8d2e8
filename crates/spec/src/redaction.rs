//! Redaction of content in views, logs and exports.
//!
//! A provider must get back exactly what it issued, so redaction never changes content that is
//! replayed. Redaction applies only to copies for views, logs and exports. If nothing matches, the
//! input is borrowed. Sealed values are unreadable and stay unchanged, unless the policy's `keys`
//! contain the names of their JSON members.
//!
//! Patterns use the syntax of the `regex` crate. Matching time is linear in the length of the text.
//! Each match is replaced with [`REDACTED`]. Redaction is idempotent.

mod document;
mod pattern;
mod record;
mod stream;
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
pub use crate::redaction::stream::StreamRedactor;

/// The replacement for redacted text.
pub const REDACTED: &str = "[REDACTED]";

/// Defines what to redact. [`RedactionPolicy::default`] redacts only common secrets.
#[derive(Clone, Debug, PartialEq)]
pub struct RedactionPolicy {
    /// Names of JSON members whose values are redacted at any depth.
    pub keys: Vec<Name>,
    /// Patterns for names of JSON members whose values are redacted.
    pub patterns: Vec<Pattern>,
    /// Names of JSON members, each with paths inside the member's value, such as `address.street`.
    /// The values at these paths are redacted. A path applies to every element of an array.
    pub fields: Vec<(Name, Vec<Name>)>,
    /// Patterns for event names. If a pattern matches, the event's whole payload is redacted.
    pub emit_patterns: Vec<Pattern>,
    /// Patterns whose matches in Thoughts are redacted.
    pub thinking_patterns: Vec<Pattern>,
    /// Patterns whose matches are redacted in all texts, including Thoughts and member names. A
    /// Throughline extension.
    pub secret_patterns: Vec<Pattern>,
    /// Whether to also redact matches of [`RedactionPolicy::built_in`]. A Throughline extension.
    pub built_in_secrets: bool,
}

/// The texts to which the policy's `thinkingPatterns` apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThoughtRedaction {
    /// Thoughts. They are recognized by their position in the JSON.
    Redact,
    /// No texts. Thoughts are treated like any other text: only secrets are redacted.
    Leave,
    /// Every text. In a stored record, Thoughts cannot be recognized by their position.
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

    /// Returns patterns for common secrets: provider keys, bearer tokens, cloud credentials and
    /// private keys.
    pub fn built_in() -> &'static [Pattern] {
        pattern::built_in()
    }

    /// Redacts the secrets in a text; borrows the text if it contains no secrets.
    pub fn redact_text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        text::redact(text, &self.active_secret_patterns())
    }

    /// Redacts secrets and matches of the thinking patterns in a Thought.
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
        for (index, block) in blocks.iter().enumerate() {
            if let Cow::Owned(content) = self.redact_thought(&block.content)
                && let Some(copy) = redacted.to_mut().get_mut(index)
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
        for (index, call) in message.tool_calls.iter().enumerate() {
            if let Cow::Owned(args) = self.redact_json(&call.args, ThoughtRedaction::Redact)
                && let Some(copy) = redacted.to_mut().tool_calls.get_mut(index)
            {
                copy.args = args;
            }
        }
        for (index, (name, value)) in message.extras.iter().enumerate() {
            if let Cow::Owned(value) = self.redact_member(name, value)
                && let Some((_, copy)) = redacted.to_mut().extras.get_mut(index)
            {
                *copy = value;
            }
        }
        redacted
    }

    /// Redacts secrets and member values in a JSON value, as the policy specifies. All other bytes
    /// stay unchanged.
    ///
    /// A Thought is recognized by its position: in an object whose `type` contains thinking,
    /// thought, reasoning or reflection, in a part with `"thought": true`, or in a member such as
    /// `thinking`, `reasoning` or `reasoning_content`.
    pub fn redact_json<'j>(&self, value: &'j Json, thoughts: ThoughtRedaction) -> Cow<'j, Json> {
        tree::redact(self, value, thoughts)
    }

    /// Redacts the payload of an event. If an emit pattern matches the event name, the whole
    /// payload is redacted.
    pub fn redact_event<'p>(&self, name: &str, payload: &'p Json) -> Cow<'p, Json> {
        if self.emit_patterns.iter().any(|pattern| pattern.is_match(name)) {
            return Cow::Owned(json::string(REDACTED));
        }
        self.redact_json(payload, ThoughtRedaction::Redact)
    }

    /// Redacts a run event. If the policy has its own patterns, the text of every stream piece is
    /// replaced completely, because a match may span several pieces. A later event contains the
    /// complete text.
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

    /// Returns whether the policy redacts the values of members with this name.
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

/// Returns a stream piece with its text redacted; `None` for all other events.
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
