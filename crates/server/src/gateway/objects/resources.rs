//! The resources that each dialect's API defines. A gateway without keys forwards requests only to
//! these, so that a mistyped path does not send data or a key to a provider.

use throughline_core::Wire;
use throughline_replay::Family;

/// First path segments after `/v1/` in OpenAI's API.
const OPENAI: &str = "assistants audio batches chat chatkit completions containers conversations \
    embeddings evals files fine_tuning images models moderations organization realtime responses \
    skills threads uploads vector_stores videos";

/// First path segments after `/v1/` in Anthropic's API.
const ANTHROPIC: &str = "complete files messages models organizations sessions skills vaults";

/// First path segments after the version in Gemini's API.
const GEMINI: &str = "auth_tokens batches cachedContents corpora fileSearchStores files \
    generatedFiles interactions models operations tunedModels webhooks";

/// The beginnings of paths in Gemini's API.
const GEMINI_VERSIONS: [&str; 6] = [
    "/v1beta/",
    "/v1alpha/",
    "/upload/v1beta/",
    "/upload/v1alpha/",
    "/download/v1beta/",
    "/download/v1alpha/",
];

/// Returns whether the API of a dialect defines the resource that a path names.
pub(crate) fn is_defined(wire: &Wire, path: &str) -> bool {
    let (versions, resources): (&[&str], &str) = match Family::of(wire) {
        Some(Family::OpenAi) => (&["/v1/"], OPENAI),
        Some(Family::Anthropic) => (&["/v1/"], ANTHROPIC),
        Some(Family::Gemini) => (&GEMINI_VERSIONS, GEMINI),
        None => return false,
    };
    let rest = versions.iter().find_map(|version| path.strip_prefix(version));
    let first = rest.and_then(|rest| rest.split(['/', ':']).next()).unwrap_or_default();
    resources.split(' ').any(|known| known == first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_dialect_defines_its_own_resources() {
        assert!(is_defined(&Wire::OPENAI_CHAT, "/v1/fine_tuning/jobs"));
        assert!(is_defined(&Wire::OPENAI_RESPONSES, "/v1/responses/resp_1/cancel"));
        assert!(is_defined(&Wire::ANTHROPIC_MESSAGES, "/v1/skills"));
        assert!(is_defined(&Wire::GEMINI, "/v1beta/tunedModels/a:generateContent"));
        assert!(is_defined(&Wire::GEMINI, "/upload/v1beta/files"));
        assert!(is_defined(&Wire::GEMINI, "/v1alpha/auth_tokens"));
        for path in ["/v1/", "/v1/nothing", "/v1/file", "/v1/messages", "/v1beta/files"] {
            assert!(!is_defined(&Wire::OPENAI_CHAT, path), "{path}");
        }
        for path in ["/v1beta/", "/v1beta/nothing", "/v1/files", "/upload/files"] {
            assert!(!is_defined(&Wire::GEMINI, path), "{path}");
        }
        assert!(!is_defined(&Wire::ANTHROPIC_MESSAGES, "/v1/embeddings"));
    }
}
