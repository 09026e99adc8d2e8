//! Reads and writes reasoning items as typed reasoning elements.
//!
//! One reasoning item becomes several elements with the item's id: its texts, the parts of its
//! summary, and its ciphertext. When these elements are written, they become one item again.

use throughline_core::{ReasoningFormat, Vendor};
use throughline_json::{self as json, Json, Node};
use throughline_spec::{DetailMeta, ReasoningCodec, ReasoningItem};

use crate::native_parts::{self, ListPointers, native_meta, put_extras};
use crate::responses::OpenAiResponses;

const OUTPUT: ListPointers = &["/output", ""];
const ENCRYPTED: &str = "encrypted_content";
const MEMBERS: [&str; 5] = ["type", "id", "summary", "content", ENCRYPTED];

impl ReasoningCodec for OpenAiResponses {
    /// Reads the elements of a response, of a list of output items, or of one reasoning item.
    fn parse_response(&self, response: &Json) -> Vec<ReasoningItem> {
        let tree = response.tree();
        let is_grok = tree.root().text_of("model").is_some_and(|model| model.starts_with("grok"));
        let format = if is_grok {
            ReasoningFormat::XaiResponsesV1
        } else {
            ReasoningFormat::OpenAiResponsesV1
        };
        native_parts::read_elements(response, OUTPUT, |item| read(item, &format))
    }

    /// Writes the elements into a response or into a list of items, which stands for the assistant
    /// message on this wire.
    fn write_assistant(&self, message: &Json, items: &[ReasoningItem]) -> Json {
        if items.is_empty() {
            return message.clone();
        }
        let text = |text: &str| object! { "role": "assistant", "content": text };
        native_parts::edit_parts(message, OUTPUT, text, |mut output| {
            output.retain(|item| !is_reasoning(item.tree().root()));
            native_parts::insert_parts(&mut output, reasoning_items(items));
            output
        })
    }
}

fn is_reasoning(item: Node<'_>) -> bool {
    item.get("type").is_some_and(|kind| kind.is("reasoning"))
}

fn read(item: Node<'_>, format: &ReasoningFormat) -> Vec<ReasoningItem> {
    if !is_reasoning(item) {
        return Vec::new();
    }
    let id = item.name_of("id");
    // The first element keeps the members that have no element of their own.
    let mut first = Some(native_meta(item, &MEMBERS, format.clone()));
    let mut meta = || {
        let meta = first.take();
        let meta =
            meta.unwrap_or(DetailMeta { format: Some(format.clone()), ..Default::default() });
        DetailMeta { id: id.clone(), ..meta }
    };
    let texts = |key: &str| {
        let parts = item.get(key).into_iter().flat_map(Node::elements);
        parts.filter_map(|part| part.name_of("text")).collect::<Vec<_>>()
    };
    let mut elements = Vec::new();
    for text in texts("content") {
        elements.push(ReasoningItem::Text { meta: meta(), text: Some(text), signature: None });
    }
    for summary in texts("summary") {
        elements.push(ReasoningItem::Summary { meta: meta(), summary });
    }
    if let Some(data) = native_parts::sealed_member(item, ENCRYPTED) {
        elements.push(ReasoningItem::Encrypted { meta: meta(), data });
    }
    if elements.is_empty() {
        // The provider stores the content of this item under its id.
        elements.push(ReasoningItem::Text { meta: meta(), text: None, signature: None });
    }
    elements
}

/// Rebuilds the payload of a caller's thought as a reasoning item; `None` if the payload is not a
/// reasoning item with ciphertext or text. The item has no id, because an id refers to an item that
/// the provider stores.
pub(super) fn caller_part(payload: &Json) -> Option<Json> {
    let mut elements = read(payload.tree().root(), &ReasoningFormat::OpenAiResponsesV1);
    for meta in elements.iter_mut().filter_map(ReasoningItem::meta_mut) {
        meta.id = None;
    }
    let is_content = |element: &ReasoningItem| {
        matches!(
            element,
            ReasoningItem::Encrypted { .. } | ReasoningItem::Text { text: Some(_), .. }
        )
    };
    let has_content = elements.iter().any(is_content);
    has_content.then(|| native_item(&elements.iter().collect::<Vec<_>>()))
}

/// Groups the elements of each reasoning item, and leaves out elements of other vendors.
fn reasoning_items(elements: &[ReasoningItem]) -> Vec<(Option<u64>, Json)> {
    let is_own =
        |element: &&ReasoningItem| native_parts::is_from(element, &[Vendor::OpenAi, Vendor::Xai]);
    let own: Vec<&ReasoningItem> = elements.iter().filter(is_own).collect();
    let joins = |one: &&ReasoningItem, next: &&ReasoningItem| {
        let (Some(one_meta), Some(next_meta)) = (one.meta(), next.meta()) else { return false };
        let has_ended = matches!(one, ReasoningItem::Encrypted { .. });
        let is_same = match (&one_meta.id, &next_meta.id) {
            (None, None) => one_meta.index == next_meta.index,
            (one, next) => one == next,
        };
        is_same && !has_ended
    };
    let index = |group: &[&ReasoningItem]| group.first()?.meta()?.index;
    own.chunk_by(joins).map(|group| (index(group), native_item(group))).collect()
}

fn native_item(group: &[&ReasoningItem]) -> Json {
    let metas = || group.iter().filter_map(|element| element.meta());
    let texts = group.iter().filter_map(|element| match element {
        ReasoningItem::Text { text, .. } => text.as_ref(),
        _ => None,
    });
    let texts: Vec<_> = texts.collect();
    json::object(|out| {
        out.maybe("id", metas().find_map(|meta| meta.id.as_ref())).string("type", "reasoning");
        out.array("summary", |list| {
            for element in group {
                if let ReasoningItem::Summary { summary, .. } = element {
                    list.object(members! { "type": "summary_text", "text": summary });
                }
            }
        });
        if !texts.is_empty() {
            out.array("content", |list| {
                for text in texts {
                    list.object(members! { "type": "reasoning_text", "text": text });
                }
            });
        }
        for element in group {
            if let ReasoningItem::Encrypted { data, .. } = element {
                out.string(ENCRYPTED, data.reveal_to_tenant());
            }
        }
        if let Some(meta) = metas().next() {
            put_extras(out, meta, &MEMBERS);
        }
    })
}
