//! Checks recorded traffic of real providers. Everything must decode, requests must encode to the
//! same bytes, and replayed values must be where the recorded client put them.
//!
//! The recordings are not part of the repository. Without them the tests print a note and pass.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test fails by panicking, and prints its figures"
)]

mod common;

use std::collections::{BTreeMap, HashMap, HashSet};

use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use common::recorded::{context_of, exchanges, key, reply_of, report};
use common::{codec_of, reply_in, request, stream_events, strings, target};
use serde_json::Value;
use throughline_codec::{CodecError, DecodeContext, Framing};
use throughline_core::{Item, Reply, StopReason};
use throughline_json::Tree;
use throughline_testkit::{Exchange, Recording, captures, figure, recordings, skip};

/// Known differences between Throughline's encoding and the recorded client's encoding, with
/// reasons. An entry names the recording and part of the JSON pointer at which the requests differ.
/// The test fails if an entry is no longer needed.
const EXCEPTIONS: &[(&str, &str)] = &[
    // The client repeats the first call's signature on the second call, and the provider accepted
    // that.
    (
        "ruby_llm--chat_function_calling_gemini_gemini-2_5-flash_can_use_parallel_tool_calls",
        "/contents/1/parts/1/",
    ),
    (
        "ruby_llm--chat_function_calling_vertexai_gemini-2_5-flash_can_use_parallel_tool_calls",
        "/contents/1/parts/1/",
    ),
    // The client moved an empty text from the end of the turn to before the call.
    (
        "llm-gemini--test_gemini--test_tools_with_gemini_3_thought_signatures",
        "/contents/1/parts/1/",
    ),
    // The client merged the streamed text with the following signed empty part, which the
    // documentation forbids.
    ("test_google_model_file_search_grounding_gemini_3-True", "/contents/1/parts/2/"),
    // The client also returned an unsigned thought summary, so all later parts shift by one.
    ("test_google_model_thinking_part", "/contents/1/parts/1/"),
];

