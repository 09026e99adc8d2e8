//! Recorded conversations: `{"exchanges": [{"path", "request", "response", "status", …}]}`.
//!
//! A body is either a string with the transmitted text or a JSON value. Fields that an exchange
//! lacks are taken from the top level of the recording.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use throughline_json::{Name, Node, Tree};

use crate::input::Input;
use crate::print::failure::{Failure, Result};

/// A recorded request with its response.
pub(crate) struct RecordedExchange {
    pub(crate) path: Option<Name>,
    pub(crate) wire: Option<Name>,
    pub(crate) provider: Option<Name>,
    pub(crate) model: Option<Name>,
    pub(crate) request: Option<Bytes>,
    pub(crate) response: Option<Bytes>,
    /// Whether the provider accepted the request, according to the HTTP status.
    pub(crate) was_taken: bool,
}

/// Returns the exchanges of a recording, oldest first; `None` if the document is not a recording.
pub(crate) fn read(input: &Input) -> Result<Option<Vec<RecordedExchange>>> {
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
        let inherited = |key: &str| exchange.name_of(key).or_else(|| tree.root().name_of(key));
        let mut response = exchange.present("response").and_then(body);
        if exchange.get("response_base64").and_then(Node::bool) == Some(true) {
            let location = format!("{}: exchanges.{index}.response", input.name);
            let invalid = |_| Failure::BadData(format!("{location} is not valid base64"));
            let decoded = response.map(|text| STANDARD.decode(&text)).transpose();
            response = decoded.map_err(invalid)?.map(Bytes::from);
        }
        let status = exchange.get("status").and_then(Node::u64);
        Ok(RecordedExchange {
            path: exchange.name_of("path"),
            wire: inherited("wire"),
            provider: inherited("provider"),
            model: inherited("model"),
            request: exchange.present("request").and_then(body),
            response,
            was_taken: status.is_none_or(|status| (200..300).contains(&status)),
        })
    };
    exchanges.iter().enumerate().map(read).collect::<Result<Vec<_>>>().map(Some)
}

/// Returns a body that is recorded as a string or as JSON; `None` if it is empty.
fn body(node: Node<'_>) -> Option<Bytes> {
    let bytes = if node.is_string() { node.text_bytes()? } else { node.json().bytes().clone() };
    (!bytes.trim_ascii().is_empty()).then_some(bytes)
}
