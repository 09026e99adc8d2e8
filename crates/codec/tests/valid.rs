//! Checks that requests are valid at every endpoint, even if the conversation comes from another
//! endpoint.
//!
//! The rules are implemented a second time here, on plain JSON, so that the checks do not depend on
//! the codecs.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::too_many_lines,
    reason = "a test fails by panicking, and prints its figures; the rules of one wire stand together"
)]

mod common;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use common::mix::{answers, is_sound, user_text, with_secret, with_thoughts};
use common::samples::{Sample, samples};
use serde_json::{Value, json};
use throughline_codec::{Catalog, Codec};
use throughline_core::{Body, Call, CallIds, Item, StopReason, Target, Tool};
use throughline_json::Name;
use throughline_testkit::figure;

/// Returns typical models of a provider: one of each kind if the rules differ between kinds.
fn models(provider: &str) -> &'static [&'static str] {
    match provider {
        "anthropic" => &["claude-sonnet-4-5", "claude-opus-5-5"],
        "azure-anthropic" | "vertex-anthropic" | "anthropic-aws" | "anthropic-google" => {
            &["claude-fable-5-2"]
        }
        "bedrock-mantle-anthropic" => &["anthropic.claude-sonnet-5-5"],
        "openai" => &["gpt-5.2", "gpt-6-sol"],
        "azure" | "azure-chat" => &["gpt-5.1"],
        "openai-chat" => &["gpt-5", "gpt-6-sol"],
        "gemini" => &["gemini-3-pro-preview", "gemini-2.5-flash", "gemini-4-argon"],
        "vertex" => &["gemini-3-flash-preview"],
        "bedrock" => {
            &["us.anthropic.claude-sonnet-4-5-20250929-v1:0", "us.amazon.nova-2-lite-v1:0"]
        }
        "bedrock-mantle" => &["openai.gpt-oss-120b"],
        "openrouter" | "vercel" => &["anthropic/claude-sonnet-4.5"],
        "deepseek" => &["deepseek-reasoner", "deepseek-flash"],
        "deepseek-responses" | "deepseek-anthropic" => &["deepseek-v4-flash"],
        "xai" => &["grok-4.3"],
        "xai-chat" => &["grok-3-mini"],
        "mistral" => &["magistral-medium-latest"],
        "moonshot" => &["kimi-k2-thinking", "kimi-k3"],
        "zai" => &["glm-4.7"],
        "minimax" => &["minimax-m2"],
        "groq" | "cerebras" => &["gpt-oss-120b"],
        _ => &["qwen3"],
    }
}

fn all_targets() -> Vec<(&'static dyn Codec, Target)> {
    let catalog = Catalog::builtin();
    let rows = catalog.providers().iter();
    rows.flat_map(|row| {
        models(&row.name).iter().map(move |model| {
            (common::codec_of(row.wire.as_str()), catalog.target(row, model, "test"))
        })
    })
    .collect()
}

/// Returns a sample's conversation: its request, or its reply after a short user message.
fn conversation(sample: &Sample) -> Option<Call> {
    let mut call = if sample.is_request() {
        sample.call()
    } else {
        let reply = sample.reply();
        if reply.stop == StopReason::Cut {
            return None;
        }
        let mut call = Call::new(sample.context.target.clone());
        call.extend([user_text("Please begin.")]);
        call.extend(reply.items);
        call
    }; // Text that strict JSON rejects, such as half a surrogate pair, is copied verbatim.
    let is_strict = !sample.is_request() || serde_json::from_slice::<Value>(&sample.bytes).is_ok();
    if !is_strict || !is_sound(&call.items) {
        return None;
    }
    if !sample.is_request() {
        call.tools = tools_called(&call.items);
    }
    let answers = answers(&call.items);
    if !answers.is_empty() {
        call.extend(answers);
    } else if !sample.is_request() {
        call.extend([user_text("Please go on.")]);
    }
    Some(call)
}

/// Returns declarations of the tools that a conversation called.
fn tools_called(items: &[Item]) -> Vec<Tool> {
    let calls = items.iter().filter_map(|item| match &item.body {
        Body::Call(call) => Some(&call.name),
        _ => None,
    });
    let names: BTreeSet<_> = calls.collect();
    let tool = |name: &Name| Tool {
        name: name.clone(),
        description: None,
        schema: None,
        hosted: false,
        native: None,
    };
    names.into_iter().map(tool).collect()
}

