//! Names from OpenTelemetry's semantic conventions for generative AI, shared by traces and metrics.
//!
//! The conventions are in development. [`SCHEMA_URL`] names the version that Throughline follows:
//! <https://github.com/open-telemetry/semantic-conventions-genai> at commit
//! `004902b8cb70aa5ae6ca4ae07132b7daabcd3e10`.

use crate::name::Wire;

/// Schema URL of the conventions that Throughline follows.
pub const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/gen-ai-dev/1.42.0-dev";

/// Value of `error.type` for errors without a more specific class.
pub const OTHER_ERROR: &str = "_OTHER";

/// Providers whose name in the conventions differs from their name in the catalog. Each row maps
/// the start of a catalog name; the first match applies.
const PROVIDERS: [(&str, &str); 10] = [
    ("openai", "openai"),
    ("azure-anthropic", "azure.ai.inference"),
    ("azure", "azure.ai.openai"),
    ("gemini", "gcp.gemini"),
    ("vertex", "gcp.vertex_ai"),
    ("bedrock", "aws.bedrock"),
    ("xai", "x_ai"),
    ("mistral", "mistral_ai"),
    ("moonshot", "moonshot_ai"),
    ("deepseek", "deepseek"),
];

/// Returns the value of `gen_ai.provider.name` for a provider of the catalog. A provider that the
/// conventions do not list keeps its own name.
pub fn provider_name(provider: &str) -> &str {
    let is_match = |start: &str| {
        provider.strip_prefix(start).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    let anthropic = [("anthropic", "anthropic")];
    let mut rows = PROVIDERS.iter().chain(&anthropic);
    rows.find(|(start, _)| is_match(start)).map_or(provider, |(_, name)| name)
}

/// Returns the value of `gen_ai.operation.name` for a model call on a wire.
pub fn operation_name(wire: &Wire) -> &'static str {
    if *wire == Wire::GEMINI { "generate_content" } else { "chat" }
}

/// Returns the host and port of an endpoint URL, for `server.address` and `server.port`.
pub fn server_address(url: &str) -> Option<(&str, u16)> {
    let (scheme, rest) = url.split_once("://")?;
    let default = match scheme {
        "https" | "wss" => 443,
        "http" | "ws" => 80,
        _ => return None,
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let authority = authority.rsplit('@').next().unwrap_or_default();
    // An IPv6 address contains colons within its brackets.
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port.parse().ok()?),
        _ => (authority, default),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    (!host.is_empty()).then_some((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_providers_have_the_names_of_the_conventions() {
        for (provider, expected) in [
            ("anthropic", "anthropic"),
            ("anthropic-aws", "anthropic"),
            ("openai-chat", "openai"),
            ("azure", "azure.ai.openai"),
            ("azure-anthropic", "azure.ai.inference"),
            ("gemini", "gcp.gemini"),
            ("vertex-anthropic", "gcp.vertex_ai"),
            ("bedrock-mantle", "aws.bedrock"),
            ("xai-chat", "x_ai"),
            ("mistral", "mistral_ai"),
            ("moonshot", "moonshot_ai"),
            ("deepseek-responses", "deepseek"),
            ("groq", "groq"),
            ("openrouter", "openrouter"),
            ("openaint", "openaint"),
        ] {
            assert_eq!(provider_name(provider), expected, "{provider}");
        }
    }

    #[test]
    fn endpoints_have_an_address_and_a_port() {
        for (url, expected) in [
            ("https://api.example.com/v1", Some(("api.example.com", 443))),
            ("http://127.0.0.1:4401", Some(("127.0.0.1", 4401))),
            ("http://user:secret@host:80/", Some(("host", 80))),
            ("http://[::1]:90/x", Some(("::1", 90))),
            ("http://[::1]/x", Some(("::1", 80))),
            ("https://", None),
            ("not a url", None),
        ] {
            assert_eq!(server_address(url), expected, "{url}");
        }
    }
}
