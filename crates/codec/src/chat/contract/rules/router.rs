//! What each rule says, as data: `reasoning_details`, and what the upstream behind a router refuses of them.

use throughline_core::{Channel, Contract, Target, Vendor};

use crate::audit::{Breach, Example, Rule, Severity};
use crate::chat::contract::rules::{WIRE, documented, issue, recorded};
use crate::chat::contract::vendor_of;

fn takes_details(target: &Target) -> bool {
    target.provider.dialect.channel == Channel::Details
}

fn relays_to(target: &Target, vendor: Vendor) -> bool {
    target.provider.dialect.relays && vendor_of(target) == Some(vendor)
}

/// A Claude block without its signature.
pub(in crate::chat::contract) static SIGNATURE_MISSING: Rule = Rule {
    id: "openrouter/signature-missing",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "A thinking block goes to a Claude without its signature.",
    why: "A detail of the format `anthropic-claude-v1` becomes a thinking block again, and Claude checks the signature of every such \
          block while a tool loop is open. In a stream the signature comes last, in a fragment that has no text, so clients that \
          keep only what they can show lose exactly that. An empty signature is no signature.",
    provider_error: Some("messages.….content.0: Invalid `signature` in `thinking` block"),
    breach: Some(Breach::Unsigned),
    fix: "Send the detail back with the `signature` it was issued with, or leave the detail out.",
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

/// A Claude block in pieces.
pub(in crate::chat::contract) static DETAILS_FRAGMENTED: Rule = Rule {
    id: "openrouter/details-fragmented",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "A thinking block is sent in the pieces in which it was streamed.",
    why: "A stream brings one thinking block as many details of the same `index`, the signature in the last. Each detail that is sent \
          becomes a block of its own, so the signature stands on a block whose text is not the one that was signed, and the others \
          have none. The pieces have to be joined by `index` before they are kept.",
    provider_error: Some("messages.….content.0: Invalid `signature` in `thinking` block"),
    breach: Some(Breach::Fragmented),
    fix: "Join the details of one `index`: all of the text, in order, and the signature.",
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

/// A seal that is not the one that was issued.
pub(in crate::chat::contract) static SIGNATURE_INVALID: Rule = Rule {
    id: "openrouter/signature-invalid",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "A reasoning detail is not as it was issued, and its signature no longer fits.",
    why: "Behind the router stand the providers' own checks: Claude verifies the signature against the text of its block, OpenAI decrypts \
          what it encrypted, Gemini reads its own signature. A detail that was cut, re-encoded, edited, joined with another, set in \
          another order or on another message passes the router and fails there.",
    provider_error: Some("messages.….content.0: Invalid `signature` in `thinking` block"),
    breach: Some(Breach::Invalid),
    fix: "Send the details back as they were issued: same text, same signature, same order, same message.",
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

/// A seal of another vendor's model.
pub(in crate::chat::contract) static FOREIGN_DETAILS: Rule = Rule {
    id: "openrouter/foreign-details",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "Reasoning that one vendor sealed goes to another vendor's model.",
    why: "One endpoint serves every vendor's models, but a signature or an encrypted thought opens for its own vendor only. Switching the \
          model in the middle of a conversation sends the last one's details to the next, whose provider cannot verify them. \
          Readable text and summaries are another matter: they are for anybody, and mostly ignored.",
    provider_error: Some("The encrypted content for item … could not be verified."),
    breach: Some(Breach::Foreign),
    fix: "Leave out signed and encrypted details whose `format` is another vendor's; keep them for the way back.",
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

/// A Gemini call without its signature.
pub(in crate::chat::contract) static FIRST_CALL_NEEDS_SIGNATURE: Rule = Rule {
    id: "openrouter/first-call-needs-signature",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "The first tool call of a Gemini 3 step has no signature.",
    why: "Gemini signs the call itself: of calls made together the first, and of steps made one after another each one's first. OpenRouter \
          carries that signature as a `reasoning.encrypted` detail whose `id` is the call's. While the turn is open Gemini 3 \
          refuses a step without it. Clients that know `tool_calls` only, or that keep details without text out, lose it.",
    provider_error: Some(
        "Gemini models require OpenRouter reasoning details to be preserved in each request. Please refer to our docs: https://openrouter.ai/docs/guides/best-practices/reasoning-tokens#preserving-reasoning-blocks. Upstream error: …",
    ),
    breach: Some(Breach::UnsignedCall),
    fix: "Send `reasoning_details` back on the message that calls the tool. For a call that no Gemini made, Google documents `skip_thought_signature_validator` as its signature.",
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

/// Details that were wanted back.
pub(in crate::chat::contract) static DETAILS_DROPPED: Rule = Rule {
    id: "openrouter/details-dropped",
    wire: WIRE,
    severity: Severity::Degrade,
    title: "Reasoning details of the open turn do not come back.",
    why: "`reasoning_details` is how a router hands back what each upstream wants to see again. A message that goes back with its tool \
          calls and without its details is accepted by most models, and what they thought before the call is lost to them.",
    provider_error: None,
    breach: None,
    fix: "Put `reasoning_details` back on the assistant message, whole and in order.",
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
