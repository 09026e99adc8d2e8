//! What each rule says, as data: reasoning that travels as text.

use throughline_core::Channel;

use crate::audit::{Breach, Example, Rule, Severity};
use crate::chat::contract;
use crate::chat::contract::rules::{WIRE, anywhere, documented, issue, recorded, typed};

/// A tool-call message without its reasoning, at DeepSeek.
pub(in crate::chat::contract) static REASONING_CONTENT_MISSING: Rule = Rule {
    id: "deepseek/reasoning-content-missing",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "A message that calls tools has no `reasoning_content`.",
    why: "DeepSeek's thinking mode goes on thinking across tool calls, so once a turn has called tools its messages must carry \
          their `reasoning_content` in every later request. What counts is the key: an empty string is accepted where there \
          was no reasoning, and leaving the key out for that reason is itself the mistake. Clients that read only `content` and \
          `tool_calls` drop it, and the conversation fails at the first tool result.",
    provider_error: Some(
        "The reasoning_content in the thinking mode must be passed back to the API.",
    ),
    breach: Some(Breach::Missing),
    fix: "Send the `reasoning_content` of the answer back on its message, or \"\" where there was none.",
    applies: |target| {
        let stand_in = target.provider.dialect.stand_in.as_deref();
        contract::demands_reasoning(target) && stand_in.unwrap_or_default().is_empty()
    },
    evidence: &[
        issue("https://github.com/anomalyco/opencode/issues/24083"),
        issue("https://github.com/anomalyco/opencode/issues/9397"),
        issue("https://github.com/deepseek-ai/deepseek-harness/discussions/739"),
        recorded(
            "pydantic/pydantic-ai test_deepseek_deferred_capability_with_thinking.yaml: \"\" was accepted",
        ),
    ],
    example: Example {
        provider: "deepseek",
        model: "deepseek-v4-flash",
        prior: &[],
        failing: r#"{
  "model": "deepseek-v4-flash",
  "messages": [
    {"role": "user", "content": "What is the weather in Paris?"},
    {"role": "assistant", "content": "", "tool_calls": [
      {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\":\"Paris\"}"}}
    ]},
    {"role": "tool", "tool_call_id": "call_1", "content": "Rain."}
  ]
}"#,
        mended: r#"{
  "model": "deepseek-v4-flash",
  "messages": [
    {"role": "user", "content": "What is the weather in Paris?"},
    {"role": "assistant", "content": "", "reasoning_content": "", "tool_calls": [
      {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\":\"Paris\"}"}}
    ]},
    {"role": "tool", "tool_call_id": "call_1", "content": "Rain."}
  ]
}"#,
    },
};

/// A tool-call message without its reasoning, at Moonshot.
pub(in crate::chat::contract) static KIMI_REASONING_MISSING: Rule = Rule {
    id: "kimi/reasoning-content-missing",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "A message that calls tools has no `reasoning_content`.",
    why: "Kimi thinks by default, and while it does, every message with tool calls must keep the `reasoning_content` that led to \
          them. Whether an empty string will do is disputed: it was sent with success, and some models were seen to take it for \
          missing, so a stand-in has to say something.",
    provider_error: Some(
        "thinking is enabled but reasoning_content is missing in assistant tool call message at index …",
    ),
    breach: Some(Breach::Missing),
    fix: "Send the `reasoning_content` of the answer back on its message, or \".\" where it is not known.",
    applies: |target| {
        let stand_in = target.provider.dialect.stand_in.as_deref();
        contract::demands_reasoning(target) && !stand_in.unwrap_or_default().is_empty()
    },
    evidence: &[
        issue("https://github.com/QuantumNous/new-api/issues/3121"),
        issue("https://github.com/continuedev/continue/issues/11711"),
        issue("https://github.com/anomalyco/opencode/issues/10996"),
        issue("https://github.com/earendil-works/pi/issues/4251"),
    ],
    example: Example {
        provider: "moonshot",
        model: "kimi-k2.5",
        prior: &[],
        failing: r#"{
  "model": "kimi-k2.5",
  "messages": [
    {"role": "user", "content": "What is the weather in Paris?"},
    {"role": "assistant", "content": "", "tool_calls": [
      {"id": "weather:0", "type": "function", "function": {"name": "weather", "arguments": "{\"city\":\"Paris\"}"}}
    ]},
    {"role": "tool", "tool_call_id": "weather:0", "content": "Rain."}
  ]
}"#,
        mended: r#"{
  "model": "kimi-k2.5",
  "messages": [
    {"role": "user", "content": "What is the weather in Paris?"},
    {"role": "assistant", "content": "", "reasoning_content": ".", "tool_calls": [
      {"id": "weather:0", "type": "function", "function": {"name": "weather", "arguments": "{\"city\":\"Paris\"}"}}
    ]},
    {"role": "tool", "tool_call_id": "weather:0", "content": "Rain."}
  ]
}"#,
    },
};

