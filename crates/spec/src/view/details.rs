//! OpenRouter's `reasoning_details`: a list of reasoning elements, each tagged with the format of
//! the provider that issued it.
//!
//! Each element specifies where its Seal belongs: `id` is the id of the item or tool call, and
//! `index` is the position in the turn. Unknown kinds and members are kept. `null` and an empty
//! signature are written as they were read.

use std::sync::Arc;

use throughline_core::{
    Body, Direction, Item, ItemId, ItemPosition, NativePart, Origin, ReasoningFormat, Role, Seal,
    Thought, ThoughtKind, Wire,
};
use throughline_json::{self as json, Json, Label, Name, Node, Object, Opaque, write_extras};

/// One reasoning element from a provider.
#[derive(Clone, Debug, PartialEq)]
pub enum ReasoningItem {
    /// Readable reasoning, with its signature if it has one.
    Text {
        /// The members that all kinds of elements have.
        meta: DetailMeta,
        /// The reasoning; absent in a fragment that contains only the signature.
        text: Option<Arc<str>>,
        /// The signature, exactly as issued. An empty signature counts as absent.
        signature: Option<Opaque>,
    },
    /// The provider's summary of its reasoning.
    Summary {
        /// The members that all kinds of elements have.
        meta: DetailMeta,
        /// The provider's summary text.
        summary: Arc<str>,
    },
    /// Encrypted reasoning without readable text.
    Encrypted {
        /// The members that all kinds of elements have.
        meta: DetailMeta,
        /// The sealed data, exactly as issued.
        data: Opaque,
    },
    /// An element of an unknown kind, verbatim.
    Unknown(Json),
}

/// The members that all kinds of reasoning elements have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DetailMeta {
    /// The provider's id for the element, or the id of the tool call to which the element belongs.
    pub id: Option<Name>,
    /// The provider's format for the element; `None` if the element does not specify one.
    pub format: Option<ReasoningFormat>,
    /// The element's position in the turn; `None` if the element does not specify one.
    pub index: Option<u64>,
    /// All other members, verbatim.
    pub extras: Vec<(Name, Json)>,
}

/// The name of the chat message member that contains the reasoning elements.
const SLOT: &str = "reasoning_details";
const TEXT: &str = "reasoning.text";
const SUMMARY: &str = "reasoning.summary";
const ENCRYPTED: &str = "reasoning.encrypted";

/// Parses an array of elements; `None` if the value is not an array.
pub fn parse_details(list: &Json) -> Option<Vec<ReasoningItem>> {
    let tree = list.tree();
    let root = tree.root();
    root.is_array().then(|| root.elements().map(ReasoningItem::read).collect())
}

/// Returns the elements as a JSON array.
pub fn print_details(items: &[ReasoningItem]) -> Json {
    let items: Vec<Json> = items.iter().map(ReasoningItem::json).collect();
    json::array_of(&items)
}

impl ReasoningItem {
    /// Parses one element. An unknown kind is kept verbatim.
    pub fn parse(element: &Json) -> Self {
        Self::read(element.tree().root())
    }

    /// Parses one element from a JSON node; see [`ReasoningItem::parse`].
    pub fn read(node: Node<'_>) -> Self {
        let known = match node.text_of("type").as_deref() {
            Some(TEXT) => Self::read_text(node),
            Some(SUMMARY) => node.name_of("summary").map(|summary| Self::Summary {
                meta: DetailMeta::read(node, &["summary"]),
                summary,
            }),
            Some(ENCRYPTED) => node.name_of("data").map(|data| Self::Encrypted {
                meta: DetailMeta::read(node, &["data"]),
                data: data.into(),
            }),
            Some(_) | None => None,
        };
        known.unwrap_or_else(|| Self::Unknown(node.json()))
    }

    fn read_text(node: Node<'_>) -> Option<Self> {
        let is_odd = |key| node.present(key).is_some_and(|value| !value.is_string());
        if is_odd("text") || is_odd("signature") {
            return None;
        }
        let text = node.name_of("text");
        let signature = node.name_of("signature").filter(|text| !text.is_empty());
        let keys = text.as_ref().map(|_| "text").into_iter();
        let keys: Vec<_> = keys.chain(signature.as_ref().map(|_| "signature")).collect();
        let meta = DetailMeta::read(node, &keys);
        Some(Self::Text { meta, text, signature: signature.map(Opaque::from) })
    }

    /// Returns the element as JSON, with exactly the members that were parsed.
    pub fn json(&self) -> Json {
        let element = |kind, meta: &DetailMeta, own: &dyn Fn(&mut Object<'_>)| {
            json::object(|out| {
                out.string("type", kind);
                own(out);
                meta.write(out);
            })
        };
        match self {
            Self::Text { meta, text, signature } => element(TEXT, meta, &|out| {
                out.maybe("text", text.as_ref());
                out.maybe("signature", signature.as_ref().map(Opaque::reveal_to_tenant));
            }),
            Self::Summary { meta, summary } => element(SUMMARY, meta, &|out| {
                out.string("summary", summary);
            }),
            Self::Encrypted { meta, data } => element(ENCRYPTED, meta, &|out| {
                out.string("data", data.reveal_to_tenant());
            }),
            Self::Unknown(raw) => raw.clone(),
        }
    }

    /// Returns the members that all known kinds of elements have; `None` for an unknown kind.
    pub fn meta(&self) -> Option<&DetailMeta> {
        match self {
            Self::Text { meta, .. } | Self::Summary { meta, .. } | Self::Encrypted { meta, .. } => {
                Some(meta)
            }
            Self::Unknown(_) => None,
        }
    }

