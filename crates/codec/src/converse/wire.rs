//! Converse's own words: block kinds, stop reasons, usage, media formats, the path, and which fields of a block hold
//! Seals.

use throughline_core::{Json, Label, Name, Node, Stop, Usage, json};

use crate::Document;

/// Whether a document is one of this wire's.
pub(super) fn recognise(document: Node<'_>) -> Option<Document> {
    if document.at("/output/message/content").is_some() {
        return Some(Document::Response);
    }
    let is_fault = document.get("__type").is_some() && document.get("message").is_some();
    if is_fault && document.get("messages").is_none() {
        return Some(Document::Response);
    }
    if EventKind::wrapped(document).is_some_and(|(kind, _)| kind != EventKind::Unknown) {
        return Some(Document::Event);
    }
    let messages = document.get("messages").filter(|messages| messages.is_array())?;
    let has_own_member = ["inferenceConfig", "toolConfig", "additionalModelRequestFields"]
        .into_iter()
        .any(|key| document.get(key).is_some());
    let blocks = messages.elements().filter_map(|message| message.get("content"));
    let mut blocks = blocks.chain(document.get("system")).flat_map(Node::elements);
    let has_own_block =
        blocks.any(|block| block.get("type").is_none() && Block::of(block) != Block::Unknown);
    (has_own_member || has_own_block).then_some(Document::Request)
}

/// What a content block is. A block is a union: its one member says which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Block {
    Text,
    Reasoning,
    Image,
    Document,
    Video,
    Audio,
    ToolUse,
    ToolResult,
    /// A `toolUse` that Bedrock runs itself.
    HostedCall,
    /// The `toolResult` of one.
    HostedResult,
    GuardContent,
    Citations,
    CachePoint,
    SearchResult,
    Unknown,
}

/// The members that a content block may have, with what they make of it.
const KINDS: &[(&str, Block)] = &[
    ("text", Block::Text),
    ("reasoningContent", Block::Reasoning),
    ("toolUse", Block::ToolUse),
    ("toolResult", Block::ToolResult),
    ("image", Block::Image),
    ("document", Block::Document),
    ("video", Block::Video),
    ("audio", Block::Audio),
    ("guardContent", Block::GuardContent),
    ("citationsContent", Block::Citations),
    ("cachePoint", Block::CachePoint),
    ("searchResult", Block::SearchResult),
];

impl Block {
    pub(super) fn of(block: Node<'_>) -> Self {
        let found = KINDS.iter().find_map(|(key, kind)| Some((*kind, block.present(key)?)));
        let is_typed = |inner: Node<'_>| inner.present("type").is_some();
        match found {
            // Only what Bedrock runs itself says of which type it is.
            Some((Self::ToolUse, inner)) if is_typed(inner) => Self::HostedCall,
            Some((Self::ToolResult, inner)) if is_typed(inner) => Self::HostedResult,
            Some((kind, _)) => kind,
            None => Self::Unknown,
        }
    }

    /// The member that holds a block of this kind; nothing for one that is not known.
    pub(super) fn key(self) -> Option<&'static str> {
        match self {
            Self::HostedCall => Some("toolUse"),
            Self::HostedResult => Some("toolResult"),
            known => KINDS.iter().find(|(_, kind)| *kind == known).map(|(key, _)| *key),
        }
    }

    /// Whether a block of this kind can hold a Seal at all.
    pub(super) fn may_seal(self) -> bool {
        matches!(self, Self::Reasoning | Self::HostedCall | Self::HostedResult | Self::Unknown)
    }

    /// Whether a member of this block, at any depth, holds a Seal.
    pub(super) fn seals(self, key: &str) -> Option<Label> {
        match (self, key) {
            (Self::Reasoning, "signature") => Some(Label::Borrowed("bedrock.signature")),
            (Self::Reasoning, "redactedContent") => {
                Some(Label::Borrowed("bedrock.redacted_content"))
            }
            (Self::HostedCall | Self::HostedResult | Self::Unknown, key)
                if key.starts_with("encrypted") =>
            {
                Some(Label::Owned(format!("bedrock.{key}")))
            }
            _ => None,
        }
    }
}

