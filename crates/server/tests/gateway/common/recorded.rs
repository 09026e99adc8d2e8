//! Recorded conversations for the replay tests. Provides the requests as sent and without
//! reasoning, and the values that must be restored.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::Value;
use throughline_codec::{DecodeContext, Framing, StreamDecoder};
use throughline_core::{Event, Item, Reply};
use throughline_testkit::{Exchange, Recording, figure};

use super::{codec_of, request, sealed, target};

/// Returns the decoding context for the target of an exchange.
pub(crate) fn decode_context(exchange: &Exchange) -> DecodeContext {
    DecodeContext::of(target(&exchange.provider, &exchange.wire, &exchange.model))
}

/// Decodes a request body of this exchange and returns its Items.
pub(crate) fn items_of(exchange: &Exchange, body: &[u8]) -> Vec<Item> {
    let request = request(&exchange.path, Bytes::copy_from_slice(body));
    codec_of(&exchange.wire).decode_request(&request, &decode_context(exchange)).unwrap().items
}

/// Returns the opaque values that the recorded client sent back exactly as the provider issued
/// them. Each value comes with a description of its Item.
pub(crate) fn expected_values(exchange: &Exchange, issued: &[Bytes]) -> Vec<(Bytes, String)> {
    let sent = sealed(&items_of(exchange, exchange.request.as_bytes())).into_iter();
    let expected = sent.filter_map(|(bytes, on)| {
        let value =
            issued.iter().find(|value| normalize_base64(value) == normalize_base64(&bytes))?;
        Some((value.clone(), on))
    });
    expected.collect()
}

/// Normalizes Base64 to one alphabet without padding, because Google's clients change the alphabet
/// and the padding.
fn normalize_base64(bytes: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(bytes).replace('-', "+").replace('_', "/");
    text.trim_end_matches('=').as_bytes().to_vec()
}

/// Counts successes per wire, and collects the failures of each recording.
#[derive(Default)]
pub(crate) struct Tally {
    counts: BTreeMap<String, Count>,
    wrong: BTreeMap<String, Vec<String>>,
}

#[derive(Default)]
struct Count {
    all: usize,
    right: usize,
}

impl Tally {
    /// Counts a success or records a failure.
    pub(crate) fn note(&mut self, wire: &str, at: &str, outcome: Result<(), String>) {
        let count = self.counts.entry(wire.to_owned()).or_default();
        count.all += 1;
        match outcome {
            Ok(()) => count.right += 1,
            Err(wrong) => self.wrong.entry(at.to_owned()).or_default().push(wrong),
        }
    }

    /// Checks that the values found equal the expected values, on the same parts and in the same
    /// order.
    pub(crate) fn count_values(
        &mut self,
        wire: &str,
        at: &str,
        expected: Vec<(Bytes, String)>,
        found: &[(Bytes, String)],
    ) {
        let mut rest = found.iter();
        for value in expected {
            let mut ahead = rest.clone();
            let is_there = ahead.any(|seal| *seal == value);
            if is_there {
                rest = ahead;
            }
            self.note(wire, at, if is_there { Ok(()) } else { Err(value.1) });
        }
    }

    /// Prints the successes per wire.
    pub(crate) fn print(&self, label: &str) {
        for (wire, Count { all, right }) in &self.counts {
            figure(&format!("{label}: {wire}"), format!("{right} of {all}"));
        }
    }

    /// Fails on each failure that is not in `expected`, and on each entry of `expected` that did
    /// not fail.
    pub(crate) fn check(&self, expected: &[&str]) {
        let wrong = self.wrong.iter();
        let unforeseen: Vec<_> = wrong.filter(|(at, _)| !expected.contains(&at.as_str())).collect();
        assert!(unforeseen.is_empty(), "{unforeseen:#?}");
        let needless: Vec<_> =
            expected.iter().filter(|at| !self.wrong.contains_key(**at)).collect();
        assert!(needless.is_empty(), "no longer needed: {needless:?}");
    }
}

