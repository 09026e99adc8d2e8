//! Rules for `reasoning_details` that the upstream of a router enforces, as data.

use throughline_core::{Contract, ReasoningChannel, Target, Vendor};

use crate::audit::{Example, Rule, Severity, ViolationKind};
use crate::chat::contract::rules::{WIRE, documented, issue, recorded};
use crate::chat::contract::vendor_of;

fn takes_details(target: &Target) -> bool {
    target.provider.dialect.channel == ReasoningChannel::Details
}

fn relays_to(target: &Target, vendor: Vendor) -> bool {
    target.provider.dialect.relays && vendor_of(target) == Some(vendor)
}

/// Flags a Claude block without its signature.
pub(in crate::chat::contract) static SIGNATURE_MISSING: Rule = Rule {
    id: "openrouter/signature-missing",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "A thinking block is sent to Claude without its signature.",
    why: "A detail with the format `anthropic-claude-v1` becomes a thinking block again, and \
          Claude checks the signature of every such block during a tool loop. In a stream the \
          signature arrives last, in a fragment without text, so clients that keep only visible \
          text lose it. An empty signature counts as missing.",
    provider_error: Some("messages.….content.0: Invalid `signature` in `thinking` block"),
    breach: Some(ViolationKind::Unsigned),
    fix: "Send the detail back with its `signature`, or omit the detail.",
    applies: |target| relays_to(target, Vendor::Anthropic),
    evidence: &[
        issue("https://github.com/OpenRouterTeam/ai-sdk-provider/issues/423"),
        documented(
            "https://openrouter.ai/docs/guides/best-practices/reasoning-tokens#preserving-reasoning-blocks",
        ),
    ],
    example: Example {
        provider: "openrouter",
        model: "anthropic/claude-sonnet-4.5",
        prior: &[],
        failing: r#"{
  "model": "anthropic/claude-sonnet-4.5",
  "messages": [
    {"role": "user", "content": "Weather in Paris?"},
    {"role": "assistant", "content": null, "reasoning_details": [
      {"type": "reasoning.text", "text": "I need the weather.", "format": "anthropic-claude-v1", "index": 0}
    ], "tool_calls": [
      {"id": "toolu_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    ]},
    {"role": "tool", "tool_call_id": "toolu_1", "content": "Rain."}
  ]
}"#,
        mended: r#"{
  "model": "anthropic/claude-sonnet-4.5",
  "messages": [
    {"role": "user", "content": "Weather in Paris?"},
    {"role": "assistant", "content": null, "reasoning_details": [
      {"type": "reasoning.text", "text": "I need the weather.", "signature": "c2lnbmF0dXJl", "format": "anthropic-claude-v1", "index": 0}
    ], "tool_calls": [
      {"id": "toolu_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    ]},
    {"role": "tool", "tool_call_id": "toolu_1", "content": "Rain."}
  ]
}"#,
    },
};

/// Flags a Claude block that is sent in fragments.
pub(in crate::chat::contract) static DETAILS_FRAGMENTED: Rule = Rule {
    id: "openrouter/details-fragmented",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "A thinking block is sent as separate stream fragments.",
    why: "A stream delivers one thinking block as many details with the same `index`, and the \
          signature in the last one. Each detail that is sent becomes a separate block, so the \
          signature belongs to a block with different text, and the other blocks have none. \
          Clients must join the fragments by `index` before they store them.",
    provider_error: Some("messages.….content.0: Invalid `signature` in `thinking` block"),
    breach: Some(ViolationKind::Fragmented),
    fix: "Join the details of one `index`: the whole text in order, and the signature.",
    applies: |target| relays_to(target, Vendor::Anthropic),
    evidence: &[
        issue("https://github.com/agno-agi/agno/issues/8794"),
        issue("https://github.com/agno-agi/agno/pull/5802"),
    ],
    example: Example {
        provider: "openrouter",
        model: "anthropic/claude-sonnet-4.5",
        prior: &[],
        failing: r#"{
  "model": "anthropic/claude-sonnet-4.5",
  "messages": [
    {"role": "user", "content": "Weather in Paris?"},
    {"role": "assistant", "content": null, "reasoning_details": [
      {"type": "reasoning.text", "text": "I need", "format": "anthropic-claude-v1", "index": 0},
      {"type": "reasoning.text", "text": " the weather.", "format": "anthropic-claude-v1", "index": 0},
      {"type": "reasoning.text", "signature": "c2lnbmF0dXJl", "format": "anthropic-claude-v1", "index": 0}
    ], "tool_calls": [
      {"id": "toolu_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    ]},
    {"role": "tool", "tool_call_id": "toolu_1", "content": "Rain."}
  ]
}"#,
        mended: r#"{
  "model": "anthropic/claude-sonnet-4.5",
  "messages": [
    {"role": "user", "content": "Weather in Paris?"},
    {"role": "assistant", "content": null, "reasoning_details": [
      {"type": "reasoning.text", "text": "I need the weather.", "format": "anthropic-claude-v1", "index": 0, "signature": "c2lnbmF0dXJl"}
    ], "tool_calls": [
      {"id": "toolu_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    ]},
    {"role": "tool", "tool_call_id": "toolu_1", "content": "Rain."}
  ]
}"#,
    },
};

/// Flags a Seal that differs from the issued one.
pub(in crate::chat::contract) static SIGNATURE_INVALID: Rule = Rule {
    id: "openrouter/signature-invalid",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "A reasoning detail was changed, and its signature no longer matches.",
    why: "The providers behind the router run their own checks: Claude verifies the signature \
          against the text of its block, OpenAI decrypts its content, and Gemini verifies its own \
          signature. A detail that was truncated, re-encoded, edited, merged, reordered or moved \
          to another message passes the router and fails at the provider.",
    provider_error: Some("messages.….content.0: Invalid `signature` in `thinking` block"),
    breach: Some(ViolationKind::Invalid),
    fix: "Send the details back unchanged: same text, same signature, same order, same message.",
    applies: takes_details,
    evidence: &[
        issue("https://github.com/OpenRouterTeam/ai-sdk-provider/issues/423"),
        issue("https://github.com/OpenRouterTeam/ai-sdk-provider/issues/273"),
        issue("https://github.com/anomalyco/opencode/issues/4608"),
        issue("https://github.com/anthropics/anthropic-sdk-python/issues/1598"),
    ],
    example: Example {
        provider: "openrouter",
        model: "anthropic/claude-sonnet-4.5",
        prior: &[
            r#"{"model":"anthropic/claude-sonnet-4.5","messages":[{"role":"user","content":"Weather in Paris?"}]}"#,
            r#"{"id":"1","model":"anthropic/claude-sonnet-4.5","choices":[{"index":0,"finish_reason":"tool_calls","message":{"role":"assistant","content":null,"reasoning_details":[{"type":"reasoning.text","text":"I need the weather.","signature":"c2lnbmF0dXJl","format":"anthropic-claude-v1","index":0}],"tool_calls":[{"id":"toolu_1","type":"function","function":{"name":"weather","arguments":"{}"}}]}}]}"#,
        ],
        failing: r#"{
  "model": "anthropic/claude-sonnet-4.5",
  "messages": [
    {"role": "user", "content": "Weather in Paris?"},
    {"role": "assistant", "content": null, "reasoning_details": [
      {"type": "reasoning.text", "text": "I need the weather.", "signature": "c2lnbmF0", "format": "anthropic-claude-v1", "index": 0}
    ], "tool_calls": [
      {"id": "toolu_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    ]},
    {"role": "tool", "tool_call_id": "toolu_1", "content": "Rain."}
  ]
}"#,
        mended: r#"{
  "model": "anthropic/claude-sonnet-4.5",
  "messages": [
    {"role": "user", "content": "Weather in Paris?"},
    {"role": "assistant", "content": null, "reasoning_details": [
      {"type": "reasoning.text", "text": "I need the weather.", "signature": "c2lnbmF0dXJl", "format": "anthropic-claude-v1", "index": 0}
    ], "tool_calls": [
      {"id": "toolu_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    ]},
    {"role": "tool", "tool_call_id": "toolu_1", "content": "Rain."}
  ]
}"#,
    },
};

/// Flags a Seal of another vendor's model.
pub(in crate::chat::contract) static FOREIGN_DETAILS: Rule = Rule {
    id: "openrouter/foreign-details",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "Reasoning sealed by one vendor is sent to another vendor's model.",
    why: "One endpoint serves the models of every vendor, but only the issuing vendor can verify \
          a signature or decrypt a thought. Switching the model in the middle of a conversation \
          sends the old model's details to a provider that cannot verify them. Readable text and \
          summaries are not bound to a vendor and are mostly ignored.",
    provider_error: Some("The encrypted content for item … could not be verified."),
    breach: Some(ViolationKind::Foreign),
    fix: "Omit signed and encrypted details whose `format` belongs to another vendor; keep them \
          for later requests to that vendor.",
    applies: takes_details,
    evidence: &[
        issue("https://github.com/open-webui/open-webui/issues/28240"),
        issue("https://github.com/OpenRouterTeam/ai-sdk-provider/issues/542"),
        issue("https://github.com/RooCodeInc/Roo-Code/pull/10640"),
        issue("https://github.com/tailcallhq/forgecode/pull/2363"),
    ],
    example: Example {
        provider: "openrouter",
        model: "anthropic/claude-sonnet-4.5",
        prior: &[],
        failing: r#"{
  "model": "anthropic/claude-sonnet-4.5",
  "messages": [
    {"role": "user", "content": "What is 2 + 2?"},
    {"role": "assistant", "content": "4.", "reasoning_details": [
      {"type": "reasoning.summary", "summary": "Two and two are four.", "format": "openai-responses-v1", "index": 0},
      {"type": "reasoning.encrypted", "data": "gAAAAABpsx2Va4wv", "id": "rs_1", "format": "openai-responses-v1", "index": 0}
    ]},
    {"role": "user", "content": "And 3 + 3?"}
  ]
}"#,
        mended: r#"{
  "model": "anthropic/claude-sonnet-4.5",
  "messages": [
    {"role": "user", "content": "What is 2 + 2?"},
    {"role": "assistant", "content": "4.", "reasoning_details": [
      {"type": "reasoning.summary", "summary": "Two and two are four.", "format": "openai-responses-v1", "index": 0}
    ]},
    {"role": "user", "content": "And 3 + 3?"}
  ]
}"#,
    },
};

/// Flags a Gemini call without its signature.
pub(in crate::chat::contract) static FIRST_CALL_NEEDS_SIGNATURE: Rule = Rule {
    id: "openrouter/first-call-needs-signature",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "The first tool call of a Gemini 3 step has no signature.",
    why: "Gemini signs the call itself: the first of parallel calls, and the first call of each \
          sequential step. OpenRouter returns that signature as a `reasoning.encrypted` detail \
          whose `id` is the call's id. During the current turn Gemini 3 rejects a step without \
          it. Clients that keep only `tool_calls`, or that drop details without text, lose it.",
    provider_error: Some(
        "Gemini models require OpenRouter reasoning details to be preserved in each request. Please refer to our docs: https://openrouter.ai/docs/guides/best-practices/reasoning-tokens#preserving-reasoning-blocks. Upstream error: …",
    ),
    breach: Some(ViolationKind::UnsignedCall),
    fix: "Send `reasoning_details` back on the message that calls the tool. For a call that \
          Gemini did not make, Google documents `skip_thought_signature_validator` as its \
          signature.",
    applies: |target| {
        let is_demanded = target.profile.contract != Contract::Stateless;
        relays_to(target, Vendor::Google) && is_demanded && target.profile.stand_in.is_some()
    },
    evidence: &[
        issue("https://github.com/LibreChat-AI/agents/issues/37"),
        issue("https://github.com/microsoft/agent-framework/issues/2947"),
        issue("https://github.com/RooCodeInc/Roo-Code/pull/10640"),
        documented("https://ai.google.dev/gemini-api/docs/thought-signatures"),
    ],
    example: Example {
        provider: "openrouter",
        model: "google/gemini-3-pro-preview",
        prior: &[],
        failing: r#"{
  "model": "google/gemini-3-pro-preview",
  "messages": [
    {"role": "user", "content": "Weather in Paris?"},
    {"role": "assistant", "content": null, "tool_calls": [
      {"id": "tool_weather_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    ]},
    {"role": "tool", "tool_call_id": "tool_weather_1", "content": "Rain."}
  ]
}"#,
        mended: r#"{
  "model": "google/gemini-3-pro-preview",
  "messages": [
    {"role": "user", "content": "Weather in Paris?"},
    {"role": "assistant", "content": null, "tool_calls": [
      {"id": "tool_weather_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    ], "reasoning_details": [
      {"type": "reasoning.encrypted", "data": "c2lnbmF0dXJl", "id": "tool_weather_1", "format": "google-gemini-v1", "index": 0}
    ]},
    {"role": "tool", "tool_call_id": "tool_weather_1", "content": "Rain."}
  ]
}"#,
    },
};

/// Flags details that the upstream expects back.
pub(in crate::chat::contract) static DETAILS_DROPPED: Rule = Rule {
    id: "openrouter/details-dropped",
    wire: WIRE,
    severity: Severity::Degrade,
    title: "Reasoning details of the current turn are missing.",
    why: "A router uses `reasoning_details` to return what each upstream expects back. Most \
          models accept a message with tool calls and without its details, but they lose their \
          reasoning from before the call.",
    provider_error: None,
    breach: None,
    fix: "Put `reasoning_details` back on the assistant message, complete and in order.",
    applies: takes_details,
    evidence: &[
        documented(
            "https://openrouter.ai/docs/guides/best-practices/reasoning-tokens#preserving-reasoning-blocks",
        ),
        recorded(
            "charmbracelet/fantasy TestOpenRouterCommon/grok/tool_streaming: the encrypted detail was lost, and it was accepted",
        ),
    ],
    example: Example {
        provider: "openrouter",
        model: "openai/gpt-5",
        prior: &[
            r#"{"model":"openai/gpt-5","messages":[{"role":"user","content":"Weather in Paris?"}]}"#,
            r#"{"id":"1","model":"openai/gpt-5","choices":[{"index":0,"finish_reason":"tool_calls","message":{"role":"assistant","content":null,"reasoning_details":[{"type":"reasoning.encrypted","data":"gAAAAABpsx2Va4wv","id":"rs_1","format":"openai-responses-v1","index":0}],"tool_calls":[{"id":"call_1","type":"function","function":{"name":"weather","arguments":"{}"}}]}}]}"#,
        ],
        failing: r#"{
  "model": "openai/gpt-5",
  "messages": [
    {"role": "user", "content": "Weather in Paris?"},
    {"role": "assistant", "content": null, "tool_calls": [
      {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    ]},
    {"role": "tool", "tool_call_id": "call_1", "content": "Rain."}
  ]
}"#,
        mended: r#"{
  "model": "openai/gpt-5",
  "messages": [
    {"role": "user", "content": "Weather in Paris?"},
    {"role": "assistant", "content": null, "tool_calls": [
      {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    ], "reasoning_details": [
      {"type": "reasoning.encrypted", "data": "gAAAAABpsx2Va4wv", "id": "rs_1", "format": "openai-responses-v1", "index": 0}
    ]},
    {"role": "tool", "tool_call_id": "call_1", "content": "Rain."}
  ]
}"#,
    },
};