/// A response block as a request would say it: the one member of the union, and of it what a request takes. Members that
/// are `null` were never there, and neither was a signature that is empty: some models refuse one.
pub(super) fn project(block: &Json) -> Json {
    let tree = block.tree();
    let node = tree.root();
    let kind = Block::of(node);
    let (Some(key), Some(inner)) = (kind.key(), kind.key().and_then(|key| node.present(key)))
    else {
        return block.clone();
    };
    let value = match kind {
        Block::ToolUse | Block::HostedCall => {
            taken(inner, &["toolUseId", "name", "input", "type"], |_, _| true)
        }
        Block::Reasoning => {
            let text = inner.present("reasoningText");
            let text = text.map(|text| {
                taken(text, &["text", "signature"], |key, value| {
                    key != "signature" || !value.is("")
                })
            });
            match text {
                Some(text) => json::object(|o| {
                    o.raw("reasoningText", &text);
                }),
                None => inner.json(),
            }
        }
        Block::Text
        | Block::Image
        | Block::Document
        | Block::Video
        | Block::Audio
        | Block::ToolResult
        | Block::HostedResult
        | Block::GuardContent
        | Block::Citations
        | Block::CachePoint
        | Block::SearchResult
        | Block::Unknown => inner.json(),
    };
    if value.bytes() == inner.raw() && node.members().count() == 1 {
        return block.clone();
    }
    json::object(|o| {
        o.raw(key, &value);
    })
}

/// An object with the members of these names that are not `null` and that `keeps` allows.
fn taken(node: Node<'_>, names: &[&str], keeps: impl Fn(&str, Node<'_>) -> bool) -> Json {
    let is_taken = |(key, value): &(Node<'_>, Node<'_>)| {
        names.iter().any(|name| key.is(name) && keeps(name, *value)) && !value.is_null()
    };
    if node.members().all(|member| is_taken(&member)) {
        return node.json();
    }
    json::object(|o| {
        for (key, value) in node.members().filter(is_taken) {
            o.node(&key.text().unwrap_or_default(), value);
        }
    })
}

/// An event of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventKind {
    MessageStart,
    BlockStart,
    BlockDelta,
    BlockStop,
    MessageStop,
    Metadata,
    Unknown,
}

impl EventKind {
    pub(super) fn of(name: &str) -> Self {
        match name {
            "messageStart" => Self::MessageStart,
            "contentBlockStart" => Self::BlockStart,
            "contentBlockDelta" => Self::BlockDelta,
            "contentBlockStop" => Self::BlockStop,
            "messageStop" => Self::MessageStop,
            "metadata" => Self::Metadata,
            _ => Self::Unknown,
        }
    }

    /// The kind and content of an event that was taken out of its frame: `{"contentBlockDelta": {…}}`.
    pub(super) fn wrapped(root: Node<'_>) -> Option<(Self, Node<'_>)> {
        let mut members = root.members();
        let (name, inner) = members.next().filter(|(_, inner)| inner.is_object())?;
        members.next().is_none().then(|| (Self::of(&name.text().unwrap_or_default()), inner))
    }

    /// The kind of an event whose name was lost with its frame.
    pub(super) fn bare(root: Node<'_>) -> Self {
        let has = |key: &str| root.get(key).is_some();
        match (has("contentBlockIndex"), has("start"), has("delta")) {
            (true, true, _) => Self::BlockStart,
            (true, false, true) => Self::BlockDelta,
            (true, false, false) => Self::BlockStop,
            (false, _, _) if has("stopReason") => Self::MessageStop,
            (false, _, _) if has("usage") || has("metrics") => Self::Metadata,
            (false, _, _) if has("role") => Self::MessageStart,
            (false, _, _) => Self::Unknown,
        }
    }
}

/// Why a message ended. `fields` are the model's own additions, which may name the stop sequence.
pub(super) fn stop(reason: Option<&str>, fields: Option<Node<'_>>) -> Stop {
    match reason {
        Some("end_turn") => Stop::Done,
        Some("tool_use") => Stop::Tools,
        Some("max_tokens" | "model_context_window_exceeded") => Stop::Length,
        Some("stop_sequence") => {
            let at = |pointer| fields.and_then(|fields| fields.at(pointer)).and_then(Node::name);
            Stop::Sequence(at("/stop_sequence").or_else(|| at("/delta/stop_sequence")))
        }
        Some("pause_turn") => Stop::Paused,
        Some(word @ ("guardrail_intervened" | "content_filtered")) => {
            Stop::Refused(Name::from(word))
        }
        Some(other) => Stop::Other(Name::from(other)),
        None => Stop::Cut,
    }
}

/// The word for why a message ended.
pub(super) fn stop_word(stop: &Stop) -> &str {
    match stop {
        Stop::Done => "end_turn",
        Stop::Tools => "tool_use",
        Stop::Length | Stop::Cut => "max_tokens",
        Stop::Sequence(_) => "stop_sequence",
        Stop::Paused => "pause_turn",
        Stop::Refused(word) if &**word == "guardrail_intervened" => word,
        Stop::Refused(_) => "content_filtered",
        Stop::Other(word) => word,
    }
}

/// Reads a `usage` object. `inputTokens` leaves out what was read from a cache or written to one.
pub(super) fn usage(node: Node<'_>) -> Usage {
    let count = |key: &str| node.get(key).and_then(Node::u64).unwrap_or_default();
    let (cached, written) = (count("cacheReadInputTokens"), count("cacheWriteInputTokens"));
    Usage {
        input: count("inputTokens").saturating_add(cached).saturating_add(written),
        cached,
        written,
        output: count("outputTokens"),
        thought: 0,
    }
}

