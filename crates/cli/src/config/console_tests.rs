//! Tests of `[console.oidc]`.

use std::time::Duration;

use throughline_codec::Catalog;
use throughline_core::KeyRole;
use throughline_json::Name;

use super::super::file::{ParsedConfig, read};
use super::OidcConfig;
use crate::config::Credential;

fn parse(text: &str) -> ParsedConfig {
    let lookup = |name: &str| (name == "CONSOLE_SECRET").then(|| "canary".to_owned());
    read(text, Catalog::builtin(), &lookup)
}

fn errors(text: &str) -> Vec<String> {
    parse(text).errors.iter().map(ToString::to_string).collect()
}

fn config(text: &str) -> OidcConfig {
    let ParsedConfig { config, errors, .. } = parse(text);
    assert_eq!(errors, [], "{text}");
    let console = config.console.expect("an identity provider");
    assert!(!format!("{console:?}").contains("canary"));
    console
}

const SHORT: &str = "[console.oidc]\nissuer = \"https://id.example.com/a\"\nclient_id = \"c\"\n";

#[test]
fn defaults_give_no_person_access() {
    let console = config(SHORT);
    assert_eq!(console.sign_in.rules, []);
    assert_eq!(console.secret, Credential::Open);
    assert_eq!(console.scopes, ["openid", "email", "profile"].map(Name::from));
    assert_eq!((&*console.groups_claim, &*console.sign_in.name), ("groups", "id.example.com"));
    assert_eq!(console.sign_in.lifetime, Duration::from_hours(8));
    assert!(console.sign_in.needs_verified_email);
    let warnings: Vec<String> = parse(SHORT).warnings.iter().map(ToString::to_string).collect();
    assert!(warnings.len() == 1 && warnings[0].contains("no person has access"), "{warnings:?}");
}

#[test]
fn rules_and_secrets_are_parsed() {
    let console = config(&format!(
        "{SHORT}client_secret_env = \"CONSOLE_SECRET\"\nsession = \"1h\"\n\
         require_verified_email = false\n[[console.oidc.rules]]\ngroups = [\"ops\"]\n\
         role = \"operator\"\n[[console.oidc.rules]]\nemails = [\"*@example.com\"]\n\
         role = \"viewer\"\ntenant = \"acme\"\n"
    ));
    assert!(matches!(&console.secret, Credential::Own { key, variable: Some(variable) }
        if key.reveal() == "canary" && **variable == *"CONSOLE_SECRET"));
    let rules: Vec<_> =
        console.sign_in.rules.iter().map(|rule| (rule.role, &*rule.tenant.0)).collect();
    assert_eq!(rules, [(KeyRole::Operator, "default"), (KeyRole::Viewer, "acme")]);
    assert!(!console.sign_in.needs_verified_email);
}

#[test]
fn unsafe_or_incomplete_settings_are_errors() {
    for (line, expected) in [
        ("scopes = [\"email\"]", "lacks \"openid\""),
        ("url = \"gateway.example.com\"", "a scheme and a host"),
        ("client_secret = \"a\"\nclient_secret_env = \"B\"", "keep only one"),
        ("secret = \"a\"", "unknown key"),
        ("[[console.oidc.rules]]\nrole = \"viewer\"", "matches no person"),
        ("[[console.oidc.rules]]\ngroups = [\"a\"]", "has no `role`"),
        ("[[console.oidc.rules]]\ngroups = [\"a\"]\nrole = \"admin\"", "one of operator"),
        ("[[console.oidc.rules]]\nemails = [\"a.com\"]\nrole = \"app\"", "\"*@a.com\""),
    ] {
        let errors = errors(&format!("{SHORT}{line}\n"));
        assert!(errors.len() == 1 && errors[0].contains(expected), "{line}: {errors:?}");
    }
    let errors = errors("[console.oidc]\nissuer = \"http://id.example.com\"\n");
    assert!(errors.iter().any(|error| error.contains("https://")), "{errors:?}");
    assert!(errors.iter().any(|error| error.contains("no `client_id`")), "{errors:?}");
}
