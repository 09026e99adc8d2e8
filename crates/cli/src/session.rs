//! A conversation that is kept as a line for each message or item, and as a request of its wire.
//!
//! The request has each message on the line that the file has it on, so that what is said of one is true of the other.

use bytes::Bytes;
use throughline_codec::{CODECS, Codec, Document, codec};
use throughline_core::{Json, Node, Tree, Wire, json};

use crate::failure::Failure;
use crate::input::{Input, Kind, conversation_of};
use crate::text::compact;

/// The wire that the lines speak: the one that was named, or the first that takes them for its own.
pub(crate) fn speaker(lines: &Input, wire: Option<&Wire>) -> Result<&'static dyn Codec, Failure> {
    let body = |codec: &dyn Codec| {
        let bytes = wrap(lines, codec, None)?;
        Ok::<_, Failure>(Input { name: lines.name.clone(), bytes })
    };
    let is_request = |kind: Kind| kind.document == Document::Request;
    if let Some(codec) = wire.and_then(codec)
        && body(codec)?.kind_on(&codec.wire()).is_ok_and(is_request)
    {
        return Ok(codec);
    }
    let speaks = |codec: &&&'static dyn Codec| {
        let kind = body(**codec).and_then(|body| body.kind(Some(&codec.wire())));
        wire.is_none() && kind.is_ok_and(is_request)
    };
    if let Some(codec) = CODECS.iter().find(speaks) {
        return Ok(*codec);
    }
    // Where nothing fits, a line that is no JSON is the likeliest reason.
    messages(lines)?;
    let name = &lines.name;
    Err(Failure::BadData(match wire {
        Some(wire) => format!("the lines of {name} do not look like messages of {wire}"),
        None => format!(
            "the lines of {name} do not look like messages of any wire: name one with --wire"
        ),
    }))
}

/// A request that holds the lines.
pub(crate) fn wrap(
    lines: &Input,
    codec: &dyn Codec,
    model: Option<&str>,
) -> Result<Bytes, Failure> {
    let messages = messages(lines)?;
    let mut body = b"{".to_vec();
    json::push_string(&mut body, conversation_of(codec));
    body.extend_from_slice(b":[");
    let (mut number, mut is_first) = (1, true);
    for (line, message) in &messages {
        if !std::mem::take(&mut is_first) {
            body.push(b',');
        }
        body.resize(body.len() + line - number, b'\n');
        number = *line;
        body.extend_from_slice(message.bytes());
    }
    body.push(b']');
    // Where the path names the model, the body does not.
    if let Some(model) = model.filter(|_| !names_model_in_path(codec)) {
        body.extend_from_slice(b",\"model\":");
        json::push_string(&mut body, model);
    }
    body.push(b'}');
    Ok(Bytes::from(body))
}

/// The lines of a request that was made from `lines`: those that did not change as they were.
pub(crate) fn unwrap(lines: &Input, codec: &dyn Codec, body: &Bytes) -> Result<Vec<u8>, Failure> {
    let was = messages(lines)?;
    let texts: Vec<&[u8]> = lines.bytes.split_inclusive(|byte| *byte == b'\n').collect();
    let tree = Tree::parse(body.clone()).map_err(|error| lines.bad(error.into()))?;
    let mut known = was.iter();
    let mut out = Vec::with_capacity(lines.bytes.len());
    for element in tree.root().get(conversation_of(codec)).into_iter().flat_map(Node::elements) {
        let mut later = known.clone();
        match later.find(|(_, message)| message.bytes() == element.raw()) {
            Some((line, _)) => {
                out.extend_from_slice(texts.get(line - 1).copied().unwrap_or_default());
                known = later;
            }
            None => out.extend_from_slice(compact(element.json().as_str()).as_bytes()),
        }
        if !out.ends_with(b"\n") {
            out.push(b'\n');
        }
    }
    // What ended without a line feed does so again.
    if !lines.bytes.ends_with(b"\n") && out.ends_with(b"\n") {
        out.pop();
    }
    Ok(out)
}

/// Each message with the number of its line, counted from one.
fn messages(lines: &Input) -> Result<Vec<(usize, Json)>, Failure> {
    let mut start = 0;
    let mut messages = Vec::new();
    for (index, text) in lines.bytes.split(|byte| *byte == b'\n').enumerate() {
        let line = lines.bytes.slice(start..start + text.len());
        start += text.len() + 1;
        if line.trim_ascii().is_empty() {
            continue;
        }
        let message = Json::parse(line).map_err(|error| {
            let (name, column, what) = (&lines.name, error.column, error.what);
            Failure::BadData(format!("{name}:{}:{column}: not JSON: {what}", index + 1))
        })?;
        messages.push((index + 1, message));
    }
    Ok(messages)
}

fn names_model_in_path(codec: &dyn Codec) -> bool {
    let wire = codec.wire();
    wire == Wire::GEMINI || wire == Wire::BEDROCK_CONVERSE
}
