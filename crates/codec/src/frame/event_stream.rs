//! The binary event stream of AWS, `application/vnd.amazon.eventstream`.
//!
//! A message has this layout; all numbers are big-endian:
//!
//! ```text
//! total length  u32 ┐
//! header length u32 ┘ prelude
//! CRC-32 of the prelude
//! headers       name length u8, name, type u8, value
//! payload
//! CRC-32 of everything before it
//! ```
//!
//! The checksum of the prelude is verified before its lengths are used. Memory is reserved only for
//! received bytes, plus a small initial buffer.

use std::mem;

use bytes::Bytes;

use super::{EventNames, Frame, FrameError};

const PRELUDE: usize = 12;
const CHECKSUM: usize = 4;
/// The maximum total size of a message's headers, as documented by AWS.
const MAX_HEADERS: usize = 128 * 1024;
const FIRST_RESERVE: usize = 16 * 1024;

/// The type code of string headers.
const STRING: u8 = 7;

pub(super) struct EventStreamFramer {
    limit: usize,
    /// The incomplete message, from its first byte.
    message: Vec<u8>,
    /// The lengths from the prelude, once it is complete and verified.
    lengths: Option<Lengths>,
    /// The stream offset of the message's first byte.
    started_at: u64,
    names: EventNames,
}

#[derive(Clone, Copy)]
struct Lengths {
    total: usize,
    headers: usize,
}

impl EventStreamFramer {
    pub(super) fn new(limit: usize) -> Self {
        let (message, names) = (Vec::new(), EventNames::default());
        Self { limit, message, lengths: None, started_at: 0, names }
    }

    pub(super) fn push(&mut self, bytes: &[u8], frames: &mut Vec<Frame>) -> Result<(), FrameError> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let target = self.lengths.map_or(PRELUDE, |lengths| lengths.total);
            let missing = target.saturating_sub(self.message.len());
            let (head, tail) = rest.split_at_checked(missing).unwrap_or((rest, &[]));
            self.message.extend_from_slice(head);
            rest = tail;
            if self.message.len() < target {
                break;
            }
            if let Some(lengths) = self.lengths.take() {
                frames.push(self.read_message(lengths)?);
                self.started_at += lengths.total as u64;
            } else {
                let lengths = self.read_prelude()?;
                self.message.reserve_exact((lengths.total - PRELUDE).min(FIRST_RESERVE));
                self.lengths = Some(lengths);
            }
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Result<(), FrameError> {
        if self.message.is_empty() { Ok(()) } else { Err(FrameError::Cut) }
    }

    fn read_prelude(&self) -> Result<Lengths, FrameError> {
        self.verify("prelude", PRELUDE - CHECKSUM)?;
        let length = |at| number(&self.message, at).and_then(|number| number.try_into().ok());
        let (Some(total), Some(headers)) = (length(0), length(4)) else {
            return Err(self.malformed("the message prelude is incomplete"));
        };
        let lengths = Lengths { total, headers };
        if total < PRELUDE + CHECKSUM {
            return Err(self.malformed("the message is shorter than the minimum of 16 bytes"));
        }
        if headers > total - PRELUDE - CHECKSUM {
            return Err(self.malformed("the headers are longer than the message"));
        }
        if headers > MAX_HEADERS {
            return Err(self.malformed("the headers exceed 128 KiB"));
        }
        if total > self.limit {
            return Err(FrameError::TooLarge { limit: self.limit });
        }
        Ok(lengths)
    }

    fn read_message(&mut self, lengths: Lengths) -> Result<Frame, FrameError> {
        let payload_start = PRELUDE + lengths.headers;
        let payload_end = lengths.total - CHECKSUM;
        self.verify("message", payload_end)?;

        let message = Bytes::from(mem::take(&mut self.message));
        let headers = message.get(PRELUDE..payload_start).unwrap_or_default();
        let headers = Headers::read(headers).map_err(|what| self.malformed(what))?;
        let (event, exception) = match headers.message_type {
            Some(b"exception") => (headers.exception_type, true),
            Some(b"error") => (headers.error_code, true),
            // Without a message type, the presence of `:exception-type` determines the kind of the
            // message.
            None if headers.exception_type.is_some() => (headers.exception_type, true),
            Some(_) | None => (headers.event_type, false),
        };
        let data = match headers.error_message {
            // An error has no payload. Its text is returned in the form of an exception's payload.
            Some(text) if exception && payload_start == payload_end => message_object(text),
            Some(_) | None => message.slice(payload_start..payload_end),
        };
        Ok(Frame { event: event.map(|name| self.names.get(name)), data, exception })
    }

    /// Compares the checksum at offset `end` with the checksum of the bytes before `end`.
    fn verify(&self, part: &'static str, end: usize) -> Result<(), FrameError> {
        let covered = self.message.get(..end);
        let (Some(covered), Some(expected)) = (covered, number(&self.message, end)) else {
            return Err(self.malformed("the message has no checksum"));
        };
        let found = crc32fast::hash(covered);
        if found != expected {
            return Err(FrameError::Crc { part, expected, found });
        }
        Ok(())
    }

