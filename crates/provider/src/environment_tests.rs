//! Tests of addresses and keys from environment variables.

use std::sync::Arc;

use throughline_codec::Catalog;
use throughline_core::{Credential, Provider};

use super::{EnvAddress, EnvKey, address_from_env, in_region, key_from_env, needs_key};
use crate::sigv4::AwsKeys;

fn row(name: &str) -> Arc<Provider> {
    Catalog::builtin().provider(name).unwrap()
}

fn lookup(variables: &[(&str, &str)]) -> impl Fn(&str) -> Option<String> {
    |name| {
        let found = variables.iter().find(|(variable, _)| *variable == name);
        found.map(|(_, value)| (*value).to_owned())
    }
}

fn key(name: &str, variables: &[(&str, &str)]) -> Option<EnvKey> {
    key_from_env(&row(name), &lookup(variables))
}

/// Returns the base URL and the name of its variable.
fn address(name: &str, variables: &[(&str, &str)]) -> Option<(String, String)> {
    let found = address_from_env(&row(name), &lookup(variables)).unwrap();
    found.map(|EnvAddress { base_url, variable }| (base_url.to_string(), variable.to_string()))
}

fn env_error(name: &str, variables: &[(&str, &str)]) -> String {
    address_from_env(&row(name), &lookup(variables)).unwrap_err().to_string()
}

#[allow(clippy::unnecessary_wraps, reason = "compared with an Option")]
fn env_address(address: &str, variable: &str) -> Option<(String, String)> {
    Some((address.to_owned(), variable.to_owned()))
}

#[test]
fn each_row_reads_its_key_variable() {
    for row in Catalog::builtin().providers() {
        let Some(variable) = row.key_env.as_deref() else { continue };
        let found = key_from_env(row, &lookup(&[(variable, " key\n")]));
        let expected = EnvKey::Key(Credential::new("key"), variable.into());
        assert_eq!(found, Some(expected), "{}", row.name);
        assert_eq!(key_from_env(row, &lookup(&[(variable, "  ")])), None, "{}", row.name);
        assert_eq!(key_from_env(row, &lookup(&[])), None);
        assert_eq!(address_from_env(row, &lookup(&[])), Ok(None));
    }
}

#[test]
fn gemini_accepts_google_api_key() {
    let named = |key: &str, name: &str| Some(EnvKey::Key(Credential::new(key), name.into()));
    let google = ("GOOGLE_API_KEY", "one");
    assert_eq!(key("gemini", &[google]), named("one", "GOOGLE_API_KEY"));
    assert_eq!(key("vertex", &[google]), named("one", "GOOGLE_API_KEY"));
    let both = [google, ("GEMINI_API_KEY", "two")];
    assert_eq!(key("gemini", &both), named("two", "GEMINI_API_KEY"));
}

