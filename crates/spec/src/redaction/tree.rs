//! Redacts a JSON value by editing its text, so that all bytes outside the redacted values stay
//! unchanged.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;

use bytes::Bytes;
use throughline_json::{self as json, Json, JsonKind, Name, Node};

use crate::redaction::{Pattern, REDACTED, RedactionPolicy, ThoughtRedaction, text};

/// Names of members whose value is a Thought or contains Thoughts.
const THOUGHTS: [&str; 9] = [
    "thinking",
    "thinkingBlocks",
    "thinking_blocks",
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "reasoningContent",
    "reasoningText",
    "reflections",
];

/// Names of members that contain a Thought's text if the enclosing object contains Thoughts.
const TEXTS: [&str; 9] = [
    "text",
    "content",
    "summary",
    "thinking",
    "thought",
    "reasoning",
    "reasoning_content",
    "reasoningText",
    "delta",
];

/// Names of members that contain a sealed value in any object.
const SEALS: [&str; 9] = [
    "thoughtSignature",
    "thought_signature",
    "encrypted_content",
    "encryptedContent",
    "redactedContent",
    "reasoning_opaque",
    "hidden_reasoning",
    "providerMeta",
    "provider_meta",
];

/// Names of members that contain a sealed value only if the enclosing object contains Thoughts.
const SEALS_OF_THOUGHTS: [&str; 2] = ["signature", "data"];

/// Substrings of an object's `type` which mean that the object contains Thoughts or a piece of a
/// streamed Thought.
const KINDS: [&str; 6] =
    ["thinking", "thought", "reasoning", "reflection", "summary_text", "signature"];

/// Describes where a value is located, which determines whether it belongs to a Thought.
#[derive(Clone, Copy)]
struct ValueContext {
    /// Whether the value is inside an object that contains Thoughts.
    is_thinking: bool,
    /// Whether a string at this position is a Thought's text.
    is_thought: bool,
}

pub(super) fn redact<'j>(
    policy: &RedactionPolicy,
    value: &'j Json,
    thoughts: ThoughtRedaction,
) -> Cow<'j, Json> {
    let tree = value.tree();
    let mut edits = RedactionEdits::new(policy, thoughts);
    edits.visit(tree.root());
    if edits.replacements.is_empty() {
        return Cow::Borrowed(value);
    }
    edits.replacements.sort_by_key(|(range, _)| range.start);
    let bytes = tree.bytes();
    let (mut out, mut copied) = (Vec::with_capacity(bytes.len()), 0);
    for (range, replacement) in edits.replacements {
        out.extend_from_slice(bytes.get(copied..range.start).unwrap_or_default());
        out.extend_from_slice(replacement.bytes());
        copied = range.end;
    }
    out.extend_from_slice(bytes.get(copied..).unwrap_or_default());
    Cow::Owned(Json::from_trusted(Bytes::from(out)))
}

struct RedactionEdits<'p> {
    policy: &'p RedactionPolicy,
    secrets: Vec<&'p Pattern>,
    of_thoughts: Vec<&'p Pattern>,
    /// Start offsets of the values that the paths in the policy's `fields` select.
    removed: HashSet<usize>,
    replacements: Vec<(Range<usize>, Json)>,
}

impl<'p> RedactionEdits<'p> {
    fn new(policy: &'p RedactionPolicy, thoughts: ThoughtRedaction) -> Self {
        let (secrets, of_thoughts) = match thoughts {
            ThoughtRedaction::Redact => {
                (policy.active_secret_patterns(), policy.active_thought_patterns())
            }
            ThoughtRedaction::Leave => {
                (policy.active_secret_patterns(), policy.active_secret_patterns())
            }
            ThoughtRedaction::Anywhere => {
                (policy.active_thought_patterns(), policy.active_thought_patterns())
            }
        };
        Self { policy, secrets, of_thoughts, removed: HashSet::new(), replacements: Vec::new() }
    }

    /// Visits all values with an explicit stack, so that deep nesting cannot overflow the call
    /// stack.
    fn visit(&mut self, root: Node<'_>) {
        let mut stack = vec![(root, ValueContext { is_thinking: false, is_thought: false })];
        while let Some((node, context)) = stack.pop() {
            if self.removed.contains(&node.range().start) {
                self.remove(node);
                continue;
            }
            match node.shape() {
                JsonKind::Null | JsonKind::Bool | JsonKind::Number => {}
                JsonKind::String => self.string(node, context),
                JsonKind::Array => stack.extend(node.elements().map(|element| (element, context))),
                JsonKind::Object => self.object(node, context, &mut stack),
            }
        }
    }

    fn object<'t>(
        &mut self,
        node: Node<'t>,
        context: ValueContext,
        stack: &mut Vec<(Node<'t>, ValueContext)>,
    ) {
        let is_thinking = context.is_thinking || holds_thoughts(node);
        for (key, value) in node.members() {
            let name = key.text().unwrap_or_default();
            if self.policy.removes_member(&name) {
                self.remove(value);
            } else if !is_sealed(&name, is_thinking) {
                self.follow_paths(&name, value);
                let is_thought = is_thinking && TEXTS.contains(&&*name);
                let is_named = THOUGHTS.contains(&&*name);
                let context = ValueContext {
                    is_thinking: is_thinking || is_named,
                    is_thought: is_thought || is_named,
                };
                stack.push((value, context));
            }
            if let Cow::Owned(redacted) = text::redact(&name, &self.secrets) {
                self.replacements.push((key.range(), json::string(&redacted)));
            }
        }
    }

    fn string(&mut self, node: Node<'_>, context: ValueContext) {
        let Some(value) = node.text() else { return };
        let patterns = if context.is_thought { &self.of_thoughts } else { &self.secrets };
        if let Cow::Owned(redacted) = text::redact(&value, patterns) {
            self.replacements.push((node.range(), json::string(&redacted)));
        }
    }

    fn remove(&mut self, node: Node<'_>) {
        if !node.is(REDACTED) {
            self.replacements.push((node.range(), json::string(REDACTED)));
        }
    }

    /// Collects the values below the member `name` that the paths in the policy's `fields` select.
    fn follow_paths(&mut self, name: &str, value: Node<'_>) {
        let policy = self.policy;
        for (_, paths) in policy.fields.iter().filter(|(key, _)| &**key == name) {
            for path in paths {
                self.follow(path, value);
            }
        }
    }

    fn follow(&mut self, path: &Name, value: Node<'_>) {
        let mut reached = vec![value];
        for step in path.split('.') {
            let mut next = Vec::new();
            while let Some(node) = reached.pop() {
                reached.extend(node.elements());
                // If a name occurs twice, both values are selected.
                let members = node.members().filter(|(key, _)| key.is(step));
                next.extend(members.map(|(_, value)| value));
            }
            reached = next;
        }
        self.removed.extend(reached.iter().map(|node| node.range().start));
    }
}

/// Returns whether the object's own members mark it as containing Thoughts.
fn holds_thoughts(node: Node<'_>) -> bool {
    node.members().any(|(key, value)| {
        if key.is("type") {
            let kind = value.text().unwrap_or_default();
            KINDS.iter().any(|known| kind.contains(known))
        } else if key.is("message_type") {
            value.is("reasoning_message") || value.is("hidden_reasoning_message")
        } else {
            key.is("thought") && value.bool() == Some(true)
        }
    })
}

/// Returns whether a member with this name contains a sealed value.
fn is_sealed(name: &str, is_thinking: bool) -> bool {
    SEALS.contains(&name) || is_thinking && SEALS_OF_THOUGHTS.contains(&name)
}
