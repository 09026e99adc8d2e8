//! Tests of a gateway process: which key reaches a provider, and which caller owns a conversation.
//!
//! The provider is a simulator configured like any other server. It distinguishes callers by their
//! keys.

use serde_json::{Value, json};
use throughline_sim::{LedgerEntry, Options, Simulator, start};
use tokio::runtime::Runtime;

use crate::support::kept::TestStore;
use crate::support::serving::{GatewayProcess, said_at};
use crate::traces::Receiver;

const ADA: &str = "x-api-key: sk-adas-own\r\n";
const BOB: &str = "x-api-key: sk-bobs-own\r\n";
const NO_KEY: &str = "";

/// A simulated provider, and a gateway whose configuration lists it under several names.
struct CallerSetup {
    serving: GatewayProcess,
    simulator: Simulator,
    _runtime: Runtime,
    _kept: TestStore,
}

impl CallerSetup {
    fn new(name: &str) -> Self {
        let kept = TestStore::nothing(name);
        let runtime = Runtime::new().unwrap();
        let simulator = runtime.block_on(start(Options::default())).unwrap();
        let url = simulator.url();
        let config = format!(
            r#"
            [providers.plain]
            wire = "anthropic-messages"
            base_url = "{url}/at/anthropic"
            [providers.kind]
            kind = "anthropic"
            base_url = "{url}/at/anthropic"
            [providers.ours]
            kind = "anthropic"
            base_url = "{url}/at/anthropic"
            api_key = "sk-the-gateways-own"
            [providers.missing]
            kind = "anthropic"
            base_url = "{url}/at/anthropic"
            api_key_env = "NO_SUCH_KEY"
            [providers.signed]
            kind = "bedrock"
            base_url = "{url}/at/bedrock"
            aws_region = "eu-west-1"
            [[routes]]
            model = "either"
            targets = ["missing/claude-sonnet-4-5", "ours/claude-sonnet-4-5"]
            "#
        );
        std::fs::write(kept.file("throughline.toml"), config).unwrap();
        let host = simulator.address().to_string();
        let environment = [
            ("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"),
            ("AWS_SECRET_ACCESS_KEY", "an-accounts-secret"),
            ("OLLAMA_HOST", host.as_str()),
        ];
        let serving = GatewayProcess::start(&kept.folder, &environment, &[]);
        Self { serving, simulator, _runtime: runtime, _kept: kept }
    }

    /// Sends a request with Anthropic's headers and returns the whole HTTP response.
    fn ask(&self, model: &str, key: &str, messages: &[Value]) -> String {
        self.serving.said("POST", "/v1/messages", key, &request(model, messages))
    }

    /// Sends a request that must succeed, and returns the text of the reply.
    fn answered(&self, model: &str, key: &str, messages: &[Value]) -> String {
        let said = self.ask(model, key, messages);
        assert!(said.starts_with("HTTP/1.1 200"), "{said}");
        let body: Value = serde_json::from_str(said.split_once("\r\n\r\n").unwrap().1).unwrap();
        let texts = body["content"].as_array().unwrap().iter();
        texts.filter_map(|part| part["text"].as_str()).collect()
    }

    /// Returns the ledger entry that the provider recorded for the last request.
    fn noted(&self) -> LedgerEntry {
        self.simulator.last_entry().unwrap()
    }

    /// Returns the account that the provider assigns to a request with this header.
    fn account(&self, header: &str) -> String {
        let address = self.simulator.address().to_string();
        let body = request("claude-sonnet-4-5", &[user("Who am I?")]);
        let said = said_at(&address, "POST", "/at/anthropic/v1/messages", header, &body);
        assert!(said.starts_with("HTTP/1.1 200"), "{said}");
        self.noted().account
    }
}

