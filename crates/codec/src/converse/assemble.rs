//! A block of a stream, put together from its beginning and its deltas.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use throughline_core::{Json, Name, Node, json};

use crate::converse::wire::Block;

/// A block whose end has not come.
#[derive(Default)]
pub(super) struct OpenBlock {
    /// Its number among the Items.
    pub(super) index: u32,
    /// What `contentBlockStart` said, where one came.
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

/// What a delta added, as far as it can be read.
pub(super) enum Added {
    Text(Name),
    Thought(Name),
    Input(Name),
    /// Something that is told when the block is whole.
    Silent,
    /// Nothing that we know.
    Unknown,
}

impl OpenBlock {
    pub(super) fn new(index: u32, start: Option<Json>) -> Self {
        Self { index, start, ..Self::default() }
    }

    /// Goes on with a delta.
    pub(super) fn add(&mut self, delta: Node<'_>) -> Added {
        if let Some(text) = delta.name_of("text") {
            self.text.push_str(&text);
            self.has_text = true;
            return Added::Text(text);
        }
        if let Some(input) = delta.at("/toolUse/input").and_then(Node::name) {
            self.input.push_str(&input);
            return Added::Input(input);
        }
        if let Some(reasoning) = delta.present("reasoningContent") {
            return self.reason(reasoning);
        }
        if let Some(citation) = delta.present("citation") {
            self.citations.push(citation.json());
            return Added::Silent;
        }
        if let Some(results) = delta.get("toolResult").filter(|results| results.is_array()) {
            self.answer(results);
            return Added::Silent;
        }
        if let Some(image) = delta.present("image") {
            self.image.extend(image.at("/source/bytes").map(Node::json));
            self.image_error = image.present("error").map(Node::json).or(self.image_error.take());
            return Added::Silent;
        }
        Added::Unknown
    }

    fn reason(&mut self, reasoning: Node<'_>) -> Added {
        let mut added = Added::Unknown;
        if let Some(signature) = reasoning.get("signature").filter(|s| s.is_string()) {
            self.signature = Some(signature.json());
            added = Added::Silent;
        }
        if let Some(redacted) = reasoning.get("redactedContent").filter(|r| r.is_string()) {
            self.redacted.push(redacted.json());
            added = Added::Silent;
        }
        if let Some(text) = reasoning.name_of("text") {
            self.reasoning.push_str(&text);
            self.has_reasoning = true;
            added = Added::Thought(text);
        }
        added
    }

    /// A lone text goes on with the text before it; several pieces in one delta are pieces of their own.
    fn answer(&mut self, results: Node<'_>) {
        let pieces: Vec<_> = results.elements().collect();
        if let ([piece], Some(last)) = (pieces.as_slice(), self.results.last_mut())
            && let (Some(more), Some(text)) =
                (piece.text_of("text"), last.tree().root().text_of("text"))
        {
            *last = json::object(|o| {
                o.string("text", &(text.into_owned() + &more));
            });
            return;
        }
        self.results.extend(pieces.into_iter().map(Node::json));
    }

    /// The whole block: the members of its beginning in their order, with what the deltas said.
    pub(super) fn assemble(&self) -> Json {
        let start = self.start.as_ref().map(Json::tree);
        let start = start.as_ref().map(throughline_core::Tree::root);
        let kind = start.map_or(Block::Unknown, Block::of);
        let inner = kind.key().and_then(|key| start?.get(key));
        let grown = |key: &str, more: &[(&str, Option<Json>)]| {
            json::object(|o| {
                let others = start.into_iter().flat_map(Node::members);
                for (name, value) in others.filter(|(name, _)| !name.is(key)) {
                    o.node(&name.text().unwrap_or_default(), value);
                }
                o.object(key, |o| {
                    let is_told =
                        |name: Node<'_>| more.iter().any(|(k, v)| name.is(k) && v.is_some());
                    let members = inner.into_iter().flat_map(Node::members);
                    for (name, value) in members.filter(|(name, _)| !is_told(*name)) {
                        o.node(&name.text().unwrap_or_default(), value);
                    }
                    for (name, value) in more {
                        if let Some(value) = value {
                            o.raw(name, value);
                        }
                    }
                });
            })
        };
        match kind {
            Block::ToolUse | Block::HostedCall => {
                let is_told = inner.is_some_and(|inner| inner.get("input").is_some());
                let input = (!self.input.is_empty() || !is_told).then(|| self.input());
                grown("toolUse", &[("input", input)])
            }
            Block::ToolResult | Block::HostedResult => {
                let is_told = inner.is_some_and(|inner| inner.get("content").is_some());
                let content =
                    (!self.results.is_empty() || !is_told).then(|| json::array_of(&self.results));
                grown("toolResult", &[("content", content)])
            }
            Block::Image => {
                let source = (!self.image.is_empty()).then(|| {
                    json::object(|o| {
                        o.raw("bytes", &joined(&self.image));
                    })
                });
                grown("image", &[("source", source), ("error", self.image_error.clone())])
            }
            Block::Text
            | Block::Reasoning
            | Block::Document
            | Block::Video
            | Block::Audio
            | Block::GuardContent
            | Block::Citations
            | Block::CachePoint
            | Block::SearchResult
            | Block::Unknown => match &self.start {
                Some(start) if start.as_str() != "{}" && !self.has_said() => start.clone(),
                Some(_) | None => self.text_or_thought(),
            },
        }
    }

    /// Whether it is known what it is.
    pub(super) fn is_told(&self) -> bool {
        self.has_said() || self.start.as_ref().is_some_and(|start| start.as_str() != "{}")
    }

    fn has_said(&self) -> bool {
        self.has_text
            || self.has_reasoning
            || self.signature.is_some()
            || !self.redacted.is_empty()
            || !self.citations.is_empty()
    }

    /// A text or a thought, of which only deltas tell.
    fn text_or_thought(&self) -> Json {
        if self.has_reasoning || self.signature.is_some() || !self.redacted.is_empty() {
            return json::object(|o| {
                o.object("reasoningContent", |o| {
                    if self.has_reasoning || self.signature.is_some() {
                        o.object("reasoningText", |o| {
                            o.string("text", &self.reasoning);
                            if let Some(signature) = &self.signature {
                                o.raw("signature", signature);
                            }
                        });
                    }
                    if !self.redacted.is_empty() {
                        o.raw("redactedContent", &joined(&self.redacted));
                    }
                });
            });
        }
        if self.citations.is_empty() {
            return json::object(|o| {
                o.string("text", &self.text);
            });
        }
        json::object(|o| {
            o.object("citationsContent", |o| {
                o.array("content", |a| {
                    a.object(|o| {
                        o.string("text", &self.text);
                    });
                });
                o.raw("citations", &json::array_of(&self.citations));
            });
        })
    }

    fn input(&self) -> Json {
        if self.input.trim().is_empty() {
            return json::object(|_| {});
        }
        Json::parse(self.input.clone()).unwrap_or_else(|_| json::string(&self.input))
    }
}

/// Pieces of a blob, each in base64: one stays as it came, several become one.
fn joined(pieces: &[Json]) -> Json {
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