/// Returns named variants of a Call to encode for a target.
fn variants(call: &Call, to: &Target) -> Vec<(&'static str, Call)> {
    let mut fresh = Call::new(to.clone());
    fresh.system.clone_from(&call.system);
    fresh.tools.clone_from(&call.tools);
    fresh.settings.clone_from(&call.settings);
    fresh.items.clone_from(&call.items);
    let mut moved = call.clone();
    moved.target = to.clone();
    let thinking = with_thoughts(&call.items);
    let mixed = |call: &Call| with_secret(Call { items: thinking.clone(), ..call.clone() });
    let is_mixed = thinking.len() > call.items.len();
    let is_home = *to.origin.provider == *call.target.origin.provider;
    let mut variants = vec![("fresh", fresh)];
    if call.source.is_some() && !is_home {
        variants.push(("moved", moved));
    }
    if is_mixed {
        let mixed: Vec<_> =
            variants.iter().map(|(_, call)| ("with thoughts", mixed(call))).collect();
        variants.extend(mixed);
    }
    variants
}

#[test]
fn every_request_is_valid_at_every_endpoint() {
    let targets = all_targets();
    let samples = samples();
    let calls: Vec<(&Sample, Call)> =
        samples.iter().filter_map(|sample| Some((sample, conversation(sample)?))).collect();
    let share = calls.len().div_ceil(4).max(1);
    let mut findings = ValidationReport::default();
    let work = |part: &[(&Sample, Call)]| {
        let mut findings = ValidationReport::default();
        for (sample, call) in part {
            for (codec, to) in &targets {
                try_one(sample, call, *codec, to, &mut findings);
            }
        }
        findings
    };
    std::thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> =
            calls.chunks(share).map(|part| scope.spawn(move || work(part))).collect();
        for worker in workers {
            findings.join(worker.join().unwrap());
        }
    });
    figure("conversations that are invalid themselves", samples.len() - calls.len());
    for (wire, count) in &findings.checked {
        figure(&format!("foreign requests checked: {wire}"), count);
    }
    assert!(findings.problems.is_empty(), "{}", findings.report());
}

#[derive(Default)]
struct ValidationReport {
    checked: BTreeMap<String, usize>,
    /// The issues found, by source and target wire and by rule.
    problems: BTreeMap<(String, String), ValidationIssue>,
}

struct ValidationIssue {
    count: usize,
    rows: BTreeMap<String, usize>,
    example: String,
}

impl ValidationIssue {
    fn of(example: String) -> Self {
        Self { count: 0, rows: BTreeMap::new(), example }
    }
}

impl ValidationReport {
    fn join(&mut self, other: ValidationReport) {
        for (wire, count) in other.checked {
            *self.checked.entry(wire).or_default() += count;
        }
        for (key, other) in other.problems {
            let found =
                self.problems.entry(key).or_insert_with(|| ValidationIssue::of(other.example));
            found.count += other.count;
            for (row, count) in other.rows {
                *found.rows.entry(row).or_default() += count;
            }
        }
    }

    fn report(&self) -> String {
        let lines = self.problems.iter().map(|((wires, rule), found)| {
            let ValidationIssue { count, rows, example } = found;
            let rows: Vec<_> = rows.iter().map(|(row, count)| format!("{row} {count}")).collect();
            format!("{wires}: {rule} ({count}: {})\n    e.g. {example}\n", rows.join(", "))
        });
        lines.collect()
    }
}

fn try_one(
    sample: &Sample,
    call: &Call,
    codec: &dyn Codec,
    to: &Target,
    findings: &mut ValidationReport,
) {
    let wires = format!("{} to {}", sample.codec.wire(), codec.wire());
    for (variant, call) in variants(call, to) {
        *findings.checked.entry(codec.wire().to_string()).or_default() += 1;
        let encoded = codec.encode(&call).unwrap();
        let body = &encoded.request.body;
        let mut problems = ProblemList::default();
        match serde_json::from_slice::<Value>(body) {
            Ok(value) => {
                check(codec.wire().as_str(), &value, &call, &mut problems);
                let text = value.to_string();
                let sent = call.items.iter().filter(|item| item.id.0.starts_with("plain-"));
                for item in sent {
                    if !text.contains(item.visible().unwrap_or_default()) {
                        problems.add("a caller's thought is missing", &item.id.0);
                    }
                }
            }
            Err(error) => problems.add("not JSON", &error.to_string()),
        }
        for seal in call.items.iter().flat_map(|item| &item.seals) {
            let bytes = seal.reveal_to_tenant();
            if seal.owner.provider != to.origin.provider
                && bytes.len() >= 12
                && memchr::memmem::find(body, bytes).is_some()
            {
                problems.add("a foreign seal", &seal.to_string());
            }
        }
        for (rule, detail) in problems.0 {
            let row = &to.origin.provider;
            let name = &sample.name;
            let example = format!("{name} to {row} {} [{variant}]: {detail}", to.model());
            let key = (wires.clone(), rule.to_owned());
            let found =
                findings.problems.entry(key).or_insert_with(|| ValidationIssue::of(example));
            found.count += 1;
            *found.rows.entry(format!("{row} {variant}")).or_default() += 1;
        }
    }
}

