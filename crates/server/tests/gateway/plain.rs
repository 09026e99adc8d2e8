//! Tests how reasoning without a Seal is restored: in which message members, in which turns, and
//! what the Fates report. Also tests the ids of a turn that a client's other Items name.

use std::sync::Arc;

use serde_json::{Value, json};
use throughline_codec::codec;
use throughline_core::{
    Disposition, EncodedRequest, Evidence, PlainReplay, Provider, Target, Tenant,
};
use throughline_replay::{Claims, RestoredCall};

use crate::common::{KEY, ReplayFixture, call_of, codec_of, reply_of, sealed, target};

fn tenant() -> Tenant {
    Tenant::from("acme")
}

/// A conversation with one endpoint. The client sends what each test writes.
struct TestEndpoint {
    fixture: ReplayFixture,
    target: Target,
}

impl TestEndpoint {
    async fn new(provider: &str, wire: &str, model: &str) -> Self {
        Self { fixture: ReplayFixture::new().await, target: target(provider, wire, model) }
    }

    async fn chat(provider: &str, model: &str) -> Self {
        Self::new(provider, "openai-chat", model).await
    }

    fn with_setting(mut self, replay_plain: PlainReplay) -> Self {
        let provider = Provider { replay_plain, ..Provider::clone(&self.target.provider) };
        self.target.provider = Arc::new(provider);
        self
    }

    async fn send(&self, body: &Value) -> (RestoredCall, EncodedRequest) {
        let codec = codec(&self.target.provider.wire).unwrap();
        let call = call_of(codec, &self.target, body);
        let restored = self.fixture.replay.restore(&tenant(), None, call).await.unwrap();
        let mut encoded = codec.encode(&restored.call).unwrap();
        restored.account(&mut encoded);
        (restored, encoded)
    }

    /// Sends a request and captures the reply.
    async fn exchange(&self, body: &Value, reply: &Value) {
        let (restored, encoded) = self.send(body).await;
        let reply = reply_of(codec(&self.target.provider.wire).unwrap(), &self.target, reply);
        self.fixture.capture(&tenant(), &restored, &reply, &encoded).await.unwrap();
    }

    /// Sends chat messages and captures the reply message.
    async fn chat_exchange(&self, messages: &Value, reply: &Value) {
        let finish = if reply.get("tool_calls").is_some() { "tool_calls" } else { "stop" };
        let choice = json!({ "index": 0, "finish_reason": finish, "message": reply });
        let mut body = json!({ "id": "r", "object": "chat.completion", "choices": [choice] });
        if self.is_ollama() {
            body = json!({ "done": true, "done_reason": "stop", "message": reply });
        }
        self.exchange(&json!({ "model": "m", "messages": messages }), &body).await;
    }

    /// Sends chat messages. Returns the messages that the endpoint receives, and the changed Fates.
    async fn messages_sent(&self, messages: &Value) -> (Value, Vec<(String, String)>) {
        let (_, encoded) = self.send(&json!({ "model": "m", "messages": messages })).await;
        let body: Value = serde_json::from_slice(&encoded.request.body).unwrap();
        (body["messages"].clone(), changes(&encoded))
    }

    fn is_ollama(&self) -> bool {
        &*self.target.provider.name == "ollama-native"
    }
}

/// Returns the Fates of readable content that was not simply kept: each outcome, and the last part
/// of the Item's id.
fn changes(encoded: &EncodedRequest) -> Vec<(String, String)> {
    let changed = encoded.fates.iter().filter(|fate| fate.visible != Disposition::Kept);
    let last = |id: &str| id.rsplit('_').next().unwrap_or(id).to_owned();
    changed.map(|fate| (fate.visible.to_string(), last(&fate.item.0))).collect()
}

fn outcomes(changes: &[(String, String)]) -> Vec<&str> {
    changes.iter().map(|(outcome, _)| &**outcome).collect()
}

fn user(text: &str) -> Value {
    json!({ "role": "user", "content": text })
}

fn calls(id: &str) -> Value {
    let function = json!({ "name": "look", "arguments": "{}" });
    json!([{ "id": id, "type": "function", "function": function }])
}

fn result(id: &str) -> Value {
    json!({ "role": "tool", "tool_call_id": id, "content": "a door" })
}

const ID: &str = "call_7f3a9c21b0";

