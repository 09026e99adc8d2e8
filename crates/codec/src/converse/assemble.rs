//! Assembles a streamed block from its start event and its deltas.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use throughline_core::Delta;
use throughline_json::{self as json, Json, Node, Tree};

use crate::converse::wire::ConverseBlockKind as Kind;
use crate::object::copy_members;

/// A block whose `contentBlockStop` event has not arrived yet.
#[derive(Default)]
pub(super) struct ConverseOpenBlock {
    /// The index of the block's Item.
    pub(super) index: u32,
    /// The content of the `contentBlockStart` event, if there was one.
    pub(super) start: Option<Json>,
    text: String,
    has_text: bool,
    input: String,
    reasoning: String,
    has_reasoning: bool,
    signature: Option<Json>,
    redacted: Vec<Json>,
    citations: Vec<Json>,
    results: Vec<Json>,
    image: Vec<Json>,
    image_error: Option<Json>,
}

/// The kind of content that a delta added.
pub(super) enum DeltaContent {
    Readable(Delta),
    /// Content that is emitted only when the block is complete.
    Silent,
    /// Content of a type that this codec does not know.
    Unknown,
}

impl ConverseOpenBlock {
    pub(super) fn new(index: u32, start: Option<Json>) -> Self {
        Self { index, start, ..Self::default() }
    }

    pub(super) fn add(&mut self, delta: Node<'_>) -> DeltaContent {
        if let Some(text) = delta.name_of("text") {
            self.text.push_str(&text);
            self.has_text = true;
            return DeltaContent::Readable(Delta::Text(text));
        }
        if let Some(input) = delta.at("/toolUse/input").and_then(Node::name) {
            self.input.push_str(&input);
            return DeltaContent::Readable(Delta::Args(input));
        }
        if let Some(reasoning) = delta.present("reasoningContent") {
            return self.add_reasoning(reasoning);
        }
        if let Some(citation) = delta.present("citation") {
            self.citations.push(citation.json());
            return DeltaContent::Silent;
        }
        if let Some(results) = delta.get("toolResult").filter(|results| results.is_array()) {
            self.add_results(results);
            return DeltaContent::Silent;
        }
        if let Some(image) = delta.present("image") {
            self.image.extend(image.at("/source/bytes").map(Node::json));
            self.image_error = image.present("error").map(Node::json).or(self.image_error.take());
            return DeltaContent::Silent;
        }
        DeltaContent::Unknown
    }

    fn add_reasoning(&mut self, reasoning: Node<'_>) -> DeltaContent {
        let mut added = DeltaContent::Unknown;
        if let Some(signature) = reasoning.get("signature").filter(|s| s.is_string()) {
            self.signature = Some(signature.json());
            added = DeltaContent::Silent;
        }
        if let Some(redacted) = reasoning.get("redactedContent").filter(|r| r.is_string()) {
            self.redacted.push(redacted.json());
            added = DeltaContent::Silent;
        }
        if let Some(text) = reasoning.name_of("text") {
            self.reasoning.push_str(&text);
            self.has_reasoning = true;
            added = DeltaContent::Readable(Delta::Thought(text));
        }
        added
    }

    /// Adds tool results. A delta with a single text extends the previous text; several parts in
    /// one delta stay separate.
    fn add_results(&mut self, results: Node<'_>) {
        let pieces: Vec<_> = results.elements().collect();
        if let ([piece], Some(last)) = (pieces.as_slice(), self.results.last_mut())
            && let (Some(more), Some(text)) =
                (piece.text_of("text"), last.tree().root().text_of("text"))
        {
            *last = object! { "text": &(text.into_owned() + &more) };
            return;
        }
        self.results.extend(pieces.into_iter().map(Node::json));
    }