#[derive(Default)]
struct ProblemList(Vec<(&'static str, String)>);

impl ProblemList {
    fn add(&mut self, rule: &'static str, detail: &str) {
        self.0.push((rule, detail.chars().take(160).collect()));
    }

    fn demand(&mut self, holds: bool, rule: &'static str, detail: &Value) {
        if !holds {
            self.add(rule, &detail.to_string());
        }
    }
}

fn check(wire: &str, body: &Value, call: &Call, problems: &mut ProblemList) {
    match wire {
        "anthropic-messages" => anthropic(body, call, problems),
        "openai-responses" => responses(body, call, problems),
        "openai-chat" => chat(body, call, problems),
        "gemini" => gemini(body, call, problems),
        _ => converse(body, call, problems),
    }
}

// ---- shared by several wires ----

const NONE: &[Value] = &[];

fn list<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value.get(key).and_then(Value::as_array).map_or(NONE, Vec::as_slice)
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Returns whether a count is absent, `null` or a positive integer.
fn is_count(value: Option<&Value>) -> bool {
    value.is_none_or(|value| value.is_null() || value.as_u64().is_some_and(|count| count > 0))
}

fn is_number(value: Option<&Value>) -> bool {
    value.is_none_or(|value| value.is_null() || value.is_number())
}

fn is_safe(id: &str, longest: usize) -> bool {
    let is_safe = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    !id.is_empty() && id.len() <= longest && id.chars().all(is_safe)
}

/// Returns whether the endpoint accepts an id of this form.
fn fits(id: &str, ids: CallIds) -> bool {
    match ids {
        CallIds::Plain => is_safe(id, 64),
        CallIds::Forty => is_safe(id, 40),
        CallIds::Nine => id.len() == 9 && id.chars().all(|c| c.is_ascii_alphanumeric()),
    }
}

fn is_own(call: &Call, item: &Item) -> bool {
    item.origin.as_ref().is_some_and(|origin| {
        origin.provider == call.target.origin.provider
            && origin.endpoint == call.target.origin.endpoint
    })
}

/// Returns whether any assistant Item came from the target endpoint. If so, the endpoint accepts
/// ids in the format that it issues.
fn is_home(call: &Call) -> bool {
    call.items.iter().any(|item| item.origin.is_some() && is_own(call, item))
}

/// Matches calls and results by id on wires that require results in the next turn.
struct CallPairs {
    open: Vec<String>,
    seen: HashSet<String>,
    /// Whether the source conversation was accepted with repeated ids.
    repeats: bool,
}

impl CallPairs {
    fn of(call: &Call) -> Self {
        let mut seen = HashSet::new();
        let mut ids = call.items.iter().filter_map(|item| match &item.body {
            Body::Call(called) => called.wire_id.as_ref(),
            _ => None,
        });
        let repeats = ids.any(|id| !seen.insert(id));
        Self { open: Vec::new(), seen: HashSet::new(), repeats }
    }

    fn call(&mut self, id: &str, problems: &mut ProblemList) {
        if !self.seen.insert(id.to_owned()) && !self.repeats {
            problems.add("an id names two calls", id);
        }
        self.open.push(id.to_owned());
    }

    fn answer(&mut self, id: &str, problems: &mut ProblemList) {
        match self.open.iter().position(|open| open == id) {
            Some(at) => drop(self.open.remove(at)),
            None => problems.add("a result without an open call", id),
        }
    }

    fn close(&mut self, problems: &mut ProblemList) {
        for id in self.open.drain(..) {
            problems.add("a call without a result directly after it", &id);
        }
    }
}

// ---- anthropic-messages ----

fn anthropic(body: &Value, call: &Call, problems: &mut ProblemList) {
    let is_anthropic = &*call.target.origin.provider == "anthropic";
    let limit = body.get("max_tokens").and_then(Value::as_u64);
    problems.demand(limit.is_some_and(|n| n > 0), "max_tokens", &body["max_tokens"]);
    problems.demand(is_number(body.get("temperature")), "temperature", &body["temperature"]);
    let choice = text(&body["tool_choice"], "type");
    let has_tools = !list(body, "tools").is_empty();
    problems.demand(
        choice.is_empty() || has_tools,
        "tool_choice without tools",
        &body["tool_choice"],
    );
    problems.demand(
        body.get("tools").is_none() || has_tools || call.source.is_some(),
        "empty tools",
        body,
    );
    let thinking = &body["thinking"];
    let is_manual = text(thinking, "type") == "enabled";
    if is_manual {
        let budget = thinking["budget_tokens"].as_u64().unwrap_or_default();
        let is_right = budget >= 1024 && limit.is_some_and(|limit| budget < limit);
        problems.demand(is_right || !is_anthropic, "thinking budget", thinking);
        let is_forced = choice == "any" || choice == "tool";
        problems.demand(!is_forced, "forced tool with a thinking budget", &body["tool_choice"]);
    }
    let messages = list(body, "messages");
    problems.demand(!messages.is_empty(), "no messages", body);
    let mut turns: Vec<(&str, Vec<&Value>)> = Vec::new();
    for message in messages {
        let role = text(message, "role");
        let content = &message["content"];
        let is_said = match content {
            Value::String(string) => !string.trim().is_empty(),
            Value::Array(blocks) => !blocks.is_empty(),
            _ => false,
        };
        problems.demand(is_said, "empty message", message);
        problems.demand(["user", "assistant", "system"].contains(&role), "role", message);
        let blocks: Vec<&Value> = content.as_array().into_iter().flatten().collect();
        match turns.last_mut() {
            Some((last, so_far)) if *last == role => so_far.extend(blocks),
            _ => turns.push((role, blocks)),
        }
    }
    problems.demand(
        turns.first().is_none_or(|turn| turn.0 == "user"),
        "the first message is not the user's",
        &messages[0],
    );
    let mut pairs = CallPairs::of(call);
    for (at, (role, blocks)) in turns.iter().enumerate() {
        let mut has_spoken = false;
        for block in blocks {
            match text(block, "type") {
                "text" => {
                    has_spoken = true;
                    problems.demand(
                        !text(block, "text").trim().is_empty(),
                        "empty text block",
                        block,
                    );
                }
                "tool_use" => {
                    let id = text(block, "id");
                    problems.demand(is_safe(id, 64) || is_home(call), "id of a call", block);
                    problems.demand(block["input"].is_object(), "input is not an object", block);
                    pairs.call(id, problems);
                }
                "tool_result" => {
                    problems.demand(!has_spoken, "a result after other blocks", block);
                    pairs.answer(text(block, "tool_use_id"), problems);
                    for part in list(block, "content") {
                        let is_empty =
                            text(part, "type") == "text" && text(part, "text").is_empty();
                        problems.demand(!is_empty, "empty text in a result", block);
                    }
                }
                "thinking" if is_anthropic => {
                    problems.demand(
                        !text(block, "signature").is_empty(),
                        "unsigned thinking",
                        block,
                    );
                }
                "" => problems.demand(false, "a block without a type", block),
                _ => has_spoken = true,
            }
        }
        if *role == "user" {
            pairs.close(problems);
        }
        let ends_in_thought =
            blocks.last().is_some_and(|block| text(block, "type").ends_with("thinking"));
        let is_assistant = *role == "assistant";
        problems.demand(
            !(is_assistant && ends_in_thought && at + 1 == turns.len()),
            "ends in a thought",
            blocks.last().unwrap_or(&&Value::Null),
        );
    }
    // In a tool loop with manual thinking, the turn must start with a thought.
    if is_manual
        && is_anthropic
        && let [.., (_, turn), (_, answers)] = &turns[..]
    {
        let is_loop = answers.iter().any(|block| text(block, "type") == "tool_result");
        let begins = turn.first().is_some_and(|block| text(block, "type").ends_with("thinking"));
        problems.demand(
            !is_loop || begins,
            "manual thinking in a tool loop without its thought",
            thinking,
        );
    }
}

// ---- bedrock-converse ----

fn converse(body: &Value, call: &Call, problems: &mut ProblemList) {
    let is_claude = call.target.model().contains("claude");
    let config = &body["inferenceConfig"];
    problems.demand(is_count(config.get("maxTokens")), "maxTokens", config);
    problems.demand(is_number(config.get("temperature")), "temperature", config);
    let tools = list(&body["toolConfig"], "tools");
    let has_choice = body["toolConfig"].get("toolChoice").is_some();
    problems.demand(
        !has_choice || !tools.is_empty(),
        "toolChoice without tools",
        &body["toolConfig"],
    );
    problems.demand(
        body.get("toolConfig").is_none() || !tools.is_empty(),
        "empty toolConfig",
        &body["toolConfig"],
    );
    let messages = list(body, "messages");
    problems.demand(!messages.is_empty(), "no messages", body);
    let mut pairs = CallPairs::of(call);
    let mut expected_role = "user";
    let mut calls = false;
    for message in messages {
        let role = text(message, "role");
        problems.demand(role == expected_role, "roles do not alternate from the user on", message);
        expected_role = if role == "user" { "assistant" } else { "user" };
        let blocks = list(message, "content");
        problems.demand(!blocks.is_empty(), "empty message", message);
        for block in blocks {
            let members = block.as_object().map_or(0, serde_json::Map::len);
            problems.demand(members == 1, "a block is not one member", block);
            if let Some(value) = block.get("text") {
                let is_blank = value.as_str().is_none_or(|text| text.trim().is_empty());
                problems.demand(!is_blank, "empty text block", block);
            }
            if let Some(used) = block.get("toolUse") {
                calls |= used.get("type").is_none();
                let id = text(used, "toolUseId");
                problems.demand(is_safe(id, 64), "id of a call", used);
                problems.demand(used["input"].is_object(), "input is not an object", used);
                pairs.call(id, problems);
            }
            if let Some(result) = block.get("toolResult") {
                calls |= result.get("type").is_none();
                problems.demand(result["content"].is_array(), "an answer's content", result);
                pairs.answer(text(result, "toolUseId"), problems);
            }
            if let Some(reasoning) = block.get("reasoningContent") {
                let reasoning_text = &reasoning["reasoningText"];
                let is_signed = !is_claude || !text(reasoning_text, "signature").is_empty();
                problems.demand(reasoning_text.is_null() || is_signed, "unsigned thinking", block);
            }
        }
        if role == "user" {
            pairs.close(problems);
        }
    }
    problems.demand(!calls || !tools.is_empty(), "calls without toolConfig", &body["toolConfig"]);
}

// ---- gemini ----

fn either<'v>(value: &'v Value, camel: &str, snake: &str) -> Option<&'v Value> {
    value.get(camel).or_else(|| value.get(snake))
}

