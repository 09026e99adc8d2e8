//! The startup message: addresses, an example request, and the settings of official clients.

use std::net::SocketAddr;

use owo_colors::OwoColorize as _;

use crate::config::{Config, Credential, Endpoint};

/// Callers that the gateway accepts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AccessMode {
    Keys,
    ThisMachine,
    AnyMachine,
}

pub(super) fn welcome(
    config: &Config,
    address: SocketAddr,
    store: &str,
    open: AccessMode,
) -> String {
    let has_keys = open == AccessMode::Keys;
    let url = format!("http://{address}");
    let mut lines = vec![format!("{} {}", "throughline serve".bold(), url.cyan().bold())];
    let file = config.file.as_ref().map(|file| file.display().to_string());
    let file = file.unwrap_or_else(|| "none; all values are defaults".to_owned());
    lines.push(format!("  {} {url}/", "console  ".dimmed()));
    lines.push(format!("  {} {store}", "store    ".dimmed()));
    lines.push(format!("  {} {file}", "config   ".dimmed()));
    lines.push(format!("  {} {}", "providers".dimmed(), providers(config)));
    let keys = match open {
        AccessMode::Keys => "callers need an API key of this gateway",
        AccessMode::ThisMachine => {
            "none: only this machine has access; create a key with `throughline keys create`"
        }
        AccessMode::AnyMachine => "none: every machine that can connect has access (--allow-open)",
    };
    lines.push(format!("  {} {keys}", "keys     ".dimmed()));
    let header = if has_keys { " -H 'authorization: Bearer tl_…'" } else { "" };
    lines.push(format!("\n{}", "Try it".bold()));
    lines.push(format!(
        "  curl {url}/v1/chat/completions{header} --json '{{\"model\":\"sim/claude-sonnet-4-5\",\"messages\":[{{\"role\":\"user\",\"content\":\"Hello\"}}]}}'"
    ));
    let key = if has_keys { "tl_…" } else { "any" };
    for (title, snippet) in [
        (
            "Python, anthropic",
            [
                "import anthropic".to_owned(),
                format!("client = anthropic.Anthropic(base_url=\"{url}\", api_key=\"{key}\")"),
                "client.messages.create(model=\"sim/claude-sonnet-4-5\", max_tokens=4096, messages=[{\"role\": \"user\", \"content\": \"Hello\"}])".to_owned(),
            ],
        ),
        (
            "Python, openai",
            [
                "import openai".to_owned(),
                format!("client = openai.OpenAI(base_url=\"{url}/v1\", api_key=\"{key}\")"),
                "client.responses.create(model=\"sim/gpt-5.2\", input=\"Hello\")".to_owned(),
            ],
        ),
        (
            "JavaScript, @google/genai",
            [
                "import { GoogleGenAI } from \"@google/genai\"".to_owned(),
                format!("const ai = new GoogleGenAI({{ apiKey: \"{key}\", httpOptions: {{ baseUrl: \"{url}\" }} }})"),
                "await ai.models.generateContent({ model: \"sim/gemini-3-pro-preview\", contents: \"Hello\" })".to_owned(),
            ],
        ),
    ] {
        lines.push(format!("\n{}", title.bold()));
        lines.extend(snippet.iter().map(|line| format!("  {line}")));
    }
    lines.push(format!("\n{}\n", "Ctrl-C drains open streams and stops the gateway".dimmed()));
    lines.join("\n")
}

/// Lists the providers that are ready to use.
fn providers(config: &Config) -> String {
    let providers = config.routes.providers().iter();
    let ready = providers.filter(|provider| match provider.credential {
        Credential::Own { .. } | Credential::Aws(_) => true,
        // It is unknown whether a local server runs at its default address.
        Credential::Open => provider.is_configured() || provider.endpoint == Endpoint::Simulators,
        Credential::Callers | Credential::Missing { .. } => false,
    });
    let names: Vec<&str> = ready.map(|provider| &*provider.name).collect();
    format!(
        "{}; others with the caller's key, or when their usual variables are set",
        names.join(", ")
    )
}