/// A member that Mistral's schema does not have.
pub(in crate::chat::contract) static REASONING_CONTENT_FORBIDDEN: Rule = Rule {
    id: "mistral/reasoning-content-forbidden",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "Reasoning is sent in a member that Mistral refuses.",
    why: "Mistral writes its reasoning as `thinking` chunks inside `content` and takes it back there. Its schema lists the members \
          of a message, and any other is an error of its own, 422 and not 400, even if it is `null`. A conversation that began \
          with DeepSeek, Kimi or OpenRouter carries `reasoning_content` or `reasoning_details`, and fails as it is.",
    provider_error: Some(
        "{\"type\":\"extra_forbidden\",\"loc\":[\"body\",\"messages\",…,\"assistant\",\"…\"],\"msg\":\"Extra inputs are not permitted\"}",
    ),
    breach: None,
    fix: "Leave the member out. Mistral's own reasoning goes back as the `thinking` chunk that it came as.",
    applies: |target| target.provider.dialect.channel == Channel::Chunks,
    evidence: &[
        issue("https://github.com/charmbracelet/crush/issues/1590"),
        issue("https://github.com/BerriAI/litellm/issues/30835"),
    ],
    example: Example {
        provider: "mistral",
        model: "magistral-medium-latest",
        prior: &[],
        failing: r#"{
  "model": "magistral-medium-latest",
  "messages": [
    {"role": "user", "content": "What is 2 + 2?"},
    {"role": "assistant", "content": "4.", "reasoning_content": "Two and two are four."},
    {"role": "user", "content": "And 3 + 3?"}
  ]
}"#,
        mended: r#"{
  "model": "magistral-medium-latest",
  "messages": [
    {"role": "user", "content": "What is 2 + 2?"},
    {"role": "assistant", "content": "4."},
    {"role": "user", "content": "And 3 + 3?"}
  ]
}"#,
    },
};

/// Reasoning sent to OpenAI's chat wire.
pub(in crate::chat::contract) static REASONING_SENT: Rule = Rule {
    id: "openai-chat/reasoning-sent",
    wire: WIRE,
    severity: Severity::Note,
    title: "Reasoning is sent to an endpoint whose messages have no place for it.",
    why: "OpenAI's Chat Completions API shows no reasoning and takes none back: its messages have no such member. What stands there \
          came from another provider. To let an OpenAI model go on from its own reasoning, use the Responses API.",
    provider_error: None,
    breach: None,
    fix: "Leave the member out.",
    applies: |target| target.provider.dialect.channel == Channel::None,
    evidence: &[typed("openai 3.49.0, ChatCompletionAssistantMessageParam")],
    example: Example {
        provider: "openai-chat",
        model: "gpt-5",
        prior: &[],
        failing: r#"{
  "model": "gpt-5",
  "messages": [
    {"role": "user", "content": "What is 2 + 2?"},
    {"role": "assistant", "content": "4.", "reasoning_content": "Two and two are four."},
    {"role": "user", "content": "And 3 + 3?"}
  ]
}"#,
        mended: r#"{
  "model": "gpt-5",
  "messages": [
    {"role": "user", "content": "What is 2 + 2?"},
    {"role": "assistant", "content": "4."},
    {"role": "user", "content": "And 3 + 3?"}
  ]
}"#,
    },
};

