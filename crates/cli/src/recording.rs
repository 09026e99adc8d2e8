//! Recorded conversations: `{"exchanges": [{"path", "request", "response", "status", …}]}`.
//!
//! A body stands there as the text that was sent, or as the JSON itself. What an exchange does not say of itself, its
//! recording says for all.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use throughline_core::{Name, Node, Tree};

use crate::failure::Failure;
use crate::input::Input;

/// One recorded request and its answer.
pub(crate) struct Recorded {
    pub(crate) path: Option<Name>,
    pub(crate) wire: Option<Name>,
    pub(crate) provider: Option<Name>,
    pub(crate) model: Option<Name>,
    pub(crate) request: Option<Bytes>,
    pub(crate) response: Option<Bytes>,
    /// Whether the provider took the request, as far as its status tells.
    pub(crate) was_taken: bool,
}

/// The exchanges of a recording, the oldest first; nothing where the document is none.
pub(crate) fn read(input: &Input) -> Result<Option<Vec<Recorded>>, Failure> {
    let Ok(tree) = Tree::parse(input.bytes.clone()) else { return Ok(None) };
    let Some(list) = tree.root().get("exchanges").filter(|list| list.is_array()) else {
        return Ok(None);
    };
    let exchanges: Vec<Node<'_>> = list.elements().collect();
    if !exchanges.iter().any(|exchange| exchange.present("request").is_some()) {
        let message = format!("{} is a recording without a request", input.name);
        return Err(Failure::BadData(message));
    }
    let read = |(index, exchange): (usize, &Node<'_>)| {
        let said = |key: &str| exchange.name_of(key).or_else(|| tree.root().name_of(key));
        let response = exchange.present("response").and_then(body);
        let is_base64 = exchange.get("response_base64").and_then(Node::bool).unwrap_or(false);
        let response = match response {
            Some(text) if is_base64 => {
                let place = format!("{}: exchanges.{index}.response", input.name);
                let decoded = STANDARD.decode(&text);
                let decoded =
                    decoded.map_err(|_| Failure::BadData(format!("{place} is not base64")))?;
                Some(Bytes::from(decoded))
            }
            response => response,
        };
        let status = exchange.get("status").and_then(Node::u64);
        Ok(Recorded {
            path: exchange.name_of("path"),
            wire: said("wire"),
            provider: said("provider"),
            model: said("model"),
            request: exchange.present("request").and_then(body),
            response,
            was_taken: status.is_none_or(|status| (200..300).contains(&status)),
        })
    };
    exchanges.iter().enumerate().map(read).collect::<Result<Vec<_>, Failure>>().map(Some)
}

/// A body that was written as a text, or as the JSON that it is.
fn body(node: Node<'_>) -> Option<Bytes> {
    let bytes = if node.is_string() { node.text_bytes()? } else { node.json().bytes().clone() };
    (!bytes.trim_ascii().is_empty()).then_some(bytes)
}
