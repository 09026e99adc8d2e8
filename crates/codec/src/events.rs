//! Converts between byte streams and Events.

use std::sync::Arc;

use throughline_core::{
    Body, Delta, Event, Item, ItemPosition, Origin, Reply, Role, StopReason, Thought, Usage, Wire,
};
use throughline_json::{Json, Name, Node};

use crate::empty_text::EmptyTextFilter;
use crate::frame::{Frame, FrameWriter, Framer, Framing};
use crate::item_reader::{ItemReader, ReadPart, named_member};
use crate::{Codec, CodecError, DecodeContext, Decoder, Encoder};

/// Decodes a byte stream to Events with a framer and the wire's decoder.
pub struct StreamDecoder {
    framer: Framer,
    decoder: Box<dyn Decoder>,
    frames: Vec<Frame>,
    has_ended: bool,
}

impl StreamDecoder {
    /// Creates a decoder with the codec's default framing.
    pub fn new(codec: &dyn Codec, context: &DecodeContext) -> Self {
        Self::with_framing(codec, context, codec.framing())
    }

    /// Creates a decoder for a stream whose framing may differ from the codec's default.
    pub fn with_framing(codec: &dyn Codec, context: &DecodeContext, framing: Framing) -> Self {
        let (framer, decoder) = (Framer::new(framing), codec.decoder(context));
        Self { framer, decoder, frames: Vec::new(), has_ended: false }
    }

    /// Decodes the next chunk, which may end at any byte.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<Event>, CodecError> {
        let framed = self.framer.push(bytes, &mut self.frames);
        let mut events = Vec::new();
        for frame in std::mem::take(&mut self.frames) {
            self.decode(&frame, &mut events)?;
        }
        framed?;
        Ok(events)
    }

    /// Ends the stream and returns the remaining events.
    pub fn finish(&mut self) -> Result<Vec<Event>, CodecError> {
        let framed = self.framer.finish(&mut self.frames);
        let mut events = Vec::new();
        for frame in std::mem::take(&mut self.frames) {
            match self.decode(&frame, &mut events) {
                // The stream was cut inside its last frame. The decoder decides whether the
                // response was already complete.
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

    /// Decodes one frame. Frames after the end of the response become [`Event::Alien`] and do not
    /// change the decoder's state.
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

/// Encodes Events to a byte stream with the wire's encoder and a frame writer.
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

    /// Creates an encoder for a stream whose framing may differ from the codec's default.
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

    /// Appends the end marker of the framing to `out`, if the framing has an end marker.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        self.writer.finish(out);
    }
}

/// Returns the Events that would be decoded if this Reply were streamed.
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

/// The response that a decoder assembles from a stream, and the Events that the current frame
/// produced.
pub(crate) struct StreamedReply {
    pub(crate) context: DecodeContext,
    pub(crate) origin: Arc<Origin>,
    pub(crate) id: Option<Name>,
    pub(crate) items: Vec<Item>,
    pub(crate) usage: Usage,
    pub(crate) extras: Vec<(Name, Json)>,
    pub(crate) has_begun: bool,
    pub(crate) has_ended: bool,
    pub(crate) events: Vec<Event>,
    wire: Wire,
}

impl StreamedReply {
    pub(crate) fn new(context: DecodeContext, wire: Wire) -> Self {
        Self {
            origin: Arc::clone(&context.target.origin),
            context,
            id: None,
            items: Vec::new(),
            usage: Usage::default(),
            extras: Vec::new(),
            has_begun: false,
            has_ended: false,
            events: Vec::new(),
            wire,
        }
    }

    /// Records the id and Origin of the response and emits [`Event::Began`].
    pub(crate) fn begin(&mut self, id: Option<Name>, model: Option<&str>, routed: Option<Name>) {
        self.has_begun = true;
        self.id = id;
        self.origin = self.context.origin(model, routed);
        self.events.push(Event::Began { id: self.id.clone(), origin: Arc::clone(&self.origin) });
    }

    pub(crate) fn open(&mut self, index: u32, item: &Item) {
        self.events.push(opened_event(index, item));
    }

    pub(crate) fn add_delta(&mut self, index: u32, delta: Delta) {
        self.events.push(Event::Delta { index, delta });
    }

    pub(crate) fn close(&mut self, index: u32, item: Item) {
        self.items.push(item.clone());
        self.events.push(Event::Closed { index, item: Box::new(item) });
    }

    pub(crate) fn set_usage(&mut self, usage: Usage) {
        self.usage = usage;
        self.events.push(Event::Usage(usage));
    }

    /// Emits an event that this wire does not define as [`Event::Alien`].
    pub(crate) fn pass_on(&mut self, event: Node<'_>) {
        self.events.push(Event::Alien(event.json()));
    }

    /// Ends the response. If the stream was cut, its Items are marked as truncated.
    pub(crate) fn end(&mut self, stop: StopReason) {
        self.has_ended = true;
        let mut items = std::mem::take(&mut self.items);
        items.sort_by_key(|item| item.place);
        if stop == StopReason::Cut {
            items.iter_mut().for_each(Item::mark_truncated);
        }
        let (id, usage, origin) = (self.id.clone(), self.usage, Arc::clone(&self.origin));
        let extras = std::mem::take(&mut self.extras);
        let reply = Reply { id, items, stop, usage, origin, extras };
        self.events.push(Event::Ended(Box::new(reply)));
    }

    pub(crate) fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    pub(crate) fn reader(&self) -> ItemReader<'_> {
        let wire = self.wire.clone();
        ItemReader::for_reply(&self.context, wire, &self.origin, self.id.as_ref())
    }

    /// Converts one part of the response to an Item.
    pub(crate) fn item(&self, part: u32, json: &Json, is_assembled: bool, read: ReadPart) -> Item {
        let place = ItemPosition { message: 0, part };
        let mut item = read(&mut self.reader(), place, Role::Assistant, json.tree().root(), None);
        if let Some(native) = &mut item.native {
            native.assembled = is_assembled;
        }
        item
    }
}