/// Reasoning under the name that vLLM no longer reads.
pub(in crate::chat::contract) static REASONING_CONTENT_IGNORED: Rule = Rule {
    id: "vllm/reasoning-content-ignored",
    wire: WIRE,
    severity: Severity::Note,
    title: "Reasoning is sent under a name that the server may not read.",
    why: "vLLM renamed its field from `reasoning_content` to `reasoning` at the end of 2025. Reports differ on whether later servers \
          still read the old name; the one that reads it not drops it without a word. What a server emitted is what it reads.",
    provider_error: None,
    breach: None,
    fix: "Send the reasoning back as `reasoning`, the name under which the server emitted it.",
    applies: |target| &*target.provider.name == "vllm",
    evidence: &[
        issue("https://github.com/vllm-project/vllm/issues/38488"),
        issue("https://github.com/BerriAI/litellm/pull/41380"),
    ],
    example: Example {
        provider: "vllm",
        model: "Qwen/Qwen3-32B",
        prior: &[],
        failing: r#"{
  "model": "Qwen/Qwen3-32B",
  "messages": [
    {"role": "user", "content": "What is 2 + 2?"},
    {"role": "assistant", "content": "4.", "reasoning_content": "Two and two are four."},
    {"role": "user", "content": "And 3 + 3?"}
  ]
}"#,
        mended: r#"{
  "model": "Qwen/Qwen3-32B",
  "messages": [
    {"role": "user", "content": "What is 2 + 2?"},
    {"role": "assistant", "content": "4.", "reasoning": "Two and two are four."},
    {"role": "user", "content": "And 3 + 3?"}
  ]
}"#,
    },
};

/// Reasoning that Z.AI wants back.
pub(in crate::chat::contract) static ZAI_REASONING_DROPPED: Rule = Rule {
    id: "zai/reasoning-dropped",
    wire: WIRE,
    severity: Severity::Degrade,
    title: "GLM's reasoning does not come back with the tool results.",
    why: "GLM thinks between tool calls and goes on from what it thought, if `reasoning_content` comes back with the results: complete, \
          unmodified and in order. With `clear_thinking: false` it keeps the thoughts of finished turns as well. Without them the \
          request is answered, by a model that has to begin again.",
    provider_error: None,
    breach: None,
    fix: "Send the `reasoning_content` of each answer back on its message.",
    applies: |target| &*target.provider.name == "zai",
    evidence: &[
        documented("https://docs.z.ai/guides/capabilities/thinking-mode"),
        recorded("pydantic/pydantic-ai test_zai_preserved_thinking_round_trip.yaml"),
    ],
    example: Example {
        provider: "zai",
        model: "glm-4.7",
        prior: &[
            r#"{"model":"glm-4.7","messages":[{"role":"user","content":"Weather in Paris?"}]}"#,
            r#"{"id":"1","model":"glm-4.7","choices":[{"index":0,"finish_reason":"tool_calls","message":{"role":"assistant","content":"","reasoning_content":"I need the weather.","tool_calls":[{"id":"call_1","type":"function","function":{"name":"weather","arguments":"{}"}}]}}]}"#,
        ],
        failing: r#"{
  "model": "glm-4.7",
  "messages": [
    {"role": "user", "content": "Weather in Paris?"},
    {"role": "assistant", "content": "", "tool_calls": [
      {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    ]},
    {"role": "tool", "tool_call_id": "call_1", "content": "Rain."}
  ]
}"#,
        mended: r#"{
  "model": "glm-4.7",
  "messages": [
    {"role": "user", "content": "Weather in Paris?"},
    {"role": "assistant", "content": "", "reasoning_content": "I need the weather.", "tool_calls": [
      {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    ]},
    {"role": "tool", "tool_call_id": "call_1", "content": "Rain."}
  ]
}"#,
    },
};