#[test]
fn bedrock_accepts_api_key_or_aws_keys_and_region() {
    let access_key = [("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "secret")];
    let keys = |session_token: Option<&str>, region: Option<&str>| {
        Some(EnvKey::Aws(AwsKeys {
            id: "id".into(),
            secret: Credential::new("secret"),
            session_token: session_token.map(Credential::new),
            region: region.map(Into::into),
        }))
    };
    assert_eq!(key("bedrock", &access_key), keys(None, None));
    let more = [("AWS_SESSION_TOKEN", "token"), ("AWS_REGION", "eu-west-1")];
    let all = [access_key, more].concat();
    assert_eq!(key("bedrock", &all), keys(Some("token"), Some("eu-west-1")));
    assert_eq!(key("bedrock", &access_key[..1]), None, "half of a key pair is not a key");
    assert_eq!(key("bedrock-mantle", &all), None, "it does not accept signatures");
    assert_eq!(key("anthropic", &all), None);
    let bearer = [&all[..], &[("AWS_BEARER_TOKEN_BEDROCK", "key")]].concat();
    let expected = EnvKey::Key(Credential::new("key"), "AWS_BEARER_TOKEN_BEDROCK".into());
    assert_eq!(key("bedrock", &bearer), Some(expected), "the key takes precedence");

    let runtime = "https://bedrock-runtime.eu-west-1.amazonaws.com";
    assert_eq!(address("bedrock", &all), env_address(runtime, "AWS_REGION"));
    let usual = [("AWS_DEFAULT_REGION", "us-west-2")];
    let mantle = "https://bedrock-mantle.us-west-2.api.aws/v1";
    assert_eq!(address("bedrock-mantle", &usual), env_address(mantle, "AWS_DEFAULT_REGION"));
    let claude = "https://bedrock-mantle.us-west-2.api.aws/anthropic";
    let found = address("bedrock-mantle-anthropic", &usual);
    assert_eq!(found, env_address(claude, "AWS_DEFAULT_REGION"));
    let platform = "https://aws-external-anthropic.us-west-2.api.aws";
    assert_eq!(address("anthropic-aws", &usual), env_address(platform, "AWS_DEFAULT_REGION"));
    let foundry = [("ANTHROPIC_FOUNDRY_RESOURCE", "ours")];
    let resource = "https://ours.services.ai.azure.com/anthropic";
    let found = address("azure-anthropic", &foundry);
    assert_eq!(found, env_address(resource, "ANTHROPIC_FOUNDRY_RESOURCE"));
    assert_eq!(address("anthropic", &all), None);
    assert_eq!(in_region(&row("bedrock"), "eu-west-1").as_deref(), Some(runtime));
    assert_eq!(in_region(&row("anthropic"), "eu-west-1"), None);
    for region in ["europe", "eu-west-1.evil.example/", "eu west-1", ""] {
        assert_eq!(in_region(&row("bedrock"), region), None, "{region}");
    }
    assert_eq!(
        env_error("bedrock", &[("AWS_REGION", "evil.example/")]),
        "AWS_REGION is ignored: it is not a region such as eu-west-1"
    );
}

#[test]
fn address_with_placeholder_needs_its_variable() {
    let expected = env_address("https://r.openai.azure.com/openai/v1", "AZURE_OPENAI_ENDPOINT");
    for endpoint in ["https://r.openai.azure.com/", "https://r.openai.azure.com/openai/v1"] {
        for row in ["azure", "azure-chat"] {
            assert_eq!(address(row, &[("AZURE_OPENAI_ENDPOINT", endpoint)]), expected);
        }
    }
    assert_eq!(
        address("snowflake", &[("SNOWFLAKE_ACCOUNT", "org-me")]),
        env_address("https://org-me.snowflakecomputing.com/api/v2/cortex/v1", "SNOWFLAKE_ACCOUNT")
    );
    for (endpoint, problem) in [
        ("nonsense", "the base URL is malformed"),
        (
            "https://me:canary@host",
            "the base URL contains a user name or a password; configure the API key separately",
        ),
    ] {
        let warning = env_error("azure", &[("AZURE_OPENAI_ENDPOINT", endpoint)]);
        assert_eq!(warning, format!("AZURE_OPENAI_ENDPOINT is ignored: {problem}"));
    }
}

#[test]
fn variables_move_self_hosted_servers_only() {
    let ollama = [("OLLAMA_BASE_URL", "http://10.0.0.7:11434/v1/"), ("OLLAMA_HOST", "elsewhere")];
    let variable = "OLLAMA_BASE_URL";
    assert_eq!(address("ollama", &ollama), env_address("http://10.0.0.7:11434/v1", variable));
    assert_eq!(
        address("ollama-native", &ollama),
        env_address("http://10.0.0.7:11434/api", variable)
    );
    let vllm = [("VLLM_BASE_URL", "https://gpu.example")];
    assert_eq!(address("vllm", &vllm), env_address("https://gpu.example/v1", "VLLM_BASE_URL"));
    assert_eq!(address("anthropic", &[("ANTHROPIC_BASE_URL", "http://localhost:8080")]), None);
}

#[test]
fn ollama_host_is_parsed_like_ollama() {
    for (host, expected) in [
        ("10.0.0.7", "http://10.0.0.7:11434/v1"),
        ("10.0.0.7:80", "http://10.0.0.7:80/v1"),
        ("0.0.0.0", "http://127.0.0.1:11434/v1"),
        ("0.0.0.0:9000", "http://127.0.0.1:9000/v1"),
        (":9000", "http://127.0.0.1:9000/v1"),
        ("box", "http://box:11434/v1"),
        ("::1", "http://[::1]:11434/v1"),
        ("[::1]", "http://[::1]:11434/v1"),
        ("[::1]:9000", "http://[::1]:9000/v1"),
        ("[::]:9000", "http://127.0.0.1:9000/v1"),
        ("https://ollama.example", "https://ollama.example/v1"),
        ("https://ollama.example:8443/below/", "https://ollama.example:8443/below/v1"),
        ("http://0.0.0.0:9000/", "http://127.0.0.1:9000/v1"),
    ] {
        assert_eq!(
            address("ollama", &[("OLLAMA_HOST", host)]),
            env_address(expected, "OLLAMA_HOST")
        );
    }
    assert_eq!(
        env_error("ollama", &[("OLLAMA_HOST", "box:many")]),
        "OLLAMA_HOST is ignored: the base URL is malformed"
    );
}

#[test]
fn local_servers_need_no_key() {
    let rows = Catalog::builtin().providers().iter();
    let open: Vec<&str> = rows.filter(|row| !needs_key(row)).map(|row| &*row.name).collect();
    let local = ["vllm", "llamacpp", "ollama", "ollama-native", "gpustack"];
    assert_eq!(open, [&["compatible"], &local[..]].concat());
    let at = |base_url: &str| Provider { base_url: base_url.into(), ..(*row("openai")).clone() };
    for base_url in ["http://127.0.0.1:9000/v1", "http://[::1]/v1", "https://LOCALHOST/v1"] {
        assert!(!needs_key(&at(base_url)), "{base_url}");
    }
    for base_url in ["http://localhost.example/v1", "http://10.0.0.7/v1", "http://127.example"] {
        assert!(needs_key(&at(base_url)), "{base_url}");
    }
}