/// The reply with its reasoning, the message that a client without reasoning sends back, and the
/// message that the endpoint must receive.
struct FieldCase {
    provider: &'static str,
    model: &'static str,
    reply: Value,
    sent: Value,
    expected: Value,
}

fn field_cases() -> Vec<FieldCase> {
    let assistant = |members: Value| {
        let mut message = json!({ "role": "assistant", "content": null, "tool_calls": calls(ID) });
        message.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        message
    };
    let plain = assistant(json!({}));
    let same = |provider, model, members: Value| FieldCase {
        provider,
        model,
        reply: assistant(members.clone()),
        sent: plain.clone(),
        expected: assistant(members),
    };
    let details = json!([
        { "type": "reasoning.text", "text": "I must look.", "format": "unknown", "index": 0 },
    ]);
    let nine = "a1B2c3D4e";
    let chunk = json!({ "type": "thinking", "thinking": [{ "type": "text", "text": "Look." }] });
    let text = json!({ "type": "text", "text": "I look." });
    let mistral =
        |content: Value| assistant(json!({ "content": content, "tool_calls": calls(nine) }));
    let tagged = "<think>\nI must look.\n</think>\n\nI look.";
    let native = |members: Value| {
        let function = json!({ "name": "look", "arguments": {} });
        let mut message =
            json!({ "role": "assistant", "content": "", "tool_calls": [{ "function": function }] });
        message.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        message
    };
    vec![
        same("deepseek", "deepseek-v4-pro", json!({ "reasoning_content": "I must look." })),
        same("moonshot", "kimi-k2.5", json!({ "reasoning_content": "I must look." })),
        same("zai", "glm-5.2", json!({ "reasoning_content": "I must look." })),
        same("qwen", "qwen3-max", json!({ "reasoning_content": "I must look." })),
        same("xai-chat", "grok-3-mini", json!({ "reasoning_content": "I must look." })),
        same("vllm", "openai/gpt-oss-120b", json!({ "reasoning": "I must look." })),
        same("groq", "openai/gpt-oss-120b", json!({ "reasoning": "I must look." })),
        same("unlisted", "an-unknown-model", json!({ "reasoning_content": "I must look." })),
        same("unlisted", "an-unknown-model", json!({ "reasoning": "I must look." })),
        same("unlisted", "an-unknown-model", json!({ "reasoning_details": details })),
        same("openrouter", "z-ai/glm-5.2", json!({ "reasoning_details": details })),
        // The router repeats the details in a string; the details alone are sent back.
        FieldCase {
            provider: "openrouter",
            model: "qwen/qwen3-max",
            reply: assistant(json!({ "reasoning": "I must look.", "reasoning_details": details })),
            sent: plain.clone(),
            expected: assistant(json!({ "reasoning_details": details })),
        },
        FieldCase {
            provider: "mistral",
            model: "magistral-medium-latest",
            reply: mistral(json!([chunk, text])),
            sent: mistral(json!([text])),
            expected: mistral(json!([chunk, text])),
        },
        // The client joined the parts to a string.
        FieldCase {
            provider: "mistral",
            model: "magistral-medium-latest",
            reply: mistral(json!([chunk, text])),
            sent: mistral(json!("I look.")),
            expected: mistral(json!([chunk, text])),
        },
        FieldCase {
            provider: "minimax",
            model: "MiniMax-M2",
            reply: assistant(json!({ "content": tagged })),
            sent: assistant(json!({ "content": "I look." })),
            expected: assistant(json!({ "content": tagged })),
        },
        FieldCase {
            provider: "unlisted",
            model: "an-unknown-model",
            reply: assistant(json!({ "content": tagged })),
            sent: assistant(json!({ "content": "I look." })),
            expected: assistant(json!({ "content": tagged })),
        },
        FieldCase {
            provider: "ollama-native",
            model: "qwen3",
            reply: native(json!({ "thinking": "I must look." })),
            sent: native(json!({})),
            expected: native(json!({ "thinking": "I must look." })),
        },
    ]
}

