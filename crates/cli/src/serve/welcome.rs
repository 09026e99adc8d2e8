//! What a newcomer sees first: where it listens, a question to paste, and how the official clients find it.

use std::net::SocketAddr;

use owo_colors::OwoColorize as _;

use crate::config::{Config, Credential, Endpoint};

/// Who may ask.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Admits {
    Keys,
    ThisMachine,
    Everybody,
}

pub(super) fn welcome(config: &Config, address: SocketAddr, store: &str, open: Admits) -> String {
    let has_keys = open == Admits::Keys;
    let url = format!("http://{address}");
    let mut lines = vec![format!("{} {}", "throughline serve".bold(), url.cyan().bold())];
    let file = config.file.as_ref().map(|file| file.display().to_string());
    let file = file.unwrap_or_else(|| "none; everything is as usual".to_owned());
    lines.push(format!("  {} {url}/", "console  ".dimmed()));
    lines.push(format!("  {} {store}", "store    ".dimmed()));
    lines.push(format!("  {} {file}", "config   ".dimmed()));
    lines.push(format!("  {} {}", "providers".dimmed(), providers(config)));
    let keys = match open {
        Admits::Keys => "callers need a key of this gateway",
        Admits::ThisMachine => {
            "none: it answers this machine only, until you make one with `throughline keys create`"
        }
        Admits::Everybody => "none: it answers everybody who can reach it, as --allow-open says",
    };
    lines.push(format!("  {} {keys}", "keys     ".dimmed()));
    let header = if has_keys { " -H 'authorization: Bearer tl_…'" } else { "" };
    lines.push(format!("\n{}", "Ask it".bold()));
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
    lines.push(format!("\n{}\n", "Ctrl-C stops it, once its streams have ended".dimmed()));
    lines.join("\n")
}

/// The providers that need nothing more, and how to get others.
fn providers(config: &Config) -> String {
    let providers = config.routes.providers().iter();
    let ready = providers.filter(|provider| match provider.credential {
        Credential::Own { .. } | Credential::Aws(_) => true,
        // Whether a server runs where its row says, nobody knows.
        Credential::Open => provider.is_chosen() || provider.endpoint == Endpoint::Simulators,
        Credential::Callers | Credential::Missing { .. } => false,
    });
    let names: Vec<&str> = ready.map(|provider| &*provider.name).collect();
    format!(
        "{}; others with the caller's own key, or once their usual variables are set",
        names.join(", ")
    )
}