fn gemini(body: &Value, call: &Call, problems: &mut ProblemList) {
    let is_three = call.target.model().contains("gemini-3");
    let config = either(body, "generationConfig", "generation_config").unwrap_or(&Value::Null);
    let limit = either(config, "maxOutputTokens", "max_output_tokens");
    problems.demand(is_count(limit), "maxOutputTokens", config);
    problems.demand(is_number(config.get("temperature")), "temperature", config);
    let declares =
        |tool: &Value| either(tool, "functionDeclarations", "function_declarations").is_some();
    let has_functions = list(body, "tools").iter().any(declares);
    let tool_config = either(body, "toolConfig", "tool_config").unwrap_or(&Value::Null);
    let choice = either(tool_config, "functionCallingConfig", "function_calling_config");
    let is_forced = choice.is_some_and(|choice| text(choice, "mode").eq_ignore_ascii_case("any"));
    problems.demand(!is_forced || has_functions, "a forced tool without functions", tool_config);
    let contents = list(body, "contents");
    problems.demand(!contents.is_empty(), "no contents", body);
    let role_of = |content: &Value| if text(content, "role") == "model" { "model" } else { "user" };
    problems.demand(
        contents.first().is_none_or(|content| role_of(content) == "user"),
        "the first content is not the user's",
        &contents[0],
    );
    let mut open: Vec<String> = Vec::new();
    let mut last = "user";
    for content in contents {
        let parts = list(content, "parts");
        // Providers accept empty texts next to other parts, but not a message with only empty
        // texts.
        let is_blank = |part: &Value| {
            let is_signed = either(part, "thoughtSignature", "thought_signature").is_some();
            part.get("text").is_some_and(|value| value == "") && !is_signed
        };
        problems.demand(!parts.iter().all(is_blank), "empty content", content);
        let names = |camel: &str, snake: &str| -> Vec<String> {
            let found = parts.iter().filter_map(|part| either(part, camel, snake));
            found.map(|part| text(part, "name").to_owned()).collect()
        };
        let called = names("functionCall", "function_call");
        let answered = names("functionResponse", "function_response");
        for part in parts {
            let data: Vec<_> = part
                .as_object()
                .into_iter()
                .flat_map(|part| part.keys())
                .filter(|key| {
                    !matches!(
                        &***key,
                        "thought"
                            | "thoughtSignature"
                            | "thought_signature"
                            | "videoMetadata"
                            | "mediaResolution"
                            | "partMetadata"
                    )
                })
                .collect();
            let signature = either(part, "thoughtSignature", "thought_signature");
            let is_only_signed = data.is_empty() && signature.is_some();
            problems.demand(
                data.len() == 1 || is_only_signed,
                "a part is not one kind of data",
                part,
            );
            if let Some(function) = either(part, "functionCall", "function_call") {
                let args = function.get("args");
                problems.demand(args.is_none_or(Value::is_object), "args is not an object", part);
                problems.demand(!text(function, "name").is_empty(), "a call without a name", part);
            }
            if let Some(function) = either(part, "functionResponse", "function_response") {
                problems.demand(
                    function["response"].is_object(),
                    "response is not an object",
                    part,
                );
                problems.demand(
                    !text(function, "name").is_empty(),
                    "a result without a name",
                    part,
                );
            }
        }
        let first =
            parts.iter().find(|part| either(part, "functionCall", "function_call").is_some());
        if let Some(first) = first
            && is_three
        {
            let signature = either(first, "thoughtSignature", "thought_signature");
            let is_signed = signature.and_then(Value::as_str).is_some_and(|seal| !seal.is_empty());
            problems.demand(is_signed, "the first call of a step is unsigned", content);
        }
        // Providers accept consecutive messages with the same role as one turn.
        let role = role_of(content);
        problems.demand(role == "model" || called.is_empty(), "a call by the user", content);
        if role == "model" && last == "user" {
            if let Some(name) = open.first() {
                problems.add("a call without a result directly after it", name);
            }
            open.clear();
        }
        open.extend(called);
        for name in answered {
            match open.iter().position(|open| *open == name) {
                Some(at) => drop(open.remove(at)),
                None => problems.add("a result without an open call", &name),
            }
        }
        last = role;
    }
    problems.demand(open.is_empty(), "a call without a result directly after it", &Value::Null);
}

