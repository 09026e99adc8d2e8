//! Which wire a document speaks, when nobody said.

use bytes::Bytes;
use throughline_core::{Tree, Wire};

use crate::frame::{Frame, Framer, Framing};
use crate::{CODECS, Document};

/// What a document seems to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guess {
    /// The wire.
    pub wire: Wire,
    /// Which part of an exchange.
    pub document: Document,
    /// How a stream is framed; nothing for a single document.
    pub framing: Option<Framing>,
}

/// Looks at a document and says what it seems to be, if anything that we know.
pub fn guess(bytes: &Bytes) -> Option<Guess> {
    if let Ok(tree) = Tree::parse(bytes.clone()) {
        if let Some((wire, document)) = recognise(&tree) {
            return Some(Guess { wire, document, framing: None });
        }
        return guess_stream(bytes, Framing::JsonArray);
    }
    let framings = [Framing::Sse, Framing::EventStream, Framing::JsonLines, Framing::JsonArray];
    framings.into_iter().find_map(|framing| guess_stream(bytes, framing))
}

fn guess_stream(bytes: &Bytes, framing: Framing) -> Option<Guess> {
    let mut delivered: Vec<Frame> = Vec::new();
    let mut framer = Framer::new(framing);
    // A stream that breaks off may still have told what it is.
    let end = framer.push(bytes, &mut delivered).and_then(|()| framer.finish(&mut delivered));
    if end.is_err() && delivered.is_empty() {
        return None;
    }
    delivered.iter().take(8).find_map(|frame| {
        if framing == Framing::EventStream {
            let (wire, document) = (Wire::BEDROCK_CONVERSE, Document::Event);
            return Some(Guess { wire, document, framing: Some(framing) });
        }
        let tree = Tree::parse(frame.data.clone()).ok()?;
        let (wire, document) = recognise(&tree)?;
        (document == Document::Event || wire == Wire::GEMINI).then_some(Guess {
            wire,
            document: Document::Event,
            framing: Some(framing),
        })
    })
}

fn recognise(tree: &Tree) -> Option<(Wire, Document)> {
    CODECS.iter().find_map(|codec| Some((codec.wire(), codec.recognise(tree.root())?)))
}