#[test]
fn recordings_requests_encode_byte_for_byte() {
    let Some(recordings) = recordings() else { return skip("no recordings beside the project") };
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (recording, index, exchange) in exchanges(&recordings) {
        let codec = codec_of(&exchange.wire);
        let context = context_of(exchange);
        let sent = request(&exchange.path, &exchange.request);
        match codec.decode_request(&sent, &context).and_then(|call| codec.encode(&call)) {
            Ok(encoded) if encoded.request == sent => {
                *counts.entry(key(exchange)).or_default() += 1;
            }
            Ok(encoded) => wrong.push(format!(
                "{} #{index}: {}",
                recording.name,
                first_difference(&encoded.request.body, &sent.body)
            )),
            Err(error) => wrong.push(format!("{} #{index}: {error}", recording.name)),
        }
    }
    report("requests equal byte for byte", &counts);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn recordings_responses_decode() {
    let Some(recordings) = recordings() else { return skip("no recordings beside the project") };
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (recording, index, exchange) in exchanges(&recordings) {
        let is_failure = exchange.status >= 400;
        match reply_of(exchange) {
            Ok(reply)
                if !is_failure && reply.stop != StopReason::Cut && !reply.items.is_empty() =>
            {
                *counts.entry(key(exchange)).or_default() += 1;
            }
            Err(CodecError::Provider(failure)) if is_failure && !failure.message.is_empty() => {
                *counts.entry(key(exchange)).or_default() += 1;
            }
            Ok(reply) => wrong.push(format!(
                "{} #{index}: status {}, {} items, {:?}",
                recording.name,
                exchange.status,
                reply.items.len(),
                reply.stop
            )),
            Err(error) => wrong.push(format!("{} #{index}: {error}", recording.name)),
        }
    }
    report("responses decoded", &counts);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn recordings_captures_decode() {
    let Some(captures) = captures() else { return skip("no recordings beside the project") };
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for capture in &captures {
        let codec = codec_of(&capture.wire);
        let context = DecodeContext::of(target(&capture.provider, &capture.wire, "unknown"));
        let bytes = Bytes::from(capture.response.clone());
        let decoded = if capture.framing == "json" {
            codec.decode_reply(&bytes, &context).map(|reply| reply.items.len())
        } else {
            stream_events(codec, &context, Framing::JsonLines, [&bytes[..]])
                .map(|events| reply_in(&events).map_or(0, |reply| reply.items.len()))
        };
        match decoded {
            Ok(items) if items > 0 => {
                *counts.entry(format!("{} {}", capture.wire, capture.provider)).or_default() += 1;
            }
            Ok(_) => wrong.push(format!("{}: decoded no items", capture.name)),
            Err(error) => wrong.push(format!("{}: {error}", capture.name)),
        }
    }
    report("captures decoded", &counts);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn recordings_opaque_values_return_to_their_place() {
    let Some(recordings) = recordings() else { return skip("no recordings beside the project") };
    let mut checked: BTreeMap<String, usize> = BTreeMap::new();
    let mut turns: BTreeMap<String, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    let mut unissued = Vec::new();
    for recording in &recordings {
        for (index, exchange) in recording.exchanges.iter().enumerate().skip(1) {
            if exchange.status >= 400 || recording.refused.contains(&index) {
                continue;
            }
            unissued.extend(unissued_in(recording, index, exchange));
            let outcome = replay(recording, index, exchange);
            *checked.entry(key(exchange)).or_default() += outcome.found;
            *turns.entry(key(exchange)).or_default() += 1;
            wrong.extend(
                outcome
                    .wrong
                    .into_iter()
                    .map(|problem| format!("{} #{index}: {problem}", recording.name)),
            );
        }
    }
    report("turns replayed", &turns);
    report("opaque values equal and in place", &checked);
    let is_expected = |line: &&String| {
        EXCEPTIONS.iter().any(|(name, excerpt)| line.contains(name) && line.contains(excerpt))
    };
    let (expected, unexpected): (Vec<_>, Vec<_>) = wrong.iter().partition(is_expected);
    for line in &expected {
        println!("EXCEPTION {line}");
    }
    // Values that a client sent but that no response of the provider contained, such as stand-ins
    // and values of other providers.
    for line in &unissued {
        println!("NOT ISSUED {line}");
    }
    figure("opaque values in no earlier response", unissued.len());
    let stale: Vec<_> = EXCEPTIONS
        .iter()
        .filter(|(name, excerpt)| {
            !wrong.iter().any(|line| line.contains(name) && line.contains(excerpt))
        })
        .collect();
    figure("exceptions", expected.len());
    assert!(
        unexpected.is_empty(),
        "{}",
        unexpected.iter().map(|s| s.as_str()).collect::<Vec<_>>().join("\n")
    );
    assert!(stale.is_empty(), "exceptions that are no longer needed: {stale:?}");
}

struct ReplayOutcome {
    found: usize,
    wrong: Vec<String>,
}

/// Rebuilds request `index` from an earlier request and its response. Searches the rebuilt request
/// for every opaque value of the recorded request.
fn replay(recording: &Recording, index: usize, exchange: &Exchange) -> ReplayOutcome {
    let tree = Tree::parse(exchange.request.clone()).unwrap();
    let issued = issued_before(recording, index, exchange);
    let expected = sealed_strings(&tree, &issued);
    let mut best: Option<ReplayOutcome> = None;
    // A request usually continues the previous exchange, but some recordings contain several
    // conversations.
    for earlier in recording.exchanges.iter().take(index).rev() {
        if earlier.wire != exchange.wire || earlier.provider != exchange.provider {
            continue;
        }
        let Ok(reply) = reply_of(earlier) else { continue };
        let ours = go_on(earlier, reply);
        let ours = sealed_strings(&ours, &issued);
        let (found, missing): (Vec<_>, Vec<_>) =
            expected.iter().partition(|(pointer, value)| ours.get(*pointer) == Some(*value));
        let wrong = missing
            .into_iter()
            .map(|(pointer, value)| {
                let elsewhere = ours.iter().find(|(_, other)| *other == value);
                match elsewhere {
                    Some((place, _)) => format!("{pointer} stands at {place}"),
                    None => format!("{pointer} is missing"),
                }
            })
            .collect();
        let outcome = ReplayOutcome { found: found.len(), wrong };
        if best.as_ref().is_none_or(|best| outcome.wrong.len() < best.wrong.len()) {
            best = Some(outcome);
        }
    }
    best.unwrap_or(ReplayOutcome { found: 0, wrong: Vec::new() })
}

/// Returns the Seals in a request that no earlier response of the provider contained.
fn unissued_in(recording: &Recording, index: usize, exchange: &Exchange) -> Vec<String> {
    let issued = issued_before(recording, index, exchange);
    let sent = request(&exchange.path, &exchange.request);
    let call = codec_of(&exchange.wire).decode_request(&sent, &context_of(exchange)).unwrap();
    let seals = call.items.iter().flat_map(|item| item.seals.iter().map(move |seal| (item, seal)));
    let unissued = seals.filter(|(_, seal)| !issued.contains(&normal(seal.reveal_to_tenant())));
    unissued
        .map(|(item, seal)| format!("{} #{index}: {} at {}", recording.name, seal, item.id))
        .collect()
}

/// Encodes a request that contains an earlier request, followed by the response to that request.
fn go_on(earlier: &Exchange, reply: Reply) -> Tree {
    let codec = codec_of(&earlier.wire);
    let sent = request(&earlier.path, &earlier.request);
    let mut call = codec.decode_request(&sent, &context_of(earlier)).unwrap();
    call.extend(reply.items);
    Tree::parse(codec.encode(&call).unwrap().request.body).unwrap()
}

/// Returns the opaque values in all earlier responses of the same provider, in one base64 alphabet.
/// They include decoded Seals and values found by member name.
fn issued_before(recording: &Recording, index: usize, exchange: &Exchange) -> HashSet<Vec<u8>> {
    let earlier = recording.exchanges.iter().take(index);
    let earlier: Vec<&Exchange> = earlier
        .filter(|e| e.wire == exchange.wire && e.provider == exchange.provider && e.status < 400)
        .collect();
    let replies = earlier.iter().filter_map(|earlier| reply_of(earlier).ok());
    let items: Vec<Item> = replies.flat_map(|reply| reply.items).collect();
    let seals =
        items.iter().flat_map(|item| &item.seals).map(|seal| normal(seal.reveal_to_tenant()));
    let named = earlier.iter().flat_map(|earlier| opaque_in(earlier));
    seals.chain(named.map(|value| normal(value.as_bytes()))).collect()
}

/// Every response value whose member name marks it as opaque must be decoded as a Seal.
#[test]
fn recordings_opaque_values_are_decoded_as_seals() {
    let Some(recordings) = recordings() else { return skip("no recordings beside the project") };
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut wrong: BTreeMap<String, (usize, String)> = BTreeMap::new();
    for (recording, index, exchange) in exchanges(&recordings).filter(|(_, _, e)| e.status < 400) {
        let Ok(reply) = reply_of(exchange) else { continue };
        let seals = reply.items.iter().flat_map(|item| &item.seals);
        let seals: HashSet<Vec<u8>> = seals.map(|seal| normal(seal.reveal_to_tenant())).collect();
        for value in opaque_in(exchange) {
            if seals.contains(&normal(value.as_bytes())) {
                *counts.entry(key(exchange)).or_default() += 1;
            } else {
                let beginning: String = value.chars().take(12).collect();
                let label = format!("{} #{index}: {beginning}…", recording.name);
                wrong.entry(key(exchange)).or_insert((0, label)).0 += 1;
            }
        }
    }
    report("opaque values read as seals", &counts);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Returns the values in a response whose member names mark them as opaque.
fn opaque_in(exchange: &Exchange) -> Vec<String> {
    let mut found = Vec::new();
    for frame in frames_of(exchange) {
        let is_responses = exchange.wire == "openai-responses";
        // Only the item in a `done` event can be sent back.
        if exchange.stream && is_responses {
            if frame["type"] == "response.output_item.done" {
                opaque_values(&frame["item"], &mut found);
            }
        } else {
            opaque_values(&frame, &mut found);
        }
    }
    found
}

/// Returns the JSON documents of a response: its body, or the data of each frame.
fn frames_of(exchange: &Exchange) -> Vec<Value> {
    let bytes = &exchange.response;
    if let Ok(value) = serde_json::from_slice(bytes) {
        return vec![value];
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let lines = text.lines().map(|line| line.strip_prefix("data:").unwrap_or(line));
        return lines.filter_map(|line| serde_json::from_str(line).ok()).collect();
    }
    // AWS event stream layout: total length, header length, checksum, headers, payload, checksum.
    let (mut frames, mut rest) = (Vec::new(), &bytes[..]);
    while let [a, b, c, d, e, f, g, h, ..] = *rest {
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        let headers = u32::from_be_bytes([e, f, g, h]) as usize;
        let Some(frame) = rest.get(..length).filter(|_| length >= headers + 16) else { break };
        frames.extend(serde_json::from_slice::<Value>(&frame[12 + headers..length - 4]).ok());
        rest = &rest[length..];
    }
    frames
}

fn opaque_values(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            let kind = members.get("type").and_then(Value::as_str).unwrap_or_default();
            for (key, value) in members {
                let is_opaque = match &**key {
                    "signature" | "thoughtSignature" | "thought_signature"
                    | "encrypted_content" | "encrypted_index" | "redactedContent"
                    | "fingerprint" => true,
                    "data" => kind == "redacted_thinking" || kind == "reasoning.encrypted",
                    _ => false,
                };
                match value.as_str() {
                    Some(text) if is_opaque && !text.is_empty() => found.push(text.to_owned()),
                    // Arguments are model output and contain no opaque values.
                    _ if matches!(&**key, "args" | "input" | "arguments") => {}
                    _ => opaque_values(value, found),
                }
            }
        }
        Value::Array(elements) => {
            for element in elements {
                opaque_values(element, found);
            }
        }
        _ => {}
    }
}

fn sealed_strings(tree: &Tree, issued: &HashSet<Vec<u8>>) -> HashMap<String, Vec<u8>> {
    let all = strings(tree).into_iter();
    let all = all.map(|(pointer, value)| {
        (pointer.replace("thought_signature", "thoughtSignature"), normal(&value))
    });
    all.filter(|(_, value)| issued.contains(value)).collect()
}

/// Normalises base64, because Gemini clients convert standard base64 to the URL-safe alphabet
/// without padding.
fn normal(value: &[u8]) -> Vec<u8> {
    let standard: Vec<u8> = value
        .iter()
        .map(|byte| match byte {
            b'-' => b'+',
            b'_' => b'/',
            other => *other,
        })
        .collect();
    let config = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true);
    let engine = GeneralPurpose::new(&base64::alphabet::STANDARD, config);
    engine.decode(&standard).unwrap_or_else(|_| value.to_vec())
}

fn first_difference(ours: &[u8], theirs: &[u8]) -> String {
    let at =
        ours.iter().zip(theirs).position(|(a, b)| a != b).unwrap_or(ours.len().min(theirs.len()));
    let around = |bytes: &[u8]| {
        let from = at.saturating_sub(30);
        String::from_utf8_lossy(&bytes[from.min(bytes.len())..(at + 50).min(bytes.len())])
            .into_owned()
    };
    format!("differs at byte {at}: ours …{}… theirs …{}…", around(ours), around(theirs))
}