    fn malformed(&self, what: &'static str) -> FrameError {
        FrameError::Malformed { what, at: self.started_at }
    }

    #[cfg(test)]
    pub(super) fn buffered_capacity(&self) -> usize {
        self.message.capacity()
    }
}

/// The headers that identify a message.
#[derive(Default)]
struct Headers<'message> {
    message_type: Option<&'message [u8]>,
    event_type: Option<&'message [u8]>,
    exception_type: Option<&'message [u8]>,
    error_code: Option<&'message [u8]>,
    error_message: Option<&'message [u8]>,
}

impl<'message> Headers<'message> {
    fn read(mut rest: &'message [u8]) -> Result<Self, &'static str> {
        const CUT: &str = "a header exceeds the header section";
        let mut headers = Self::default();
        while let Some(&name_length) = rest.split_off_first() {
            let name = rest.split_off(..usize::from(name_length)).ok_or(CUT)?;
            let &kind = rest.split_off_first().ok_or(CUT)?;
            let length = match kind {
                0 | 1 => 0, // true, false
                2 => 1,     // byte
                3 => 2,     // short
                4 => 4,     // integer
                5 | 8 => 8, // long, timestamp
                9 => 16,    // UUID
                // Type 6 is a byte string.
                6 | STRING => {
                    let (&length, tail) = rest.split_first_chunk().ok_or(CUT)?;
                    rest = tail;
                    usize::from(u16::from_be_bytes(length))
                }
                _ => return Err("a header has an unknown type"),
            };
            let value = rest.split_off(..length).ok_or(CUT)?;
            if kind != STRING {
                continue;
            }
            match name {
                b":message-type" => headers.message_type = Some(value),
                b":event-type" => headers.event_type = Some(value),
                b":exception-type" => headers.exception_type = Some(value),
                b":error-code" => headers.error_code = Some(value),
                b":error-message" => headers.error_message = Some(value),
                _ => {}
            }
        }
        Ok(headers)
    }
}

fn number(message: &[u8], at: usize) -> Option<u32> {
    message.get(at..)?.first_chunk().copied().map(u32::from_be_bytes)
}

/// Builds `{"message": text}`, the payload of an exception.
fn message_object(text: &[u8]) -> Bytes {
    let mut object = String::from(r#"{"message":""#);
    for character in String::from_utf8_lossy(text).chars() {
        match character {
            '"' => object.push_str("\\\""),
            '\\' => object.push_str("\\\\"),
            '\u{0}'..='\u{1f}' => {
                let code = u32::from(character);
                object.push_str("\\u00");
                object.extend(char::from_digit(code >> 4, 16));
                object.extend(char::from_digit(code & 15, 16));
            }
            _ => object.push(character),
        }
    }
    object.push_str("\"}");
    Bytes::from(object)
}

/// Writes a message, or nothing if it would exceed the 4 GiB limit of its length field.
pub(super) fn write(frame: &Frame, out: &mut Vec<u8>) {
    let (name_header, message_type) =
        if frame.exception { (":exception-type", "exception") } else { (":event-type", "event") };
    let mut headers = Vec::with_capacity(128);
    if let Some(event) = &frame.event {
        write_header(name_header, event, &mut headers);
    }
    write_header(":content-type", "application/json", &mut headers);
    write_header(":message-type", message_type, &mut headers);

    let total = PRELUDE + headers.len() + frame.data.len() + CHECKSUM;
    let (Ok(total), Ok(headers_length)) = (u32::try_from(total), u32::try_from(headers.len()))
    else {
        return;
    };
    let mut prelude = crc32fast::Hasher::new();
    prelude.update(&total.to_be_bytes());
    prelude.update(&headers_length.to_be_bytes());
    let prelude_checksum = prelude.clone().finalize().to_be_bytes();
    let mut message = prelude;
    message.update(&prelude_checksum);
    message.update(&headers);
    message.update(&frame.data);

    out.extend_from_slice(&total.to_be_bytes());
    out.extend_from_slice(&headers_length.to_be_bytes());
    out.extend_from_slice(&prelude_checksum);
    out.extend_from_slice(&headers);
    out.extend_from_slice(&frame.data);
    out.extend_from_slice(&message.finalize().to_be_bytes());
}

/// Writes a string header. A value that is too long for its length field is truncated.
fn write_header(name: &str, value: &str, out: &mut Vec<u8>) {
    let value = value.get(..value.floor_char_boundary(usize::from(u16::MAX))).unwrap_or_default();
    let (Ok(name_length), Ok(value_length)) =
        (u8::try_from(name.len()), u16::try_from(value.len()))
    else {
        return;
    };
    out.push(name_length);
    out.extend_from_slice(name.as_bytes());
    out.push(STRING);
    out.extend_from_slice(&value_length.to_be_bytes());
    out.extend_from_slice(value.as_bytes());
}