// ---- openai-chat ----

const REASONING: [&str; 4] = ["reasoning_content", "reasoning", "reasoning_details", "thinking"];

fn chat(body: &Value, call: &Call, problems: &mut ProblemList) {
    let row = &call.target.provider;
    let dialect = &row.dialect;
    let is_native = &*row.name == "ollama-native";
    let is_strict = ["mistral", "openai-chat"].contains(&&*row.name);
    let is_owed = ["deepseek", "moonshot"].contains(&&*row.name);
    for key in ["max_tokens", "max_completion_tokens"] {
        problems.demand(is_count(body.get(key)), "max_tokens", &body[key]);
    }
    let is_old = &*row.name == "openai-chat" && body.get("max_tokens").is_some();
    problems.demand(!is_old, "max_tokens for a reasoning model", &body["max_tokens"]);
    problems.demand(is_number(body.get("temperature")), "temperature", &body["temperature"]);
    let has_tools = !list(body, "tools").is_empty();
    problems.demand(
        body.get("tool_choice").is_none() || has_tools,
        "tool_choice without tools",
        &body["tool_choice"],
    );
    problems.demand(
        body.get("parallel_tool_calls").is_none() || has_tools,
        "parallel_tool_calls without tools",
        &body["parallel_tool_calls"],
    );
    let messages = list(body, "messages");
    problems.demand(!messages.is_empty(), "no messages", body);
    let mut pairs = CallPairs::of(call);
    for message in messages {
        let role = text(message, "role");
        if role == "tool" {
            if !is_native {
                pairs.answer(text(message, "tool_call_id"), problems);
            }
        } else {
            pairs.close(problems);
        }
        let is_known = ["system", "user", "assistant", "tool"].contains(&role)
            || role == "developer" && !["deepseek", "mistral"].contains(&&*row.name);
        // Messages with OpenAI's legacy `function` role.
        let is_old_way = role == "function"
            && (["openai-chat", "azure-chat", "compatible"].contains(&&*row.name) || is_home(call));
        problems.demand(is_known || is_old_way, "role", message);
        let calls = list(message, "tool_calls");
        let is_said = match &message["content"] {
            Value::String(string) => !string.is_empty(),
            Value::Array(parts) => !parts.is_empty(),
            _ => false,
        };
        let is_more = ["refusal", "audio", "function_call", "images"]
            .iter()
            .any(|key| message.get(key).is_some_and(|value| !value.is_null()));
        problems.demand(
            is_said || is_more || !calls.is_empty() || role == "tool",
            "empty message",
            message,
        );
        problems.demand(
            message
                .get("tool_calls")
                .is_none_or(|calls| calls.as_array().is_none_or(|calls| !calls.is_empty()))
                || is_home(call),
            "empty tool_calls",
            message,
        );
        for part in message["content"].as_array().into_iter().flatten() {
            problems.demand(!text(part, "type").is_empty(), "a part without a type", part);
            let is_blank = text(part, "type") == "text" && text(part, "text").is_empty();
            problems.demand(!is_blank, "empty text part", part);
            let is_thought = text(part, "type") == "thinking" && &*row.name != "mistral";
            problems.demand(!is_thought || is_home(call), "a thinking chunk", part);
        }
        let has_reasoning =
            REASONING.iter().any(|key| message.get(key).is_some_and(|value| !value.is_null()));
        problems.demand(
            !is_strict || !has_reasoning,
            "a reasoning field on a strict endpoint",
            message,
        );
        if is_owed && !calls.is_empty() {
            let reasoning = message.get("reasoning_content").and_then(Value::as_str);
            let is_there =
                reasoning.is_some_and(|content| &*row.name != "moonshot" || !content.is_empty());
            problems.demand(is_there, "no reasoning_content with calls", message);
        }
        for called in calls {
            let function = if called.get("custom").is_some() {
                &called["custom"]
            } else {
                &called["function"]
            };
            problems.demand(!text(function, "name").is_empty(), "a call without a name", called);
            let is_custom = called.get("custom").is_some();
            let knows_custom = !["deepseek", "mistral", "ollama-native"].contains(&&*row.name);
            problems.demand(!is_custom || knows_custom, "a custom call", called);
            if is_native {
                let is_object = is_custom || function["arguments"].is_object();
                problems.demand(is_object, "arguments is not an object", called);
                continue;
            }
            let id = text(called, "id");
            problems.demand(fits(id, dialect.call_ids) || is_home(call), "id of a call", called);
            pairs.call(id, problems);
            if called.get("custom").is_none() {
                let arguments = function.get("arguments").and_then(Value::as_str);
                let is_json =
                    arguments.is_some_and(|text| serde_json::from_str::<Value>(text).is_ok());
                problems.demand(is_json || is_home(call), "arguments is not JSON text", called);
            }
        }
    }
    pairs.close(problems);
}

