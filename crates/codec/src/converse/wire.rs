//! Vocabulary of Converse: block types, stop reasons, usage, media formats, paths, and the members
//! that hold Seals.

use throughline_core::{StopReason, Usage};
use throughline_json::{self as json, Json, Label, Name, Node};

use self::ConverseBlockKind as Kind;
use crate::Document;
use crate::object::copy_members;
use crate::percent::percent_encode;

/// Classifies a document of this wire; `None` if the document does not belong to this wire.
pub(super) fn recognise(document: Node<'_>) -> Option<Document> {
    if document.at("/output/message/content").is_some() {
        return Some(Document::Response);
    }
    let is_fault = document.get("__type").is_some() && document.get("message").is_some();
    if is_fault && document.get("messages").is_none() {
        return Some(Document::Response);
    }
    if ConverseEventKind::unwrap(document)
        .is_some_and(|(kind, _)| kind != ConverseEventKind::Unknown)
    {
        return Some(Document::Event);
    }
    let messages = document.get("messages").filter(|messages| messages.is_array())?;
    let has_own_member = ["inferenceConfig", "toolConfig", "additionalModelRequestFields"]
        .into_iter()
        .any(|key| document.get(key).is_some());
    let blocks = messages.elements().filter_map(|message| message.get("content"));
    let mut blocks = blocks.chain(document.get("system")).flat_map(Node::elements);
    let has_own_block =
        blocks.any(|block| block.get("type").is_none() && Kind::from_node(block) != Kind::Unknown);
    (has_own_member || has_own_block).then_some(Document::Request)
}

/// The type of a content block. A block is an object with a single member, whose name determines
/// the type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConverseBlockKind {
    Text,
    Reasoning,
    Image,
    Document,
    Video,
    Audio,
    ToolUse,
    ToolResult,
    /// A `toolUse` block of a tool that Bedrock runs itself.
    HostedCall,
    /// A `toolResult` block of a tool that Bedrock runs itself.
    HostedResult,
    GuardContent,
    Citations,
    CachePoint,
    SearchResult,
    Unknown,
}

/// The member names of content blocks and their block types.
const KINDS: &[(&str, Kind)] = &[
    ("text", Kind::Text),
    ("reasoningContent", Kind::Reasoning),
    ("toolUse", Kind::ToolUse),
    ("toolResult", Kind::ToolResult),
    ("image", Kind::Image),
    ("document", Kind::Document),
    ("video", Kind::Video),
    ("audio", Kind::Audio),
    ("guardContent", Kind::GuardContent),
    ("citationsContent", Kind::Citations),
    ("cachePoint", Kind::CachePoint),
    ("searchResult", Kind::SearchResult),
];

impl ConverseBlockKind {
    pub(super) fn from_node(block: Node<'_>) -> Self {
        let found = KINDS.iter().find_map(|(key, kind)| Some((*kind, block.present(key)?)));
        let is_typed = |inner: Node<'_>| inner.present("type").is_some();
        match found {
            // Only tools that Bedrock runs itself have a `type`.
            Some((Self::ToolUse, inner)) if is_typed(inner) => Self::HostedCall,
            Some((Self::ToolResult, inner)) if is_typed(inner) => Self::HostedResult,
            Some((kind, _)) => kind,
            None => Self::Unknown,
        }
    }

    /// Returns the member name of this block type; `None` for an unknown type.
    pub(super) fn key(self) -> Option<&'static str> {
        match self {
            Self::HostedCall => Some("toolUse"),
            Self::HostedResult => Some("toolResult"),
            known => KINDS.iter().find(|(_, kind)| *kind == known).map(|(key, _)| *key),
        }
    }

    pub(super) fn can_hold_seal(self) -> bool {
        matches!(self, Self::Reasoning | Self::HostedCall | Self::HostedResult | Self::Unknown)
    }

    /// Returns the Seal format of the member `key`, at any depth in a block of this type; `None` if
    /// the member holds no Seal.
    pub(super) fn seal_format(self, key: &str) -> Option<Label> {
        let is_hosted = matches!(self, Self::HostedCall | Self::HostedResult | Self::Unknown);
        match (self, key) {
            (Self::Reasoning, "signature") => Some(Label::Borrowed("bedrock.signature")),
            (Self::Reasoning, "redactedContent") => Some("bedrock.redacted_content".into()),
            _ => {
                (is_hosted && key.starts_with("encrypted")).then(|| format!("bedrock.{key}").into())
            }
        }
    }
}

