//! Fuzzes every parser. A parser must not panic or hang, and its memory must be proportional to the
//! input.
//!
//! Each fuzz target mutates real documents, because random bytes rarely pass the first brace. A
//! target runs for `THROUGHLINE_FUZZ_SECONDS` seconds; `scripts/soak` allows one minute per target.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test fails by panicking, and prints its figures"
)]

mod common;

use std::time::Duration;

use bolero::TypeGenerator;
use bytes::Bytes;
use common::{codec_of, request, samples, stream_events, target};
use throughline_codec::{
    CODECS, DecodeContext, Frame, FrameWriter, Framer, Framing, StreamEncoder, detect,
    events_from_reply,
};
use throughline_core::{Event, restore_items, store_items};
use throughline_json::Tree;
use throughline_testkit::{figure, fuzz_seconds, workspace_root};

/// A random change to a document.
#[derive(Clone, Debug, TypeGenerator)]
enum Mutation {
    Flip { at: u32, bit: u8 },
    Insert { at: u32, bytes: Vec<u8> },
    Remove { at: u32, length: u16 },
    Repeat { at: u32, length: u16 },
    Token { at: u32, which: u8 },
    Cut { at: u32 },
}

/// Tokens that often break parsers.
const TOKENS: &[&[u8]] = &[
    b"null",
    b"[",
    b"]",
    b"{",
    b"}",
    b"\"",
    b"\\",
    b"\\ud800",
    b"\\u0000",
    b"\0",
    b"\xff\xfe",
    b"1e999999",
    b"-0",
    b":",
    b",",
    b"\n\n",
    b"data: ",
    b"[DONE]",
    b"event: x\n",
    b"\r",
    b"\xef\xbb\xbf",
    b"{\"type\":",
    b"18446744073709551616",
    b"18446744073709551615",
    b"true",
    b"\"index\":99999999999",
];

fn mutate(seed: &[u8], edits: &[Mutation]) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for edit in edits {
        let place = |at: u32| at as usize % (bytes.len() + 1);
        let end = |from: usize, length: u16| (from + length as usize).min(bytes.len());
        match edit {
            Mutation::Flip { at, bit } => {
                let at = place(*at);
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << (bit % 8);
                }
            }
            Mutation::Insert { at, bytes: inserted } => {
                let at = place(*at);
                bytes.splice(at..at, inserted.iter().copied());
            }
            Mutation::Remove { at, length } => {
                let at = place(*at);
                bytes.drain(at..end(at, *length));
            }
            Mutation::Repeat { at, length } => {
                let at = place(*at);
                let piece = bytes[at..end(at, *length)].to_vec();
                bytes.splice(at..at, piece);
            }
            Mutation::Token { at, which } => {
                let at = place(*at);
                bytes.splice(at..at, TOKENS[*which as usize % TOKENS.len()].iter().copied());
            }
            Mutation::Cut { at } => bytes.truncate(place(*at)),
        }
    }
    bytes
}

/// Runs a fuzz target on mutations of the seeds for the configured time.
fn fuzz(seeds: &[Vec<u8>], target: impl Fn(&[u8]) + std::panic::RefUnwindSafe) {
    assert!(!seeds.is_empty(), "nothing to mutate");
    for seed in seeds {
        target(seed);
    }
    bolero::check!()
        .with_test_time(Duration::from_secs(fuzz_seconds()))
        .with_type::<(u16, Vec<Mutation>)>()
        .for_each(|(seed, edits)| target(&mutate(&seeds[*seed as usize % seeds.len()], edits)));
}

/// Returns the contents of a wire's fixture files whose names end with `ending`.
fn seeds(wire: &str, ending: &str) -> Vec<Vec<u8>> {
    let folder = workspace_root().join("crates/codec/tests/fixtures").join(wire);
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|file| file.to_string_lossy().ends_with(ending));
    files.map(|file| std::fs::read(file).unwrap()).collect()
}

/// Returns a context whose target has the request's own model, so that encoding changes nothing.
fn context_for(wire: &str, sent: &throughline_core::Request) -> DecodeContext {
    let model = codec_of(wire).model_of(sent);
    let provider = default_context(wire).target.origin.provider.clone();
    model.map_or_else(
        || default_context(wire),
        |model| DecodeContext::of(target(&provider, wire, &model)),
    )
}