fn request(model: &str, messages: &[Value]) -> String {
    json!({
        "model": model,
        "max_tokens": 4096,
        "thinking": {"type": "enabled", "budget_tokens": 2048},
        "messages": messages,
    })
    .to_string()
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

/// Builds a conversation without the reasoning, as sent by a client that kept only the visible
/// text.
fn visible_conversation(question: &str, answer: &str) -> [Value; 3] {
    [user(question), json!({"role": "assistant", "content": answer}), user("Go on.")]
}

#[test]
fn caller_key_reaches_the_provider_and_isolates_conversations() {
    let house = CallerSetup::new("callers-own");
    for provider in ["plain", "kind"] {
        let model = format!("{provider}/claude-sonnet-4-5");
        let question = format!("What is {provider}?");
        let answer = house.answered(&model, ADA, &[user(&question)]);
        assert_eq!(house.noted().issued.len(), 1, "the model thinks, and the thought is signed");
        assert_eq!(house.noted().account, house.account(ADA));
        let messages = visible_conversation(&question, &answer);
        // The same visible conversation from another caller must not restore this caller's
        // reasoning.
        for (other, header) in [(BOB, BOB), (NO_KEY, NO_KEY)] {
            house.answered(&model, other, &messages);
            assert_eq!(house.noted().returned, [], "{provider} {other}");
            assert_eq!(house.noted().account, house.account(header), "{provider} {other}");
        }
        house.answered(&model, ADA, &messages);
        assert_eq!(house.noted().returned.len(), 1, "{provider}");
        assert!(house.noted().all_verified());
        assert_eq!(house.noted().account, house.account(ADA));
    }
}

#[test]
fn gateway_key_replaces_caller_keys() {
    let house = CallerSetup::new("callers-ours");
    let model = "ours/claude-sonnet-4-5";
    let ours = house.account("x-api-key: sk-the-gateways-own\r\n");
    let answer = house.answered(model, ADA, &[user("Whose key is it?")]);
    assert_eq!(house.noted().account, ours);
    // All callers share the account and the tenant, so each of them can continue the conversation.
    house.answered(model, BOB, &visible_conversation("Whose key is it?", &answer));
    assert_eq!((house.noted().account, house.noted().returned.len()), (ours, 1));
    // AWS request signatures use the gateway's keys too.
    house.answered("signed/anthropic.claude-sonnet-4-5-20250929-v1:0", ADA, &[user("And here?")]);
    let signed = "authorization: AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/x\r\n";
    assert_eq!(house.noted().account, house.account(signed));
}

#[test]
fn missing_gateway_key_is_reported_and_caller_key_is_not_used() {
    let house = CallerSetup::new("callers-missing");
    for key in [ADA, NO_KEY] {
        let said = house.ask("missing/claude-sonnet-4-5", key, &[user("Hello")]);
        assert!(said.starts_with("HTTP/1.1 502"), "{said}");
        let reason = "cannot send the request to missing: no API key: $NO_SUCH_KEY is not set";
        assert!(said.contains(reason), "{said}");
    }
    assert_eq!(house.simulator.ledger().entries, []);
    house.answered("either", ADA, &[user("Hello")]);
    assert_eq!(house.noted().account, house.account("x-api-key: sk-the-gateways-own\r\n"));
}

#[test]
fn local_server_is_found_by_its_variable_without_a_key() {
    let house = CallerSetup::new("callers-open");
    let body = json!({"model": "ollama/deepseek-v4-pro", "messages": [user("Hello")]}).to_string();
    let said = house.serving.said("POST", "/v1/chat/completions", NO_KEY, &body);
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
    assert_eq!(house.noted().account, house.account(NO_KEY));
    let ready = "plain, kind, ours, signed, sim, bedrock, ollama, ollama-native;";
    assert!(house.serving.welcome.contains(ready), "{}", house.serving.welcome);
}

/// If `[providers.openai]` has a `base_url`, every OpenAI path goes to that URL with the section's
/// key.
#[test]
fn every_openai_path_reaches_the_configured_base_url() {
    let kept = TestStore::nothing("callers-redefined");
    let house = Receiver::start(&["404 Not Found"]);
    let config = format!(
        "[providers.openai]\nbase_url = \"http://{}/house/v1\"\napi_key = \"sk-house\"\n",
        house.address
    );
    std::fs::write(kept.file("throughline.toml"), config).unwrap();
    let serving = GatewayProcess::start(&kept.folder, &[("OPENAI_API_KEY", "sk-vendor")], &[]);
    let messages = json!({"model": "gpt-5.2", "messages": [user("Hi")]}).to_string();
    let input = json!({"model": "gpt-5.2", "input": "Hi"}).to_string();
    let requests = [
        ("POST", "/v1/responses", &*input),
        ("GET", "/v1/responses/resp_1", ""),
        ("POST", "/v1/chat/completions", &*messages),
        ("POST", "/v1/embeddings", r#"{"model":"text-embedding-3-small","input":"Hi"}"#),
        ("GET", "/v1/files", ""),
        ("GET", "/v1/files/file-1/content", ""),
        ("GET", "/v1/batches", ""),
        ("GET", "/v1/conversations/conv_1", ""),
        ("POST", "/v1/audio/speech", r#"{"model":"tts-1","input":"Hi","voice":"alloy"}"#),
        ("GET", "/v1/fine_tuning/jobs", ""),
    ];
    for (method, path, body) in requests {
        let answer = serving.said(method, path, "", body);
        let last = house.sent().pop().unwrap_or_else(|| panic!("{path} went elsewhere: {answer}"));
        // A chat completion is sent as a Responses request, which this provider prefers.
        let expected = path.replace("/v1/chat/completions", "/v1/responses");
        assert_eq!(last.path, format!("/house{expected}"), "{answer}");
        assert!(last.headers.to_ascii_lowercase().contains("bearer sk-house"), "{}", last.headers);
    }
    assert_eq!(house.sent().len(), requests.len());
}
