//! Tests of endpoint paths and credentials.

use std::sync::Arc;

use throughline_codec::{Catalog, codec};
use throughline_core::{Credential, UpstreamError};

use super::{CredentialSource, Endpoint};
use crate::auth::Scheme;

fn endpoint(row: &str, base_url: &str, credential: CredentialSource) -> Endpoint {
    let row = Catalog::builtin().provider(row).unwrap();
    Endpoint::new("here", row, base_url, credential).unwrap()
}

fn url(endpoint: &Endpoint, path: &str) -> Option<String> {
    endpoint.url(path).ok().map(String::from)
}

#[test]
fn paths_and_queries_are_appended_to_the_base_url() {
    let slash = endpoint("openai", "https://api.openai.com/v1/", CredentialSource::Caller);
    assert_eq!(
        url(&slash, "/responses?include=a&b=%20").as_deref(),
        Some("https://api.openai.com/v1/responses?include=a&b=%20")
    );
    let bare = endpoint("anthropic", "https://api.anthropic.com", CredentialSource::Caller);
    assert_eq!(
        url(&bare, "/v1/messages").as_deref(),
        Some("https://api.anthropic.com/v1/messages")
    );
    let bedrock = endpoint(
        "bedrock",
        "https://bedrock-runtime.us-east-1.amazonaws.com",
        CredentialSource::Caller,
    );
    assert_eq!(
        url(&bedrock, "/model/a.b-v1%3A0/converse").as_deref(),
        Some("https://bedrock-runtime.us-east-1.amazonaws.com/model/a.b-v1%3A0/converse")
    );
}

#[test]
fn codec_paths_match_the_vendors_urls() {
    let catalog = Catalog::builtin();
    for (row, model, address) in [
        ("anthropic", "claude-opus-4-6", "https://api.anthropic.com/v1/messages"),
        ("deepseek-anthropic", "m", "https://api.deepseek.com/anthropic/v1/messages"),
        (
            "bedrock-mantle-anthropic",
            "anthropic.claude-fable-5-2",
            "https://bedrock-mantle.us-east-1.api.aws/anthropic/v1/messages",
        ),
        (
            "anthropic-aws",
            "claude-fable-5-2",
            "https://aws-external-anthropic.us-east-1.api.aws/v1/messages",
        ),
        (
            "bedrock-mantle",
            "openai.gpt-6-sol",
            "https://bedrock-mantle.us-east-1.api.aws/v1/responses",
        ),
        (
            "vertex-anthropic",
            "claude-fable-5-2",
            "https://aiplatform.googleapis.com/v1/projects/ours/locations/global/publishers/anthropic/models/claude-fable-5-2:rawPredict",
        ),
        (
            "azure-anthropic",
            "claude-fable-5-2",
            "https://ours.services.ai.azure.com/anthropic/v1/messages",
        ),
        (
            "anthropic-google",
            "claude-fable-5-2",
            "https://claude.googleapis.com/v1alpha/projects/ours/locations/global/workspaces/ours/invoke/v1/messages",
        ),
        ("openai", "gpt-5.6", "https://api.openai.com/v1/responses"),
        ("openai-chat", "gpt-5.6", "https://api.openai.com/v1/chat/completions"),
        ("openrouter", "a/b", "https://openrouter.ai/api/v1/chat/completions"),
        ("zai", "glm-4.7", "https://api.z.ai/api/paas/v4/chat/completions"),
        ("ollama", "m", "http://localhost:11434/v1/chat/completions"),
        ("ollama-native", "m", "http://localhost:11434/api/chat"),
        (
            "gemini",
            "gemini-3-pro",
            "https://generativelanguage.googleapis.com/v1beta/models/gemini-3-pro:generateContent",
        ),
        (
            "bedrock",
            "anthropic.claude-v1:0",
            "https://bedrock-runtime.us-east-1.amazonaws.com/model/anthropic.claude-v1%3A0/converse",
        ),
    ] {
        let target = catalog.target_for(row, model, "mine").unwrap();
        let path = codec(&target.provider.wire).unwrap().path(&target, false);
        let base_url = ["{resource}", "{project}", "{workspace}"]
            .iter()
            .fold(target.provider.base_url.to_string(), |url, part| url.replace(part, "ours"));
        let here = endpoint(row, &base_url, CredentialSource::Caller);
        assert_eq!(url(&here, &path).as_deref(), Some(address), "{row}");
    }
}

