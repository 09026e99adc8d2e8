//! The provider's own report on what it did with the reasoning in a request
//! (`input_transformations`).

use throughline_codec::{DecodeContext, codec};
use throughline_core::{ItemPosition, Reply, Request, Target};
use throughline_json::{Name, Node};

/// One entry of the report in a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputTransformation {
    /// The provider's name for the change, such as `thinking_dropped`.
    pub kind: Name,
    /// The position of the block in the sent request, such as `messages.1.content.0`.
    pub path: Name,
    /// The provider's reason, such as `prefix_binding_mismatch`.
    pub reason: Name,
}

impl InputTransformation {
    /// Reads the report in a reply. On Bedrock, the report is one of the model's own members.
    pub(super) fn read_all(reply: &Reply) -> Vec<Self> {
        const REPORT: &str = "input_transformations";
        let extra = |name: &str| reply.extras.iter().find(|(key, _)| &**key == name);
        let own = extra(REPORT).map(|(_, value)| value.clone());
        let report = own.or_else(|| {
            let (_, fields) = extra("additionalModelResponseFields")?;
            fields.tree().root().get(REPORT).map(Node::json)
        });
        let Some(report) = report else { return Vec::new() };
        let entry = |entry: Node<'_>| {
            let text = |key: &str| entry.name_of(key).unwrap_or_default();
            Self { kind: text("type"), path: text("path"), reason: text("reason") }
        };
        report.tree().root().elements().map(entry).collect()
    }

    /// Whether the provider dropped the block.
    pub fn is_drop(&self) -> bool {
        &*self.kind == "thinking_dropped"
    }

    /// Returns the position of the block; `None` if the path has another format.
    pub(super) fn position(&self) -> Option<ItemPosition> {
        let (message, part) = self.path.strip_prefix("messages.")?.split_once(".content.")?;
        Some(ItemPosition::new(message.parse().ok()?, part.parse().ok()?))
    }
}

/// Returns the position of each Seal in a sent request, in order.
pub(super) fn seal_positions(request: &Request, target: &Target) -> Vec<ItemPosition> {
    let codec = codec(&target.origin.wire);
    let context = DecodeContext::of(target.clone());
    let call = codec.and_then(|codec| codec.decode_request(request, &context).ok());
    let items = call.into_iter().flat_map(|call| call.items);
    items.flat_map(|item| vec![item.place; item.seals.len()]).collect()
}
