//! Tests of a gateway process: which key reaches a provider, and which caller owns a conversation.
//!
//! The provider is a simulator that is configured by URL, like a real provider. The simulator
//! distinguishes callers by their keys.

use serde_json::{Value, json};
use throughline_sim::{LedgerEntry, Options, Simulator, start};
use tokio::runtime::Runtime;

use crate::support::kept::TestStore;
use crate::support::serving::{GatewayProcess, send_request};
use crate::traces::Receiver;

const ADA: &str = "x-api-key: sk-adas-own\r\n";
const BOB: &str = "x-api-key: sk-bobs-own\r\n";
const NO_KEY: &str = "";

/// A simulated provider, and a gateway whose configuration lists this provider under several names.
struct CallerSetup {
    serving: GatewayProcess,
    simulator: Simulator,
    _runtime: Runtime,
    _store: TestStore,
}

impl CallerSetup {
    fn new(name: &str) -> Self {
        let store = TestStore::without_database(name);
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
        std::fs::write(store.file("throughline.toml"), config).unwrap();
        let host = simulator.address().to_string();
        let environment = [
            ("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"),
            ("AWS_SECRET_ACCESS_KEY", "an-accounts-secret"),
            ("OLLAMA_HOST", host.as_str()),
        ];
        let serving = GatewayProcess::start(&store.folder, &environment, &[]);
        Self { serving, simulator, _runtime: runtime, _store: store }
    }

    /// Sends a request with Anthropic's headers and returns the whole HTTP response.
    fn send(&self, model: &str, key: &str, messages: &[Value]) -> String {
        self.serving.send("POST", "/v1/messages", key, &request(model, messages))
    }

    /// Sends a request that must succeed, and returns the text of the reply.
    fn reply_text(&self, model: &str, key: &str, messages: &[Value]) -> String {
        let response = self.send(model, key, messages);
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
        let body: Value = serde_json::from_str(response.split_once("\r\n\r\n").unwrap().1).unwrap();
        let texts = body["content"].as_array().unwrap().iter();
        texts.filter_map(|part| part["text"].as_str()).collect()
    }

    /// Returns the ledger entry that the provider recorded for the last request.
    fn last_entry(&self) -> LedgerEntry {
        self.simulator.last_entry().unwrap()
    }

    /// Returns the account that the provider assigns to a request with this header.
    fn account(&self, header: &str) -> String {
        let address = self.simulator.address().to_string();
        let body = request("claude-sonnet-4-5", &[user("Who am I?")]);
        let response = send_request(&address, "POST", "/at/anthropic/v1/messages", header, &body);
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
        self.last_entry().account
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

/// Builds the conversation that a client sends if it kept the visible text and dropped the
/// reasoning.
fn visible_conversation(question: &str, answer: &str) -> [Value; 3] {
    [user(question), json!({"role": "assistant", "content": answer}), user("Go on.")]
}

#[test]
fn caller_key_reaches_the_provider_and_isolates_conversations() {
    let setup = CallerSetup::new("callers-own");
    for provider in ["plain", "kind"] {
        let model = format!("{provider}/claude-sonnet-4-5");
        let question = format!("What is {provider}?");
        let answer = setup.reply_text(&model, ADA, &[user(&question)]);
        assert_eq!(
            setup.last_entry().issued.len(),
            1,
            "the model thinks, and the thought is signed"
        );
        assert_eq!(setup.last_entry().account, setup.account(ADA));
        let messages = visible_conversation(&question, &answer);
        // The same visible conversation from another caller must not restore this caller's
        // reasoning.
        for (other, header) in [(BOB, BOB), (NO_KEY, NO_KEY)] {
            setup.reply_text(&model, other, &messages);
            assert_eq!(setup.last_entry().returned, [], "{provider} {other}");
            assert_eq!(setup.last_entry().account, setup.account(header), "{provider} {other}");
        }
        setup.reply_text(&model, ADA, &messages);
        assert_eq!(setup.last_entry().returned.len(), 1, "{provider}");
        assert!(setup.last_entry().all_verified());
        assert_eq!(setup.last_entry().account, setup.account(ADA));
    }
}

#[test]
fn gateway_key_replaces_caller_keys() {
    let setup = CallerSetup::new("callers-ours");
    let model = "ours/claude-sonnet-4-5";
    let ours = setup.account("x-api-key: sk-the-gateways-own\r\n");
    let answer = setup.reply_text(model, ADA, &[user("Whose key is it?")]);
    assert_eq!(setup.last_entry().account, ours);
    // All callers share the account and the tenant, so each of them can continue the conversation.
    setup.reply_text(model, BOB, &visible_conversation("Whose key is it?", &answer));
    assert_eq!((setup.last_entry().account, setup.last_entry().returned.len()), (ours, 1));
    // AWS request signatures use the gateway's keys too.
    setup.reply_text("signed/anthropic.claude-sonnet-4-5-20250929-v1:0", ADA, &[user("And here?")]);
    let signed = "authorization: AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/x\r\n";
    assert_eq!(setup.last_entry().account, setup.account(signed));
}

#[test]
fn missing_gateway_key_is_reported_and_caller_key_is_not_used() {
    let setup = CallerSetup::new("callers-missing");
    for key in [ADA, NO_KEY] {
        let response = setup.send("missing/claude-sonnet-4-5", key, &[user("Hello")]);
        assert!(response.starts_with("HTTP/1.1 502"), "{response}");
        let reason = "cannot send the request to missing: no API key: $NO_SUCH_KEY is not set";
        assert!(response.contains(reason), "{response}");
    }
    assert_eq!(setup.simulator.ledger().entries, []);
    setup.reply_text("either", ADA, &[user("Hello")]);
    assert_eq!(setup.last_entry().account, setup.account("x-api-key: sk-the-gateways-own\r\n"));
}

#[test]
fn local_server_is_found_by_its_variable_without_a_key() {
    let setup = CallerSetup::new("callers-open");
    let body = json!({"model": "ollama/deepseek-v4-pro", "messages": [user("Hello")]}).to_string();
    let response = setup.serving.send("POST", "/v1/chat/completions", NO_KEY, &body);
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    assert_eq!(setup.last_entry().account, setup.account(NO_KEY));
    let ready = "plain, kind, ours, signed, sim, bedrock, ollama, ollama-native;";
    assert!(setup.serving.welcome.contains(ready), "{}", setup.serving.welcome);
}

/// If `[providers.openai]` has a `base_url`, every OpenAI path goes to that URL with the section's
/// key.
#[test]
fn every_openai_path_reaches_the_configured_base_url() {
    let store = TestStore::without_database("callers-redefined");
    let provider = Receiver::start(&["404 Not Found"]);
    let config = format!(
        "[providers.openai]\nbase_url = \"http://{}/house/v1\"\napi_key = \"sk-house\"\n",
        provider.address
    );
    std::fs::write(store.file("throughline.toml"), config).unwrap();
    let serving = GatewayProcess::start(&store.folder, &[("OPENAI_API_KEY", "sk-vendor")], &[]);
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
        let response = serving.send(method, path, "", body);
        let last = provider
            .requests()
            .pop()
            .unwrap_or_else(|| panic!("{path} went elsewhere: {response}"));
        // A chat completion is sent as a Responses request, which this provider prefers.
        let expected = path.replace("/v1/chat/completions", "/v1/responses");
        assert_eq!(last.path, format!("/house{expected}"), "{response}");
        assert!(last.headers.to_ascii_lowercase().contains("bearer sk-house"), "{}", last.headers);
    }
    assert_eq!(provider.requests().len(), requests.len());
}
