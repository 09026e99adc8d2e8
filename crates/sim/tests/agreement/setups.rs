//! The providers, models and settings of the compared conversations.

use serde_json::{Value, json};

use crate::doctor::Setup;

fn claude(model: &str, thinking: &Value) -> Value {
    json!({"model": model, "max_tokens": 8000, "system": "Be brief.", "thinking": thinking})
}

fn manual() -> Value {
    json!({"type": "enabled", "budget_tokens": 2000})
}

fn adaptive() -> Value {
    json!({"type": "adaptive"})
}

fn summarized() -> Value {
    json!({"type": "adaptive", "display": "summarized"})
}

fn bound(behavior: &str) -> Value {
    json!({"type": "adaptive", "display": "summarized", "block_binding": {"prefix_mismatch_behavior": behavior}})
}

fn converse(thinking: &Value) -> Value {
    json!({"system": [{"text": "Be brief."}], "inferenceConfig": {"maxTokens": 8000}, "additionalModelRequestFields": {"thinking": thinking}})
}

fn responses(model: &str, store: bool) -> Value {
    json!({"model": model, "store": store, "instructions": "Be brief.", "include": ["reasoning.encrypted_content"], "reasoning": {"effort": "medium", "summary": "auto"}})
}

fn chat(model: &str) -> Value {
    json!({"model": model, "messages": [{"role": "system", "content": "Be brief."}]})
}

fn router(model: &str) -> Value {
    let mut request = chat(model);
    request["reasoning"] = json!({"effort": "medium"});
    request
}

fn with_effort(model: &str, effort: &str) -> Value {
    let mut request = chat(model);
    request["reasoning_effort"] = json!(effort);
    request
}

fn flagged(model: &str) -> Value {
    let mut request = chat(model);
    request["enable_thinking"] = json!(true);
    request
}

fn gemini() -> Value {
    json!({"systemInstruction": {"parts": [{"text": "Be brief."}]}, "generationConfig": {"thinkingConfig": {"includeThoughts": true}}})
}

macro_rules! setup {
    ($label:literal: $provider:literal $model:literal $settings:expr $(, $header:literal: $value:literal)*) => {
        ($label, Setup { provider: $provider, model: $model, settings: || $settings, headers: &[$(($header, $value)),*] })
    };
}

