//! Splits provider streams into frames, and writes frames as streams.
//!
//! Four framings cover every provider. A [`Framer`] accepts the bytes of one response in chunks
//! that may end anywhere, and returns complete messages. A [`FrameWriter`] does the reverse.
//! Neither validates the messages: JSON is split by scanning for strings and brackets, and the
//! codec's parser checks the rest.
//!
//! - **SSE** follows the `EventSource` standard. CR, LF and CRLF end a line, and `data` lines are
//!   joined by a newline. `id`, `retry`, unknown fields and comments are skipped. `[DONE]` is
//!   ordinary data. Unlike the standard, a last event that lacks only its blank line is delivered,
//!   because some servers end their streams that way.
//! - **JSON lines** end with LF or CRLF; the last line may also end with the stream.
//! - **JSON array** is Gemini's format without `alt=sse`. Each element is a frame. A bare object is
//!   also accepted as one frame, because the same endpoint returns errors as bare objects.
//! - **AWS event stream** is binary; both of its checksums are verified.
//!
//! The result does not depend on the chunking: the frames, the error and the number of frames
//! before the error are always the same. Each byte is scanned once, and the buffer never exceeds
//! the size limit of one frame.

mod array;
mod event_stream;
#[cfg(test)]
mod frame_tests;
mod lines;
mod sse;

use std::{fmt, mem, sync::Arc};

use bytes::Bytes;
use throughline_json::Json;

use self::{
    array::ArrayFramer, event_stream::EventStreamFramer, lines::LineFramer, sse::SseFramer,
};

/// The format that separates the messages of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Server-sent events.
    Sse,
    /// One JSON value per line.
    JsonLines,
    /// One JSON array; each element is a message.
    JsonArray,
    /// The binary event stream format of AWS.
    EventStream,
}

impl Framing {
    /// Returns the framing that a `Content-Type` header announces, ignoring its parameters.
    ///
    /// `application/json` means a JSON array; the array framer also accepts a bare object.
    pub fn from_content_type(content_type: &str) -> Option<Self> {
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

/// One message in a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The `event` field of SSE, or the `:event-type` header of the AWS event stream. If
    /// [`exception`](Self::exception) is set, the name comes from the `:exception-type` or
    /// `:error-code` header.
    pub event: Option<Arc<str>>,
    /// The payload, byte for byte. It may be invalid UTF-8.
    pub data: Bytes,
    /// Whether the AWS event stream marks the message as an exception. Always false for other
    /// framings.
    pub exception: bool,
}

impl Frame {
    pub(crate) fn data(data: Bytes) -> Self {
        Self { event: None, data, exception: false }
    }

    pub(crate) fn json(event: Option<Arc<str>>, json: &Json) -> Self {
        Self { event, ..Self::data(json.bytes().clone()) }
    }
}

/// Splits a byte stream into frames.
///
/// After an error, every further `push` returns the same error. `finish` resets the framer for
/// another stream, even after an error.
pub struct Framer {
    framing: Framing,
    limit: usize,
    state: FramerState,
    failed: Option<FrameError>,
}

enum FramerState {
    Sse(SseFramer),
    JsonLines(LineFramer),
    JsonArray(ArrayFramer),
    EventStream(EventStreamFramer),
}

impl Framer {
    const DEFAULT_LIMIT: usize = 64 * 1024 * 1024;

    /// Creates a framer that accepts frames of up to 64 MiB.
    pub fn new(framing: Framing) -> Self {
        Self::with_limit(framing, Self::DEFAULT_LIMIT)
    }

    /// Creates a framer that accepts frames of up to `limit` bytes.
    ///
    /// The limit applies to the bytes that must be buffered at once: an SSE event's name and data
    /// plus the current line, a JSON line, an array element, or a whole event-stream message.
    pub fn with_limit(framing: Framing, limit: usize) -> Self {
        Self { framing, limit, state: FramerState::new(framing, limit), failed: None }
    }

    /// Reads the next bytes and appends the completed frames to `frames`.
    ///
    /// On an error, the frames before the error are still appended.
    pub fn push(&mut self, bytes: &[u8], frames: &mut Vec<Frame>) -> Result<(), FrameError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let result = match &mut self.state {
            FramerState::Sse(sse) => sse.push(bytes, frames),
            FramerState::JsonLines(lines) => lines.push(bytes, frames),
            FramerState::JsonArray(array) => array.push(bytes, frames),
            FramerState::EventStream(stream) => stream.push(bytes, frames),
        };
        if let Err(error) = &result {
            self.failed = Some(error.clone());
            // The framer reads nothing after an error, so release the buffer now.
            self.state = FramerState::new(self.framing, self.limit);
        }
        result
    }