/// Writes a `usage` object. Thoughts have no count of their own here.
pub(super) fn usage_json(usage: &Usage) -> Json {
    json::object(|o| {
        o.number("inputTokens", usage.fresh());
        o.number("outputTokens", usage.output);
        o.number("totalTokens", usage.total());
        o.number("cacheReadInputTokens", usage.cached);
        o.number("cacheWriteInputTokens", usage.written);
    })
}

/// The formats of media, with the block that holds them. The first row of a media type is the one that is written.
const FORMATS: &[(&str, &str, Block)] = &[
    ("image/png", "png", Block::Image),
    ("image/jpeg", "jpeg", Block::Image),
    ("image/gif", "gif", Block::Image),
    ("image/webp", "webp", Block::Image),
    ("application/pdf", "pdf", Block::Document),
    ("text/csv", "csv", Block::Document),
    ("application/msword", "doc", Block::Document),
    (
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        "docx",
        Block::Document,
    ),
    ("application/vnd.ms-excel", "xls", Block::Document),
    ("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", "xlsx", Block::Document),
    ("text/html", "html", Block::Document),
    ("text/plain", "txt", Block::Document),
    ("text/markdown", "md", Block::Document),
    ("video/mp4", "mp4", Block::Video),
    ("video/x-matroska", "mkv", Block::Video),
    ("video/quicktime", "mov", Block::Video),
    ("video/webm", "webm", Block::Video),
    ("video/x-flv", "flv", Block::Video),
    ("video/mpeg", "mpeg", Block::Video),
    ("video/mpeg", "mpg", Block::Video),
    ("video/x-ms-wmv", "wmv", Block::Video),
    ("video/3gpp", "three_gp", Block::Video),
    ("audio/mpeg", "mp3", Block::Audio),
    ("audio/mp3", "mp3", Block::Audio),
    ("audio/wav", "wav", Block::Audio),
    ("audio/x-wav", "wav", Block::Audio),
    ("audio/opus", "opus", Block::Audio),
    ("audio/aac", "aac", Block::Audio),
    ("audio/flac", "flac", Block::Audio),
    ("audio/ogg", "ogg", Block::Audio),
    ("audio/mp4", "mp4", Block::Audio),
    ("audio/mp4", "m4a", Block::Audio),
    ("audio/webm", "webm", Block::Audio),
];

/// The block and format for a media type.
pub(super) fn format_of(mime: &str) -> Option<(Block, &'static str)> {
    FORMATS.iter().find(|(known, ..)| *known == mime).map(|(_, format, block)| (*block, *format))
}

/// The media type of a format in a block.
pub(super) fn mime_of(block: Block, format: &str) -> Option<Name> {
    let is_it = |row: &&(&str, &str, Block)| row.1 == format && row.2 == block;
    FORMATS.iter().find(is_it).map(|(mime, ..)| Name::from(*mime))
}

/// What the path of a request says: `/model/{model}/converse` or `/model/{model}/converse-stream`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Path<'p> {
    /// Everything before `/model/`.
    before: &'p str,
    /// The model, decoded.
    pub(super) model: Option<String>,
    /// Whether the answer should be streamed.
    pub(super) stream: bool,
    /// The query, with its question mark.
    query: &'p str,
}

impl<'p> Path<'p> {
    pub(super) fn parse(path: &'p str) -> Self {
        let cut = path.find('?').unwrap_or(path.len());
        let (route, query) = path.split_at(cut);
        let nothing = Self { query, ..Self::default() };
        let Some((before, rest)) = route.rsplit_once("/model/") else { return nothing };
        // An encoded name holds no slash, but a client may have forgotten to encode an ARN.
        let Some((model, action)) = rest.rsplit_once('/') else { return nothing };
        let stream = match action {
            "converse" => false,
            "converse-stream" => true,
            _ => return nothing,
        };
        Self { before, model: Some(decoded(model)), stream, query }
    }

    /// The path for another model, or for the other way of answering.
    pub(super) fn with(&self, model: &str, stream: bool) -> String {
        let (before, query, model) = (self.before, self.query, encoded(model));
        let action = if stream { "converse-stream" } else { "converse" };
        format!("{before}/model/{model}/{action}{query}")
    }
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hex = after.get(..2).filter(|_| *first == b'%');
        let code = hex.and_then(|hex| std::str::from_utf8(hex).ok());
        let code = code.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { after.get(2..).unwrap_or_default() } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn encoded(text: &str) -> String {
    let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let letter = |byte| match byte {
        byte if is_safe(byte) => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(letter).collect()
}
