//! Which variables switch which endpoints on.

use throughline_codec::Catalog;
use throughline_core::Credential;

use super::endpoints_from_environment;
use crate::endpoint::{Endpoint, Source};
use crate::sigv4::AwsKeys;

fn endpoints(variables: &[(&str, &str)]) -> Vec<Endpoint> {
    let lookup = |name: &str| {
        let found = variables.iter().find(|(variable, _)| *variable == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    endpoints_from_environment(lookup, Catalog::builtin()).unwrap()
}

fn names(variables: &[(&str, &str)]) -> Vec<String> {
    endpoints(variables).iter().map(|endpoint| endpoint.name.to_string()).collect()
}

fn addresses(variables: &[(&str, &str)]) -> Vec<String> {
    endpoints(variables).iter().map(|endpoint| endpoint.base_url().to_owned()).collect()
}

#[test]
fn nothing_is_on_where_nothing_is_set() {
    assert_eq!(names(&[]), [""; 0]);
    assert_eq!(names(&[("OPENAI_API_KEY", ""), ("ANTHROPIC_API_KEY", "  ")]), [""; 0]);
    assert_eq!(names(&[("AWS_ACCESS_KEY_ID", "id"), ("AWS_REGION", "eu-west-1")]), [""; 0]);
}

#[test]
fn every_rows_own_variable_switches_it_on() {
    for row in Catalog::builtin().providers() {
        let Some(variable) = row.key_env.as_deref() else { continue };
        let open =
            [("AZURE_OPENAI_ENDPOINT", "https://r.openai.azure.com"), ("SNOWFLAKE_ACCOUNT", "a")];
        let on = endpoints(&[&[(variable, "key\n")], open.as_slice()].concat());
        let own = on.iter().find(|endpoint| endpoint.name == row.name).unwrap();
        assert_eq!(own.credential, Source::Key(Credential::new("key")), "{}", row.name);
        assert_eq!(own.row, *row);
    }
}

#[test]
fn an_address_that_is_left_open_needs_its_variable() {
    let key = ("AZURE_OPENAI_API_KEY", "key");
    assert_eq!(names(&[key]), [""; 0]);
    for endpoint in ["https://r.openai.azure.com/", "https://r.openai.azure.com/openai/v1"] {
        let address = "https://r.openai.azure.com/openai/v1".to_owned();
        assert_eq!(
            addresses(&[key, ("AZURE_OPENAI_ENDPOINT", endpoint)]),
            [address.clone(), address]
        );
    }
    assert_eq!(
        addresses(&[("SNOWFLAKE_PAT", "key"), ("SNOWFLAKE_ACCOUNT", "org-me")]),
        ["https://org-me.snowflakecomputing.com/api/v2/cortex/v1"]
    );
    let lookup = |name: &str| match name {
        "AZURE_OPENAI_ENDPOINT" => Some("nonsense".to_owned()),
        name => (name == "AZURE_OPENAI_API_KEY").then(|| "key".to_owned()),
    };
    let error = endpoints_from_environment(lookup, Catalog::builtin()).unwrap_err();
    assert_eq!(error.to_string(), "the endpoint azure cannot be used: its address is not a URL");
}

#[test]
fn bedrock_takes_a_key_or_an_accounts_keys_and_a_region() {
    let account = [("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "secret")];
    let more = [("AWS_SESSION_TOKEN", "token"), ("AWS_REGION", "eu-west-1")];
    let on = endpoints(&[account, more].concat());
    let keys = AwsKeys {
        id: "id".into(),
        secret: Credential::new("secret"),
        session_token: Some(Credential::new("token")),
    };
    assert_eq!(on.len(), 1);
    assert_eq!(on[0].credential, Source::Aws(keys));
    assert_eq!(on[0].base_url(), "https://bedrock-runtime.eu-west-1.amazonaws.com/");

    let key = ("AWS_BEARER_TOKEN_BEDROCK", "key");
    let on = endpoints(&[account[0], account[1], key, ("AWS_DEFAULT_REGION", "us-west-2")]);
    assert_eq!(on[0].credential, Source::Key(Credential::new("key")), "the key goes before");
    assert_eq!(on[0].base_url(), "https://bedrock-runtime.us-west-2.amazonaws.com/");
    assert_eq!(on[1].base_url(), "https://bedrock-mantle.us-west-2.api.aws/openai/v1");
}

#[test]
fn ones_own_servers_are_switched_on_by_their_address_and_vendors_are_not_moved() {
    let on = endpoints(&[("OLLAMA_BASE_URL", "http://10.0.0.7:11434/v1/")]);
    let addresses: Vec<&str> = on.iter().map(Endpoint::base_url).collect();
    assert_eq!(addresses, ["http://10.0.0.7:11434/v1", "http://10.0.0.7:11434/api"]);
    assert_eq!(on[0].credential, Source::Open);
    assert_eq!(names(&[("ANTHROPIC_BASE_URL", "http://localhost:8080")]), [""; 0]);
}

#[test]
fn googles_key_also_switches_the_gemini_api_on() {
    assert_eq!(names(&[("GOOGLE_API_KEY", "key")]), ["gemini", "vertex"]);
    let both = endpoints(&[("GOOGLE_API_KEY", "one"), ("GEMINI_API_KEY", "two")]);
    assert_eq!(both[0].credential, Source::Key(Credential::new("two")));
}