    /// Ends the stream. Delivers an unterminated last frame if the framing permits one.
    ///
    /// An unterminated last JSON line is delivered. So is an SSE event without its final blank
    /// line, even if the last `data` line has no line end. If such a frame is truncated, the
    /// codec's parser rejects it. Any other unfinished frame returns [`FrameError::Cut`].
    pub fn finish(&mut self, frames: &mut Vec<Frame>) -> Result<(), FrameError> {
        let state = mem::replace(&mut self.state, FramerState::new(self.framing, self.limit));
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        match state {
            FramerState::Sse(sse) => sse.finish(frames),
            FramerState::JsonLines(lines) => {
                lines.finish(frames);
                Ok(())
            }
            FramerState::JsonArray(array) => array.finish(),
            FramerState::EventStream(stream) => stream.finish(),
        }
    }

    /// Returns the capacity of the buffer for unfinished frames.
    #[cfg(test)]
    fn buffered_capacity(&self) -> usize {
        match &self.state {
            FramerState::Sse(sse) => sse.buffered_capacity(),
            FramerState::JsonLines(lines) => lines.buffered_capacity(),
            FramerState::JsonArray(array) => array.buffered_capacity(),
            FramerState::EventStream(stream) => stream.buffered_capacity(),
        }
    }
}

/// Omits the buffer from the output, because it may contain part of a Seal.
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

impl FramerState {
    fn new(framing: Framing, limit: usize) -> Self {
        match framing {
            Framing::Sse => Self::Sse(SseFramer::new(limit)),
            Framing::JsonLines => Self::JsonLines(LineFramer::new(limit)),
            Framing::JsonArray => Self::JsonArray(ArrayFramer::new(limit)),
            Framing::EventStream => Self::EventStream(EventStreamFramer::new(limit)),
        }
    }
}

/// Writes frames as one stream that a [`Framer`] can read.
///
/// JSON lines and JSON arrays cannot carry the event name, and only the event stream can carry
/// `exception`. Data is written unchanged where the framing allows it. SSE turns CR and CRLF into
/// LF, and JSON lines turn line ends into spaces; in JSON, line ends occur only between tokens. The
/// event stream truncates names to 64 KiB and omits messages larger than 4 GiB.
#[derive(Debug)]
pub struct FrameWriter {
    framing: Framing,
    array_is_open: bool,
}

impl FrameWriter {
    /// Creates a writer at the start of a stream.
    pub fn new(framing: Framing) -> Self {
        Self { framing, array_is_open: false }
    }

    /// Appends the bytes of one frame to `out`.
    pub fn write(&mut self, frame: &Frame, out: &mut Vec<u8>) {
        match self.framing {
            Framing::Sse => sse::write(frame, out),
            Framing::JsonLines => lines::write(frame, out),
            Framing::JsonArray => {
                out.extend_from_slice(if self.array_is_open { b",\r\n" } else { b"[" });
                self.array_is_open = true;
                out.extend_from_slice(&frame.data);
                out.push(b'\n');
            }
            Framing::EventStream => event_stream::write(frame, out),
        }
    }

    /// Appends the end marker of the framing, if any, and resets the writer for another stream.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        if self.framing == Framing::JsonArray {
            out.extend_from_slice(if self.array_is_open { b"]" } else { b"[]" });
            self.array_is_open = false;
        }
    }
}

/// An error in the framing of a stream, as opposed to the content of its frames.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// A frame exceeds the size limit of the framer.
    #[error("a frame exceeds the limit of {limit} bytes")]
    TooLarge {
        /// The configured maximum frame size in bytes.
        limit: usize,
    },
    /// A checksum of the AWS event stream does not match the received bytes.
    #[error("the {part} checksum does not match: sent {expected:08x}, computed {found:08x}")]
    Crc {
        /// The part that the checksum covers: `prelude` or `message`.
        part: &'static str,
        /// The checksum that was sent.
        expected: u32,
        /// The checksum computed from the received bytes.
        found: u32,
    },
    /// The stream ended inside a frame or before the end marker of its framing.
    #[error("the stream ended before it was complete")]
    Cut,
    /// The bytes are not valid in this framing.
    #[error("{what} (at byte {at} of the stream)")]
    Malformed {
        /// Describes the violation. The error message starts with this text.
        what: &'static str,
        /// The stream offset in bytes of the invalid byte or of the message that contains it.
        at: u64,
    },
}

/// Interns event names. A stream repeats a few names, so its frames share one allocation per name.
#[derive(Default)]
struct EventNames {
    known: Vec<Arc<str>>,
}

impl EventNames {
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
