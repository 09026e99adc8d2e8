//! Converts between byte streams and streams of Events.

use std::sync::Arc;

use throughline_core::{Body, Delta, Event, Item, Reply, StopReason, Thought};
use throughline_json::{Json, Name, Node};

use crate::empty_text::EmptyTextFilter;
use crate::frame::{Frame, FrameWriter, Framer, Framing};
use crate::item_reader::named_member;
use crate::{Codec, CodecError, DecodeContext, Decoder, Encoder};

/// Decodes bytes to Events: a framer followed by a wire's decoder.
pub struct StreamDecoder {
    framer: Framer,
    decoder: Box<dyn Decoder>,
    frames: Vec<Frame>,
    has_ended: bool,
}

impl StreamDecoder {
    /// Creates a decoder with the codec's default framing.
    pub fn new(codec: &dyn Codec, asked: &DecodeContext) -> Self {
        Self::with_framing(codec, asked, codec.framing())
    }

    /// Creates a decoder with the given framing.
    pub fn with_framing(codec: &dyn Codec, asked: &DecodeContext, framing: Framing) -> Self {
        let (framer, decoder) = (Framer::new(framing), codec.decoder(asked));
        Self { framer, decoder, frames: Vec::new(), has_ended: false }
    }

    /// Decodes the next chunk, which may end anywhere.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<Event>, CodecError> {
        let framed = self.framer.push(bytes, &mut self.frames);
        let mut events = Vec::new();
        for frame in std::mem::take(&mut self.frames) {
            self.decode(&frame, &mut events)?;
        }
        framed?;
        Ok(events)
    }

    /// Ends the stream and returns the last events.
    pub fn finish(&mut self) -> Result<Vec<Event>, CodecError> {
        let framed = self.framer.finish(&mut self.frames);
        let mut events = Vec::new();
        for frame in std::mem::take(&mut self.frames) {
            match self.decode(&frame, &mut events) {
                // The stream was cut inside its last frame. The decoder determines whether the
                // response was complete before that frame.
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

    /// Decodes one frame. Frames after the end of the response are passed on as [`Event::Alien`]
    /// and have no effect.
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

/// Encodes Events to bytes: a wire's encoder followed by a frame writer.
pub struct StreamEncoder {
    filter: EmptyTextFilter,
    encoder: Box<dyn Encoder>,
    writer: FrameWriter,
}

impl StreamEncoder {
    /// Creates an encoder with the codec's default framing.
    pub fn new(codec: &dyn Codec) -> Self {
        Self::with_framing(codec, codec.framing())
    }

    /// Creates an encoder with the given framing.
    pub fn with_framing(codec: &dyn Codec, framing: Framing) -> Self {
        let filter = EmptyTextFilter::new(codec.wire());
        Self { filter, encoder: codec.encoder(), writer: FrameWriter::new(framing) }
    }

    /// Encodes one event and appends its bytes to `out`.
    pub fn push(&mut self, event: &Event, out: &mut Vec<u8>) -> Result<(), CodecError> {
        for event in self.filter.push(event) {
            for frame in self.encoder.push(&event)? {
                self.writer.write(&frame, out);
            }
        }
        Ok(())
    }

    /// Appends the end of the stream to `out`.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        self.writer.finish(out);
    }
}

/// Returns the Events of a stream that would produce this Reply.
pub fn events_from_reply(reply: &Reply) -> Vec<Event> {
    let began = Event::Began { id: reply.id.clone(), origin: Arc::clone(&reply.origin) };
    let mut events = Vec::with_capacity(reply.items.len() * 3 + 3);
    events.push(began);
    for (position, item) in reply.items.iter().enumerate() {
        let index = u32::try_from(position).unwrap_or(u32::MAX);
        events.push(opened_event(index, item));
        events.extend(text_delta(&item.body).map(|delta| Event::Delta { index, delta }));
        events.push(Event::Closed { index, item: Box::new(item.clone()) });
    }
    events.push(Event::Usage(reply.usage));
    events.push(Event::Ended(Box::new(reply.clone())));
    events
}

/// Ends a streamed response. The Items of a broken stream are marked as truncated.
pub(crate) fn ended_event(mut reply: Reply) -> Event {
    reply.items.sort_by_key(|item| item.place);
    if reply.stop == StopReason::Cut {
        reply.items.iter_mut().for_each(Item::mark_truncated);
    }
    Event::Ended(Box::new(reply))
}

/// Sets a member of a response that is assembled from a stream.
pub(crate) fn store_member(members: &mut Vec<(Name, Json)>, key: Node<'_>, value: Node<'_>) {
    match members.iter_mut().find(|(known, _)| key.is(known)) {
        Some((_, known)) => *known = value.json(),
        None => members.push(named_member((key, value))),
    }
}

/// Returns the delta that contains the whole text of an Item.
pub(crate) fn text_delta(body: &Body) -> Option<Delta> {
    match body {
        Body::Text(text) if !text.is_empty() => Some(Delta::Text(Arc::clone(text))),
        Body::Thought(thought) if !thought.content.is_empty() => {
            Some(Delta::Thought(Arc::clone(&thought.content)))
        }
        Body::Text(_)
        | Body::Thought(_)
        | Body::Call(_)
        | Body::Media(_)
        | Body::Result(_)
        | Body::Hosted(_)
        | Body::Compaction
        | Body::Summary { .. }
        | Body::Unknown => None,
    }
}

/// Returns the Event that opens an Item before it has content.
pub(crate) fn opened_event(index: u32, item: &Item) -> Event {
    let id = item.native.as_ref().and_then(|native| native.id.clone());
    Event::Opened { index, id, body: empty_body(&item.body) }
}

/// Returns a body with its kind, names and ids but without text content.
pub(crate) fn empty_body(body: &Body) -> Body {
    let empty = || Name::from("");
    match body {
        Body::Text(_) => Body::Text(empty()),
        Body::Thought(thought) => Body::Thought(Thought { content: empty(), ..thought.clone() }),
        Body::Media(_)
        | Body::Call(_)
        | Body::Result(_)
        | Body::Hosted(_)
        | Body::Compaction
        | Body::Summary { .. }
        | Body::Unknown => body.clone(),
    }
}