/// Converts a response block to its request form, with only the members that a request accepts.
/// `null` members are dropped. Empty signatures are dropped too, because some models reject them.
pub(super) fn project(block: &Json) -> Json {
    let tree = block.tree();
    let node = tree.root();
    let kind = Kind::from_node(node);
    let (Some(key), Some(inner)) = (kind.key(), kind.key().and_then(|key| node.present(key)))
    else {
        return block.clone();
    };
    let value = match kind {
        Kind::ToolUse | Kind::HostedCall => {
            pick_members(inner, &["toolUseId", "name", "input", "type"], |_, _| true)
        }
        Kind::Reasoning => {
            let text = inner.present("reasoningText");
            let text = text.map(|text| {
                pick_members(text, &["text", "signature"], |key, value| {
                    key != "signature" || !value.is("")
                })
            });
            match text {
                Some(text) => object! { "reasoningText": text },
                None => inner.json(),
            }
        }
        _ => inner.json(),
    };
    if value.bytes() == inner.raw() && node.members().count() == 1 {
        return block.clone();
    }
    object! { (key): value }
}

/// Returns an object with those named members that are not `null` and for which `keeps` returns
/// true.
fn pick_members(node: Node<'_>, names: &[&str], keeps: impl Fn(&str, Node<'_>) -> bool) -> Json {
    let is_taken = |(key, value): &(Node<'_>, Node<'_>)| {
        names.iter().any(|name| key.is(name) && keeps(name, *value)) && !value.is_null()
    };
    if node.members().all(|member| is_taken(&member)) {
        return node.json();
    }
    json::object(|o| copy_members(o, node.members().filter(is_taken)))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConverseEventKind {
    MessageStart,
    BlockStart,
    BlockDelta,
    BlockStop,
    MessageStop,
    Metadata,
    Unknown,
}

impl ConverseEventKind {
    pub(super) fn from_name(name: &str) -> Self {
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

    /// Returns the type and payload of an event that is wrapped in an object keyed by the event
    /// name, for example `{"contentBlockDelta": {…}}`.
    pub(super) fn unwrap(root: Node<'_>) -> Option<(Self, Node<'_>)> {
        let mut members = root.members();
        let (name, inner) = members.next().filter(|(_, inner)| inner.is_object())?;
        members.next().is_none().then(|| (Self::from_name(&name.text().unwrap_or_default()), inner))
    }

    /// Infers the type of an event from its payload, for events that arrive without a name.
    pub(super) fn detect(root: Node<'_>) -> Self {
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

/// Converts a Converse stop reason. `fields` are the model-specific response fields, which may
/// contain the stop sequence.
pub(super) fn stop(reason: Option<&str>, fields: Option<Node<'_>>) -> StopReason {
    match reason {
        Some("end_turn") => StopReason::Done,
        Some("tool_use") => StopReason::Tools,
        Some("max_tokens" | "model_context_window_exceeded") => StopReason::Length,
        Some("stop_sequence") => {
            let at = |pointer| fields.and_then(|fields| fields.at(pointer)).and_then(Node::name);
            StopReason::Sequence(at("/stop_sequence").or_else(|| at("/delta/stop_sequence")))
        }
        Some("pause_turn") => StopReason::Paused,
        Some(word @ ("guardrail_intervened" | "content_filtered")) => {
            StopReason::Refused(Name::from(word))
        }
        Some(other) => StopReason::Other(Name::from(other)),
        None => StopReason::Cut,
    }
}

/// Returns the wire's name for a stop reason.
pub(super) fn stop_reason(stop: &StopReason) -> &str {
    match stop {
        StopReason::Done => "end_turn",
        StopReason::Tools => "tool_use",
        StopReason::Length | StopReason::Cut => "max_tokens",
        StopReason::Sequence(_) => "stop_sequence",
        StopReason::Paused => "pause_turn",
        StopReason::Refused(word) if &**word == "guardrail_intervened" => word,
        StopReason::Refused(_) => "content_filtered",
        StopReason::Other(word) => word,
    }
}

/// Decodes a `usage` object. `inputTokens` excludes tokens read from or written to a cache.
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

/// Writes a `usage` object. This wire does not count thinking separately.
pub(super) fn usage_json(usage: &Usage) -> Json {
    object! {
        "inputTokens": usage.uncached_input(), "outputTokens": usage.output,
        "totalTokens": usage.total(), "cacheReadInputTokens": usage.cached,
        "cacheWriteInputTokens": usage.written,
    }
}

/// Media types with their Converse formats and block types. If a media type has several formats,
/// the encoder writes the first of them.
const FORMATS: &[(&str, &str, Kind)] = &[
    ("image/png", "png", Kind::Image),
    ("image/jpeg", "jpeg", Kind::Image),
    ("image/gif", "gif", Kind::Image),
    ("image/webp", "webp", Kind::Image),
    ("application/pdf", "pdf", Kind::Document),
    ("text/csv", "csv", Kind::Document),
    ("application/msword", "doc", Kind::Document),
    (
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        "docx",
        Kind::Document,
    ),
    ("application/vnd.ms-excel", "xls", Kind::Document),
    ("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", "xlsx", Kind::Document),
    ("text/html", "html", Kind::Document),
    ("text/plain", "txt", Kind::Document),
    ("text/markdown", "md", Kind::Document),
    ("video/mp4", "mp4", Kind::Video),
    ("video/x-matroska", "mkv", Kind::Video),
    ("video/quicktime", "mov", Kind::Video),
    ("video/webm", "webm", Kind::Video),
    ("video/x-flv", "flv", Kind::Video),
    ("video/mpeg", "mpeg", Kind::Video),
    ("video/mpeg", "mpg", Kind::Video),
    ("video/x-ms-wmv", "wmv", Kind::Video),
    ("video/3gpp", "three_gp", Kind::Video),
    ("audio/mpeg", "mp3", Kind::Audio),
    ("audio/mp3", "mp3", Kind::Audio),
    ("audio/wav", "wav", Kind::Audio),
    ("audio/x-wav", "wav", Kind::Audio),
    ("audio/opus", "opus", Kind::Audio),
    ("audio/aac", "aac", Kind::Audio),
    ("audio/flac", "flac", Kind::Audio),
    ("audio/ogg", "ogg", Kind::Audio),
    ("audio/mp4", "mp4", Kind::Audio),
    ("audio/mp4", "m4a", Kind::Audio),
    ("audio/webm", "webm", Kind::Audio),
];

/// Returns the block type and format of a media type.
pub(super) fn format_of(mime: &str) -> Option<(Kind, &'static str)> {
    FORMATS.iter().find(|(known, ..)| *known == mime).map(|(_, format, block)| (*block, *format))
}

/// Returns the media type for a format in a block of this type.
pub(super) fn mime_of(block: Kind, format: &str) -> Option<Name> {
    let is_it = |row: &&(&str, &str, Kind)| row.1 == format && row.2 == block;
    FORMATS.iter().find(is_it).map(|(mime, ..)| Name::from(*mime))
}

/// The parsed path of a request: `/model/{model}/converse` or `/model/{model}/converse-stream`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ConversePath<'p> {
    /// The path before `/model/`.
    before: &'p str,
    pub(super) model: Option<String>,
    pub(super) stream: bool,
    /// The query string, including the question mark.
    query: &'p str,
}

impl<'p> ConversePath<'p> {
    pub(super) fn parse(path: &'p str) -> Self {
        let cut = path.find('?').unwrap_or(path.len());
        let (route, query) = path.split_at(cut);
        let nothing = Self { query, ..Self::default() };
        let Some((before, rest)) = route.rsplit_once("/model/") else { return nothing };
        // An encoded model name contains no slash, but a client may send an unencoded ARN.
        let Some((model, action)) = rest.rsplit_once('/') else { return nothing };
        let stream = match action {
            "converse" => false,
            "converse-stream" => true,
            _ => return nothing,
        };
        Self { before, model: Some(percent_decode(model)), stream, query }
    }

    /// Returns this path with another model and streaming mode.
    pub(super) fn with_model(&self, model: &str, stream: bool) -> String {
        let (before, query, model) = (self.before, self.query, percent_encode(model, ""));
        let action = if stream { "converse-stream" } else { "converse" };
        format!("{before}/model/{model}/{action}{query}")
    }
}

fn percent_decode(text: &str) -> String {
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
