//! A JSON array, element by element, or one bare object.

use std::mem;

use bytes::Bytes;
use memchr::memchr2;

use super::{Frame, FrameError};

pub(super) struct ArrayFramer {
    limit: usize,
    place: Place,
    /// The document is a bare object, so that its one element ends it.
    bare: bool,
    /// The start of an element whose end has not arrived.
    element: Vec<u8>,
    scan: Scan,
    /// How many bytes of the stream have been read.
    offset: u64,
}

/// Where in the document the next byte is.
#[derive(Clone, Copy)]
enum Place {
    Start,
    FirstElement,
    InsideElement,
    AfterElement,
    AfterComma,
    End,
}

impl ArrayFramer {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            place: Place::Start,
            bare: false,
            element: Vec::new(),
            scan: Scan::default(),
            offset: 0,
        }
    }

    pub(super) fn push(&mut self, bytes: &[u8], frames: &mut Vec<Frame>) -> Result<(), FrameError> {
        let mut rest = bytes;
        while let Some((&byte, tail)) = rest.split_first() {
            if matches!(self.place, Place::InsideElement) {
                rest = self.read_element(rest, frames)?;
                continue;
            }
            match (self.place, byte) {
                (_, b' ' | b'\t' | b'\r' | b'\n') => {}
                (Place::Start, b'[') => self.place = Place::FirstElement,
                (Place::Start, b'{') => {
                    self.bare = true;
                    self.place = Place::InsideElement;
                    continue;
                }
                (Place::FirstElement | Place::AfterElement, b']') => self.place = Place::End,
                (Place::AfterElement, b',') => self.place = Place::AfterComma,
                (Place::FirstElement | Place::AfterComma, byte) if starts_element(byte) => {
                    self.place = Place::InsideElement;
                    continue;
                }
                (place, _) => {
                    return Err(FrameError::Malformed { what: place.unmet(), at: self.offset });
                }
            }
            self.offset += 1;
            rest = tail;
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Result<(), FrameError> {
        match self.place {
            Place::End => Ok(()),
            Place::Start
            | Place::FirstElement
            | Place::InsideElement
            | Place::AfterElement
            | Place::AfterComma => Err(FrameError::Cut),
        }
    }

    /// Reads on to the element's end, if it is there, and returns what follows.
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
        frames.push(Frame { event: None, data, exception: false });
        self.scan = Scan::default();
        self.place = if self.bare { Place::End } else { Place::AfterElement };
        Ok(tail)
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.element.capacity()
    }
}

impl Place {
    /// What a byte that does not belong here fails to be.
    fn unmet(self) -> &'static str {
        match self {
            Self::Start => "neither an array nor an object",
            Self::FirstElement => "neither an element nor the array's end",
            Self::InsideElement | Self::AfterComma => "not an element",
            Self::AfterElement => "neither a comma nor the array's end",
            Self::End => "something follows the end of the document",
        }
    }
}

/// How far into an element the reading is. Brackets are counted, not matched: depth costs nothing,
/// and the codec's parser sees what is wrong between them.
#[derive(Default)]
struct Scan {
    depth: u64,
    in_string: bool,
    escaped: bool,
    in_scalar: bool,
}

impl Scan {
    /// How many of these bytes belong to the element, if it ends before them or among them.
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

fn starts_element(byte: u8) -> bool {
    matches!(byte, b'{' | b'[' | b'"') || is_scalar(byte)
}

/// Whether a number, `true`, `false` or `null` may hold this byte.
fn is_scalar(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.')
}
