//! Tests of the sources of credentials in the configuration.

use std::time::Duration;

use throughline_codec::Catalog;
use throughline_provider::{
    AwsSettings, CommandSettings, CredentialSettings, CredentialSource, Endpoint,
};

use super::super::file::{ParsedConfig, read};
use super::super::routes::Credential;
use crate::credentials::SharedCredentials;
use crate::router::endpoints;

const VARIABLES: [(&str, &str); 6] = [
    ("AWS_REGION", "eu-west-1"),
    ("AWS_ACCESS_KEY_ID", "AKID"),
    ("AWS_SECRET_ACCESS_KEY", "canary"),
    ("AZURE_TENANT_ID", "tenant"),
    ("AZURE_CLIENT_ID", "client"),
    ("AZURE_CLIENT_SECRET", "canary"),
];

fn parse(text: &str) -> ParsedConfig {
    let lookup = |name: &str| {
        let found = VARIABLES.iter().find(|(variable, _)| *variable == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    read(text, Catalog::builtin(), &lookup)
}

fn errors(text: &str) -> Vec<String> {
    parse(text).errors.iter().map(ToString::to_string).collect()
}

fn settings(text: &str, name: &str) -> CredentialSettings {
    let ParsedConfig { config, errors, .. } = parse(text);
    assert_eq!(errors, [], "{text}");
    let credential = &config.routes.provider(name).unwrap().credential;
    assert!(!format!("{credential:?}").contains("canary"));
    assert!(!credential.may_be_callers());
    let Credential::Dynamic(settings) = credential else { panic!("{credential:?}") };
    settings.clone()
}

#[test]
fn file_and_command_are_parsed() {
    let text = "[providers.openai]\nkey_file = \"/missing/key\"";
    assert_eq!(settings(text, "openai"), CredentialSettings::File("/missing/key".into()));
    let warnings: Vec<String> = parse(text).warnings.iter().map(ToString::to_string).collect();
    let warning = "2:12: there is no file /missing/key; this provider cannot be used without it";
    assert_eq!(warnings, [warning]);
    let text = "[providers.openai]\nkey_command = [\"vault\", \"canary\"]";
    let command = CommandSettings {
        command: vec!["vault".to_owned(), "canary".to_owned()],
        timeout: Duration::from_secs(10),
        interval: Duration::from_mins(5),
    };
    let default = CredentialSettings::Command(command.clone());
    assert_eq!(settings(text, "openai"), default);
    assert_eq!(default.to_string(), "the command vault");
    let text = format!("{text}\nkey_command_timeout = \"3s\"\nkey_command_interval = \"1h\"");
    let (timeout, interval) = (Duration::from_secs(3), Duration::from_hours(1));
    let expected = CommandSettings { timeout, interval, ..command };
    assert_eq!(settings(&text, "openai"), CredentialSettings::Command(expected));
}

#[test]
fn cloud_credentials_take_precedence_over_usual_variables() {
    let aws = |profile: Option<&str>, region: &str| {
        let (profile, region) = (profile.map(Into::into), Some(region.into()));
        CredentialSettings::Aws(AwsSettings { profile, region })
    };
    let text = "[providers.bedrock]\ncredentials = \"aws\"";
    assert_eq!(settings(text, "bedrock"), aws(None, "eu-west-1"));
    let text = format!("{text}\naws_profile = \"work\"\naws_region = \"us-west-2\"");
    assert_eq!(settings(&text, "bedrock"), aws(Some("work"), "us-west-2"));
    let text = "[providers.vertex]\ncredentials = \"google\"";
    let google = settings(text, "vertex").to_string();
    assert_eq!(google, "the Application Default Credentials of Google");
    let text = "[providers.azure]\nbase_url = \"https://r.openai.azure.com/openai/v1\"\n\
                credentials = \"azure\"\nazure_scope = \"https://ai.azure.com/.default\"";
    let entra = settings(text, "azure");
    assert_eq!(entra.to_string(), "Microsoft Entra with $AZURE_CLIENT_SECRET");
    let CredentialSettings::Entra(entra) = entra else { panic!("{entra:?}") };
    assert_eq!(&*entra.scope, "https://ai.azure.com/.default");
}

/// A vendor's entries and accounts with the same source use one credential, so that its source is
/// read once.
#[test]
fn endpoints_with_the_same_source_share_a_credential() {
    let text = "[providers.openai]\nkey_file = \"/missing/key\"\n\
                [[providers.xai.pool]]\nname = \"a\"\nkey_file = \"/missing/key\"\n\
                [[providers.xai.pool]]\nname = \"b\"\nkey_file = \"/missing/other\"";
    let credentials = SharedCredentials::default();
    let build = || endpoints(&parse(text).config, "http://127.0.0.1:1", &credentials).unwrap();
    let source = |all: &[Endpoint], name: &str| {
        let endpoint = all.iter().find(|endpoint| *endpoint.name == *name).unwrap();
        assert!(matches!(endpoint.credential, CredentialSource::Dynamic(_)), "{name}");
        endpoint.credential.clone()
    };
    let all = build();
    let openai = source(&all, "openai");
    assert_eq!(openai, source(&all, "openai-chat"));
    assert_eq!(openai, source(&all, "xai#a"));
    assert_ne!(openai, source(&all, "xai#b"));
    // A reload keeps the credential.
    assert_eq!(openai, source(&build(), "openai"));
}

#[test]
fn invalid_sources_are_reported() {
    let openai = |lines: &str| format!("[providers.openai]\n{lines}");
    for (text, expected) in [
        (
            openai("key_file = \"key\""),
            "2:12: `key_file` must be an absolute path: write key_file = \"/run/secrets/openai\"",
        ),
        (
            openai("key_command = []"),
            "2:15: `key_command` needs a program: write key_command = [\"pass\", \"openai\"]",
        ),
        (
            openai("key_command = \"pass openai\""),
            "2:15: `key_command` must be a list of strings: write key_command = [\"pass\", \
             \"openai\"]",
        ),
        (
            openai("api_key = \"canary\"\nkey_file = \"/k\""),
            "2:1: both `api_key` and `key_file` are set: keep only one",
        ),
        (
            openai("key_command_timeout = \"3s\""),
            "2:1: `key_command_timeout` requires `key_command`: add it, or remove \
             `key_command_timeout`",
        ),
        (openai("credentials = \"gcp\""), "2:15: `credentials` must be one of aws, google, azure"),
        (
            openai("credentials = \"aws\""),
            "1:12: credentials = \"aws\" requires the wire bedrock-converse: write \
             kind = \"bedrock\", or set `api_key_env`",
        ),
        (
            "[providers.vertex]\ncredentials = \"google\"\naws_profile = \"a\"".to_owned(),
            "3:1: `aws_profile` does not apply to this value of `credentials`: remove it",
        ),
        (
            openai("key_file = \"/k\"\npool = [{ name = \"a\", api_key = \"canary\" }]"),
            "2:1: `key_file` cannot be combined with `pool`: move the key to an account of the \
             pool; an account with the name `openai` continues its conversations",
        ),
    ] {
        assert_eq!(errors(&text), [expected], "{text}");
    }
}
