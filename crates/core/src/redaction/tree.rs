//! Redacting a JSON value: edits on its text, so that whatever is not redacted stays as it was written.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;

use bytes::Bytes;

use crate::json::{self, Json, Node, Shape};
use crate::name::Name;
use crate::redaction::{Pattern, REDACTED, RedactionPolicy, Thoughts, text};

/// Members whose values are thoughts, or hold them.
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

/// Members that hold the text of a thought, within what holds thoughts.
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

/// Members that hold what a provider sealed, wherever they stand.
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

/// Members that hold what a provider sealed, within what holds thoughts.
const SEALS_OF_THOUGHTS: [&str; 2] = ["signature", "data"];

/// What the `type` of an object says that holds thoughts, or a piece of one.
const KINDS: [&str; 6] =
    ["thinking", "thought", "reasoning", "reflection", "summary_text", "signature"];

/// What is known of the place of a value.
#[derive(Clone, Copy)]
struct Place {
    /// Whether it is within something that holds thoughts.
    is_thinking: bool,
    /// Whether a string here is the text of a thought.
    is_thought: bool,
}

pub(super) fn redact<'j>(
    policy: &RedactionPolicy,
    value: &'j Json,
    thoughts: Thoughts,
) -> Cow<'j, Json> {
    let tree = value.tree();
    let mut edits = Edits::new(policy, thoughts);
    edits.visit(tree.root());
    if edits.found.is_empty() {
        return Cow::Borrowed(value);
    }
    edits.found.sort_by_key(|(range, _)| range.start);
    let bytes = tree.bytes();
    let (mut out, mut copied) = (Vec::with_capacity(bytes.len()), 0);
    for (range, replacement) in edits.found {
        out.extend_from_slice(bytes.get(copied..range.start).unwrap_or_default());
        out.extend_from_slice(replacement.bytes());
        copied = range.end;
    }
    out.extend_from_slice(bytes.get(copied..).unwrap_or_default());
    Cow::Owned(Json::trusted(Bytes::from(out)))
}

struct Edits<'p> {
    policy: &'p RedactionPolicy,
    secrets: Vec<&'p Pattern>,
    of_thoughts: Vec<&'p Pattern>,
    /// Where the values begin that a path of `fields` leads to.
    removed: HashSet<usize>,
    found: Vec<(Range<usize>, Json)>,
}

impl<'p> Edits<'p> {
    fn new(policy: &'p RedactionPolicy, thoughts: Thoughts) -> Self {
        let (secrets, of_thoughts) = match thoughts {
            Thoughts::Redact => (policy.secrets(), policy.secrets_of_thoughts()),
            Thoughts::Leave => (policy.secrets(), policy.secrets()),
            Thoughts::Anywhere => (policy.secrets_of_thoughts(), policy.secrets_of_thoughts()),
        };
        Self { policy, secrets, of_thoughts, removed: HashSet::new(), found: Vec::new() }
    }

    /// Works on a list of what is still to be seen, so depth costs no stack.
    fn visit(&mut self, root: Node<'_>) {
        let mut waiting = vec![(root, Place { is_thinking: false, is_thought: false })];
        while let Some((node, place)) = waiting.pop() {
            if self.removed.contains(&node.range().start) {
                self.remove(node);
                continue;
            }
            match node.shape() {
                Shape::Null | Shape::Bool | Shape::Number => {}
                Shape::String => self.string(node, place),
                Shape::Array => waiting.extend(node.elements().map(|element| (element, place))),
                Shape::Object => self.object(node, place, &mut waiting),
            }
        }
    }

    fn object<'t>(&mut self, node: Node<'t>, place: Place, waiting: &mut Vec<(Node<'t>, Place)>) {
        let is_thinking = place.is_thinking || holds_thoughts(node);
        for (key, value) in node.members() {
            let name = key.text().unwrap_or_default();
            if self.policy.removes(&name) {
                self.remove(value);
            } else if !is_sealed(&name, is_thinking) {
                self.follow_paths(&name, value);
                let is_thought = is_thinking && TEXTS.contains(&&*name);
                let is_named = THOUGHTS.contains(&&*name);
                let place = Place {
                    is_thinking: is_thinking || is_named,
                    is_thought: is_thought || is_named,
                };
                waiting.push((value, place));
            }
            if let Cow::Owned(redacted) = text::redact(&name, &self.secrets) {
                self.found.push((key.range(), json::string(&redacted)));
            }
        }
    }

    fn string(&mut self, node: Node<'_>, place: Place) {
        let Some(value) = node.text() else { return };
        let patterns = if place.is_thought { &self.of_thoughts } else { &self.secrets };
        if let Cow::Owned(redacted) = text::redact(&value, patterns) {
            self.found.push((node.range(), json::string(&redacted)));
        }
    }

    fn remove(&mut self, node: Node<'_>) {
        if !node.is(REDACTED) {
            self.found.push((node.range(), json::string(REDACTED)));
        }
    }

    /// Notes the values that the paths of `fields` lead to from the member of that name.
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
                // A name that stands twice has two values, and both go.
                let members = node.members().filter(|(key, _)| key.is(step));
                next.extend(members.map(|(_, value)| value));
            }
            reached = next;
        }
        self.removed.extend(reached.iter().map(|node| node.range().start));
    }
}

/// Whether an object says of itself that it holds thoughts.
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

/// Whether a member holds what a provider sealed.
fn is_sealed(name: &str, is_thinking: bool) -> bool {
    SEALS.contains(&name) || is_thinking && SEALS_OF_THOUGHTS.contains(&name)
}
