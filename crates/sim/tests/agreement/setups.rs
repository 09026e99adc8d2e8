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
    setup!("DeepSeek V4 as Anthropic": "deepseek-anthropic" "deepseek-v4" claude("deepseek-v4", &manual())),
    setup!("Bedrock Sonnet 4.5, manual": "bedrock" "us.anthropic.claude-sonnet-4-5-20250929-v1:0" converse(&manual())),
    setup!("Bedrock Opus 4.7": "bedrock" "us.anthropic.claude-opus-4-7-v1:0" converse(&summarized())),
    setup!("Bedrock Opus 5.5": "bedrock" "us.anthropic.claude-opus-5-5-v1:0" converse(&adaptive())),
    setup!("Bedrock Nova": "bedrock" "us.amazon.nova-2-lite-v1:0" json!({"system": [{"text": "Be brief."}], "additionalModelRequestFields": {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "low"}}})),
    setup!("OpenAI stateless": "openai" "gpt-5.2" responses("gpt-5.2", false)),
    setup!("OpenAI stored": "openai" "gpt-5.2" responses("gpt-5.2", true)),
    setup!("OpenAI stored, gpt-5.6": "openai" "gpt-5.6" responses("gpt-5.6", true)),
    setup!("Azure stored": "azure" "gpt-5.5" responses("gpt-5.5", true)),
    setup!("Azure stateless": "azure" "gpt-5.5" responses("gpt-5.5", false)),
    setup!("Mantle": "bedrock-mantle" "openai.gpt-5.5" responses("openai.gpt-5.5", false)),
    setup!("xAI": "xai" "grok-4.3" responses("grok-4.3", false)),
    setup!("DeepSeek Responses": "deepseek-responses" "deepseek-v4" responses("deepseek-v4", false)),
    setup!("DeepSeek": "deepseek" "deepseek-v4" chat("deepseek-v4")),
    setup!("Kimi": "moonshot" "kimi-k2-thinking" chat("kimi-k2-thinking")),
    setup!("OpenRouter Claude": "openrouter" "anthropic/claude-sonnet-4.5" router("anthropic/claude-sonnet-4.5")),
    setup!("OpenRouter Gemini": "openrouter" "google/gemini-3-pro-preview" router("google/gemini-3-pro-preview")),
    setup!("OpenRouter GPT": "openrouter" "openai/gpt-5.6" router("openai/gpt-5.6")),
    setup!("OpenRouter Grok": "openrouter" "x-ai/grok-4.3" router("x-ai/grok-4.3")),
    setup!("Vercel Claude": "vercel" "anthropic/claude-sonnet-4.5" router("anthropic/claude-sonnet-4.5")),
    setup!("OpenAI chat": "openai-chat" "gpt-5.2" chat("gpt-5.2")),
    setup!("xAI chat": "xai-chat" "grok-3-mini" chat("grok-3-mini")),
    setup!("Mistral": "mistral" "magistral-medium-latest" chat("magistral-medium-latest")),
    setup!("GLM": "zai" "glm-4.7" chat("glm-4.7")),
    setup!("MiniMax": "minimax" "MiniMax-M2" chat("MiniMax-M2")),
    setup!("Qwen": "qwen" "qwen3-max" flagged("qwen3-max")),
    setup!("Groq": "groq" "openai/gpt-oss-120b" chat("openai/gpt-oss-120b")),
    setup!("vLLM": "vllm" "openai/gpt-oss-20b" chat("openai/gpt-oss-20b")),
    setup!("llama.cpp": "llamacpp" "gpt-oss-20b" chat("gpt-oss-20b")),
    setup!("Gemini 3 Pro": "gemini" "gemini-3-pro-preview" gemini()),
    setup!("Gemini 2.5 Flash": "gemini" "gemini-2.5-flash" gemini()),
    setup!("Vertex Gemini 3 Flash": "vertex" "gemini-3-flash-preview" gemini()),
];