/// Thoughts between tags that were taken out of the text.
pub(in crate::chat::contract) static THINKING_STRIPPED: Rule = Rule {
    id: "minimax/thinking-stripped",
    wire: WIRE,
    severity: Severity::Degrade,
    title: "What the model thought between its tags was taken out of the history.",
    why: "MiniMax writes its thoughts into the text, between `<think>` and `</think>`, and reads them there again. Clients that strip \
          the tags to show a clean answer, and then send the clean answer back, take the model's memory away; it answers, and \
          does worse at each further step.",
    provider_error: None,
    breach: None,
    fix: "Send the text back with its `<think>` block; strip it only where people read it.",
    applies: |target| target.provider.dialect.channel == Channel::Tags,
    evidence: &[documented("https://huggingface.co/MiniMaxAI/MiniMax-M2")],
    example: Example {
        provider: "minimax",
        model: "MiniMax-M2",
        prior: &[
            r#"{"model":"MiniMax-M2","messages":[{"role":"user","content":"Weather in Paris?"}]}"#,
            r#"{"id":"1","model":"MiniMax-M2","choices":[{"index":0,"finish_reason":"tool_calls","message":{"role":"assistant","content":"<think>I need the weather.</think>Let me look.","tool_calls":[{"id":"call_1","type":"function","function":{"name":"weather","arguments":"{}"}}]}}]}"#,
        ],
        failing: r#"{
  "model": "MiniMax-M2",
  "messages": [
    {"role": "user", "content": "Weather in Paris?"},
    {"role": "assistant", "content": "Let me look.", "tool_calls": [
      {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    ]},
    {"role": "tool", "tool_call_id": "call_1", "content": "Rain."}
  ]
}"#,
        mended: r#"{
  "model": "MiniMax-M2",
  "messages": [
    {"role": "user", "content": "Weather in Paris?"},
    {"role": "assistant", "content": "<think>I need the weather.</think>Let me look.", "tool_calls": [
      {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    ]},
    {"role": "tool", "tool_call_id": "call_1", "content": "Rain."}
  ]
}"#,
    },
};

/// Reasoning that was wanted back.
pub(in crate::chat::contract) static REASONING_DROPPED: Rule = Rule {
    id: "chat/reasoning-dropped",
    wire: WIRE,
    severity: Severity::Degrade,
    title: "The reasoning that led to a tool call does not come back with its result.",
    why: "Models that think between tool calls were trained to see their earlier thoughts when the results arrive. Endpoints that emit \
          reasoning as a field take it back in the same field. Most accept a message without it, and the model then decides on \
          its next step without knowing why it took the last.",
    provider_error: None,
    breach: None,
    fix: "Send the reasoning back on its message, in the member in which it came.",
    applies: anywhere,
    evidence: &[
        recorded("twelve conversations with Ollama, llama.cpp, Cerebras and xAI send it back"),
        issue("https://github.com/musistudio/claude-code-router/issues/1057"),
    ],
    example: Example {
        provider: "xai-chat",
        model: "grok-3-mini",
        prior: &[
            r#"{"model":"grok-3-mini","messages":[{"role":"user","content":"Weather in Paris?"}]}"#,
            r#"{"id":"1","model":"grok-3-mini","choices":[{"index":0,"finish_reason":"tool_calls","message":{"role":"assistant","content":"","reasoning_content":"I need the weather.","tool_calls":[{"id":"call_1","type":"function","function":{"name":"weather","arguments":"{}"}}]}}]}"#,
        ],
        failing: r#"{
  "model": "grok-3-mini",
  "messages": [
    {"role": "user", "content": "Weather in Paris?"},
    {"role": "assistant", "content": "", "tool_calls": [
      {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    ]},
    {"role": "tool", "tool_call_id": "call_1", "content": "Rain."}
  ]
}"#,
        mended: r#"{
  "model": "grok-3-mini",
  "messages": [
    {"role": "user", "content": "Weather in Paris?"},
    {"role": "assistant", "content": "", "reasoning_content": "I need the weather.", "tool_calls": [
      {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    ]},
    {"role": "tool", "tool_call_id": "call_1", "content": "Rain."}
  ]
}"#,
    },
};