// ---- openai-responses ----

fn responses(body: &Value, call: &Call, problems: &mut ProblemList) {
    let row = &call.target.provider;
    let is_foreign = !is_home(call);
    problems.demand(
        is_count(body.get("max_output_tokens")),
        "max_output_tokens",
        &body["max_output_tokens"],
    );
    problems.demand(is_number(body.get("temperature")), "temperature", &body["temperature"]);
    let has_tools = !list(body, "tools").is_empty();
    problems.demand(
        body.get("tool_choice").is_none() || has_tools,
        "tool_choice without tools",
        &body["tool_choice"],
    );
    if is_foreign {
        let resumed = body.get("previous_response_id").filter(|id| !id.is_null());
        problems.demand(resumed.is_none(), "another endpoint's previous_response_id", body);
    }
    let is_string = body["input"].as_str().is_some_and(|string| !string.is_empty());
    let input = list(body, "input");
    problems.demand(is_string || !input.is_empty(), "no input", body);
    let mut pairs = CallPairs::of(call);
    for item in input {
        let kind = match text(item, "type") {
            "" => "message",
            kind => kind,
        };
        let is_said_by_model = kind != "message" || text(item, "role") == "assistant";
        let has_id = item.get("id").is_some_and(|id| !id.is_null());
        problems.demand(!(is_foreign && has_id && is_said_by_model), "another endpoint's id", item);
        match kind {
            "message" => {
                let is_user = text(item, "role") != "assistant";
                if is_user {
                    pairs.close(problems);
                }
                let is_said = match &item["content"] {
                    Value::String(string) => !string.is_empty(),
                    Value::Array(parts) => !parts.is_empty(),
                    _ => false,
                };
                problems.demand(is_said || !is_foreign, "empty message", item);
                for part in item["content"].as_array().into_iter().flatten() {
                    let kind = text(part, "type");
                    let is_right = if is_user {
                        kind.starts_with("input_")
                    } else {
                        kind == "output_text" || kind == "refusal"
                    };
                    problems.demand(
                        is_right || !is_foreign,
                        "a part that the role cannot have",
                        item,
                    );
                    let is_blank = kind.ends_with("_text") && text(part, "text").is_empty();
                    problems.demand(!is_blank || !is_foreign, "empty text part", item);
                }
            }
            "function_call" | "custom_tool_call" => {
                let id = text(item, "call_id");
                problems.demand(
                    fits(id, row.dialect.call_ids) || !is_foreign,
                    "id of a call",
                    item,
                );
                problems.demand(!text(item, "name").is_empty(), "a call without a name", item);
                pairs.call(id, problems);
                if kind == "function_call" {
                    let arguments = item.get("arguments").and_then(Value::as_str);
                    let is_json =
                        arguments.is_some_and(|text| serde_json::from_str::<Value>(text).is_ok());
                    problems.demand(is_json || !is_foreign, "arguments is not JSON text", item);
                }
            }
            "function_call_output" | "custom_tool_call_output" => {
                pairs.answer(text(item, "call_id"), problems);
                let output = &item["output"];
                problems.demand(output.is_string() || output.is_array(), "output", item);
            }
            "reasoning" => {
                problems.demand(item["summary"].is_array(), "reasoning without a summary", item);
                problems.demand(!is_foreign, "another endpoint's reasoning", item);
            }
            _ => problems.demand(!is_foreign, "an item that only its own endpoint supports", item),
        }
    }
    pairs.close(problems);
}

