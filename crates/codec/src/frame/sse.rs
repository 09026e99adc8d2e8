//! Reads server-sent events as the `EventSource` standard specifies.

use std::{mem, sync::Arc};

use bytes::Bytes;
use memchr::{memchr, memchr2};

use super::{EventNames, Frame, FrameError};

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

pub(super) struct SseFramer {
    limit: usize,
    /// The received part of an incomplete line.
    line: Vec<u8>,
    /// Whether the current line is the first line, which may start with a byte order mark.
    first_line: bool,
    /// Whether the last byte was a CR that ended a line. A directly following LF then belongs to
    /// that line end.
    after_cr: bool,
    event: Option<Arc<str>>,
    /// The joined `data` lines; `None` if the event has no `data` line and is therefore not
    /// dispatched. A single empty `data` line is enough to dispatch an event.
    data: Option<Vec<u8>>,
    names: EventNames,
}

impl SseFramer {
    pub(super) fn new(limit: usize) -> Self {
        let (line, names) = (Vec::new(), EventNames::default());
        Self { limit, line, first_line: true, after_cr: false, event: None, data: None, names }
    }

    pub(super) fn push(&mut self, bytes: &[u8], frames: &mut Vec<Frame>) -> Result<(), FrameError> {
        let mut rest = bytes;
        while let Some(end) = memchr2(b'\r', b'\n', rest)
            && let Some((head, [terminator, tail @ ..])) = rest.split_at_checked(end)
        {
            rest = tail;
            let completes_crlf = self.after_cr && head.is_empty() && *terminator == b'\n';
            self.after_cr = *terminator == b'\r';
            if completes_crlf {
                continue;
            }
            self.check_limit(head)?;
            if self.line.is_empty() {
                self.read_line(head, frames);
            } else {
                let mut line = mem::take(&mut self.line);
                line.extend_from_slice(head);
                self.read_line(&line, frames);
                line.clear();
                self.line = line;
            }
        }
        if !rest.is_empty() {
            self.after_cr = false;
            self.check_limit(rest)?;
            self.line.extend_from_slice(rest);
        }
        Ok(())
    }

    pub(super) fn finish(mut self, frames: &mut Vec<Frame>) -> Result<(), FrameError> {
        let line = mem::take(&mut self.line);
        let line = self.without_byte_order_mark(&line);
        if !line.is_empty() {
            match field(line) {
                // The stream ended inside a field name or an event name. This is an error if the
                // event has data, or if the fragment may be the start of a `data` line.
                (b"event", _) | (_, None) => {
                    if self.data.is_some() || b"data".starts_with(line) {
                        return Err(FrameError::Cut);
                    }
                }
                (_, Some(_)) => self.read_line(line, frames),
            }
        }
        self.dispatch(frames);
        Ok(())
    }

    fn check_limit(&self, more: &[u8]) -> Result<(), FrameError> {
        let event = self.event.as_ref().map_or(0, |event| event.len());
        let data = self.data.as_ref().map_or(0, Vec::len);
        if event + data + self.line.len() + more.len() > self.limit {
            return Err(FrameError::TooLarge { limit: self.limit });
        }
        Ok(())
    }

    fn read_line(&mut self, line: &[u8], frames: &mut Vec<Frame>) {
        let line = self.without_byte_order_mark(line);
        if line.is_empty() {
            self.dispatch(frames);
            return;
        }
        let (name, value) = field(line);
        let value = value.unwrap_or_default();
        match name {
            b"data" => match &mut self.data {
                None => self.data = Some(value.to_vec()),
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
            },
            b"event" => self.event = (!value.is_empty()).then(|| self.names.get(value)),
            // Comments have an empty name. Responses are never resumed, so `id` and `retry` have no
            // effect. The standard ignores all other fields.
            _ => {}
        }
    }

    fn without_byte_order_mark<'line>(&mut self, line: &'line [u8]) -> &'line [u8] {
        if !mem::take(&mut self.first_line) {
            return line;
        }
        line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line)
    }

    fn dispatch(&mut self, frames: &mut Vec<Frame>) {
        let event = self.event.take();
        if let Some(data) = self.data.take() {
            frames.push(Frame { event, data: Bytes::from(data), exception: false });
        }
    }

    #[cfg(test)]
    pub(super) fn buffered_capacity(&self) -> usize {
        self.line.capacity()
            + self.data.as_ref().map_or(0, Vec::capacity)
            + self.event.as_ref().map_or(0, |event| event.len())
    }
}

/// Returns the field name of a line, and the value if the line has a colon.
fn field(line: &[u8]) -> (&[u8], Option<&[u8]>) {
    match memchr(b':', line).and_then(|colon| line.split_at_checked(colon)) {
        Some((name, [_colon, b' ', value @ ..] | [_colon, value @ ..])) => (name, Some(value)),
        Some((name, [])) => (name, None),
        None => (line, None),
    }
}

pub(super) fn write(frame: &Frame, out: &mut Vec<u8>) {
    out.reserve(frame.data.len() + frame.event.as_ref().map_or(0, |event| event.len()) + 24);
    if let Some(event) = &frame.event {
        out.extend_from_slice(b"event: ");
        // Replace line ends, so that an event name cannot inject fields.
        let line_end_to_space = |byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte };
        out.extend(event.bytes().map(line_end_to_space));
        out.push(b'\n');
    }
    let mut rest: &[u8] = &frame.data;
    while let Some(end) = memchr2(b'\r', b'\n', rest)
        && let Some((line, [b'\r', b'\n', tail @ ..] | [_, tail @ ..])) = rest.split_at_checked(end)
    {
        write_data_line(line, out);
        rest = tail;
    }
    write_data_line(rest, out);
    out.push(b'\n');
}

fn write_data_line(line: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"data: ");
    out.extend_from_slice(line);
    out.push(b'\n');
}