#[tokio::test]
async fn plain_reasoning_returns_in_the_member_in_which_it_was_emitted() {
    for FieldCase { provider, model, reply, sent, expected } in field_cases() {
        let endpoint = TestEndpoint::chat(provider, model).await;
        endpoint.chat_exchange(&json!([user("Look.")]), &reply).await;
        let id = sent["tool_calls"][0]["id"].as_str().unwrap_or_default();
        let answer = if endpoint.is_ollama() {
            json!({ "role": "tool", "tool_name": "look", "content": "a door" })
        } else {
            result(id)
        };
        let (messages, changes) =
            endpoint.messages_sent(&json!([user("Look."), sent, answer])).await;
        assert_eq!(messages, json!([user("Look."), expected, answer]), "{provider}/{model}");
        let by =
            if endpoint.is_ollama() { Evidence::Chain { siblings: 0 } } else { Evidence::UniqueId };
        assert_eq!(outcomes(&changes), [Disposition::Restored(by).to_string()], "{provider}");
    }
}

/// The messages of two turns: the first calls a tool and answers, the second calls a tool again.
async fn two_turns(endpoint: &TestEndpoint) -> Value {
    let (first, second) = ("call_7f3a9c21b0", "call_91d4e6a7c2");
    let assistant = |members: Value| {
        let mut message = json!({ "role": "assistant", "content": null });
        message.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        message
    };
    let mut messages = vec![user("Look.")];
    for (reply, next) in [
        (json!({ "tool_calls": calls(first) }), result(first)),
        (json!({ "content": "A door." }), user("Look again.")),
        (json!({ "tool_calls": calls(second) }), result(second)),
    ] {
        let mut issued = assistant(reply.clone());
        issued["reasoning_content"] = json!(format!("Thought {}.", messages.len()));
        endpoint.chat_exchange(&json!(messages), &issued).await;
        messages.extend([assistant(reply), next]);
    }
    json!(messages)
}

#[tokio::test]
async fn each_turn_gets_the_reasoning_that_the_model_uses() {
    let restored = "restored: by unique id";
    let earlier = "elided: the model uses it only in the current tool loop";
    let policy = "elided: by policy";
    let (first, second, third) = (1, 3, 5);
    for (provider, model, setting, expected_at, expected_outcomes) in [
        ("vllm", "gpt-oss-120b", PlainReplay::Auto, vec![third], [restored, earlier, earlier]),
        ("unlisted", "unknown", PlainReplay::Auto, vec![third], [restored, earlier, earlier]),
        (
            "zai",
            "glm-5.2",
            PlainReplay::Auto,
            vec![first, second, third],
            [restored, restored, restored],
        ),
        (
            "deepseek",
            "deepseek-v4-pro",
            PlainReplay::Auto,
            vec![first, second, third],
            [restored, restored, restored],
        ),
        (
            "vllm",
            "gpt-oss-120b",
            PlainReplay::Always,
            vec![first, second, third],
            [restored, restored, restored],
        ),
        ("vllm", "gpt-oss-120b", PlainReplay::Never, vec![], [policy, policy, policy]),
    ] {
        let endpoint = TestEndpoint::chat(provider, model).await.with_setting(setting);
        let messages = two_turns(&endpoint).await;
        let (sent, changes) = endpoint.messages_sent(&messages).await;
        let sent = sent.as_array().unwrap();
        let has_reasoning = |at: &usize| sent[*at].get("reasoning_content").is_some();
        let found: Vec<usize> = (0..sent.len()).filter(has_reasoning).collect();
        assert_eq!(found, expected_at, "{provider}/{model} {setting}");
        for at in found {
            assert_eq!(sent[at]["reasoning_content"], json!(format!("Thought {at}.")));
        }
        let mut outcomes = outcomes(&changes);
        outcomes.sort_unstable();
        let mut expected_outcomes = expected_outcomes.to_vec();
        expected_outcomes.sort_unstable();
        assert_eq!(outcomes, expected_outcomes, "{provider}/{model} {setting}");
        if setting == PlainReplay::Never {
            assert_eq!(json!(sent), messages, "nothing else is changed");
        }
    }
}

#[tokio::test]
async fn a_clients_own_reasoning_is_not_replaced() {
    let endpoint = TestEndpoint::chat("vllm", "gpt-oss-120b").await;
    let reply =
        json!({ "role": "assistant", "reasoning": "I must look.", "tool_calls": calls(ID) });
    endpoint.chat_exchange(&json!([user("Look.")]), &reply).await;
    let mut shortened = reply;
    shortened["reasoning"] = json!("Look!");
    let messages = json!([user("Look."), shortened, result(ID)]);
    assert_eq!(endpoint.messages_sent(&messages).await, (messages, Vec::new()));
}

