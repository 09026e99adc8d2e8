//! Tests for routing by path and by model name.

use super::*;

fn catalog() -> &'static Catalog {
    Catalog::builtin()
}

/// Returns the wire, operation, model and provider name that a path selects.
fn leads(path: &str) -> Option<(String, Operation, Option<String>, Option<String>)> {
    match route(path, catalog()) {
        Route::Model { wire, verb, model, row } => {
            Some((wire.to_string(), verb, model, row.map(|row| row.name.to_string())))
        }
        Route::Models { .. }
        | Route::Ledger
        | Route::Script
        | Route::Unknown
        | Route::UnknownRow(_) => None,
    }
}

#[test]
fn provider_paths_route_to_their_wires() {
    let cases = [
        ("/v1/messages", "anthropic-messages", Operation::Answer, None),
        ("/v1/messages/count_tokens", "anthropic-messages", Operation::Count, None),
        ("/v1/responses/input_tokens", "openai-responses", Operation::Count, None),
        ("/v1/responses", "openai-responses", Operation::Answer, None),
        ("/v1/responses/compact", "openai-responses", Operation::Compact, None),
        ("/v1/chat/completions", "openai-chat", Operation::Answer, None),
        (
            "/v1beta/models/gemini-3-pro:generateContent",
            "gemini",
            Operation::Answer,
            Some("gemini-3-pro"),
        ),
        (
            "/v1beta/models/gemini-3-pro:streamGenerateContent",
            "gemini",
            Operation::Stream,
            Some("gemini-3-pro"),
        ),
        (
            "/v1beta/models/gemini-3-pro:countTokens",
            "gemini",
            Operation::Count,
            Some("gemini-3-pro"),
        ),
        (
            "/v1/projects/p/locations/l/publishers/google/models/gemini-3-pro:generateContent",
            "gemini",
            Operation::Answer,
            Some("gemini-3-pro"),
        ),
        (
            "/model/us.anthropic.claude-opus-4-6-v1%3A0/converse",
            "bedrock-converse",
            Operation::Answer,
            Some("us.anthropic.claude-opus-4-6-v1:0"),
        ),
        ("/model/m/converse-stream", "bedrock-converse", Operation::Stream, Some("m")),
    ];
    for (path, wire, verb, model) in cases {
        let expected = (wire.to_owned(), verb, model.map(str::to_owned), None);
        assert_eq!(leads(path), Some(expected), "{path}");
    }
    for path in ["/", "/v1/complete", "/v2/messages", "/model/m/invoke", "/v1beta/models/m:embed"] {
        assert_eq!(leads(path), None, "{path}");
    }
}

#[test]
fn named_row_is_resolved_on_the_wire_of_the_path() {
    let row = |path: &str| leads(path).and_then(|(wire, _, _, row)| Some((wire, row?)));
    let pair = |wire: &str, row: &str| Some((wire.to_owned(), row.to_owned()));
    assert_eq!(row("/at/openrouter/api/v1/chat/completions"), pair("openai-chat", "openrouter"));
    assert_eq!(row("/at/deepseek/chat/completions"), pair("openai-chat", "deepseek"));
    assert_eq!(
        row("/at/deepseek/anthropic/v1/messages"),
        pair("anthropic-messages", "deepseek-anthropic")
    );
    assert_eq!(row("/at/xai/v1/responses"), pair("openai-responses", "xai"));
    assert_eq!(row("/at/xai/v1/chat/completions"), pair("openai-chat", "xai-chat"));
    assert_eq!(
        route("/at/unknown/v1/messages", catalog()),
        Route::UnknownRow("unknown".to_owned())
    );
}

#[test]
fn model_name_selects_the_row_if_none_is_named() {
    let name = |wire: &Wire, model: &str| row(catalog(), wire, model, "/").name.to_string();
    let chat = [
        ("gpt-5.6", "openai-chat"),
        ("o3", "openai-chat"),
        ("gpt-oss-120b", "compatible"),
        ("grok-3-mini", "xai-chat"),
        ("deepseek-v4", "deepseek"),
        ("kimi-k2-thinking", "moonshot"),
        ("magistral-medium", "mistral"),
        ("anthropic/claude-opus-4.6", "openrouter"),
        ("llama-4", "compatible"),
    ];
    for (model, expected) in chat {
        assert_eq!(name(&Wire::OPENAI_CHAT, model), expected, "{model}");
    }
    assert_eq!(name(&Wire::OPENAI_RESPONSES, "gpt-5.6"), "openai");
    assert_eq!(name(&Wire::OPENAI_RESPONSES, "grok-4.3"), "xai");
    assert_eq!(name(&Wire::ANTHROPIC_MESSAGES, "claude-opus-5"), "anthropic");
    let vertex = row(catalog(), &Wire::GEMINI, "gemini-3-pro", "/v1/projects/p/models/m");
    assert_eq!(&*vertex.name, "vertex");
}
