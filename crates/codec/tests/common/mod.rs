//! Helpers for the integration tests: targets, decoding of responses, and search for opaque values.

#![allow(dead_code, reason = "each test binary uses its own part of this module")]

pub(crate) mod mix;
pub(crate) mod recorded;
pub(crate) mod samples;

use bytes::Bytes;
use throughline_codec::{Catalog, Codec, CodecError, DecodeContext, Framing, StreamDecoder, codec};
use throughline_core::{Event, Reply, Request, Target, Wire};
use throughline_json::{JsonKind, Name, Node, Tree};

/// Returns the codec of a wire by name; panics if there is none.
pub(crate) fn codec_of(wire: &str) -> &'static dyn Codec {
    codec(&Wire::new(wire.to_owned())).unwrap_or_else(|| panic!("no codec for {wire}"))
}

/// Returns the target of a recorded document: the provider's entry for the wire, or the generic
/// entry.
pub(crate) fn target(provider: &str, wire: &str, model: &str) -> Target {
    let catalog = Catalog::builtin();
    let wire = Wire::new(wire.to_owned());
    let row = catalog.provider_on_wire(provider, &wire);
    let row = row.or_else(|| {
        let generic = catalog.default_provider(&wire)?;
        let generic =
            if wire == Wire::OPENAI_CHAT { catalog.provider("compatible")? } else { generic };
        Some(std::sync::Arc::new(throughline_core::Provider {
            name: Name::from(provider),
            ..throughline_core::Provider::clone(&generic)
        }))
    });
    catalog.target(
        &row.unwrap_or_else(|| panic!("no provider row for {provider} on {wire}")),
        model,
        "test",
    )
}

pub(crate) fn request(path: &str, body: &str) -> Request {
    Request { path: Name::from(path), headers: Vec::new(), body: Bytes::from(body.to_owned()) }
}

/// Decodes a stream from chunks and returns all events.
pub(crate) fn stream_events<'b>(
    codec: &dyn Codec,
    context: &DecodeContext,
    framing: Framing,
    chunks: impl IntoIterator<Item = &'b [u8]>,
) -> Result<Vec<Event>, CodecError> {
    let mut decoder = StreamDecoder::with_framing(codec, context, framing);
    let mut events = Vec::new();
    for chunk in chunks {
        events.extend(decoder.push(chunk)?);
    }
    events.extend(decoder.finish()?);
    Ok(events)
}

/// Returns the Reply in the stream's `Ended` event.
pub(crate) fn reply_in(events: &[Event]) -> Option<&Reply> {
    events.iter().find_map(|event| match event {
        Event::Ended(reply) => Some(&**reply),
        _ => None,
    })
}

/// Returns all strings in a document with their JSON pointers, in document order.
pub(crate) fn strings(tree: &Tree) -> Vec<(String, Bytes)> {
    let mut found = Vec::new();
    let mut waiting: Vec<(String, Node<'_>)> = vec![(String::new(), tree.root())];
    while let Some((path, node)) = waiting.pop() {
        match node.shape() {
            JsonKind::String => found.push((path, node.text_bytes().unwrap())),
            JsonKind::Array => waiting.extend(
                node.elements().enumerate().map(|(at, element)| (format!("{path}/{at}"), element)),
            ),
            JsonKind::Object => waiting.extend(
                node.members()
                    .map(|(key, value)| (format!("{path}/{}", key.text().unwrap()), value)),
            ),
            JsonKind::Null | JsonKind::Bool | JsonKind::Number => {}
        }
    }
    found
}