/// All setups, each with its name in the report.
pub(crate) static SETUPS: &[(&str, Setup)] = &[
    setup!("Sonnet 4.5, manual": "anthropic" "claude-sonnet-4-5" claude("claude-sonnet-4-5", &manual())),
    setup!("Opus 4.6": "anthropic" "claude-opus-4-6" claude("claude-opus-4-6", &adaptive())),
    setup!("Opus 4.7": "anthropic" "claude-opus-4-7" claude("claude-opus-4-7", &adaptive())),
    setup!("Opus 5": "anthropic" "claude-opus-5" claude("claude-opus-5", &summarized())),
    setup!("Sonnet 5": "anthropic" "claude-sonnet-5" claude("claude-sonnet-5", &adaptive())),
    setup!("Opus 5.5": "anthropic" "claude-opus-5-5" claude("claude-opus-5-5", &adaptive())),
    setup!("Opus 5.5, old account": "anthropic" "claude-opus-5-5" claude("claude-opus-5-5", &summarized()), "x-sim-account-created": "2026-01-01"),
    setup!("Opus 5.5, drop_block": "anthropic" "claude-opus-5-5" claude("claude-opus-5-5", &bound("drop_block")), "anthropic-beta": "thinking-binding-controls-2026-08-01"),
    setup!("Opus 5.5, old account, error": "anthropic" "claude-opus-5-5" claude("claude-opus-5-5", &bound("error")), "anthropic-beta": "thinking-binding-controls-2026-08-01", "x-sim-account-created": "2026-01-01"),
    setup!("Sonnet 5.5": "anthropic" "claude-sonnet-5-5" claude("claude-sonnet-5-5", &summarized())),
    setup!("Sonnet 5.5, between_tools": "anthropic" "claude-sonnet-5-5" claude("claude-sonnet-5-5", &json!({"type": "between_tools"}))),
    setup!("Haiku 5.5": "anthropic" "claude-haiku-5-5" claude("claude-haiku-5-5", &summarized())),
    setup!("Fable 5.1": "anthropic" "claude-fable-5-1" claude("claude-fable-5-1", &adaptive())),
    setup!("Fable 5.2": "anthropic" "claude-fable-5-2" claude("claude-fable-5-2", &summarized())),
    setup!("Fable 5.2, old account": "anthropic" "claude-fable-5-2" claude("claude-fable-5-2", &adaptive()), "x-sim-account-created": "2026-01-01"),
    setup!("Mythos 5.1": "anthropic" "claude-mythos-5-1" claude("claude-mythos-5-1", &adaptive())),
    setup!("Mythos 5.2": "anthropic" "claude-mythos-5-2" claude("claude-mythos-5-2", &summarized())),
    setup!("Opus 5 after a fallback": "anthropic" "claude-opus-5" claude("claude-opus-5", &summarized()), "x-sim-fallback": "true"),
    setup!("Foundry Fable 5.2": "azure-anthropic" "claude-fable-5-2" claude("claude-fable-5-2", &adaptive())),
    setup!("Mantle Opus 5.5": "bedrock-mantle-anthropic" "anthropic.claude-opus-5-5" claude("anthropic.claude-opus-5-5", &summarized())),
    setup!("DeepSeek V4 as Anthropic": "deepseek-anthropic" "deepseek-v4" claude("deepseek-v4", &manual())),
    setup!("Bedrock Sonnet 4.5, manual": "bedrock" "us.anthropic.claude-sonnet-4-5-20250929-v1:0" converse(&manual())),
    setup!("Bedrock Opus 4.7": "bedrock" "us.anthropic.claude-opus-4-7-v1:0" converse(&summarized())),
    setup!("Bedrock Opus 5.5": "bedrock" "us.anthropic.claude-opus-5-5-v1:0" converse(&adaptive())),
    setup!("Bedrock Fable 5.2": "bedrock" "us.anthropic.claude-fable-5-2-v1:0" converse(&summarized())),
    setup!("Bedrock Nova": "bedrock" "us.amazon.nova-2-lite-v1:0" json!({"system": [{"text": "Be brief."}], "additionalModelRequestFields": {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "low"}}})),
    setup!("OpenAI stateless": "openai" "gpt-5.2" responses("gpt-5.2", false)),
    setup!("OpenAI stored": "openai" "gpt-5.2" responses("gpt-5.2", true)),
    setup!("OpenAI stored, gpt-5.6": "openai" "gpt-5.6" responses("gpt-5.6", true)),
    setup!("OpenAI stored, gpt-6": "openai" "gpt-6-luna" responses("gpt-6-luna", true)),
    setup!("OpenAI stateless, gpt-6.1-sol": "openai" "gpt-6.1-sol" responses("gpt-6.1-sol", false)),
    setup!("OpenAI stateless, gpt-6-astra": "openai" "gpt-6-astra" responses("gpt-6-astra", false)),
    setup!("Azure stored": "azure" "gpt-5.5" responses("gpt-5.5", true)),
    setup!("Azure stateless": "azure" "gpt-5.5" responses("gpt-5.5", false)),
    setup!("Mantle": "bedrock-mantle" "openai.gpt-5.5" responses("openai.gpt-5.5", false)),
    setup!("xAI": "xai" "grok-4.3" responses("grok-4.3", false)),
    setup!("DeepSeek Responses": "deepseek-responses" "deepseek-v4" responses("deepseek-v4", false)),
    setup!("DeepSeek": "deepseek" "deepseek-v4" chat("deepseek-v4")),
    setup!("DeepSeek Flash": "deepseek" "deepseek-flash" chat("deepseek-flash")),
    setup!("Kimi K3": "moonshot" "kimi-k3" chat("kimi-k3")),
    setup!("Kimi": "moonshot" "kimi-k2-thinking" chat("kimi-k2-thinking")),
    setup!("OpenRouter Claude": "openrouter" "anthropic/claude-sonnet-4.5" router("anthropic/claude-sonnet-4.5")),
    setup!("OpenRouter Gemini": "openrouter" "google/gemini-3-pro-preview" router("google/gemini-3-pro-preview")),
    setup!("OpenRouter GPT": "openrouter" "openai/gpt-5.6" router("openai/gpt-5.6")),
    setup!("OpenRouter Grok": "openrouter" "x-ai/grok-4.3" router("x-ai/grok-4.3")),
    setup!("Vercel Claude": "vercel" "anthropic/claude-sonnet-4.5" router("anthropic/claude-sonnet-4.5")),
    setup!("OpenAI chat": "openai-chat" "gpt-5.2" chat("gpt-5.2")),
    setup!("OpenAI chat, gpt-6 without reasoning": "openai-chat" "gpt-6-sol" with_effort("gpt-6-sol", "none")),
    setup!("xAI chat": "xai-chat" "grok-3-mini" chat("grok-3-mini")),
    setup!("Mistral": "mistral" "magistral-medium-latest" chat("magistral-medium-latest")),
    setup!("Mistral Medium 3.5": "mistral" "mistral-medium-3.5" with_effort("mistral-medium-3.5", "high")),
    setup!("GLM": "zai" "glm-4.7" chat("glm-4.7")),
    setup!("MiniMax": "minimax" "MiniMax-M2" chat("MiniMax-M2")),
    setup!("Qwen": "qwen" "qwen3-max" flagged("qwen3-max")),
    setup!("Qwen 3.8": "qwen" "qwen3.8-max" flagged("qwen3.8-max")),
    setup!("Groq": "groq" "openai/gpt-oss-120b" chat("openai/gpt-oss-120b")),
    setup!("vLLM": "vllm" "openai/gpt-oss-20b" chat("openai/gpt-oss-20b")),
    setup!("llama.cpp": "llamacpp" "gpt-oss-20b" chat("gpt-oss-20b")),
    setup!("Gemini 3 Pro": "gemini" "gemini-3-pro-preview" gemini()),
    setup!("Gemini 4": "gemini" "gemini-4-argon" gemini()),
    setup!("Gemini 2.5 Flash": "gemini" "gemini-2.5-flash" gemini()),
    setup!("Vertex Gemini 3 Flash": "vertex" "gemini-3-flash-preview" gemini()),
];
