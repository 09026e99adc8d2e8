//! Reads JSON lines: one message per line, ended by LF or CRLF. Blank lines are skipped.

use std::mem;

use bytes::Bytes;
use memchr::memchr;

use super::{Frame, FrameError};

pub(super) struct LineFramer {
    limit: usize,
    /// The start of an incomplete line. It contains no LF, so later pushes search only new bytes.
    line: Vec<u8>,
}

impl LineFramer {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, line: Vec::new() }
    }

    pub(super) fn push(&mut self, bytes: &[u8], frames: &mut Vec<Frame>) -> Result<(), FrameError> {
        let mut rest = bytes;
        while let Some(end) = memchr(b'\n', rest)
            && let Some((head, [_newline, tail @ ..])) = rest.split_at_checked(end)
        {
            rest = tail;
            self.check_limit(head)?;
            if self.line.is_empty() {
                if let Some(length) = content_length(head) {
                    deliver(Bytes::copy_from_slice(head), length, frames);
                }
            } else {
                self.line.extend_from_slice(head);
                self.end_line(frames);
            }
        }
        self.check_limit(rest)?;
        self.line.extend_from_slice(rest);
        Ok(())
    }

    pub(super) fn finish(mut self, frames: &mut Vec<Frame>) {
        self.end_line(frames);
    }

    fn check_limit(&self, more: &[u8]) -> Result<(), FrameError> {
        if self.line.len() + more.len() > self.limit {
            return Err(FrameError::TooLarge { limit: self.limit });
        }
        Ok(())
    }

    fn end_line(&mut self, frames: &mut Vec<Frame>) {
        let line = mem::take(&mut self.line);
        if let Some(length) = content_length(&line) {
            deliver(Bytes::from(line), length, frames);
        }
    }

    #[cfg(test)]
    pub(super) fn buffered_capacity(&self) -> usize {
        self.line.capacity()
    }
}

/// Returns the length of a line without the CR of a CRLF line end; `None` if the line is blank.
fn content_length(line: &[u8]) -> Option<usize> {
    if line.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r')) {
        return None;
    }
    Some(line.strip_suffix(b"\r").unwrap_or(line).len())
}

fn deliver(mut line: Bytes, length: usize, frames: &mut Vec<Frame>) {
    line.truncate(length);
    frames.push(Frame::data(line));
}

pub(super) fn write(frame: &Frame, out: &mut Vec<u8>) {
    let line_end_to_space = |byte: &u8| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte };
    out.extend(frame.data.iter().map(line_end_to_space));
    out.push(b'\n');
}
