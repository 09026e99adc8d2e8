//! OpenRouter's `reasoning_details`: one reasoning element per entry, tagged with its provider's format.
//!
//! The list says where a handle attaches: `id` names the item or the tool call that it belongs to, `index` its
//! place in the turn. Kinds and members that we do not know are kept, as are the ways of saying nothing: a
//! `null`, or a signature of `""`, is printed again as it came.

use std::sync::Arc;

use crate::document::{Opaque, write_extras};
use crate::format::ReasoningFormat;
use crate::item::{Body, Item, Native, Place, Role, Side};
use crate::json::{self, Json, Node, Object};
use crate::name::{ItemId, Label, Name, Wire};
use crate::origin::Origin;
use crate::seal::Seal;
use crate::thought::{Thought, ThoughtKind};

/// One provider-emitted reasoning element.
#[derive(Clone, Debug, PartialEq)]
pub enum ReasoningItem {
    /// Reasoning that can be read, with its signature if it has one.
    Text {
        /// What every element has.
        meta: DetailMeta,
        /// The reasoning; absent in a fragment that brings only the signature.
        text: Option<Arc<str>>,
        /// The signature, exactly as issued. `""` means none.
        signature: Option<Opaque>,
    },
    /// The provider's summary of its reasoning.
    Summary {
        /// What every element has.
        meta: DetailMeta,
        /// The summary.
        summary: Arc<str>,
    },
    /// Reasoning that cannot be read.
    Encrypted {
        /// What every element has.
        meta: DetailMeta,
        /// The sealed data, exactly as issued.
        data: Opaque,
    },
    /// A kind that we do not know, verbatim.
    Unknown(Json),
}

/// What every reasoning element has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DetailMeta {
    /// The provider's id for the element, or the id of the tool call that it is attached to.
    pub id: Option<Name>,
    /// Whose shape it has; nothing where the entry does not say.
    pub format: Option<ReasoningFormat>,
    /// Its place in the turn.
    pub index: Option<u64>,
    /// Every other member, verbatim.
    pub extras: Vec<(Name, Json)>,
}

/// The slot of a chat message in which these stand.
const SLOT: &str = "reasoning_details";
const TEXT: &str = "reasoning.text";
const SUMMARY: &str = "reasoning.summary";
const ENCRYPTED: &str = "reasoning.encrypted";

/// Reads a whole list; nothing where the value is no list.
pub fn parse_details(list: &Json) -> Option<Vec<ReasoningItem>> {
    let tree = list.tree();
    let root = tree.root();
    root.is_array().then(|| root.elements().map(ReasoningItem::read).collect())
}

/// Writes a whole list.
pub fn print_details(items: &[ReasoningItem]) -> Json {
    json::array(|list| {
        for item in items {
            list.raw(&item.json());
        }
    })
}

impl ReasoningItem {
    /// Reads one element. What is not one of the three kinds is kept as it is.
    pub fn parse(element: &Json) -> Self {
        Self::read(element.tree().root())
    }

    /// Reads one element of a list that is being read.
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
        let taken: Vec<&str> = [("text", text.is_some()), ("signature", signature.is_some())]
            .into_iter()
            .filter_map(|(key, is_taken)| is_taken.then_some(key))
            .collect();
        let meta = DetailMeta::read(node, &taken);
        Some(Self::Text { meta, text, signature: signature.map(Opaque::from) })
    }

    /// The element's JSON: the members it was read with, and no others.
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
                out.maybe_string("text", text.as_deref());
                out.maybe_string("signature", signature.as_ref().map(Opaque::reveal_to_tenant));
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

    /// What every element has; nothing for a kind that we do not know.
    pub fn meta(&self) -> Option<&DetailMeta> {
        match self {
            Self::Text { meta, .. } | Self::Summary { meta, .. } | Self::Encrypted { meta, .. } => {
                Some(meta)
            }
            Self::Unknown(_) => None,
        }
    }

    /// Whose shape it has; `unknown` where it does not say.
    pub fn format(&self) -> ReasoningFormat {
        let format = self.meta().and_then(|meta| meta.format.clone());
        format.unwrap_or_else(ReasoningFormat::unknown)
    }

    /// What is opaque in it, and where; an empty value seals nothing.
    pub fn sealed(&self) -> Option<(&Opaque, &'static str)> {
        let (opaque, at) = match self {
            Self::Text { signature, .. } => (signature.as_ref()?, "/signature"),
            Self::Encrypted { data, .. } => (data, "/data"),
            Self::Summary { .. } | Self::Unknown(_) => return None,
        };
        (!opaque.is_empty()).then_some((opaque, at))
    }

    /// The Item of the element, as `owner` issued it: a Thought with its Seal, or an unknown part.
    pub fn item(&self, id: impl Into<ItemId>, place: Place, owner: &Arc<Origin>) -> Item {
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
        let mut native = Native::new(Wire::OPENAI_CHAT, Side::Response, self.json());
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

    /// The elements that an Item makes. One that came from such a list is that entry again. A sealed summary makes
    /// two, and what is sealed on a tool call makes an encrypted one of that call's id.
    pub fn of(item: &Item) -> Vec<Self> {
        let native = item.native.as_ref();
        if let Some(native) = native.filter(|native| native.slot == SLOT) {
            return vec![Self::parse(&native.json)];
        }
        let seal = item.seals.iter().find_map(Opaque::of);
        let id = native.and_then(|native| native.id.clone());
        match &item.body {
            Body::Thought(thought) => {
                let format = Some(thought.format.clone());
                let meta = DetailMeta { id, format, index: thought.index, extras: Vec::new() };
                let encrypted = |data| Self::Encrypted { meta: meta.clone(), data };
                let text = thought.content.clone();
                match thought.kind {
                    ThoughtKind::Text => {
                        vec![Self::Text { meta, text: Some(text), signature: seal }]
                    }
                    ThoughtKind::Summary => {
                        let summary = Self::Summary { meta: meta.clone(), summary: text };
                        std::iter::once(summary).chain(seal.map(encrypted)).collect()
                    }
                    ThoughtKind::Encrypted => seal.map(encrypted).into_iter().collect(),
                }
            }
            Body::Call(call) => {
                let id = Some(call.wire_id.clone().unwrap_or_else(|| call.id.0.clone()));
                let wire = item.origin.as_ref().map(|origin| &origin.wire);
                let format =
                    (wire == Some(&Wire::GEMINI)).then_some(ReasoningFormat::GoogleGeminiV1);
                let meta = DetailMeta { id, format, ..DetailMeta::default() };
                seal.map(|data| Self::Encrypted { meta, data }).into_iter().collect()
            }
            Body::Text(_)
            | Body::Media(_)
            | Body::Result(_)
            | Body::Hosted(_)
            | Body::Compaction
            | Body::Summary { .. }
            | Body::Unknown => Vec::new(),
        }
    }
}

impl DetailMeta {
    /// Reads what every element has. A member that says nothing we can hold stays among the extras.
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
        out.maybe_string("id", self.id.as_deref());
        out.maybe_string("format", self.format.as_ref().map(ReasoningFormat::as_str));
        if let Some(index) = self.index {
            out.number("index", index);
        }
        write_extras(out, &self.extras, &[]);
    }
}