fn default_context(wire: &str) -> DecodeContext {
    let (provider, model) = match wire {
        "anthropic-messages" => ("anthropic", "claude-sonnet-4-5"),
        "openai-responses" => ("openai", "gpt-5.2"),
        "openai-chat" => ("openrouter", "anthropic/claude-sonnet-4.5"),
        "gemini" => ("gemini", "gemini-3-pro-preview"),
        _ => ("bedrock", "us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
    };
    DecodeContext::of(target(provider, wire, model))
}

/// Checks that a request is either rejected, or encodes to the same bytes and translates to every
/// other wire.
fn read_request(wire: &str, bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        let sent =
            throughline_core::Request { body: Bytes::copy_from_slice(bytes), ..request("/", "") };
        assert!(codec_of(wire).decode_request(&sent, &default_context(wire)).is_err());
        return;
    };
    let path = match wire {
        "gemini" => "/v1beta/models/gemini-3-pro-preview:generateContent",
        "bedrock-converse" => "/model/us.anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse",
        _ => "/v1",
    };
    let sent = request(path, text);
    let Ok(mut call) = codec_of(wire).decode_request(&sent, &context_for(wire, &sent)) else {
        return;
    };
    let encoded = codec_of(wire).encode(&call).unwrap();
    // The encoder adds a model if the request has none.
    if codec_of(wire).model_of(&sent).is_some() {
        assert_eq!(encoded.request.body, sent.body);
    }
    for codec in CODECS {
        call.target = default_context(codec.wire().as_str()).target;
        let encoded = codec.encode(&call).unwrap();
        assert!(Tree::parse(encoded.request.body).is_ok(), "{wire} to {}", codec.wire());
        assert_eq!(encoded.fates.len(), call.system.len() + call.items.len());
    }
}

fn read_response(wire: &str, bytes: &[u8]) {
    let codec = codec_of(wire);
    let Ok(reply) = codec.decode_reply(&Bytes::copy_from_slice(bytes), &default_context(wire))
    else {
        return;
    };
    for codec in CODECS {
        assert!(Tree::parse(codec.encode_reply(&reply).unwrap()).is_ok());
        let mut stream = StreamEncoder::new(*codec);
        for event in events_from_reply(&reply) {
            stream.push(&event, &mut Vec::new()).unwrap();
        }
    }
}

fn read_stream(wire: &str, framing: Framing, bytes: &[u8]) {
    let codec = codec_of(wire);
    let Ok(events) = stream_events(codec, &default_context(wire), framing, bytes.chunks(37)) else {
        return;
    };
    let ends = events.iter().filter(|event| matches!(event, Event::Ended(_))).count();
    assert_eq!(ends, 1, "a stream ends once");
}

macro_rules! wires {
    ($($module:ident $wire:literal)*) => { $(
        mod $module {
            use super::*;

            #[test]
            fn fuzz_request() {
                fuzz(&seeds($wire, "request.json"), |bytes| read_request($wire, bytes));
            }

            #[test]
            fn fuzz_response() {
                fuzz(&seeds($wire, "response.json"), |bytes| read_response($wire, bytes));
            }

            #[test]
            fn fuzz_stream() {
                let mut all = seeds($wire, "stream.sse");
                if !all.is_empty() {
                    fuzz(&all, |bytes| read_stream($wire, Framing::Sse, bytes));
                    return;
                }
                // Fixtures for the binary framing are stored as JSON lines and must be encoded
                // first.
                all = seeds($wire, "stream.jsonl").iter().map(|lines| event_stream($wire, lines)).collect();
                fuzz(&all, |bytes| read_stream($wire, Framing::EventStream, bytes));
            }
        }
    )* };
}
wires! {
    anthropic "anthropic-messages"
    responses "openai-responses"
    chat "openai-chat"
    gemini "gemini"
    converse "bedrock-converse"
}

/// Re-encodes a JSON lines fixture in the wire's default framing.
fn event_stream(wire: &str, lines: &[u8]) -> Vec<u8> {
    let codec = codec_of(wire);
    let events = stream_events(codec, &default_context(wire), Framing::JsonLines, [lines]).unwrap();
    let mut encoder = StreamEncoder::new(codec);
    let mut bytes = Vec::new();
    for event in &events {
        encoder.push(event, &mut bytes).unwrap();
    }
    encoder.finish(&mut bytes);
    bytes
}

const FRAMINGS: [Framing; 4] =
    [Framing::Sse, Framing::JsonLines, Framing::JsonArray, Framing::EventStream];

#[test]
fn fuzz_framers() {
    let payload = Frame {
        event: Some("x".into()),
        data: Bytes::from_static(b"{\"a\":[1]}"),
        exception: false,
    };
    let mut all: Vec<Vec<u8>> = Vec::new();
    for framing in FRAMINGS {
        let (mut writer, mut bytes) = (FrameWriter::new(framing), Vec::new());
        writer.write(&payload, &mut bytes);
        writer.write(&payload, &mut bytes);
        writer.finish(&mut bytes);
        all.push(bytes);
    }
    fuzz(&all, |bytes| {
        for framing in FRAMINGS {
            let (mut framer, mut delivered) = (Framer::with_limit(framing, 1 << 16), Vec::new());
            let pushed = framer.push(bytes, &mut delivered);
            if pushed.is_ok() {
                framer.finish(&mut delivered).ok();
            }
            let held: usize = delivered.iter().map(|frame| frame.data.len()).sum();
            assert!(held <= bytes.len() + 1024);
        }
    });
}

