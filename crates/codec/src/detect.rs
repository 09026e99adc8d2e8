//! Detects the wire and kind of a document.

use bytes::Bytes;
use throughline_core::Wire;
use throughline_json::Tree;

use crate::frame::{Frame, Framer, Framing};
use crate::{CODECS, Document};

/// The wire, kind and framing of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detection {
    /// The wire whose codec recognises the document.
    pub wire: Wire,
    /// Whether the document is a request, a complete response or a streamed event.
    pub document: Document,
    /// The framing of a stream; `None` for a single document.
    pub framing: Option<Framing>,
}

/// Detects the wire and kind of a document; returns `None` if no built-in codec recognises it.
pub fn detect(bytes: &Bytes) -> Option<Detection> {
    if let Ok(tree) = Tree::parse(bytes.clone()) {
        if let Some((wire, document)) = recognise(&tree) {
            return Some(Detection { wire, document, framing: None });
        }
        return detect_stream(bytes, Framing::JsonArray);
    }
    let framings = [Framing::Sse, Framing::EventStream, Framing::JsonLines, Framing::JsonArray];
    framings.into_iter().find_map(|framing| detect_stream(bytes, framing))
}

fn detect_stream(bytes: &Bytes, framing: Framing) -> Option<Detection> {
    let mut delivered: Vec<Frame> = Vec::new();
    let mut framer = Framer::new(framing);
    // A truncated stream may still contain enough frames to identify it.
    let end = framer.push(bytes, &mut delivered).and_then(|()| framer.finish(&mut delivered));
    if end.is_err() && delivered.is_empty() {
        return None;
    }
    delivered.iter().take(8).find_map(|frame| {
        let (wire, document) = match framing {
            Framing::EventStream => (Wire::BEDROCK_CONVERSE, Document::Event),
            _ => recognise(&Tree::parse(frame.data.clone()).ok()?)?,
        };
        let is_event = document == Document::Event || wire == Wire::GEMINI;
        let (document, framing) = (Document::Event, Some(framing));
        is_event.then_some(Detection { wire, document, framing })
    })
}

fn recognise(tree: &Tree) -> Option<(Wire, Document)> {
    CODECS.iter().find_map(|codec| Some((codec.wire(), codec.recognise(tree.root())?)))
}
