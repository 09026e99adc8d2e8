//! Bytes to frames and back: how providers cut a stream into messages.
//!
//! Four framings cover every provider. A [`Framer`] takes the bytes of one response as they arrive,
//! cut anywhere, and gives whole messages; a [`FrameWriter`] does the reverse. Neither looks into a
//! message: JSON is split by scanning for strings and brackets only, and whether what lies between
//! them is JSON is for the codec's parser to say.
//!
//! - **SSE** follows the `EventSource` standard: CR, LF and CRLF end a line, `data` lines are
//!   joined by a newline, `id`, `retry`, unknown fields and comments are skipped. `[DONE]` is data
//!   like any other. Unlike the standard, a last event that lacks only its blank line is delivered,
//!   because real servers end so.
//! - **JSON lines** are ended by LF or CRLF, the last one also by the end of the stream.
//! - **A JSON array** is what Gemini sends without `alt=sse`. Each element is a frame. A bare object
//!   is one frame, since that is how the same endpoint reports an error.
//! - **The AWS event stream** is binary, with both checksums verified.
//!
//! What comes out does not depend on how the input was cut: neither the frames, nor the error, nor
//! how many frames precede it. Each byte is scanned once, and what is held back for the next chunk
//! never exceeds the limit of one frame.

mod array;
mod event_stream;
#[cfg(test)]
mod frame_tests;
mod lines;
mod sse;

use std::{fmt, mem, sync::Arc};

use bytes::Bytes;

use self::{
    array::ArrayFramer, event_stream::EventStreamFramer, lines::LineFramer, sse::SseFramer,
};

/// How a provider cuts its stream into messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Server-sent events.
    Sse,
    /// One JSON value a line.
    JsonLines,
    /// One JSON array, each of whose elements is a message.
    JsonArray,
    /// The binary event stream of AWS.
    EventStream,
}

impl Framing {
    /// The framing that a `Content-Type` header announces; its parameters do not matter.
    ///
    /// `application/json` is taken for an array, which also covers a bare object.
    pub fn of_content_type(content_type: &str) -> Option<Self> {
        let (media_type, _parameters) = content_type.split_once(';').unwrap_or((content_type, ""));
        match media_type.trim().to_ascii_lowercase().as_str() {
            "text/event-stream" => Some(Self::Sse),
            "application/x-ndjson"
            | "application/ndjson"
            | "application/jsonl"
            | "application/x-jsonl"
            | "application/jsonlines"
            | "application/x-jsonlines" => Some(Self::JsonLines),
            "application/json" => Some(Self::JsonArray),
            "application/vnd.amazon.eventstream" => Some(Self::EventStream),
            _ => None,
        }
    }
}

/// One message of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// SSE's `event` field, or the event stream's `:event-type` header. When
    /// [`exception`](Self::exception) is set, its `:exception-type` or `:error-code` instead.
    pub event: Option<Arc<str>>,
    /// The message itself, byte for byte. It may not be UTF-8.
    pub data: Bytes,
    /// Whether the event stream marks the message as an exception. No other framing can.
    pub exception: bool,
}

/// Cuts one stream into frames.
///
/// After an error every further `push` repeats it. `finish` makes the framer ready for another
/// stream, whatever happened before.
pub struct Framer {
    framing: Framing,
    limit: usize,
    state: State,
    failed: Option<FrameError>,
}

enum State {
    Sse(SseFramer),
    JsonLines(LineFramer),
    JsonArray(ArrayFramer),
    EventStream(EventStreamFramer),
}

impl Framer {
    const DEFAULT_LIMIT: usize = 64 * 1024 * 1024;

    /// A framer that accepts frames of up to 64 MiB.
    pub fn new(framing: Framing) -> Self {
        Self::with_limit(framing, Self::DEFAULT_LIMIT)
    }

    /// A framer that accepts frames of up to `limit` bytes.
    ///
    /// What counts is what has to be held at once: an SSE event's name and data so far together
    /// with the line being read, a line, an array's element, a whole event-stream message.
    pub fn with_limit(framing: Framing, limit: usize) -> Self {
        Self { framing, limit, state: State::new(framing, limit), failed: None }
    }