    /// Returns the members that all known kinds of elements have, for changes; `None` for an
    /// unknown kind.
    pub fn meta_mut(&mut self) -> Option<&mut DetailMeta> {
        match self {
            Self::Text { meta, .. } | Self::Summary { meta, .. } | Self::Encrypted { meta, .. } => {
                Some(meta)
            }
            Self::Unknown(_) => None,
        }
    }

    /// Returns the element's format; [`ReasoningFormat::unknown`] if the element does not specify
    /// one.
    pub fn format(&self) -> ReasoningFormat {
        let format = self.meta().and_then(|meta| meta.format.clone());
        format.unwrap_or_else(ReasoningFormat::unknown)
    }

    /// Returns the signature or the encrypted data, with its JSON pointer in the element. Returns
    /// `None` if the value is absent or empty.
    pub fn sealed(&self) -> Option<(&Opaque, &'static str)> {
        let (opaque, at) = match self {
            Self::Text { signature, .. } => (signature.as_ref()?, "/signature"),
            Self::Encrypted { data, .. } => (data, "/data"),
            Self::Summary { .. } | Self::Unknown(_) => return None,
        };
        (!opaque.is_empty()).then_some((opaque, at))
    }

    /// Converts the element to an Item issued by `owner`: a Thought with its Seal, or an unknown
    /// part.
    pub fn item(&self, id: impl Into<ItemId>, place: ItemPosition, owner: &Arc<Origin>) -> Item {
        let thought = |content: &str, kind| {
            let mut thought = Thought::issued(content, kind, self.format());
            thought.index = self.meta().and_then(|meta| meta.index);
            Body::Thought(thought)
        };
        let body = match self {
            Self::Text { text, .. } => {
                thought(text.as_deref().unwrap_or_default(), ThoughtKind::Text)
            }
            Self::Summary { summary, .. } => thought(summary, ThoughtKind::Summary),
            Self::Encrypted { .. } => thought("", ThoughtKind::Encrypted),
            Self::Unknown(_) => Body::Unknown,
        };
        let mut native = NativePart::new(Wire::OPENAI_CHAT, Direction::Response, self.json());
        native.id = self.meta().and_then(|meta| meta.id.clone());
        native.slot = Label::Borrowed(SLOT);
        let mut item = Item::new(id, place, Role::Assistant, body);
        item.native = Some(native);
        item.origin = Some(Arc::clone(owner));
        let seal = |(opaque, at): (&Opaque, &'static str)| {
            let format = at.replacen('/', "reasoning_details.", 1);
            Seal::new(opaque.bytes(), format, Arc::clone(owner), at)
        };
        item.seals = self.sealed().map(seal).into_iter().collect();
        item
    }

    /// Converts an Item to reasoning elements. An Item that was read from `reasoning_details`
    /// becomes its original element. A sealed summary becomes two elements: the summary and an
    /// encrypted element. A Seal on a tool call becomes an encrypted element with the call's id.
    pub fn from_item(item: &Item) -> Vec<Self> {
        let native = item.native.as_ref();
        if let Some(native) = native.filter(|native| native.slot == SLOT) {
            return vec![Self::parse(&native.json)];
        }
        let seal = item.seals.iter().find_map(Seal::to_opaque);
        let id = native.and_then(|native| native.id.clone());
        if let Some(call) = item.call() {
            let id = Some(call.wire_id.clone().unwrap_or_else(|| call.id.0.clone()));
            let is_gemini = item.origin.as_ref().is_some_and(|origin| origin.wire == Wire::GEMINI);
            let format = is_gemini.then_some(ReasoningFormat::GoogleGeminiV1);
            let meta = DetailMeta { id, format, ..DetailMeta::default() };
            return seal.map(|data| Self::Encrypted { meta, data }).into_iter().collect();
        }
        let Body::Thought(thought) = &item.body else { return Vec::new() };
        let format = Some(thought.format.clone());
        let meta = DetailMeta { id, format, index: thought.index, extras: Vec::new() };
        let encrypted = |data| Self::Encrypted { meta: meta.clone(), data };
        let text = thought.content.clone();
        match thought.kind {
            ThoughtKind::Text => vec![Self::Text { meta, text: Some(text), signature: seal }],
            ThoughtKind::Summary => {
                let summary = Self::Summary { meta: meta.clone(), summary: text };
                std::iter::once(summary).chain(seal.map(encrypted)).collect()
            }
            ThoughtKind::Encrypted => seal.map(encrypted).into_iter().collect(),
        }
    }
}

impl DetailMeta {
    /// Reads the members that all kinds of elements have. A member with an unexpected type stays in
    /// the extras.
    fn read(node: Node<'_>, own: &[&str]) -> Self {
        let id = node.name_of("id");
        let format = node.text_of("format").map(|name| ReasoningFormat::new(&name));
        let index = node.get("index").and_then(Node::u64);
        let is_taken = |key: &str| match key {
            "type" => true,
            "id" => id.is_some(),
            "format" => format.is_some(),
            "index" => index.is_some(),
            other => own.contains(&other),
        };
        let members = node.members().filter_map(|(key, value)| Some((key.name()?, value.json())));
        let extras = members.filter(|(key, _)| !is_taken(key)).collect();
        Self { id, format, index, extras }
    }

    fn write(&self, out: &mut Object<'_>) {
        out.maybe("id", self.id.as_ref());
        out.maybe("format", self.format.as_ref().map(ReasoningFormat::as_str));
        out.maybe("index", self.index);
        write_extras(out, &self.extras, &[]);
    }
}