/// The checks must detect a call without a result and a result without a call.
#[test]
fn checks_find_orphans_on_every_wire() {
    let orphans = |wire: &str| match wire {
        "anthropic-messages" => json!({"max_tokens": 9, "messages": [
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "b", "name": "f", "input": {}}]},
            {"role": "user", "content": "x"}]}),
        "openai-responses" => json!({"input": [
            {"type": "function_call_output", "call_id": "a", "output": "x"},
            {"type": "function_call", "call_id": "b", "name": "f", "arguments": "{}"},
            {"role": "user", "content": "x"}]}),
        "openai-chat" => json!({"messages": [
            {"role": "tool", "tool_call_id": "a", "content": "x"},
            {"role": "assistant", "tool_calls": [{"id": "b", "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "user", "content": "x"}]}),
        "gemini" => json!({"contents": [
            {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {}}}]},
            {"role": "model", "parts": [{"functionCall": {"name": "f"}, "thoughtSignature": "c2VhbA=="}]},
            {"role": "user", "parts": [{"text": "x"}]}, {"role": "model", "parts": [{"text": "x"}]}]}),
        _ => json!({"toolConfig": {"tools": [{"toolSpec": {"name": "f"}}]}, "messages": [
            {"role": "user", "content": [{"toolResult": {"toolUseId": "a", "content": []}}]},
            {"role": "assistant", "content": [{"toolUse": {"toolUseId": "b", "name": "f", "input": {}}}]},
            {"role": "user", "content": [{"text": "x"}]}]}),
    };
    for (codec, target) in all_targets() {
        if &*target.origin.provider == "ollama-native" {
            continue; // Results have no ids on this wire.
        }
        let wire = codec.wire();
        let mut problems = ProblemList::default();
        check(wire.as_str(), &orphans(wire.as_str()), &Call::new(target), &mut problems);
        let found: Vec<_> = problems.0.iter().map(|(rule, _)| *rule).collect();
        assert!(found.contains(&"a result without an open call"), "{wire}: {found:?}");
        assert!(found.contains(&"a call without a result directly after it"), "{wire}: {found:?}");
    }
}
