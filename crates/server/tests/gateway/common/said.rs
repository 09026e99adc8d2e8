//! Generated conversations in the format of each wire.

use serde_json::{Value, json};
use throughline_codec::{Codec, DecodeContext};
use throughline_core::{Body, Call, Digest, Item, Reply, Target};

use super::{call_of, codec_of, target};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Message {
    User(String),
    Model(ModelTurn),
    /// The result of the tool call with this id.
    Tool {
        id: String,
        name: String,
        text: String,
    },
}

/// A model reply: its visible content, and the number (`thought_id`) that identifies its Thoughts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ModelTurn {
    pub(crate) text: String,
    /// The call id, the tool name and the tool's argument.
    pub(crate) call: Option<(String, String, String)>,
    pub(crate) thought_id: u64,
}

/// Returns the Seal for the Thoughts identified by this number.
pub(crate) fn seal(thought_id: u64) -> String {
    format!("bWluZC{thought_id:010}AA==")
}

pub(crate) struct WireTarget {
    pub(crate) codec: &'static dyn Codec,
    pub(crate) target: Target,
}

impl WireTarget {
    pub(crate) fn all() -> Vec<Self> {
        super::targets().into_iter().map(|(codec, target)| Self { codec, target }).collect()
    }

    pub(crate) fn of(provider: &str, wire: &str, model: &str) -> Self {
        Self { codec: codec_of(wire), target: target(provider, wire, model) }
    }

    /// Returns the request of a client that drops all reasoning, decoded for the target.
    pub(crate) fn lossy(&self, system: &str, messages: &[Message]) -> Call {
        call_of(self.codec, &self.target, &self.request(system, messages, |_| None))
    }

    /// Returns the request of a client that sends back reasoning. `seal` returns the Seal to send
    /// back for each reply.
    pub(crate) fn sealed(
        &self,
        system: &str,
        messages: &[Message],
        seal: impl Fn(&ModelTurn) -> Option<String>,
    ) -> Call {
        call_of(self.codec, &self.target, &self.request(system, messages, seal))
    }

    fn request(
        &self,
        system: &str,
        conversation: &[Message],
        seal: impl Fn(&ModelTurn) -> Option<String>,
    ) -> Value {
        let model = self.target.model();
        match self.codec.wire().as_str() {
            "anthropic-messages" => {
                let messages: Vec<_> =
                    conversation.iter().map(|message| anthropic(message, &seal)).collect();
                json!({"model": model, "max_tokens": 9000, "system": system, "messages": messages})
            }
            "openai-responses" => {
                let input: Vec<_> =
                    conversation.iter().flat_map(|message| responses(message, &seal)).collect();
                json!({"model": model, "store": false, "instructions": system, "input": input})
            }
            "openai-chat" => {
                let mut messages = vec![json!({"role": "system", "content": system})];
                messages.extend(conversation.iter().map(|message| chat(message, &seal)));
                json!({"model": model, "messages": messages})
            }
            "gemini" => {
                let contents: Vec<_> =
                    conversation.iter().map(|message| gemini(message, &seal)).collect();
                json!({"systemInstruction": {"parts": [{"text": system}]}, "contents": contents})
            }
            _ => {
                let messages: Vec<_> =
                    conversation.iter().map(|message| converse(message, &seal)).collect();
                json!({"system": [{"text": system}], "messages": messages})
            }
        }
    }

    /// Returns the model reply, encoded in the provider's format and decoded again.
    pub(crate) fn reply(&self, answer: &ModelTurn) -> Reply {
        self.reply_after(answer, None)
    }

    /// Like `reply`, but binds the Seals to this prefix.
    pub(crate) fn reply_after(&self, answer: &ModelTurn, prefix: Option<Digest>) -> Reply {
        let own_seal = |answer: &ModelTurn| Some(seal(answer.thought_id));
        let message = Message::Model(answer.clone());
        let (model, thought_id) = (self.target.model(), answer.thought_id);
        let body = match self.codec.wire().as_str() {
            "anthropic-messages" => json!({"id": format!("msg_{thought_id}"), "type": "message",
                "role": "assistant", "model": model, "content": anthropic(&message, &own_seal)["content"],
                "stop_reason": "end_turn", "stop_sequence": null, "usage": {}}),
            "openai-responses" => json!({"id": format!("resp_{thought_id}"), "object": "response",
                "status": "completed", "model": model, "output": responses(&message, &own_seal), "usage": {}}),
            "openai-chat" => json!({"id": format!("gen-{thought_id}"), "model": model, "choices":
                [{"index": 0, "finish_reason": "stop", "message": chat(&message, &own_seal)}]}),
            "gemini" => {
                json!({"responseId": format!("r{thought_id}"), "modelVersion": model, "candidates":
                [{"index": 0, "finishReason": "STOP", "content": gemini(&message, &own_seal)}]})
            }
            _ => {
                json!({"output": {"message": converse(&message, &own_seal)}, "stopReason": "end_turn",
                "usage": {}, "metrics": {"latencyMs": 1}})
            }
        };
        let context = DecodeContext { prefix, ..DecodeContext::of(self.target.clone()) };
        self.codec.decode_reply(&body.to_string().into(), &context).unwrap()
    }