/// A client of the Messages API returns the reasoning with a Claim. The endpoint receives the
/// reasoning only if the setting allows it.
#[tokio::test]
async fn claimed_reasoning_follows_the_setting() {
    for (setting, expected) in
        [(PlainReplay::Auto, Some(json!("I must look."))), (PlainReplay::Never, None)]
    {
        let endpoint = TestEndpoint::chat("vllm", "gpt-oss-120b").await.with_setting(setting);
        let question = json!({ "model": "m", "messages": [user("Look.")] });
        let (restored, encoded) = endpoint.send(&question).await;
        let message =
            json!({ "role": "assistant", "reasoning": "I must look.", "tool_calls": calls(ID) });
        let choice = json!({ "index": 0, "finish_reason": "tool_calls", "message": message });
        let reply = json!({ "id": "r", "object": "chat.completion", "choices": [choice] });
        let chat = codec(&endpoint.target.provider.wire).unwrap();
        let reply = reply_of(chat, &endpoint.target, &reply);
        let node = endpoint.fixture.capture(&tenant(), &restored, &reply, &encoded).await.unwrap();
        let claims = Claims::new(KEY);
        let (signature, id) =
            (&*claims.claim(&tenant(), &node), &*claims.call_id(&tenant(), &node, 0));
        let content = json!([
            { "type": "thinking", "thinking": "I must look.", "signature": signature },
            { "type": "tool_use", "id": id, "name": "look", "input": {} },
        ]);
        let result = json!({ "type": "tool_result", "tool_use_id": id, "content": "a door" });
        let body = json!({ "model": "m", "max_tokens": 9, "messages": [
            user("Look."), { "role": "assistant", "content": content },
            { "role": "user", "content": [result] },
        ] });
        let call = call_of(codec_of("anthropic-messages"), &endpoint.target, &body);
        let restored = endpoint.fixture.replay.restore(&tenant(), None, call).await.unwrap();
        let encoded = chat.encode(&restored.call).unwrap();
        let body: Value = serde_json::from_slice(&encoded.request.body).unwrap();
        assert_eq!(body["messages"][1]["tool_calls"], calls(ID), "{setting}: {body}");
        assert_eq!(body["messages"][1].get("reasoning"), expected.as_ref(), "{setting}: {body}");
        assert!(!body.to_string().contains(signature), "{setting}: {body}");
    }
}

#[tokio::test]
async fn reasoning_of_an_ambiguous_turn_is_not_restored() {
    let endpoint = TestEndpoint::chat("vllm", "gpt-oss-120b").await;
    for thought in ["One.", "Two."] {
        let reply = json!({ "role": "assistant", "reasoning": thought, "tool_calls": calls(ID) });
        endpoint.chat_exchange(&json!([user(thought)]), &reply).await;
    }
    // The id belongs to two turns, and the conversation to neither of them.
    let sent = json!({ "role": "assistant", "content": null, "tool_calls": calls(ID) });
    let messages = json!([user("Three."), sent, result(ID)]);
    assert_eq!(endpoint.messages_sent(&messages).await, (messages, Vec::new()));
}

fn approval_reply(response: &str, id: &str, seal: &str) -> Value {
    let request = json!({
        "type": "mcp_approval_request", "id": id, "server_label": "files", "name": "delete",
        "arguments": "{}",
    });
    let reasoning = json!({
        "type": "reasoning", "id": format!("rs_{response}"), "summary": [],
        "encrypted_content": seal,
    });
    json!({
        "id": format!("resp_{response}"), "object": "response", "status": "completed",
        "model": "gpt-5.2", "output": [reasoning, request],
    })
}

fn approval(id: &str) -> Value {
    json!({ "type": "mcp_approval_response", "approval_request_id": id, "approve": true })
}

/// The request of a client that drops reasoning and ids. Only the approvals name the turn.
fn approving(ids: &[&str]) -> Value {
    let request = json!({
        "type": "mcp_approval_request", "server_label": "files", "name": "delete",
        "arguments": "{}",
    });
    let mut input = vec![json!({ "role": "user", "content": "Delete it, please." }), request];
    input.extend(ids.iter().map(|id| approval(id)));
    json!({ "model": "gpt-5.2", "store": false, "input": input })
}

const APPROVAL: &str = "mcpr_0083938b3a28070e0068fabd81d510";
const OTHER_APPROVAL: &str = "mcpr_11c0ffee3a28070e0068fabd81d511";