    /// Takes the next bytes and appends the frames that they complete to `frames`.
    ///
    /// On an error the frames before it have been appended.
    pub fn push(&mut self, bytes: &[u8], frames: &mut Vec<Frame>) -> Result<(), FrameError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let result = match &mut self.state {
            State::Sse(sse) => sse.push(bytes, frames),
            State::JsonLines(lines) => lines.push(bytes, frames),
            State::JsonArray(array) => array.push(bytes, frames),
            State::EventStream(stream) => stream.push(bytes, frames),
        };
        if let Err(error) = &result {
            self.failed = Some(error.clone());
            // Nothing more will be read, so what was held is let go now.
            self.state = State::new(self.framing, self.limit);
        }
        result
    }

    /// Says that the stream has ended, which may complete a last frame.
    ///
    /// An unterminated last JSON line, and an SSE event that lacks its blank line or the end of its
    /// last `data` line, are delivered: if they were cut short, the codec's parser notices. Any
    /// other unfinished frame is [`FrameError::Cut`].
    pub fn finish(&mut self, frames: &mut Vec<Frame>) -> Result<(), FrameError> {
        let state = mem::replace(&mut self.state, State::new(self.framing, self.limit));
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        match state {
            State::Sse(sse) => sse.finish(frames),
            State::JsonLines(lines) => {
                lines.finish(frames);
                Ok(())
            }
            State::JsonArray(array) => array.finish(),
            State::EventStream(stream) => stream.finish(),
        }
    }

    /// The memory set aside for what is not yet a frame.
    #[cfg(test)]
    fn held(&self) -> usize {
        match &self.state {
            State::Sse(sse) => sse.held(),
            State::JsonLines(lines) => lines.held(),
            State::JsonArray(array) => array.held(),
            State::EventStream(stream) => stream.held(),
        }
    }
}

/// Shows no content: what is held may be part of a provider's opaque state.
impl fmt::Debug for Framer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Framer")
            .field("framing", &self.framing)
            .field("limit", &self.limit)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

impl State {
    fn new(framing: Framing, limit: usize) -> Self {
        match framing {
            Framing::Sse => Self::Sse(SseFramer::new(limit)),
            Framing::JsonLines => Self::JsonLines(LineFramer::new(limit)),
            Framing::JsonArray => Self::JsonArray(ArrayFramer::new(limit)),
            Framing::EventStream => Self::EventStream(EventStreamFramer::new(limit)),
        }
    }
}

/// Writes frames as one stream: what a [`Framer`] reads back.
///
/// JSON lines and a JSON array have no place for the event's name, and only the event stream has
/// one for `exception`. Data is written as it is wherever the framing can carry it. SSE turns CR
/// and CRLF into LF, and JSON lines turn line ends into spaces; in JSON these are only ever found
/// between tokens. The event stream's length fields end at 64 KiB for a name, which is cut there, and
/// at 4 GiB for a message, which is not written if it is longer.
#[derive(Debug)]
pub struct FrameWriter {
    framing: Framing,
    array_is_open: bool,
}

impl FrameWriter {
    /// A writer at the start of a stream.
    pub fn new(framing: Framing) -> Self {
        Self { framing, array_is_open: false }
    }

    /// Appends one frame's bytes to `out`.
    pub fn write(&mut self, frame: &Frame, out: &mut Vec<u8>) {
        match self.framing {
            Framing::Sse => sse::write(frame, out),
            Framing::JsonLines => lines::write(frame, out),
            Framing::JsonArray => {
                out.extend_from_slice(if self.array_is_open { b",\n" } else { b"[" });
                self.array_is_open = true;
                out.extend_from_slice(&frame.data);
                out.push(b'\n');
            }
            Framing::EventStream => event_stream::write(frame, out),
        }
    }

    /// Appends what ends the stream; the writer then stands at the start of another one.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        match self.framing {
            Framing::JsonArray => {
                out.extend_from_slice(if self.array_is_open { b"]" } else { b"[]" });
                self.array_is_open = false;
            }
            Framing::Sse | Framing::JsonLines | Framing::EventStream => {}
        }
    }
}

/// Why bytes are not a stream of frames.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// One frame is larger than the framer accepts.
    #[error("a frame is larger than {limit} bytes")]
    TooLarge {
        /// The most bytes that were acceptable.
        limit: usize,
    },
    /// A checksum of the AWS event stream does not match the bytes that it covers.
    #[error("the {part} checksum is {expected:08x}, but its bytes have {found:08x}")]
    Crc {
        /// What the checksum covers: `prelude` or `message`.
        part: &'static str,
        /// The checksum that was sent.
        expected: u32,
        /// The checksum of the bytes received.
        found: u32,
    },
    /// The stream ended inside a frame, or before the end that its framing prescribes.
    #[error("the stream was cut")]
    Cut,
    /// The bytes break a rule of the framing.
    #[error("{what}, at byte {at} of the stream")]
    Malformed {
        /// What is wrong.
        what: &'static str,
        /// Where the offending byte or binary message starts, counted from the stream's start.
        at: u64,
    },
}

/// The event names that a stream has used. A stream repeats few names very often, so that a frame
/// shares its name with earlier ones instead of allocating it.
#[derive(Default)]
struct Names {
    known: Vec<Arc<str>>,
}

impl Names {
    const MOST: usize = 32;
    const LONGEST: usize = 64;

    fn get(&mut self, name: &[u8]) -> Arc<str> {
        if let Some(known) = self.known.iter().find(|known| known.as_bytes() == name) {
            return Arc::clone(known);
        }
        let shared = Arc::<str>::from(String::from_utf8_lossy(name));
        if self.known.len() < Self::MOST && name.len() <= Self::LONGEST {
            self.known.push(Arc::clone(&shared));
        }
        shared
    }
}
