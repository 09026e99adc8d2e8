//! Shared benchmark support: a transcript for each wire, and alternating measurements.

use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::{Value, json};
use throughline_codec::{Catalog, DecodeContext};
use throughline_core::{Request, Wire};
use throughline_json::Name;

/// A wire to measure, and the functions that build a conversation in this wire's format.
pub(crate) struct BenchWire {
    pub(crate) wire: Wire,
    provider: &'static str,
    model: &'static str,
    path: &'static str,
    turn: fn(usize) -> Vec<Value>,
    body: fn(Vec<Value>) -> Value,
}

impl BenchWire {
    pub(crate) fn context(&self) -> DecodeContext {
        let catalog = Catalog::builtin();
        DecodeContext::of(catalog.target_for(self.provider, self.model, "bench").unwrap())
    }

    /// Builds a request of about `size` bytes.
    pub(crate) fn request(&self, size: usize) -> Request {
        let body = transcript(self, size);
        Request { path: Name::from(self.path), headers: Vec::new(), body }
    }
}

/// Returns the number of rounds. `cargo test` only checks that the benchmarks run, so one round is
/// enough there.
pub(crate) fn rounds() -> u32 {
    if std::env::args().any(|argument| argument == "--bench") { 60 } else { 1 }
}

/// Returns the candidate's best time divided by the baseline's best time. Candidate and baseline
/// run alternately, so that other load affects both equally.
pub(crate) fn ratio(rounds: u32, baseline: &mut dyn FnMut(), candidate: &mut dyn FnMut()) -> f64 {
    let (mut best_baseline, mut best_candidate) = (Duration::MAX, Duration::MAX);
    for _ in 0..rounds {
        best_baseline = best_baseline.min(time(baseline));
        best_candidate = best_candidate.min(time(candidate));
    }
    best_candidate.as_secs_f64() / best_baseline.as_secs_f64()
}

fn time(work: &mut dyn FnMut()) -> Duration {
    // A large allocation makes the allocator reclaim freed memory now, before the measurement
    // starts.
    drop(black_box(Vec::<u8>::with_capacity(1_000_000)));
    let start = Instant::now();
    work();
    start.elapsed()
}

/// Builds a conversation of about `size` bytes that consists of tool loops.
fn transcript(subject: &BenchWire, size: usize) -> Bytes {
    let mut messages = Vec::new();
    let mut turn = 0;
    let mut written = 0;
    while written < size {
        let next = (subject.turn)(turn);
        written += next.iter().map(|message| message.to_string().len()).sum::<usize>();
        messages.extend(next);
        turn += 1;
    }
    Bytes::from((subject.body)(messages).to_string())
}

fn words(turn: usize, count: usize) -> String {
    let vocabulary = [
        "The",
        "river",
        "keeps",
        "its",
        "course;",
        "unknown",
        "asks\n",
        "why",
        "it",
        "\"bends\"",
        "là",
        "there.",
    ];
    (0..count)
        .map(|at| vocabulary[(turn * 7 + at * 5) % vocabulary.len()])
        .collect::<Vec<_>>()
        .join(" ")
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
pub(crate) fn subjects() -> Vec<BenchWire> {
    vec![
        BenchWire {
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
        BenchWire {
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
        BenchWire {
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
        BenchWire {
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
        BenchWire {
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
