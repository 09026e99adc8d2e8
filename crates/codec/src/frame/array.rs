//! Reads a JSON array element by element, or a single bare object.

use std::mem;

use bytes::Bytes;
use memchr::memchr2;

use super::{Frame, FrameError};

pub(super) struct ArrayFramer {
    limit: usize,
    place: ArrayPosition,
    /// Whether the document is a bare object, so that the document ends with this object.
    bare: bool,
    /// The received part of an incomplete element.
    element: Vec<u8>,
    scan: Scan,
    /// The number of bytes read from the stream.
    offset: u64,
}

/// The parser state: the position in the document at which the next byte is expected.
#[derive(Clone, Copy)]
enum ArrayPosition {
    Start,
    FirstElement,
    InsideElement,
    AfterElement,
    AfterComma,
    End,
}

impl ArrayFramer {
    pub(super) fn new(limit: usize) -> Self {
        let (place, scan) = (ArrayPosition::Start, Scan::default());
        Self { limit, place, bare: false, element: Vec::new(), scan, offset: 0 }
    }

    pub(super) fn push(&mut self, bytes: &[u8], frames: &mut Vec<Frame>) -> Result<(), FrameError> {
        let mut rest = bytes;
        while let Some((&byte, tail)) = rest.split_first() {
            if matches!(self.place, ArrayPosition::InsideElement) {
                rest = self.read_element(rest, frames)?;
                continue;
            }
            match (self.place, byte) {
                (_, b' ' | b'\t' | b'\r' | b'\n') => {}
                (ArrayPosition::Start, b'[') => self.place = ArrayPosition::FirstElement,
                (ArrayPosition::Start, b'{') => {
                    self.bare = true;
                    self.place = ArrayPosition::InsideElement;
                    continue;
                }
                (ArrayPosition::FirstElement | ArrayPosition::AfterElement, b']') => {
                    self.place = ArrayPosition::End;
                }
                (ArrayPosition::AfterElement, b',') => self.place = ArrayPosition::AfterComma,
                (ArrayPosition::FirstElement | ArrayPosition::AfterComma, byte)
                    if matches!(byte, b'{' | b'[' | b'"') || is_scalar(byte) =>
                {
                    self.place = ArrayPosition::InsideElement;
                    continue;
                }
                (place, _) => {
                    let what = place.expectation();
                    return Err(FrameError::Malformed { what, at: self.offset });
                }
            }
            self.offset += 1;
            rest = tail;
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Result<(), FrameError> {
        if matches!(self.place, ArrayPosition::End) { Ok(()) } else { Err(FrameError::Cut) }
    }

    /// Reads the rest of the current element if it has arrived, otherwise all of `bytes`. Returns
    /// the unread bytes.
    fn read_element<'bytes>(
        &mut self,
        bytes: &'bytes [u8],
        frames: &mut Vec<Frame>,
    ) -> Result<&'bytes [u8], FrameError> {
        let end = self.scan.end(bytes);
        let (head, tail) = end.and_then(|end| bytes.split_at_checked(end)).unwrap_or((bytes, &[]));
        if self.element.len() + head.len() > self.limit {
            return Err(FrameError::TooLarge { limit: self.limit });
        }
        self.offset += head.len() as u64;
        if end.is_none() {
            self.element.extend_from_slice(head);
            return Ok(tail);
        }
        let data = if self.element.is_empty() {
            Bytes::copy_from_slice(head)
        } else {
            self.element.extend_from_slice(head);
            Bytes::from(mem::take(&mut self.element))
        };
        frames.push(Frame::data(data));
        self.scan = Scan::default();
        self.place = if self.bare { ArrayPosition::End } else { ArrayPosition::AfterElement };
        Ok(tail)
    }

    #[cfg(test)]
    pub(super) fn buffered_capacity(&self) -> usize {
        self.element.capacity()
    }
}

impl ArrayPosition {
    /// Returns the error text for an unexpected byte at this position.
    fn expectation(self) -> &'static str {
        match self {
            Self::Start => "expected an array or an object",
            Self::FirstElement => "expected an element or the end of the array",
            Self::InsideElement | Self::AfterComma => "expected an element",
            Self::AfterElement => "expected a comma or the end of the array",
            Self::End => "unexpected data after the end of the document",
        }
    }
}

/// The scanner's state inside an element. Brackets are counted, not matched, so nesting needs no
/// stack. The codec's parser reports mismatched brackets.
#[derive(Default)]
struct Scan {
    depth: u64,
    in_string: bool,
    escaped: bool,
    in_scalar: bool,
}

impl Scan {
    /// Returns how many of `bytes` belong to the element; `None` if the element continues after
    /// `bytes`.
    fn end(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..)
            && let Some(&first) = rest.first()
        {
            if self.escaped {
                self.escaped = false;
                at += 1;
            } else if self.in_string {
                let next = memchr2(b'"', b'\\', rest)?;
                at += next + 1;
                if rest.get(next) == Some(&b'\\') {
                    self.escaped = true;
                } else {
                    self.in_string = false;
                    if self.depth == 0 {
                        return Some(at);
                    }
                }
            } else if self.in_scalar || (self.depth == 0 && is_scalar(first)) {
                self.in_scalar = true;
                return rest.iter().position(|&byte| !is_scalar(byte)).map(|end| at + end);
            } else {
                let next = rest
                    .iter()
                    .position(|byte| matches!(byte, b'"' | b'{' | b'}' | b'[' | b']'))?;
                at += next + 1;
                match rest.get(next) {
                    Some(b'"') => self.in_string = true,
                    Some(b'{' | b'[') => self.depth += 1,
                    _ => {
                        self.depth = self.depth.saturating_sub(1);
                        if self.depth == 0 {
                            return Some(at);
                        }
                    }
                }
            }
        }
        None
    }
}

/// Returns whether a number, `true`, `false` or `null` may contain this byte.
fn is_scalar(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.')
}
