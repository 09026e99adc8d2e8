//! `[console.oidc]`: how people sign in to the console.

use std::time::Duration;

use throughline_core::KeyRole;
use throughline_json::{Name, StringEnum as _};
use throughline_provider::OidcProvider;
use throughline_server::{AccessRule, SignInSettings};
use throughline_tools::reader::{Diagnostics, Section};

use super::key::{SecretKeys, own_secret};
use super::routes::Credential;

const CLIENT_SECRET: SecretKeys = SecretKeys {
    value: "client_secret",
    variable: "client_secret_env",
    file: "client_secret_file",
    command: "client_secret_command",
};

/// The scopes that providers need for an address and a name.
const SCOPES: [&str; 3] = ["openid", "email", "profile"];

/// Default time after which a person must sign in again.
const SESSION: Duration = Duration::from_hours(8);

/// `[console.oidc]`: the identity provider of the console.
#[derive(Clone, Debug)]
pub(crate) struct OidcConfig {
    pub(crate) issuer: Name,
    pub(crate) client_id: Name,
    /// The client secret; [`Credential::Open`] for a client without a secret.
    pub(crate) secret: Credential,
    pub(crate) scopes: Vec<Name>,
    pub(crate) groups_claim: Name,
    /// What the server needs: rules, lifetime and names.
    pub(crate) sign_in: SignInSettings,
}

/// Reads `[console]`; `None` if it has no identity provider.
pub(super) fn read(console: &Section<'_>, notes: &mut Diagnostics<'_>) -> Option<OidcConfig> {
    console.reject_unknown_keys(&["oidc"], notes);
    let section = console.section("oidc", notes)?;
    let section = &section;
    section.reject_unknown_keys(
        &[
            "issuer",
            "client_id",
            CLIENT_SECRET.value,
            CLIENT_SECRET.variable,
            CLIENT_SECRET.file,
            CLIENT_SECRET.command,
            "name",
            "scopes",
            "groups_claim",
            "url",
            "session",
            "require_verified_email",
            "rules",
        ],
        notes,
    );
    for (key, example) in [("issuer", "https://id.example.com"), ("client_id", "throughline")] {
        if !section.has(key) {
            let message = format!("[console.oidc] has no `{key}`: write {key} = \"{example}\"");
            notes.error(section.at, message);
        }
    }
    let issuer = section.text("issuer", "https://id.example.com", notes);
    if let Some(problem) = issuer.and_then(OidcProvider::issuer_problem) {
        let message = format!("`issuer` {problem}: write issuer = \"https://id.example.com\"");
        notes.error(section.value_at("issuer"), message);
    }
    let client_id = section.text("client_id", "throughline", notes).map(Name::from);
    let secret = own_secret(section, &CLIENT_SECRET, "sign-in", notes);
    let name = section.text("name", "Example", notes).map(Name::from);
    let host = issuer.and_then(|issuer| issuer.split('/').nth(2)).unwrap_or("OpenID Connect");
    let url = section.text("url", "https://gateway.example.com", notes);
    if url.is_some_and(|url| !is_base_url(url)) {
        let message =
            "`url` must be a scheme and a host: write url = \"https://gateway.example.com\"";
        notes.error(section.value_at("url"), message);
    }
    let rules: Vec<AccessRule> =
        section.list("rules", notes).iter().filter_map(|one| rule(one, notes)).collect();
    if !section.has("rules") {
        let message = "[console.oidc] has no rules, so no person has access: add a \
                       [[console.oidc.rules]] with `emails` or `groups`, and `role`";
        notes.warning(section.at, message);
    }
    let sign_in = SignInSettings {
        name: name.unwrap_or_else(|| Name::from(host)),
        url: url.map(Name::from),
        rules,
        lifetime: section.time("session", notes).unwrap_or(SESSION),
        needs_verified_email: section.flag("require_verified_email", notes).unwrap_or(true),
    };
    let groups_claim = section.text("groups_claim", "groups", notes).unwrap_or("groups");
    Some(OidcConfig {
        issuer: Name::from(issuer?),
        client_id: client_id?,
        secret: secret.unwrap_or(Credential::Open),
        scopes: scopes(section, notes),
        groups_claim: Name::from(groups_claim),
        sign_in,
    })
}

fn scopes(section: &Section<'_>, notes: &mut Diagnostics<'_>) -> Vec<Name> {
    let Some(scopes) = section.texts("scopes", "\"openid\", \"email\"", notes) else {
        return SCOPES.map(Name::from).to_vec();
    };
    let scopes: Vec<Name> = scopes.into_iter().map(|(_, scope)| Name::from(scope)).collect();
    if !scopes.iter().any(|scope| **scope == *"openid") {
        let message =
            "`scopes` lacks \"openid\", without which providers return no ID token: add it";
        notes.error(section.value_at("scopes"), message);
    }
    scopes
}

fn rule(section: &Section<'_>, notes: &mut Diagnostics<'_>) -> Option<AccessRule> {
    section.reject_unknown_keys(&["emails", "groups", "role", "tenant"], notes);
    let mut names = |key: &str, example: &str| {
        let names = section.texts(key, example, notes).unwrap_or_default();
        names.into_iter().map(|(_, name)| Name::from(name)).collect::<Vec<Name>>()
    };
    let emails = names("emails", "\"*@example.com\"");
    let groups = names("groups", "\"platform\"");
    if emails.is_empty() && groups.is_empty() {
        let message = "this rule matches no person: add `emails` or `groups`";
        notes.error(section.at, message);
    }
    for email in emails.iter().filter(|email| !email.contains('@')) {
        let message = format!("`{email}` is not an address: write \"*@{email}\" for a domain");
        notes.error(section.value_at("emails"), message);
    }
    let roles: Vec<(&str, KeyRole)> =
        KeyRole::ALL.iter().map(|role| (role.as_str(), *role)).collect();
    if !section.has("role") {
        let message = "this rule has no `role`: write role = \"viewer\", \"app\" or \"operator\"";
        notes.error(section.at, message);
    }
    let role = section.choice("role", &roles, notes)?;
    let tenant = section.text("tenant", "default", notes).unwrap_or("default");
    Some(AccessRule { emails, groups, role, tenant: tenant.into() })
}

/// Returns whether a text is a scheme and a host, such as `https://gateway.example.com`.
fn is_base_url(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let host = rest.map(|rest| rest.trim_end_matches('/'));
    host.is_some_and(|host| !host.is_empty() && !host.contains(['/', '?', '#', ' ']))
}

#[cfg(test)]
#[path = "console_tests.rs"]
mod console_tests;
