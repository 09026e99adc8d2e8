//! How long reading and writing take, as ratios to `serde_json::from_slice::<Value>` of the same bytes in the same run.
//!
//! Absolute times on shared machines mean little, so only the ratios are worth comparing. Each figure is the best of many
//! rounds, and baseline and candidate take turns.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a bench is a program that measures and prints"
)]
#![allow(missing_docs, reason = "a program has no interface")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::{Value, json};
use throughline_codec::{Asked, Catalog, Codec, Framer, StreamDecoder, StreamEncoder, codec};
use throughline_core::{
    Body, Delta, Event, Item, Name, Origin, Place, ReasoningFormat, Reply, Request, Role, Stop,
    Thought, ThoughtKind, Usage, Wire,
};

const SIZE: usize = 200_000;

struct Subject {
    wire: Wire,
    provider: &'static str,
    model: &'static str,
    path: &'static str,
    turn: fn(usize) -> Vec<Value>,
    body: fn(Vec<Value>) -> Value,
}

fn main() {
    // `cargo test` runs benches to see that they work; one round is enough for that.
    let rounds = if std::env::args().any(|argument| argument == "--bench") { 60 } else { 1 };
    println!(
        "ratios to serde_json::from_slice::<Value> of the same bytes; best of {rounds} rounds"
    );
    println!(
        "{:<20} {:>9} {:>14} {:>14} {:>14} {:>14}",
        "wire", "bytes", "request→Call", "Call→request", "  rebuilt", "stream→Events"
    );
    for subject in subjects() {
        measure(&subject, rounds);
    }
    println!(
        "{:<20} {:>9} {:>14} {:>14} {:>14} {:>14}",
        "target", "", "≤ 1.00", "≤ 0.60", "≤ 0.60", "≤ 1.50"
    );
}

fn measure(subject: &Subject, rounds: u32) {
    let codec = codec(&subject.wire).unwrap();
    let catalog = Catalog::builtin();
    let asked = Asked::of(catalog.target_for(subject.provider, subject.model, "bench").unwrap());
    let body = transcript(subject);
    let request =
        Request { path: Name::from(subject.path), headers: Vec::new(), body: body.clone() };
    let call = codec.decode_request(&request, &asked).unwrap();
    // The same conversation with nothing left to copy whole: every message is put together from its parts.
    let mut parts = call.clone();
    parts.source = None;
    for item in parts.items.iter_mut().chain(&mut parts.system) {
        if let Some(native) = &mut item.native {
            native.envelope = None;
        }
    }
    let mut parse = || drop(black_box(serde_json::from_slice::<Value>(&body).unwrap()));
    let decode = ratio(rounds, &mut parse, &mut || {
        drop(black_box(codec.decode_request(&request, &asked).unwrap()));
    });
    let encode = ratio(rounds, &mut parse, &mut || drop(black_box(codec.encode(&call).unwrap())));
    let rebuild = ratio(rounds, &mut parse, &mut || drop(black_box(codec.encode(&parts).unwrap())));

    let stream = stream_of(codec, &asked);
    let mut frames = Vec::new();
    Framer::new(codec.framing()).push(&stream, &mut frames).unwrap();
    let frames: Vec<Bytes> =
        frames.into_iter().map(|frame| frame.data).filter(|data| data.starts_with(b"{")).collect();
    let mut parse = || {
        for frame in &frames {
            black_box(serde_json::from_slice::<Value>(frame).unwrap());
        }
    };
    let mut read = || {
        let mut decoder = StreamDecoder::new(codec, &asked);
        for chunk in stream.chunks(4096) {
            black_box(decoder.push(chunk).unwrap());
        }
        black_box(decoder.finish().unwrap());
    };
    let streamed = ratio(rounds, &mut parse, &mut read);
    println!(
        "{:<20} {:>9} {decode:>14.2} {encode:>14.2} {rebuild:>14.2} {streamed:>14.2}",
        subject.wire,
        body.len()
    );
}

fn ratio(rounds: u32, baseline: &mut dyn FnMut(), candidate: &mut dyn FnMut()) -> f64 {
    let (mut best_baseline, mut best_candidate) = (Duration::MAX, Duration::MAX);
    for _ in 0..rounds {
        best_baseline = best_baseline.min(time(baseline));
        best_candidate = best_candidate.min(time(candidate));
    }
    best_candidate.as_secs_f64() / best_baseline.as_secs_f64()
}