/// Returns the reply members that are not decoded into Items; empty if the reply came from another
/// wire.
pub(crate) fn own_extras<'r>(reply: &'r Reply, wire: &Wire) -> &'r [(Name, Json)] {
    if reply.origin.wire == *wire { &reply.extras } else { &[] }
}

/// Sets a member of a streamed response. If the member already exists, it keeps its position and
/// gets the new value.
pub(crate) fn store_member(members: &mut Vec<(Name, Json)>, key: Node<'_>, value: Node<'_>) {
    match members.iter_mut().find(|(known, _)| key.is(known)) {
        Some((_, known)) => *known = value.json(),
        None => members.push(named_member((key, value))),
    }
}

/// Returns one delta with the whole text of an Item; `None` if the Item has no text.
pub(crate) fn text_delta(body: &Body) -> Option<Delta> {
    match body {
        Body::Text(text) if !text.is_empty() => Some(Delta::Text(Arc::clone(text))),
        Body::Thought(thought) if !thought.content.is_empty() => {
            Some(Delta::Thought(Arc::clone(&thought.content)))
        }
        _ => None,
    }
}

/// Returns the Event that opens an Item, with its text left empty.
pub(crate) fn opened_event(index: u32, item: &Item) -> Event {
    let id = item.native.as_ref().and_then(|native| native.id.clone());
    let mut body = item.body.clone();
    if let Body::Text(text) | Body::Thought(Thought { content: text, .. }) = &mut body {
        *text = Name::default();
    }
    if let Body::Call(call) = &mut body
        && let Some(name) = name_in_namespace(item)
    {
        call.name = name;
    }
    Event::Opened { index, id, body }
}

/// Returns the name of a call in its namespace; `None` for calls without a namespace. Only the
/// encoder of the call's own wire writes this name: other clients define no namespaces.
fn name_in_namespace(item: &Item) -> Option<Name> {
    let native = item.native_on(&Wire::OPENAI_RESPONSES)?;
    memchr::memmem::find(native.json.bytes(), b"\"namespace\"")?;
    let tree = native.json.tree();
    tree.root().present("namespace").and_then(|_| tree.root().name_of("name"))
}