    /// Returns the Seals in a request, grouped by model turn.
    pub(crate) fn seals_sent(&self, body: &[u8]) -> Vec<Vec<String>> {
        let request = super::request(&self.codec.path(&self.target, false), body.to_vec());
        let call =
            self.codec.decode_request(&request, &DecodeContext::of(self.target.clone())).unwrap();
        let mut turns: Vec<Vec<String>> = Vec::new();
        let mut was_model = false;
        for item in &call.items {
            let is_model = is_models(item);
            if is_model && !was_model {
                turns.push(Vec::new());
            }
            was_model = is_model;
            let seals = item.seals.iter().map(|seal| seal.reveal_to_tenant().to_vec());
            let seals = seals.map(|seal| String::from_utf8(seal).unwrap());
            if let Some(turn) = turns.last_mut().filter(|_| is_model) {
                turn.extend(seals);
            }
        }
        turns
    }
}

fn is_models(item: &Item) -> bool {
    item.role == throughline_core::Role::Assistant && !matches!(item.body, Body::Result(_))
}

type SealFn<'s> = &'s dyn Fn(&ModelTurn) -> Option<String>;

fn thought(thought_id: u64) -> String {
    format!("I think of {thought_id}.")
}

fn anthropic(message: &Message, seal: SealFn<'_>) -> Value {
    match message {
        Message::User(text) => json!({"role": "user", "content": text}),
        Message::Tool { id, text, .. } => json!({"role": "user", "content":
            [{"type": "tool_result", "tool_use_id": id, "content": text}]}),
        Message::Model(answer) => {
            let mut content = Vec::new();
            if let Some(seal) = seal(answer) {
                content.push(json!({"type": "thinking", "thinking": thought(answer.thought_id), "signature": seal}));
            }
            content.push(json!({"type": "text", "text": answer.text}));
            if let Some((id, name, argument)) = &answer.call {
                content.push(
                    json!({"type": "tool_use", "id": id, "name": name, "input": {"of": argument}}),
                );
            }
            json!({"role": "assistant", "content": content})
        }
    }
}

fn responses(message: &Message, seal: SealFn<'_>) -> Vec<Value> {
    match message {
        Message::User(text) => vec![json!({"role": "user", "content": text})],
        Message::Tool { id, text, .. } => {
            vec![json!({"type": "function_call_output", "call_id": id, "output": text})]
        }
        Message::Model(answer) => {
            let mut output = Vec::new();
            if let Some(seal) = seal(answer) {
                output.push(json!({"type": "reasoning", "summary": [], "encrypted_content": seal}));
            }
            output.push(
                json!({"type": "message", "role": "assistant", "status": "completed", "content":
                [{"type": "output_text", "text": answer.text, "annotations": []}]}),
            );
            if let Some((id, name, argument)) = &answer.call {
                output.push(json!({"type": "function_call", "call_id": id, "name": name,
                    "arguments": json!({"of": argument}).to_string(), "status": "completed"}));
            }
            output
        }
    }
}

fn chat(turn: &Message, seal: SealFn<'_>) -> Value {
    match turn {
        Message::User(text) => json!({"role": "user", "content": text}),
        Message::Tool { id, text, .. } => {
            json!({"role": "tool", "tool_call_id": id, "content": text})
        }
        Message::Model(answer) => {
            let mut message = json!({"role": "assistant", "content": answer.text});
            if let Some(seal) = seal(answer) {
                message["reasoning_details"] = json!([{"type": "reasoning.text", "text": thought(answer.thought_id),
                    "signature": seal, "format": "anthropic-claude-v1", "index": 0}]);
            }
            if let Some((id, name, argument)) = &answer.call {
                message["tool_calls"] = json!([{"id": id, "type": "function", "function":
                    {"name": name, "arguments": json!({"of": argument}).to_string()}}]);
            }
            message
        }
    }
}

fn gemini(message: &Message, seal: SealFn<'_>) -> Value {
    match message {
        Message::User(text) => json!({"role": "user", "parts": [{"text": text}]}),
        Message::Tool { id, name, text } => json!({"role": "user", "parts":
            [{"functionResponse": {"id": id, "name": name, "response": {"output": text}}}]}),
        Message::Model(answer) => {
            let mut parts = vec![json!({"text": answer.text})];
            if let Some((id, name, argument)) = &answer.call {
                parts.push(
                    json!({"functionCall": {"id": id, "name": name, "args": {"of": argument}}}),
                );
            }
            if let (Some(seal), Some(last)) = (seal(answer), parts.last_mut()) {
                last["thoughtSignature"] = json!(seal);
            }
            json!({"role": "model", "parts": parts})
        }
    }
}

fn converse(message: &Message, seal: SealFn<'_>) -> Value {
    match message {
        Message::User(text) => json!({"role": "user", "content": [{"text": text}]}),
        Message::Tool { id, text, .. } => json!({"role": "user", "content":
            [{"toolResult": {"toolUseId": id, "content": [{"text": text}]}}]}),
        Message::Model(answer) => {
            let mut content = Vec::new();
            if let Some(seal) = seal(answer) {
                content.push(json!({"reasoningContent": {"reasoningText":
                    {"text": thought(answer.thought_id), "signature": seal}}}));
            }
            content.push(json!({"text": answer.text}));
            if let Some((id, name, argument)) = &answer.call {
                content.push(
                    json!({"toolUse": {"toolUseId": id, "name": name, "input": {"of": argument}}}),
                );
            }
            json!({"role": "assistant", "content": content})
        }
    }
}