fn time(work: &mut dyn FnMut()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

/// A conversation of tool loops that has grown to about 200 KB.
fn transcript(subject: &Subject) -> Bytes {
    let mut messages = Vec::new();
    let mut turn = 0;
    let mut size = 0;
    while size < SIZE {
        let next = (subject.turn)(turn);
        size += next.iter().map(|message| message.to_string().len()).sum::<usize>();
        messages.extend(next);
        turn += 1;
    }
    Bytes::from((subject.body)(messages).to_string())
}

/// A streamed answer of about 200 KB: a thought and a text in pieces of a few words.
fn stream_of(codec: &dyn Codec, asked: &Asked) -> Vec<u8> {
    // Said by another wire's model, so that every encoder writes it live.
    let origin = Origin { wire: Wire::new("bench"), ..Origin::clone(&asked.target.origin) };
    let origin = Arc::new(origin);
    let piece: Arc<str> = Arc::from("twenty bytes of text");
    let mut encoder = StreamEncoder::new(codec);
    let mut bytes = Vec::new();
    let mut push = |event: Event, bytes: &mut Vec<u8>| encoder.push(&event, bytes).unwrap();
    push(Event::Began { id: Some(Name::from("reply")), origin: Arc::clone(&origin) }, &mut bytes);
    let thought = |content: &str| {
        Body::Thought(Thought::issued(content, ThoughtKind::Text, ReasoningFormat::unknown()))
    };
    let text = |content: &str| Body::Text(Arc::from(content));
    let mut items = Vec::new();
    let thinking: fn(Arc<str>) -> Delta = Delta::Thought;
    let bodies = [(thought(""), thinking), (text(""), Delta::Text)];
    for (index, (body, delta)) in (0_u32..).zip(bodies) {
        push(Event::Opened { index, id: None, body }, &mut bytes);
        let mut said = String::new();
        while bytes.len() < SIZE / 2 * (index as usize + 1) && said.len() < SIZE {
            said.push_str(&piece);
            push(Event::Delta { index, delta: delta(Arc::clone(&piece)) }, &mut bytes);
        }
        let body = if index == 0 { thought(&said) } else { text(&said) };
        let item =
            Item::new(format!("{index}"), Place { message: 0, part: index }, Role::Assistant, body);
        items.push(item.clone());
        push(Event::Closed { index, item: Box::new(item) }, &mut bytes);
    }
    let usage = Usage { input: 100, output: 200, ..Usage::default() };
    let reply = Reply {
        id: Some(Name::from("reply")),
        items,
        stop: Stop::Done,
        usage,
        origin,
        extras: Vec::new(),
    };
    push(Event::Usage(usage), &mut bytes);
    push(Event::Ended(Box::new(reply)), &mut bytes);
    encoder.finish(&mut bytes);
    bytes
}

fn words(turn: usize, count: usize) -> String {
    let words = [
        "The",
        "river",
        "keeps",
        "its",
        "course;",
        "nobody",
        "asks\n",
        "why",
        "it",
        "\"bends\"",
        "là",
        "there.",
    ];
    (0..count).map(|at| words[(turn * 7 + at * 5) % words.len()]).collect::<Vec<_>>().join(" ")
}

fn seal(turn: usize) -> String {
    let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    (0..800).map(|at| char::from(letters[(turn * 31 + at * 17 + at / 7) % 64])).collect()
}

fn arguments(turn: usize) -> Value {
    json!({"query": words(turn, 12), "limit": turn, "filters": {"kinds": ["a", "b"], "exact": true}})
}

fn schema() -> Value {
    json!({"type": "object", "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}}, "required": ["query"]})
}

#[expect(clippy::too_many_lines, reason = "a table of five rows")]
fn subjects() -> Vec<Subject> {
    vec![
        Subject {
            wire: Wire::ANTHROPIC_MESSAGES,
            provider: "anthropic",
            model: "claude-sonnet-4-5",
            path: "/v1/messages",
            turn: |n| {
                let id = format!("toolu_{n}");
                vec![
                    json!({"role": "user", "content": [{"type": "text", "text": words(n, 60)}]}),
                    json!({"role": "assistant", "content": [
                        {"type": "thinking", "thinking": words(n, 120), "signature": seal(n)},
                        {"type": "text", "text": words(n, 30)},
                        {"type": "tool_use", "id": id, "name": "search", "input": arguments(n)}]}),
                    json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": words(n, 200)}]}),
                    json!({"role": "assistant", "content": [{"type": "text", "text": words(n, 80)}]}),
                ]
            },
            body: |messages| {
                json!({"model": "claude-sonnet-4-5", "max_tokens": 4096, "system": words(1, 200),
                "tools": [{"name": "search", "description": "Searches.", "input_schema": schema()}], "messages": messages})
            },
        },
        Subject {
            wire: Wire::OPENAI_RESPONSES,
            provider: "openai",
            model: "gpt-5.2",
            path: "/v1/responses",
            turn: |n| {
                vec![
                    json!({"role": "user", "content": [{"type": "input_text", "text": words(n, 60)}]}),
                    json!({"type": "reasoning", "id": format!("rs_{n}"), "summary": [{"type": "summary_text", "text": words(n, 60)}], "encrypted_content": seal(n)}),
                    json!({"type": "function_call", "id": format!("fc_{n}"), "call_id": format!("call_{n}"), "name": "search", "arguments": arguments(n).to_string()}),
                    json!({"type": "function_call_output", "call_id": format!("call_{n}"), "output": words(n, 200)}),
                    json!({"type": "message", "role": "assistant", "id": format!("msg_{n}"), "status": "completed", "content": [{"type": "output_text", "text": words(n, 80), "annotations": []}]}),
                ]
            },
            body: |input| {
                json!({"model": "gpt-5.2", "instructions": words(1, 200), "store": false,
                "tools": [{"type": "function", "name": "search", "description": "Searches.", "parameters": schema()}], "input": input})
            },
        },
        Subject {
            wire: Wire::OPENAI_CHAT,
            provider: "openrouter",
            model: "anthropic/claude-sonnet-4.5",
            path: "/api/v1/chat/completions",
            turn: |n| {
                vec![
                    json!({"role": "user", "content": words(n, 60)}),
                    json!({"role": "assistant", "content": words(n, 30), "reasoning": words(n, 60),
                    "reasoning_details": [{"type": "reasoning.text", "text": words(n, 60), "signature": seal(n), "format": "anthropic-claude-v1", "index": 0}],
                    "tool_calls": [{"id": format!("call_{n}"), "type": "function", "function": {"name": "search", "arguments": arguments(n).to_string()}}]}),
                    json!({"role": "tool", "tool_call_id": format!("call_{n}"), "content": words(n, 200)}),
                    json!({"role": "assistant", "content": words(n, 80)}),
                ]
            },
            body: |messages| {
                json!({"model": "anthropic/claude-sonnet-4.5", "max_tokens": 4096,
                "tools": [{"type": "function", "function": {"name": "search", "description": "Searches.", "parameters": schema()}}], "messages": messages})
            },
        },
        Subject {
            wire: Wire::GEMINI,
            provider: "gemini",
            model: "gemini-3-pro-preview",
            path: "/v1beta/models/gemini-3-pro-preview:generateContent",
            turn: |n| {
                vec![
                    json!({"role": "user", "parts": [{"text": words(n, 60)}]}),
                    json!({"role": "model", "parts": [{"text": words(n, 60), "thought": true}, {"functionCall": {"name": "search", "args": arguments(n)}, "thoughtSignature": seal(n)}]}),
                    json!({"role": "user", "parts": [{"functionResponse": {"name": "search", "response": {"output": words(n, 200)}}}]}),
                    json!({"role": "model", "parts": [{"text": words(n, 80), "thoughtSignature": seal(n + 1)}]}),
                ]
            },
            body: |contents| {
                json!({"systemInstruction": {"parts": [{"text": words(1, 200)}]}, "generationConfig": {"maxOutputTokens": 4096},
                "tools": [{"functionDeclarations": [{"name": "search", "description": "Searches.", "parameters": schema()}]}], "contents": contents})
            },
        },
        Subject {
            wire: Wire::BEDROCK_CONVERSE,
            provider: "bedrock",
            model: "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
            path: "/model/us.anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse",
            turn: |n| {
                let id = format!("tooluse_{n}");
                vec![
                    json!({"role": "user", "content": [{"text": words(n, 60)}]}),
                    json!({"role": "assistant", "content": [
                        {"reasoningContent": {"reasoningText": {"text": words(n, 120), "signature": seal(n)}}},
                        {"text": words(n, 30)},
                        {"toolUse": {"toolUseId": id, "name": "search", "input": arguments(n)}}]}),
                    json!({"role": "user", "content": [{"toolResult": {"toolUseId": id, "content": [{"text": words(n, 200)}], "status": "success"}}]}),
                    json!({"role": "assistant", "content": [{"text": words(n, 80)}]}),
                ]
            },
            body: |messages| {
                json!({"system": [{"text": words(1, 200)}], "inferenceConfig": {"maxTokens": 4096},
                "toolConfig": {"tools": [{"toolSpec": {"name": "search", "description": "Searches.", "inputSchema": {"json": schema()}}}]}, "messages": messages})
            },
        },
    ]
}
