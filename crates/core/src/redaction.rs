//! Redaction: what people and sinks are not shown.
//!
//! A provider must get back exactly what it issued, so redaction never touches the copy that is replayed. It works on the copies
//! that are made for views, logs and exports, and changes only what it has to: where nothing matches, the very same value is
//! handed back. What a provider sealed stays as it is, unless its name is among the policy's `keys`: nobody can read it anyway.
//!
//! Patterns are regular expressions in the syntax of the crate `regex`, which takes time in proportion to the text whatever
//! the pattern. What matches becomes [`REDACTED`]; redacting twice is redacting once.

mod document;
mod pattern;
mod record;
mod text;
mod tree;

#[cfg(test)]
#[path = "redaction/redaction_tests.rs"]
mod redaction_tests;

use std::borrow::Cow;

use crate::json::{self, Json};
use crate::name::Name;
use crate::run_event::{RunEvent, StreamEvent, ThoughtEvent, ThoughtPhase};
use crate::view::{Message, ThinkingBlock};

pub use crate::redaction::pattern::{InvalidPattern, Pattern};

/// What stands where something was.
pub const REDACTED: &str = "[REDACTED]";

/// What is to be redacted. [`RedactionPolicy::default`] knows the secrets that are usual in this trade, and nothing else.
#[derive(Clone, Debug, PartialEq)]
pub struct RedactionPolicy {
    /// Members of these names lose their values, wherever they stand.
    pub keys: Vec<Name>,
    /// So do members whose names match.
    pub patterns: Vec<Pattern>,
    /// In members of these names, the values at the paths: `address.street`. An array on the way stands for all its values.
    pub fields: Vec<(Name, Vec<Name>)>,
    /// Events whose names match lose all that they say.
    pub emit_patterns: Vec<Pattern>,
    /// What matches in thoughts.
    pub thinking_patterns: Vec<Pattern>,
    /// What matches in any text, thoughts and the names of members included. Ours.
    pub secret_patterns: Vec<Pattern>,
    /// Whether [`RedactionPolicy::built_in`] is looked for too. Ours.
    pub built_in_secrets: bool,
}

/// Whether `thinkingPatterns` are to be looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thoughts {
    /// Thoughts are redacted as such.
    Redact,
    /// Thoughts are text like any other: only secrets are redacted.
    Leave,
    /// Every text may be a thought: stored records have thoughts where their place does not show it.
    Anywhere,
}

impl Default for RedactionPolicy {
    fn default() -> Self {
        Self { built_in_secrets: true, ..Self::nothing() }
    }
}

impl RedactionPolicy {
    /// A policy that redacts nothing.
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

    /// The secrets that are usual in this trade: providers' keys, bearer tokens, cloud credentials, private keys.
    pub fn built_in() -> &'static [Pattern] {
        pattern::built_in()
    }

    /// A text without the secrets in it.
    pub fn redact_text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        text::redact(text, &self.secrets())
    }

    /// A thought without what no thought may say, and without the secrets in it.
    pub fn redact_thought<'t>(&self, text: &'t str) -> Cow<'t, str> {
        text::redact(text, &self.secrets_of_thoughts())
    }

    /// Thinking blocks with their content redacted, and nothing else: signatures, sealed data and the provider's extras stay
    /// as they are.
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

    /// A message with everything in it redacted that can be read: its text, its thoughts, what it asks of tools, and the members
    /// that the document does not know.
    pub fn redact_message<'m>(&self, message: &'m Message) -> Cow<'m, Message> {
        let mut redacted = Cow::Borrowed(message);
        if let Cow::Owned(content) = self.redact_text(&message.content) {
            redacted.to_mut().content = content.into();
        }
        if let Cow::Owned(blocks) = self.redact_thinking_blocks(&message.thinking_blocks) {
            redacted.to_mut().thinking_blocks = blocks;
        }
        for (place, call) in message.tool_calls.iter().enumerate() {
            if let Cow::Owned(args) = self.redact_json(&call.args, Thoughts::Redact)
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

    /// A JSON value in which only what has to go is changed; every other byte stays. Strings lose their secrets, and members
    /// their values, as the policy says.
    ///
    /// A thought is known by its place: in an object whose `type` says thinking, thought, reasoning or reflection, in a part with
    /// `"thought": true`, or in a member such as `thinking`, `reasoning` and `reasoning_content`.
    pub fn redact_json<'j>(&self, value: &'j Json, thoughts: Thoughts) -> Cow<'j, Json> {
        tree::redact(self, value, thoughts)
    }

    /// What an event of that name says; [`REDACTED`] where the policy forbids such events to say anything.
    pub fn redact_event<'p>(&self, name: &str, payload: &'p Json) -> Cow<'p, Json> {
        if self.emit_patterns.iter().any(|pattern| pattern.is_match(name)) {
            return Cow::Owned(json::string(REDACTED));
        }
        self.redact_json(payload, Thoughts::Redact)
    }

    /// What an event of a run says. What is looked for may be cut anywhere, so where the policy has patterns of its own a piece
    /// says nothing: it is told whole later.
    pub fn redact_run_event(&self, event: &RunEvent) -> Json {
        let looks = !self.thinking_patterns.is_empty() || !self.secret_patterns.is_empty();
        let document = match event {
            RunEvent::Thought(thought) if looks && thought.phase == ThoughtPhase::Delta => {
                let text = thought.text.as_ref().map(|_| REDACTED.into());
                ThoughtEvent { text, ..thought.clone() }.json()
            }
            RunEvent::Stream(piece) if looks => {
                StreamEvent { text: REDACTED.into(), ..piece.clone() }.json()
            }
            whole => whole.json(),
        };
        self.redact_event(&event.name(), &document).into_owned()
    }

    fn redact_member<'j>(&self, name: &str, value: &'j Json) -> Cow<'j, Json> {
        if self.removes(name) {
            return Cow::Owned(json::string(REDACTED));
        }
        self.redact_json(value, Thoughts::Redact)
    }

    /// Whether members of that name lose their values.
    fn removes(&self, name: &str) -> bool {
        self.keys.iter().any(|key| &**key == name)
            || self.patterns.iter().any(|pattern| pattern.is_match(name))
    }

    fn secrets(&self) -> Vec<&Pattern> {
        let built_in = if self.built_in_secrets { pattern::built_in() } else { &[] };
        built_in.iter().chain(&self.secret_patterns).collect()
    }

    fn secrets_of_thoughts(&self) -> Vec<&Pattern> {
        self.thinking_patterns.iter().chain(self.secrets()).collect()
    }
}
