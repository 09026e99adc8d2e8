//! The startup message: addresses, an example request, and settings for official clients.

use owo_colors::OwoColorize as _;

use crate::config::{Config, Credential, Endpoint};

/// Which callers the gateway accepts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AccessMode {
    Keys,
    ThisMachine,
    AnyMachine,
}

/// Client settings. Lines that are not indented are headings.
const EXAMPLES: &str = include_str!("welcome.txt");

pub(super) fn welcome(config: &Config, url: &str, store: &str, access: AccessMode) -> String {
    let (keys, header, key) = match access {
        AccessMode::Keys => {
            let header = " -H 'authorization: Bearer tl_…'";
            ("callers need an API key of this gateway", header, "tl_…")
        }
        AccessMode::ThisMachine => {
            let keys =
                "none: only this machine has access; create a key with `throughline keys create`";
            (keys, "", "any")
        }
        AccessMode::AnyMachine => {
            ("none: every machine that can connect has access (--allow-open)", "", "any")
        }
    };
    let file = config.file.as_ref().map(|file| file.display().to_string());
    let file = file.unwrap_or_else(|| "none; all values are defaults".to_owned());
    let mut lines = vec![format!("{} {}", "throughline serve".bold(), url.cyan().bold())];
    for (label, value) in [
        ("console", format!("{url}/")),
        ("store", store.to_owned()),
        ("config", file),
        ("providers", providers(config)),
        ("keys", keys.to_owned()),
    ] {
        lines.push(format!("  {} {value}", format!("{label:<9}").dimmed()));
    }
    let examples = EXAMPLES.replace("{url}", url).replace("{header}", header);
    lines.extend(examples.replace("{key}", key).lines().map(|line| match line {
        heading if !heading.starts_with(' ') && !heading.is_empty() => heading.bold().to_string(),
        line => line.to_owned(),
    }));
    lines.push(format!("{}\n", "Ctrl-C drains open streams and stops the gateway".dimmed()));
    lines.join("\n")
}

/// Lists the providers that can be used without a key from the caller.
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