#[tokio::test]
async fn an_approval_names_the_turn_that_requested_it() {
    let endpoint = TestEndpoint::new("openai", "openai-responses", "gpt-5.2").await;
    for (response, id, seal) in
        [("1", APPROVAL, "gAAAAfirst"), ("2", OTHER_APPROVAL, "gAAAAsecond")]
    {
        let question =
            json!({ "model": "gpt-5.2", "store": false, "input": format!("Delete {id}.") });
        endpoint.exchange(&question, &approval_reply(response, id, seal)).await;
    }
    let (restored, _) = endpoint.send(&approving(&[APPROVAL])).await;
    let seals: Vec<_> = sealed(&restored.call.items).into_iter().map(|(seal, _)| seal).collect();
    assert_eq!(seals, ["gAAAAfirst"]);
    // Ids of two turns are ambiguous.
    let (restored, _) = endpoint.send(&approving(&[APPROVAL, OTHER_APPROVAL])).await;
    assert_eq!(sealed(&restored.call.items), []);
    // An unknown id names no turn.
    let (restored, _) = endpoint.send(&approving(&["mcpr_99999999aaaa"])).await;
    assert_eq!(sealed(&restored.call.items), []);
}

#[tokio::test]
async fn a_result_names_the_turn_that_a_request_continues() {
    let endpoint = TestEndpoint::chat("vllm", "gpt-oss-120b").await;
    let reply = json!({ "role": "assistant", "content": null, "tool_calls": calls(ID) });
    endpoint.chat_exchange(&json!([user("Look.")]), &reply).await;
    let (restored, _) = endpoint.send(&json!({ "model": "m", "messages": [result(ID)] })).await;
    assert!(restored.conversation.parent.is_some());
    let (restored, _) =
        endpoint.send(&json!({ "model": "m", "messages": [result("call_00ff00ff00")] })).await;
    assert_eq!(restored.conversation.parent, None);
}

#[tokio::test]
async fn a_thread_request_names_the_message_that_it_continues() {
    let endpoint = TestEndpoint::new("anthropic", "anthropic-messages", "claude-sonnet-5").await;
    let request = |thread: Value, text: &str| json!({ "model": "m", "max_tokens": 9, "thread": thread, "messages": [user(text)] });
    let reply = json!({
        "id": "msg_01AbCdEf9z", "type": "message", "role": "assistant", "model": "claude-sonnet-5",
        "content": [{ "type": "text", "text": "Hello." }], "stop_reason": "end_turn",
        "thread": { "id": "thread_1" }, "usage": { "input_tokens": 1, "output_tokens": 1 },
    });
    endpoint.exchange(&request(json!({ "type": "create" }), "Hi."), &reply).await;
    for (id, is_known) in [("msg_01AbCdEf9z", true), ("msg_01ZyXwVu8a", false)] {
        let thread = json!({ "type": "continue", "previous_message_id": id });
        let (restored, _) = endpoint.send(&request(thread, "Go on.")).await;
        assert_eq!(restored.conversation.parent.is_some(), is_known, "{id}");
    }
}

#[tokio::test]
async fn unsealed_thinking_is_restored_at_an_anthropic_endpoint_that_demands_it() {
    let endpoint =
        TestEndpoint::new("deepseek-anthropic", "anthropic-messages", "deepseek-v4-pro").await;
    let thinking = json!({ "type": "thinking", "thinking": "I must look." });
    let tool_use =
        json!({ "type": "tool_use", "id": "toolu_7f3a9c21b0", "name": "look", "input": {} });
    let reply = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "deepseek-v4-pro",
        "content": [thinking, tool_use], "stop_reason": "tool_use",
        "usage": { "input_tokens": 1, "output_tokens": 1 },
    });
    let request = |messages: Value| json!({ "model": "m", "max_tokens": 9, "messages": messages });
    endpoint.exchange(&request(json!([user("Look.")])), &reply).await;
    let answer = json!({
        "role": "user",
        "content": [{ "type": "tool_result", "tool_use_id": "toolu_7f3a9c21b0", "content": "a door" }],
    });
    let sent = json!({ "role": "assistant", "content": [tool_use] });
    let (_, encoded) = endpoint.send(&request(json!([user("Look."), sent, answer]))).await;
    let body: Value = serde_json::from_slice(&encoded.request.body).unwrap();
    assert_eq!(body["messages"][1]["content"], json!([thinking, tool_use]));
}
