//! Replaces the model's name in a response with the name that the client requested.
//!
//! A client that requests a route or `NAME/model` compares the model name in the response with the
//! name it sent. The provider returns its own name for the model. The gateway replaces that name
//! and leaves every other byte unchanged. A response in another dialect is encoded with the
//! client's name from the start.

use bytes::Bytes;
use throughline_codec::{Frame, FrameWriter, Framer, Framing};
use throughline_core::Wire;
use throughline_json::{self as json, Name, Node, Tree};

/// The model name that a client expects in responses, and the wire that determines the name's
/// position.
#[derive(Clone, Debug)]
pub(crate) struct ModelName {
    wire: Wire,
    name: Name,
}

impl ModelName {
    pub(crate) fn new(wire: Wire, name: Name) -> Self {
        Self { wire, name }
    }

    /// Replaces the provider's name for the model in a complete response, or in one event of a
    /// stream.
    pub(crate) fn rewrite(&self, body: &Bytes) -> Bytes {
        let pointers: &[&str] = match self.wire.as_str() {
            "anthropic-messages" => &["/model", "/message/model"],
            "openai-responses" => &["/model", "/response/model"],
            "gemini" => &["/modelVersion", "/model_version"],
            _ => &["/model"],
        };
        if memchr::memmem::find(body, b"\"model").is_none() {
            return body.clone();
        }
        let Ok(tree) = Tree::parse(body.clone()) else { return body.clone() };
        let places = pointers.iter().filter_map(|pointer| tree.root().at(pointer));
        let Some(place) = places.filter(|node| node.is_string()).map(Node::range).next() else {
            return body.clone();
        };
        let before = body.get(..place.start).unwrap_or_default();
        let after = body.get(place.end..).unwrap_or_default();
        Bytes::from([before, json::string(&self.name).bytes(), after].concat())
    }
}

/// Replaces the model's name in a stream.
pub(crate) struct ModelNameStream {
    name: ModelName,
    state: ReplacerState,
}

enum ReplacerState {
    /// Buffers the incomplete last line, because each event is one line.
    Lines(Vec<u8>),
    /// Each event is one element of a JSON array.
    Frames(Framer, FrameWriter),
}

impl ModelNameStream {
    pub(crate) fn new(name: ModelName, framing: Framing) -> Self {
        let state = match framing {
            Framing::Sse | Framing::JsonLines => ReplacerState::Lines(Vec::new()),
            Framing::JsonArray | Framing::EventStream => {
                ReplacerState::Frames(Framer::new(framing), FrameWriter::new(framing))
            }
        };
        Self { name, state }
    }

    /// Writes the next bytes of the stream up to the last complete event.
    pub(crate) fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        match &mut self.state {
            ReplacerState::Lines(open) => {
                let mut rest = bytes;
                while let Some(end) = memchr::memchr(b'\n', rest) {
                    let (line, after) = rest.split_at(end + 1);
                    if open.is_empty() {
                        write_line(&self.name, line, out);
                    } else {
                        open.extend_from_slice(line);
                        write_line(&self.name, &std::mem::take(open), out);
                    }
                    rest = after;
                }
                open.extend_from_slice(rest);
            }
            ReplacerState::Frames(framer, writer) => {
                let mut read = Vec::new();
                // The stream's decoder gets the same error and ends the stream.
                drop(framer.push(bytes, &mut read));
                write_frames(&self.name, writer, read, out);
            }
        }
    }

    /// Writes the remaining bytes at the end of the stream.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) {
        match &mut self.state {
            ReplacerState::Lines(open) => write_line(&self.name, &std::mem::take(open), out),
            ReplacerState::Frames(framer, writer) => {
                let mut read = Vec::new();
                drop(framer.finish(&mut read));
                write_frames(&self.name, writer, read, out);
                writer.finish(out);
            }
        }
    }
}

/// Writes a line, and replaces the model's name if the line contains an event.
fn write_line(name: &ModelName, line: &[u8], out: &mut Vec<u8>) {
    let start = line
        .iter()
        .position(|byte| *byte == b'{')
        .filter(|start| matches!(line.get(..*start), Some(b"" | b"data:" | b"data: ")));
    let end = line.iter().rposition(|byte| *byte == b'}').map(|end| end + 1);
    let event = start.zip(end).and_then(|(start, end)| Some((start, end, line.get(start..end)?)));
    let Some((start, end, event)) = event else {
        out.extend_from_slice(line);
        return;
    };
    out.extend_from_slice(line.get(..start).unwrap_or_default());
    out.extend_from_slice(&name.rewrite(&Bytes::copy_from_slice(event)));
    out.extend_from_slice(line.get(end..).unwrap_or_default());
}

fn write_frames(name: &ModelName, writer: &mut FrameWriter, frames: Vec<Frame>, out: &mut Vec<u8>) {
    for frame in frames {
        writer.write(&Frame { data: name.rewrite(&frame.data), ..frame }, out);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn streamed(wire: Wire, framing: Framing, bytes: &str, cut: usize) -> String {
        let mut stream = ModelNameStream::new(ModelName::new(wire, "fast".into()), framing);
        let mut out = Vec::new();
        let (first, second) = bytes.as_bytes().split_at(cut);
        stream.push(first, &mut out);
        stream.push(second, &mut out);
        stream.finish(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn rewrite_changes_only_the_model_name() {
        let name = ModelName::new(Wire::OPENAI_CHAT, "fast".into());
        let body = Bytes::from(r#"{ "id":"1", "model" : "gpt-5", "said":{"model":"gpt-5"} }"#);
        let expected = r#"{ "id":"1", "model" : "fast", "said":{"model":"gpt-5"} }"#;
        assert_eq!(name.rewrite(&body), expected);
        let other = Bytes::from(r#"{"id":"model"}"#);
        assert_eq!(name.rewrite(&other), other);
    }

    #[test]
    fn chunking_does_not_change_the_result() {
        let sse = "event: message_start\r\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"x\"}}\r\n\r\n: ping\n\ndata: {\"delta\":{\"text\":\"model\"}}\n\n";
        let expected = sse.replace("\"x\"", "\"fast\"");
        let array = "[{\"modelVersion\": \"x\"}\n,\r\n{\"modelVersion\":\"x\",\"n\":1}]";
        let unsplit = streamed(Wire::GEMINI, Framing::JsonArray, array, 0);
        assert_eq!(unsplit.matches("fast").count(), 2, "{unsplit}");
        for cut in 0..sse.len() {
            assert_eq!(streamed(Wire::ANTHROPIC_MESSAGES, Framing::Sse, sse, cut), expected);
        }
        for cut in 0..array.len() {
            assert_eq!(streamed(Wire::GEMINI, Framing::JsonArray, array, cut), unsplit);
        }
    }
}