    /// Assembles the whole block from the members of its start event and the deltas.
    pub(super) fn assemble(&self) -> Json {
        let start = self.start.as_ref().map(Json::tree);
        let start = start.as_ref().map(Tree::root);
        let kind = start.map_or(Kind::Unknown, Kind::from_node);
        let inner = kind.key().and_then(|key| start?.get(key));
        let grown = |key: &str, more: &[(&str, Option<Json>)]| {
            json::object(|o| {
                let others = start.into_iter().flat_map(Node::members);
                copy_members(o, others.filter(|(name, _)| !name.is(key)));
                o.object(key, |o| {
                    let is_given =
                        |name: Node<'_>| more.iter().any(|(k, v)| name.is(k) && v.is_some());
                    let members = inner.into_iter().flat_map(Node::members);
                    copy_members(o, members.filter(|(name, _)| !is_given(*name)));
                    for (name, value) in more {
                        if let Some(value) = value {
                            o.raw(name, value);
                        }
                    }
                });
            })
        };
        if matches!(kind, Kind::ToolUse | Kind::HostedCall) {
            let is_given = inner.is_some_and(|inner| inner.get("input").is_some());
            let input = (!self.input.is_empty() || !is_given).then(|| self.input());
            return grown("toolUse", &[("input", input)]);
        }
        if matches!(kind, Kind::ToolResult | Kind::HostedResult) {
            let is_given = inner.is_some_and(|inner| inner.get("content").is_some());
            let content =
                (!self.results.is_empty() || !is_given).then(|| json::array_of(&self.results));
            return grown("toolResult", &[("content", content)]);
        }
        if kind == Kind::Image {
            let source = (!self.image.is_empty()).then(|| {
                object! { "bytes": join_base64(&self.image) }
            });
            return grown("image", &[("source", source), ("error", self.image_error.clone())]);
        }
        match &self.start {
            Some(start) if start.as_str() != "{}" && !self.has_content() => start.clone(),
            Some(_) | None => self.text_or_thought(),
        }
    }

    /// Returns whether the block's type is known yet.
    pub(super) fn has_known_type(&self) -> bool {
        self.has_content() || self.start.as_ref().is_some_and(|start| start.as_str() != "{}")
    }

    fn has_content(&self) -> bool {
        self.has_text
            || self.has_reasoning
            || self.signature.is_some()
            || !self.redacted.is_empty()
            || !self.citations.is_empty()
    }

    /// Assembles a text or a thought from its deltas, because Converse sends no start event for
    /// these blocks.
    fn text_or_thought(&self) -> Json {
        if self.has_reasoning || self.signature.is_some() || !self.redacted.is_empty() {
            return json::object(|o| {
                o.object("reasoningContent", |o| {
                    if self.has_reasoning || self.signature.is_some() {
                        let text = members! { "text": self.reasoning, "signature": self.signature };
                        o.object("reasoningText", text);
                    }
                    if !self.redacted.is_empty() {
                        o.raw("redactedContent", &join_base64(&self.redacted));
                    }
                });
            });
        }
        if self.citations.is_empty() {
            return object! { "text": self.text };
        }
        object! {
            "citationsContent": {
                "content": [{ "text": self.text }], "citations": json::array_of(&self.citations),
            },
        }
    }

    fn input(&self) -> Json {
        if self.input.trim().is_empty() {
            return json::object(|_| {});
        }
        Json::parse(self.input.clone()).unwrap_or_else(|_| json::string(&self.input))
    }
}

/// Joins the base64 pieces of a binary value. A single piece stays unchanged.
fn join_base64(pieces: &[Json]) -> Json {
    if let [whole] = pieces {
        return whole.clone();
    }
    let texts: Vec<String> = pieces
        .iter()
        .map(|piece| piece.tree().root().text().unwrap_or_default().into_owned())
        .collect();
    let blobs: Result<Vec<_>, _> = texts.iter().map(|text| STANDARD.decode(text)).collect();
    json::string(&blobs.map_or_else(|_| texts.concat(), |blobs| STANDARD.encode(blobs.concat())))
}
