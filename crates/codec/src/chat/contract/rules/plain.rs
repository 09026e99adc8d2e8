//! Rules for reasoning sent as text, as data.

use throughline_core::ReasoningChannel;

use crate::audit::{Example, Rule, Severity, ViolationKind};
use crate::chat::contract;
use crate::chat::contract::rules::{WIRE, applies_always, documented, issue, recorded, typed};

/// Flags tool calls without their reasoning at DeepSeek.
pub(in crate::chat::contract) static REASONING_CONTENT_MISSING: Rule = Rule {
    id: "deepseek/reasoning-content-missing",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "A message that calls tools has no `reasoning_content`.",
    why: "DeepSeek's thinking mode continues across tool calls. Once a turn has called tools, its \
          messages must have their `reasoning_content` in every later request. Only the key is \
          required: an empty string is accepted where there was no reasoning, but a missing key \
          is an error. Clients that keep only `content` and `tool_calls` drop the key, and the \
          conversation fails at the first tool result.",
    provider_error: Some(
        "The reasoning_content in the thinking mode must be passed back to the API.",
    ),
    breach: Some(ViolationKind::Missing),
    fix: "Send the `reasoning_content` of the response back on its message, or \"\" if there was \
          none.",
    applies: |target| {
        let stand_in = target.provider.dialect.stand_in.as_deref();
        contract::requires_reasoning(target) && stand_in.unwrap_or_default().is_empty()
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

/// Flags tool calls without their reasoning at Moonshot.
pub(in crate::chat::contract) static KIMI_REASONING_MISSING: Rule = Rule {
    id: "kimi/reasoning-content-missing",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "A message that calls tools has no `reasoning_content`.",
    why: "Kimi thinks by default. While it does, every message with tool calls must keep its \
          `reasoning_content`. Reports disagree about an empty string: some requests with one \
          succeeded, but some models treated it as missing. A stand-in must therefore be \
          non-empty.",
    provider_error: Some(
        "thinking is enabled but reasoning_content is missing in assistant tool call message at index …",
    ),
    breach: Some(ViolationKind::Missing),
    fix: "Send the `reasoning_content` of the response back on its message, or \".\" if it is \
          unknown.",
    applies: |target| {
        let stand_in = target.provider.dialect.stand_in.as_deref();
        contract::requires_reasoning(target) && !stand_in.unwrap_or_default().is_empty()
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

/// Flags reasoning members that are not in Mistral's schema.
pub(in crate::chat::contract) static REASONING_CONTENT_FORBIDDEN: Rule = Rule {
    id: "mistral/reasoning-content-forbidden",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "Reasoning is sent in a member that Mistral rejects.",
    why: "Mistral returns its reasoning as `thinking` chunks inside `content` and accepts it \
          there. Its schema lists the members of a message; any other member fails with 422 \
          instead of 400, even if its value is `null`. A conversation that began with DeepSeek, \
          Kimi or OpenRouter has `reasoning_content` or `reasoning_details`, and fails unless \
          they are removed.",
    provider_error: Some(
        "{\"type\":\"extra_forbidden\",\"loc\":[\"body\",\"messages\",…,\"assistant\",\"…\"],\"msg\":\"Extra inputs are not permitted\"}",
    ),
    breach: None,
    fix: "Omit the member. Send Mistral's own reasoning back as the original `thinking` chunk.",
    applies: |target| target.provider.dialect.channel == ReasoningChannel::Chunks,
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

/// Flags reasoning sent to OpenAI's chat API.
pub(in crate::chat::contract) static REASONING_SENT: Rule = Rule {
    id: "openai-chat/reasoning-sent",
    wire: WIRE,
    severity: Severity::Note,
    title: "Reasoning is sent to an endpoint that has no member for it.",
    why: "OpenAI's Chat Completions API returns no reasoning and accepts none: its messages have \
          no such member, so this one came from another provider. To let an OpenAI model continue \
          its own reasoning, use the Responses API.",
    provider_error: None,
    breach: None,
    fix: "Omit the member.",
    applies: |target| target.provider.dialect.channel == ReasoningChannel::None,
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

/// Flags reasoning under the name that newer vLLM versions ignore.
pub(in crate::chat::contract) static REASONING_CONTENT_IGNORED: Rule = Rule {
    id: "vllm/reasoning-content-ignored",
    wire: WIRE,
    severity: Severity::Note,
    title: "Reasoning is sent under a name that the server may not read.",
    why: "vLLM renamed its field from `reasoning_content` to `reasoning` at the end of 2025. \
          Reports differ on whether later servers still read the old name; a server that does not \
          read it drops the value silently. A server reads the name that it emits.",
    provider_error: None,
    breach: None,
    fix: "Send the reasoning back as `reasoning`, the name that the server emits.",
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

/// Flags reasoning that Z.AI expects back.
pub(in crate::chat::contract) static ZAI_REASONING_DROPPED: Rule = Rule {
    id: "zai/reasoning-dropped",
    wire: WIRE,
    severity: Severity::Degrade,
    title: "GLM's reasoning is missing from the request with its tool results.",
    why: "GLM thinks between tool calls and continues its reasoning if `reasoning_content` comes \
          back with the results: complete, unmodified and in order. With `clear_thinking: false` \
          it also keeps the reasoning of finished turns. Without it the request succeeds, but the \
          model has to start its reasoning again.",
    provider_error: None,
    breach: None,
    fix: "Send the `reasoning_content` of each response back on its message.",
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

/// Flags thoughts between tags that were removed from the text.
pub(in crate::chat::contract) static THINKING_STRIPPED: Rule = Rule {
    id: "minimax/thinking-stripped",
    wire: WIRE,
    severity: Severity::Degrade,
    title: "The model's reasoning between tags was removed from the history.",
    why: "MiniMax writes its reasoning into the text, between `<think>` and `</think>`, and reads \
          it there in later requests. Clients that strip the tags for display and then send the \
          stripped text back remove the model's reasoning. The request succeeds, but quality \
          drops with each further step.",
    provider_error: None,
    breach: None,
    fix: "Send the text back with its `<think>` block; strip it only for display.",
    applies: |target| target.provider.dialect.channel == ReasoningChannel::Tags,
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

/// Flags reasoning that the endpoint expects back.
pub(in crate::chat::contract) static REASONING_DROPPED: Rule = Rule {
    id: "chat/reasoning-dropped",
    wire: WIRE,
    severity: Severity::Degrade,
    title: "The reasoning of a tool call is missing from the request with its result.",
    why: "Models that think between tool calls are trained to see their earlier reasoning when \
          the results arrive. Endpoints that emit reasoning in a field accept it in the same \
          field. Most accept a message without it, but the model then decides on its next step \
          without the reasoning for the last one.",
    provider_error: None,
    breach: None,
    fix: "Send the reasoning back on its message, in the member that the endpoint used.",
    applies: applies_always,
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

/// Flags reasoning that came back changed.
pub(in crate::chat::contract) static REASONING_ALTERED: Rule = Rule {
    id: "chat/reasoning-altered",
    wire: WIRE,
    severity: Severity::Degrade,
    title: "Reasoning differs from its issued form.",
    why: "Plain reasoning has no signature, so no endpoint rejects it if it was shortened, joined \
          or attached to another message. But the model reads it as its own reasoning, and prompt \
          caches no longer match the generated text. A stream whose first or last fragment was \
          lost causes the same finding.",
    provider_error: None,
    breach: None,
    fix: "Send the reasoning back unchanged, on the message it was issued with.",
    applies: applies_always,
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

/// Flags a thought that is sent as text.
pub(in crate::chat::contract) static THOUGHT_AS_TEXT: Rule = Rule {
    id: "chat/thought-as-text",
    wire: WIRE,
    severity: Severity::Degrade,
    title: "The model's reasoning is sent as message text.",
    why: "Clients without a field for reasoning, or with unsigned reasoning, often put it into \
          the text to keep it. The model then reads its reasoning as part of its answer and \
          imitates the style. Claude treats such a text as an attempt to extract reasoning and \
          responds with the stop reason `refusal`, also through a router.",
    provider_error: None,
    breach: None,
    fix: "Remove the reasoning from the text. Send it back as reasoning, or not at all.",
    applies: applies_always,
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
