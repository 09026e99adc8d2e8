//! Tests of built-in providers: keys and addresses from the usual environment variables.

use throughline_codec::Catalog;
use throughline_core::{Credential as Key, PlainReplay, Provider};
use throughline_provider::AwsKeys;

use super::super::file::{ParsedConfig, read};
use super::super::routes::{Credential, Endpoint, ProviderSettings};

const ACCOUNT: [(&str, &str); 3] = [
    ("AWS_ACCESS_KEY_ID", "AKID"),
    ("AWS_SECRET_ACCESS_KEY", "canary"),
    ("AWS_REGION", "eu-west-1"),
];

fn parse(text: &str, variables: &[(&str, &str)]) -> ParsedConfig {
    let lookup = |name: &str| {
        let found = variables.iter().find(|(variable, _)| *variable == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    read(text, Catalog::builtin(), &lookup)
}

fn provider(text: &str, variables: &[(&str, &str)], name: &str) -> ProviderSettings {
    let ParsedConfig { config, errors, env_warnings, .. } = parse(text, variables);
    assert_eq!((errors, env_warnings), (vec![], vec![]), "{text}");
    config.routes.provider(name).unwrap().clone()
}

fn credential(text: &str, variables: &[(&str, &str)], name: &str) -> Credential {
    provider(text, variables, name).credential
}

/// Returns the base URL of a provider and the environment variable that sets the URL.
fn address(provider: &ProviderSettings) -> (&str, Option<&str>) {
    let Endpoint::Remote(row) = &provider.endpoint else { panic!("{} is here", provider.name) };
    (&row.base_url, provider.variable.as_deref())
}

fn row(text: &str, name: &str) -> Provider {
    match provider(text, &[], name).endpoint {
        Endpoint::Remote(row) => Provider::clone(&row),
        Endpoint::Simulators => panic!("{name} is here"),
    }
}

fn own_key(key: &str, variable: &str) -> Credential {
    Credential::Own { key: Key::new(key), variable: Some(variable.into()) }
}

fn account(region: &str) -> Credential {
    Credential::Aws(AwsKeys {
        id: "AKID".into(),
        secret: Key::new("canary"),
        session_token: None,
        region: Some(region.into()),
    })
}

#[test]
fn caller_key_is_required_unless_the_endpoint_is_open() {
    for name in ["anthropic", "openai", "gemini", "bedrock", "openrouter"] {
        assert_eq!(credential("", &[], name), Credential::Callers, "{name}");
    }
    for name in ["ollama", "ollama-native", "vllm", "llamacpp", "gpustack", "sim"] {
        assert_eq!(credential("", &[], name), Credential::Open, "{name}");
    }
    for (text, expected) in [
        ("kind = \"openai\"", Credential::Callers),
        ("kind = \"openai\"\nbase_url = \"https://proxy.example/v1\"", Credential::Callers),
        ("kind = \"openai\"\nbase_url = \"http://127.0.0.1:9/v1\"", Credential::Open),
        ("kind = \"vllm\"\nbase_url = \"https://gpu.example/v1\"", Credential::Open),
        ("wire = \"gemini\"\nbase_url = \"https://own.example\"", Credential::Open),
    ] {
        let text = format!("[providers.a]\n{text}");
        assert_eq!(credential(&text, &[], "a"), expected, "{text}");
    }
    let key = [("VLLM_API_KEY", "key")];
    assert_eq!(credential("", &key, "vllm"), own_key("key", "VLLM_API_KEY"));
}

#[test]
fn only_caller_keys_isolate_accounts() {
    let missing = Credential::Missing { variable: "NO_KEY".into() };
    assert!(Credential::Callers.may_be_callers() && Credential::Open.may_be_callers());
    for gateway_credential in [own_key("key", "WORK_KEY"), account("eu-west-1"), missing] {
        assert!(!gateway_credential.may_be_callers(), "{gateway_credential:?}");
    }
}

#[test]
fn bedrock_uses_the_aws_keys() {
    let bedrock = provider("", &ACCOUNT, "bedrock");
    assert_eq!(bedrock.credential, account("eu-west-1"));
    let url = "https://bedrock-runtime.eu-west-1.amazonaws.com";
    assert_eq!(address(&bedrock), (url, Some("AWS_REGION")));
    assert!(!format!("{bedrock:?}").contains("canary"));
    let key = [&ACCOUNT[..], &[("AWS_BEARER_TOKEN_BEDROCK", "key")]].concat();
    assert_eq!(credential("", &key, "bedrock"), own_key("key", "AWS_BEARER_TOKEN_BEDROCK"));

    // The configuration file takes precedence over the variable.
    let text = "[providers.a]\nkind = \"bedrock\"\naws_region = \"us-west-2\"\n";
    let own_region = provider(text, &ACCOUNT, "a");
    assert_eq!(own_region.credential, account("us-west-2"));
    assert_eq!(address(&own_region), ("https://bedrock-runtime.us-west-2.amazonaws.com", None));
    let through = provider(&format!("{text}base_url = \"http://vpc:8\""), &ACCOUNT, "a");
    assert_eq!(through.credential, account("us-west-2"), "an address may name no region");
    assert_eq!(address(&through), ("http://vpc:8", None));
    let keyed = credential(&format!("{text}api_key = \"key\""), &ACCOUNT, "a");
    assert_eq!(keyed, Credential::Own { key: Key::new("key"), variable: None });
    assert_eq!(credential(text, &[], "a"), Credential::Callers);

    for (text, expected) in [
        (
            "kind = \"bedrock\"\naws_region = \"europe\"",
            "3:14: `aws_region` must be an AWS region: write aws_region = \"eu-west-1\"",
        ),
        (
            "kind = \"openai\"\naws_region = \"eu-west-1\"",
            "3:14: `aws_region` applies to AWS only: write kind = \"bedrock\", or remove it",
        ),
    ] {
        let errors = parse(&format!("[providers.a]\n{text}"), &[]).errors;
        assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), [expected]);
    }
}