#[test]
fn fuzz_json() {
    let all = seeds("anthropic-messages", ".json");
    fuzz(&all, |bytes| {
        let ours = Tree::parse(bytes.to_vec());
        let theirs = serde_json::from_slice::<&serde_json::value::RawValue>(bytes);
        assert_eq!(ours.is_ok(), theirs.is_ok());
        if let Ok(tree) = ours {
            let once = tree.root().canonical();
            assert_eq!(Tree::parse(once.clone()).unwrap().root().canonical(), once);
        }
    });
}

#[test]
fn fuzz_detect() {
    let mut all = seeds("gemini", ".json");
    all.extend(seeds("openai-chat", ".json"));
    fuzz(&all, |bytes| drop(detect(&Bytes::copy_from_slice(bytes))));
}

/// Checks that restored Items survive another round of storing and restoring.
#[test]
fn fuzz_stored() {
    // JSON text never contains this byte.
    const SEPARATOR: u8 = 0x1e;
    let samples = samples::fixtures();
    let stored = samples.iter().map(|sample| {
        let items = if sample.is_request() { sample.call().items } else { sample.reply().items };
        let texts: Vec<_> =
            store_items(&items).into_iter().map(|stored| stored.json.bytes().to_vec()).collect();
        texts.join(&SEPARATOR)
    });
    let all: Vec<Vec<u8>> = stored.filter(|stored| stored.len() < 100_000).collect();
    fuzz(&all, |bytes| {
        let texts = bytes.split(|byte| *byte == SEPARATOR).map(Bytes::copy_from_slice);
        let Ok(items) = restore_items(texts.map(Some)) else { return };
        let again = store_items(&items).into_iter().map(|stored| stored.json.bytes().clone());
        assert_eq!(restore_items(again.map(Some)).unwrap(), items);
    });
}

/// Feeds adversarial documents to every parser of every wire.
#[test]
fn hostile_documents_stay_within_bounds() {
    let deep = |open: &str, close: &str| open.repeat(10_000) + "1" + &close.repeat(10_000);
    let long = "x".repeat(50_000_000);
    let hostile: Vec<(&str, Vec<u8>)> = vec![
        ("10,000-deep arrays", deep("[", "]").into_bytes()),
        ("10,000-deep objects", deep("{\"messages\":", "}").into_bytes()),
        ("10,000-deep content", format!("{{\"model\":\"m\",\"messages\":[{{\"role\":\"user\",\"content\":{}}}]}}", deep("[", "]")).into_bytes()),
        ("10,000-deep arguments", format!("{{\"contents\":[{{\"parts\":[{{\"functionCall\":{{\"name\":\"f\",\"args\":{}}}}}]}}]}}", deep("{\"a\":", "}")).into_bytes()),
        ("a line of 50 MB", format!("data: {{\"type\":\"ping\",\"x\":\"{long}\"}}\n\n").into_bytes()),
        ("an unfinished line of 50 MB", format!("data: {long}").into_bytes()),
        ("invalid UTF-8", b"{\"messages\":[{\"role\":\"user\",\"content\":\"\xff\xfe\"}]}".to_vec()),
        ("NUL bytes", b"{\"messages\":[\0\0\0]}\0".to_vec()),
        ("duplicate keys", br#"{"messages":[],"messages":[{"role":"user","role":"assistant","content":"a","content":"b"}],"input":"a","input":"b","contents":[],"contents":[]}"#.to_vec()),
        ("lone surrogates", br#"{"model":"\ud800","messages":[{"role":"user","content":"\udc00\ud800"}],"input":"\ud800","contents":[{"parts":[{"text":"\ud800"}]}]}"#.to_vec()),
        ("bad checksums", vec![0, 0, 0, 32, 0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 9, 9, 9]),
        ("an implausible length", vec![255; 64]),
        ("nothing", Vec::new()),
    ];
    for (name, bytes) in &hostile {
        let before = peak_memory();
        for codec in CODECS {
            let wire = codec.wire();
            read_request(wire.as_str(), bytes);
            read_response(wire.as_str(), bytes);
            for framing in FRAMINGS {
                read_stream(wire.as_str(), framing, bytes);
            }
        }
        let grown = peak_memory().saturating_sub(before);
        figure(
            &format!("peak memory for {name} ({} KB)", bytes.len() / 1000),
            format!("{} KB", grown / 1000),
        );
        assert!(grown <= bytes.len() * 12 + 64_000_000, "{name}: {grown} bytes");
    }
}

/// Returns the peak memory of this process in bytes; 0 if the system does not report it.
fn peak_memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<usize>().ok());
    kilobytes.unwrap_or_default() * 1024
}
