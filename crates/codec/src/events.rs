//! Streams of bytes on one side, streams of Events on the other.

use std::sync::Arc;

use throughline_core::{Body, Delta, Event, Item, Json, Name, Reply};

use crate::empty_text::EmptyTextFilter;
use crate::frame::{Frame, FrameWriter, Framer, Framing};
use crate::{Asked, Codec, CodecError, Decoder, Encoder};

/// Bytes in, Events out: a framer and a wire's decoder.
pub struct StreamDecoder {
    framer: Framer,
    decoder: Box<dyn Decoder>,
    frames: Vec<Frame>,
    has_ended: bool,
}

impl StreamDecoder {
    /// Reads what `codec` speaks, framed as it usually frames it.
    pub fn new(codec: &dyn Codec, asked: &Asked) -> Self {
        Self::framed(codec, asked, codec.framing())
    }

    /// Reads what `codec` speaks in another framing.
    pub fn framed(codec: &dyn Codec, asked: &Asked, framing: Framing) -> Self {
        let (framer, decoder) = (Framer::new(framing), codec.decoder(asked));
        Self { framer, decoder, frames: Vec::new(), has_ended: false }
    }

    /// Reads the next bytes, cut anywhere.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<Event>, CodecError> {
        let framed = self.framer.push(bytes, &mut self.frames);
        let mut events = Vec::new();
        for frame in std::mem::take(&mut self.frames) {
            self.decode(&frame, &mut events)?;
        }
        framed?;
        Ok(events)
    }

    /// The stream has ended.
    pub fn finish(&mut self) -> Result<Vec<Event>, CodecError> {
        let framed = self.framer.finish(&mut self.frames);
        let mut events = Vec::new();
        for frame in std::mem::take(&mut self.frames) {
            match self.decode(&frame, &mut events) {
                // The stream was cut inside its last frame: the decoder knows whether the answer was whole before it.
                Ok(()) | Err(CodecError::Syntax(_)) => {}
                Err(error) => return Err(error),
            }
        }
        if !self.has_ended {
            events.extend(self.decoder.finish()?);
            self.has_ended = true;
        }
        match framed {
            Ok(()) | Err(crate::FrameError::Cut) => Ok(events),
            Err(error) => Err(error.into()),
        }
    }

    /// An answer ends once. What a server says behind its end is passed on and changes nothing.
    fn decode(&mut self, frame: &Frame, events: &mut Vec<Event>) -> Result<(), CodecError> {
        if self.has_ended {
            events.extend(Json::parse(frame.data.clone()).ok().map(Event::Alien));
            return Ok(());
        }
        let decoded = self.decoder.push(frame)?;
        self.has_ended = decoded.iter().any(|event| matches!(event, Event::Ended(_)));
        events.extend(decoded);
        Ok(())
    }
}

/// Events in, bytes out: a wire's encoder and a frame writer.
pub struct StreamEncoder {
    filter: EmptyTextFilter,
    encoder: Box<dyn Encoder>,
    writer: FrameWriter,
}

impl StreamEncoder {
    /// Writes what `codec` speaks, framed as it usually frames it.
    pub fn new(codec: &dyn Codec) -> Self {
        Self::framed(codec, codec.framing())
    }

    /// Writes what `codec` speaks in another framing.
    pub fn framed(codec: &dyn Codec, framing: Framing) -> Self {
        let filter = EmptyTextFilter::new(codec.wire());
        Self { filter, encoder: codec.encoder(), writer: FrameWriter::new(framing) }
    }

    /// Writes what the event says.
    pub fn push(&mut self, event: &Event, out: &mut Vec<u8>) -> Result<(), CodecError> {
        for event in self.filter.push(event) {
            for frame in self.encoder.push(&event)? {
                self.writer.write(&frame, out);
            }
        }
        Ok(())
    }

    /// Ends the stream.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        self.writer.finish(out);
    }
}

/// The Events that a whole Reply would have come in.
pub fn events_of(reply: &Reply) -> Vec<Event> {
    let began = Event::Began { id: reply.id.clone(), origin: Arc::clone(&reply.origin) };
    let mut events = Vec::with_capacity(reply.items.len() * 3 + 3);
    events.push(began);
    for (position, item) in reply.items.iter().enumerate() {
        let index = u32::try_from(position).unwrap_or(u32::MAX);
        events.push(opened(index, item));
        events.extend(delta(item).map(|delta| Event::Delta { index, delta }));
        events.push(Event::Closed { index, item: Box::new(item.clone()) });
    }
    events.push(Event::Usage(reply.usage));
    events.push(Event::Ended(Box::new(reply.clone())));
    events
}

/// The Event that tells of an Item before anything was said.
pub(crate) fn opened(index: u32, item: &Item) -> Event {
    let id = item.native.as_ref().and_then(|native| native.id.clone());
    Event::Opened { index, id, body: opening(&item.body) }
}

/// What is known of a body before anything was said: its kind, names and ids.
pub(crate) fn opening(body: &Body) -> Body {
    let empty = || Name::from("");
    match body {
        Body::Text(_) => Body::Text(empty()),
        Body::Thought(thought) => {
            Body::Thought(throughline_core::Thought { content: empty(), ..thought.clone() })
        }
        Body::Media(_)
        | Body::Call(_)
        | Body::Result(_)
        | Body::Hosted(_)
        | Body::Compaction
        | Body::Summary { .. }
        | Body::Unknown => body.clone(),
    }
}

fn delta(item: &Item) -> Option<Delta> {
    match &item.body {
        Body::Text(text) => Some(Delta::Text(Arc::clone(text))),
        Body::Thought(thought) => Some(Delta::Thought(Arc::clone(&thought.content))),
        // A call that is whole needs no pieces, and tells all of itself when it closes.
        Body::Call(_)
        | Body::Media(_)
        | Body::Result(_)
        | Body::Hosted(_)
        | Body::Compaction
        | Body::Summary { .. }
        | Body::Unknown => None,
    }
    .filter(|delta| !matches!(delta, Delta::Text(t) | Delta::Thought(t) if t.is_empty()))
}