#[test]
fn paths_cannot_leave_the_endpoint() {
    let here = endpoint("openai", "https://api.openai.com/v1", CredentialSource::Caller);
    for path in ["", "responses", "@evil.example/", ".evil.example/", "/../admin", "/%2e%2e/admin"]
    {
        assert_eq!(url(&here, path), None, "{path}");
    }
    let bare = endpoint("anthropic", "https://api.anthropic.com", CredentialSource::Caller);
    for path in ["@evil.example/", ":8080/", ".evil.example/"] {
        assert_eq!(url(&bare, path), None, "{path}");
    }
    assert_eq!(
        url(&bare, "//evil.example/").as_deref(),
        Some("https://api.anthropic.com//evil.example/")
    );
}

#[test]
fn google_query_keys_are_not_forwarded() {
    let gemini = endpoint("gemini", "https://example.com", CredentialSource::Caller);
    assert_eq!(
        url(&gemini, "/v1beta/models/m:streamGenerateContent?key=k&alt=sse").as_deref(),
        Some("https://example.com/v1beta/models/m:streamGenerateContent?alt=sse")
    );
    assert_eq!(url(&gemini, "/v1beta/m?key=k").as_deref(), Some("https://example.com/v1beta/m"));
}

#[test]
fn invalid_address_is_rejected_without_printing_it() {
    let row = Catalog::builtin().provider("openai").unwrap();
    for base_url in [
        "",
        "api.openai.com",
        "ftp://example.com",
        "https://user:canary@example.com",
        "https://example.com?key=canary",
        "https://{canary}.openai.azure.com",
    ] {
        let error = Endpoint::new("here", Arc::clone(&row), base_url, CredentialSource::Caller)
            .unwrap_err();
        assert!(!format!("{error} {error:?}").contains("canary"), "{error}");
    }
}

#[test]
fn auth_scheme_comes_from_the_catalog_row() {
    for (row, scheme) in [
        ("anthropic", Scheme::Anthropic),
        ("deepseek-anthropic", Scheme::Anthropic),
        ("azure-anthropic", Scheme::CloudAnthropic),
        ("vertex-anthropic", Scheme::CloudAnthropic),
        ("anthropic-google", Scheme::CloudAnthropic),
        ("openai", Scheme::Bearer),
        ("openrouter", Scheme::Bearer),
        ("azure", Scheme::Azure),
        ("azure-chat", Scheme::Azure),
        ("gemini", Scheme::Google),
        ("vertex", Scheme::Google),
        ("bedrock", Scheme::Bearer),
        ("bedrock-mantle", Scheme::Bearer),
        ("ollama", Scheme::Bearer),
    ] {
        assert_eq!(
            endpoint(row, "http://localhost", CredentialSource::Caller).scheme,
            scheme,
            "{row}"
        );
    }
    let own =
        endpoint("compatible", "https://mine.openai.azure.com/openai/v1", CredentialSource::Caller);
    assert_eq!(own.scheme, Scheme::Azure);
}

#[test]
fn client_key_is_used_only_without_endpoint_key() {
    let (own, callers) =
        (CredentialSource::Key(Credential::new("own")), Credential::new("callers"));
    let proof = |source: &CredentialSource, callers: Option<&Credential>| {
        endpoint("openai", "http://localhost", source.clone()).credentials(callers.cloned())
    };
    assert_eq!(proof(&own, Some(&callers)), Ok(own.clone()));
    assert_eq!(
        proof(&CredentialSource::Caller, Some(&callers)),
        Ok(CredentialSource::Key(callers.clone()))
    );
    assert_eq!(
        proof(&CredentialSource::Open, Some(&callers)),
        Ok(CredentialSource::Key(callers.clone()))
    );
    assert_eq!(proof(&CredentialSource::Open, None), Ok(CredentialSource::Open));
    let variable = Some("OPENAI_API_KEY".into());
    let missing = UpstreamError::NoCredential { endpoint: "here".into(), variable };
    assert_eq!(proof(&CredentialSource::Caller, None), Err(missing));
    let missing = CredentialSource::Missing("$WORK_KEY is not set".into());
    for callers in [None, Some(&callers)] {
        let expected = "cannot send the request to here: $WORK_KEY is not set";
        assert_eq!(proof(&missing, callers).unwrap_err().to_string(), expected);
    }
}