/// Decodes the recorded reply of an exchange.
pub(crate) fn recorded_reply(exchange: &Exchange, context: &DecodeContext) -> Reply {
    let codec = codec_of(&exchange.wire);
    if !exchange.stream {
        return codec.decode_reply(&Bytes::from(exchange.response.clone()), context).unwrap();
    }
    let framing = exchange.content_type.as_deref().and_then(Framing::from_content_type);
    let mut decoder =
        StreamDecoder::with_framing(codec, context, framing.unwrap_or(codec.framing()));
    let mut events = decoder.push(&exchange.response).unwrap();
    events.extend(decoder.finish().unwrap());
    let ended = events.into_iter().find_map(|event| match event {
        Event::Ended(reply) => Some(*reply),
        _ => None,
    });
    ended.expect("a stream ends in a reply")
}
/// Returns a request body without any reasoning, as sent by a client that does not support
/// reasoning.
pub(crate) fn stripped(wire: &str, body: &str) -> String {
    let mut body: Value = serde_json::from_str(body).unwrap();
    for list in ["messages", "input", "contents"] {
        let Some(messages) = body.get_mut(list).and_then(Value::as_array_mut) else { continue };
        if wire == "openai-responses" {
            messages.retain(|item| item["type"] != "reasoning");
            for item in messages.iter_mut().filter_map(Value::as_object_mut) {
                item.remove("id");
            }
            continue;
        }
        for message in messages.iter_mut() {
            for key in ["content", "parts", "tool_calls"] {
                if let Some(parts) = message.get_mut(key).and_then(Value::as_array_mut) {
                    parts.retain_mut(keep_part);
                }
            }
            if let Some(message) = message.as_object_mut() {
                for key in REASONING {
                    message.remove(*key);
                }
            }
        }
        messages.retain(|message| !is_empty_message(message));
    }
    body.to_string()
}

const REASONING: &[&str] = &[
    "reasoning_details",
    "reasoning_content",
    "reasoning",
    "thinking",
    "extra_content",
    "reasoning_opaque",
    "reasoning_text",
];

fn keep_part(part: &mut Value) -> bool {
    let kind = part["type"].as_str().unwrap_or_default();
    if matches!(kind, "thinking" | "redacted_thinking") || part["thought"] == true {
        return false;
    }
    let Some(part) = part.as_object_mut() else { return true };
    if part.contains_key("reasoningContent") {
        return false;
    }
    for key in ["thoughtSignature", "thought_signature", "extra_content"] {
        part.remove(key);
    }
    !(part.is_empty() || part.len() == 1 && part.get("text").is_some_and(|text| text == ""))
}

/// Returns whether a message is empty. Clients do not send empty messages.
fn is_empty_message(message: &Value) -> bool {
    let is_empty =
        |key: &str| message.get(key).is_some_and(|list| list.as_array().is_some_and(Vec::is_empty));
    (is_empty("content") && message.get("tool_calls").is_none()) || is_empty("parts")
}

/// Makes the requests and responses of a recording comparable. If the recorder replaced typographic
/// characters in any of them, this function replaces the characters in all of them.
pub(crate) fn comparable(recording: &Recording) -> Recording {
    let mut recording = recording.clone();
    if recording.exchanges.iter().all(|e| e.request_exact && e.response_exact) {
        return recording;
    }
    for exchange in &mut recording.exchanges {
        exchange.request = replace_typography(&exchange.request);
        if let Ok(text) = String::from_utf8(exchange.response.clone()) {
            exchange.response = replace_typography(&text).into_bytes();
        }
    }
    recording
}

fn replace_typography(text: &str) -> String {
    let pairs = [
        ('\u{2018}', "'"),
        ('\u{2019}', "'"),
        ('\u{201c}', "\\\""),
        ('\u{201d}', "\\\""),
        ('\u{2011}', "-"),
        ('\u{2013}', "-"),
        ('\u{2014}', "--"),
        ('\u{2026}', "..."),
        ('\u{202f}', " "),
        ('\u{a0}', " "),
    ];
    pairs.iter().fold(text.to_owned(), |text, (from, to)| {
        let escape = format!("\\u{:04x}", u32::from(*from));
        text.replace(*from, to).replace(&escape, to)
    })
}