#[test]
fn variables_set_provider_addresses() {
    let azure = ("AZURE_OPENAI_ENDPOINT", "https://me.openai.azure.com/");
    assert_eq!(parse("", &[]).config.routes.provider("azure"), None);
    let resource = "https://me.openai.azure.com/openai/v1";
    for (text, name) in [("", "azure"), ("[providers.a]\nkind = \"azure\"", "a")] {
        let found = provider(text, &[azure, ("AZURE_OPENAI_API_KEY", "key")], name);
        assert_eq!(address(&found), (resource, Some("AZURE_OPENAI_ENDPOINT")));
        assert_eq!(found.credential, own_key("key", "AZURE_OPENAI_API_KEY"));
        assert_eq!(credential(text, &[azure], name), Credential::Callers);
    }
    let ollama = provider("", &[("OLLAMA_HOST", "0.0.0.0:9000")], "ollama");
    assert_eq!(address(&ollama), ("http://127.0.0.1:9000/v1", Some("OLLAMA_HOST")));
    let moved = provider("", &[("OLLAMA_BASE_URL", "https://gpu.example")], "ollama");
    assert_eq!(
        moved.credential,
        Credential::Open,
        "a server at another address needs no key either"
    );
    let google = [("GOOGLE_API_KEY", "key")];
    for name in ["gemini", "vertex"] {
        assert_eq!(credential("", &google, name), own_key("key", "GOOGLE_API_KEY"));
    }
}

#[test]
fn invalid_variables_are_reported_once_without_their_value() {
    let variables = [("OLLAMA_HOST", "https://me:canary@box"), ("AWS_REGION", "canary")];
    let ParsedConfig { config, errors, env_warnings, .. } = parse("[providers.ollama]", &variables);
    assert_eq!(errors, []);
    let messages: Vec<String> = env_warnings.iter().map(ToString::to_string).collect();
    let (ollama, region) = (
        "OLLAMA_HOST is ignored: the base URL contains a user name or a password; configure the \
         API key separately",
        "AWS_REGION is ignored: it is not a region such as eu-west-1",
    );
    assert_eq!(messages, [region, ollama]);
    let found = config.routes.provider("ollama").unwrap();
    assert_eq!(address(found), ("http://localhost:11434/v1", None));
}

#[test]
fn chat_provider_without_a_kind_is_compatible() {
    let own = row("[providers.x]\nwire = \"openai-chat\"\nbase_url = \"https://h/v1\"", "x");
    let compatible = Catalog::builtin().provider("compatible").unwrap();
    assert_eq!(own.dialect, compatible.dialect);
    assert_eq!((&*own.name, &own.wire), ("x", &compatible.wire));
    let named = "[providers.x]\nkind = \"compatible\"\nbase_url = \"https://h/v1\"";
    assert_eq!(own, row(named, "x"));
}

#[test]
fn replay_of_plain_reasoning_is_set_per_provider() {
    let text = |mode: &str| format!("[providers.deepseek]\nreplay_plain = \"{mode}\"");
    for (mode, expected) in [
        ("auto", PlainReplay::Auto),
        ("always", PlainReplay::Always),
        ("never", PlainReplay::Never),
    ] {
        let text = text(mode);
        assert_eq!(row(&text, "deepseek").replay_plain, expected);
        // The vendor's other entries use the same setting.
        assert_eq!(row(&text, "deepseek-responses").replay_plain, expected);
        assert_eq!(row(&text, "moonshot").replay_plain, PlainReplay::Auto);
    }
}