/// Reasoning that came back otherwise.
pub(in crate::chat::contract) static REASONING_ALTERED: Rule = Rule {
    id: "chat/reasoning-altered",
    wire: WIRE,
    severity: Severity::Degrade,
    title: "Reasoning is not as it was issued.",
    why: "Plain reasoning carries no signature, so nobody refuses it when it was shortened, joined or set on another message. But the \
          model reads it as its own, and prompt caches no longer match what was generated. A stream whose first or last piece \
          was lost looks the same.",
    provider_error: None,
    breach: None,
    fix: "Send the reasoning back as it was issued, on the message it was issued with.",
    applies: anywhere,
    evidence: &[
        recorded(
            "charmbracelet/fantasy TestOpenRouterCommon/glm/tool_streaming: the first fragment was lost, and it was accepted",
        ),
        documented("https://docs.z.ai/guides/capabilities/thinking-mode"),
    ],
    example: Example {
        provider: "deepseek",
        model: "deepseek-v4-flash",
        prior: &[
            r#"{"model":"deepseek-v4-flash","messages":[{"role":"user","content":"Weather in Paris?"}]}"#,
            r#"{"id":"1","model":"deepseek-v4-flash","choices":[{"index":0,"finish_reason":"tool_calls","message":{"role":"assistant","content":"","reasoning_content":"I need the weather.","tool_calls":[{"id":"call_1","type":"function","function":{"name":"weather","arguments":"{}"}}]}}]}"#,
        ],
        failing: r#"{
  "model": "deepseek-v4-flash",
  "messages": [
    {"role": "user", "content": "Weather in Paris?"},
    {"role": "assistant", "content": "", "reasoning_content": "I need the", "tool_calls": [
      {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    ]},
    {"role": "tool", "tool_call_id": "call_1", "content": "Rain."}
  ]
}"#,
        mended: r#"{
  "model": "deepseek-v4-flash",
  "messages": [
    {"role": "user", "content": "Weather in Paris?"},
    {"role": "assistant", "content": "", "reasoning_content": "I need the weather.", "tool_calls": [
      {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    ]},
    {"role": "tool", "tool_call_id": "call_1", "content": "Rain."}
  ]
}"#,
    },
};

/// A thought that is said as text.
pub(in crate::chat::contract) static THOUGHT_AS_TEXT: Rule = Rule {
    id: "chat/thought-as-text",
    wire: WIRE,
    severity: Severity::Degrade,
    title: "What the model thought is sent as if it had been said.",
    why: "Clients that have no place for reasoning, or find it unsigned, put it into the text to save it. The model then reads its own \
          thoughts as its answer and goes on in that manner. Claude goes further: it takes such a text for an attempt to extract \
          reasoning and answers with the stop reason `refusal`, through a router as well.",
    provider_error: None,
    breach: None,
    fix: "Leave the thought out of the text. Send it back as reasoning, or not at all.",
    applies: anywhere,
    evidence: &[
        issue("https://github.com/can1357/oh-my-pi/issues/7241"),
        issue("https://github.com/dcdpr/jp/issues/829"),
        issue("https://github.com/BerriAI/litellm/issues/24985"),
    ],
    example: Example {
        provider: "openrouter",
        model: "anthropic/claude-sonnet-4.5",
        prior: &[
            r#"{"model":"anthropic/claude-sonnet-4.5","messages":[{"role":"user","content":"Weather in Paris?"}]}"#,
            r#"{"id":"1","model":"anthropic/claude-sonnet-4.5","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"It rains.","reasoning_details":[{"type":"reasoning.text","text":"I remember that it rains.","signature":"c2lnbmF0dXJl","format":"anthropic-claude-v1","index":0}]}}]}"#,
        ],
        failing: r#"{
  "model": "anthropic/claude-sonnet-4.5",
  "messages": [
    {"role": "user", "content": "Weather in Paris?"},
    {"role": "assistant", "content": "<thinking>I remember that it rains.</thinking>"},
    {"role": "assistant", "content": "It rains."},
    {"role": "user", "content": "Sure?"}
  ]
}"#,
        mended: r#"{
  "model": "anthropic/claude-sonnet-4.5",
  "messages": [
    {"role": "user", "content": "Weather in Paris?"},
    {"role": "assistant", "content": "It rains."},
    {"role": "user", "content": "Sure?"}
  ]
}"#,
    },
};
