//! Whose key reaches a provider, and whose conversations are whose, through the gateway as a process.
//!
//! The provider is a simulator that the gateway knows as any other server: it tells its askers apart by their keys.

use serde_json::{Value, json};
use throughline_sim::{Entry, Options, Simulator, start};
use tokio::runtime::Runtime;

use crate::support::kept::Kept;
use crate::support::serving::{Serving, said_at};
use crate::traces::Receiver;

const ADA: &str = "x-api-key: sk-adas-own\r\n";
const BOB: &str = "x-api-key: sk-bobs-own\r\n";
const NOBODY: &str = "";

/// A provider, and a gateway that knows it under many names.
struct House {
    serving: Serving,
    simulator: Simulator,
    _runtime: Runtime,
    _kept: Kept,
}

impl House {
    fn new(name: &str) -> Self {
        let kept = Kept::nothing(name);
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
        let serving = Serving::start(&kept.folder, &environment, &[]);
        Self { serving, simulator, _runtime: runtime, _kept: kept }
    }

    /// Asks as Anthropic's clients do, and gives all that is said.
    fn ask(&self, model: &str, key: &str, messages: &[Value]) -> String {
        self.serving.said("POST", "/v1/messages", key, &request(model, messages))
    }

    /// Asks what is answered, and gives the text of the answer.
    fn answered(&self, model: &str, key: &str, messages: &[Value]) -> String {
        let said = self.ask(model, key, messages);
        assert!(said.starts_with("HTTP/1.1 200"), "{said}");
        let body: Value = serde_json::from_str(said.split_once("\r\n\r\n").unwrap().1).unwrap();
        let texts = body["content"].as_array().unwrap().iter();
        texts.filter_map(|part| part["text"].as_str()).collect()
    }

    /// What the provider noted of the last request.
    fn noted(&self) -> Entry {
        self.simulator.last_entry().unwrap()
    }

    /// What the provider calls whoever comes with that header.
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

/// A conversation of which the client has kept only what is visible.
fn going_on(question: &str, answer: &str) -> [Value; 3] {
    [user(question), json!({"role": "assistant", "content": answer}), user("Go on.")]
}

#[test]
fn a_callers_own_key_reaches_the_provider_and_its_conversations_are_its_own() {
    let house = House::new("callers-own");
    for provider in ["plain", "kind"] {
        let model = format!("{provider}/claude-sonnet-4-5");
        let question = format!("What is {provider}?");
        let answer = house.answered(&model, ADA, &[user(&question)]);
        assert_eq!(house.noted().issued.len(), 1, "it thinks, and signs that");
        assert_eq!(house.noted().account, house.account(ADA));
        let messages = going_on(&question, &answer);
        // To others the same visible conversation is not hers.
        for (other, header) in [(BOB, BOB), (NOBODY, NOBODY)] {
            house.answered(&model, other, &messages);
            assert_eq!(house.noted().returned, [], "{provider} {other}");
            assert_eq!(house.noted().account, house.account(header), "{provider} {other}");
        }
        house.answered(&model, ADA, &messages);
        assert_eq!(house.noted().returned.len(), 1, "{provider}");
        assert!(house.noted().is_content());
        assert_eq!(house.noted().account, house.account(ADA));
    }
}

#[test]
fn where_the_gateway_has_a_key_no_callers_goes_out() {
    let house = House::new("callers-ours");
    let model = "ours/claude-sonnet-4-5";
    let ours = house.account("x-api-key: sk-the-gateways-own\r\n");
    let answer = house.answered(model, ADA, &[user("Whose key is it?")]);
    assert_eq!(house.noted().account, ours);
    // One account, and one tenant: whoever goes on has all of it.
    house.answered(model, BOB, &going_on("Whose key is it?", &answer));
    assert_eq!((house.noted().account, house.noted().returned.len()), (ours, 1));
    // A signature is the gateway's own, too.
    house.answered("signed/anthropic.claude-sonnet-4-5-20250929-v1:0", ADA, &[user("And here?")]);
    let signed = "authorization: AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/x\r\n";
    assert_eq!(house.noted().account, house.account(signed));
}

#[test]
fn a_key_that_is_missing_is_told_and_the_callers_does_not_take_its_place() {
    let house = House::new("callers-missing");
    for key in [ADA, NOBODY] {
        let said = house.ask("missing/claude-sonnet-4-5", key, &[user("Hello")]);
        assert!(said.starts_with("HTTP/1.1 502"), "{said}");
        let reason = "the request to missing cannot be sent: its key is missing, since \
                      $NO_SUCH_KEY is not set";
        assert!(said.contains(reason), "{said}");
    }
    assert_eq!(house.simulator.ledger().entries, []);
    house.answered("either", ADA, &[user("Hello")]);
    assert_eq!(house.noted().account, house.account("x-api-key: sk-the-gateways-own\r\n"));
}

#[test]
fn ones_own_server_is_found_by_its_variable_and_needs_no_key() {
    let house = House::new("callers-open");
    let body = json!({"model": "ollama/deepseek-v4-pro", "messages": [user("Hello")]}).to_string();
    let said = house.serving.said("POST", "/v1/chat/completions", NOBODY, &body);
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
    assert_eq!(house.noted().account, house.account(NOBODY));
    let ready = "plain, kind, ours, signed, sim, bedrock, ollama, ollama-native;";
    assert!(house.serving.welcome.contains(ready), "{}", house.serving.welcome);
}

/// `[providers.openai]` with a `base_url` replaces the vendor for every OpenAI path, with the key of that section.
#[test]
fn every_openai_path_reaches_the_configured_base_url() {
    let kept = Kept::nothing("callers-redefined");
    let house = Receiver::start(&["404 Not Found"]);
    let config = format!(
        "[providers.openai]\nbase_url = \"http://{}/house/v1\"\napi_key = \"sk-house\"\n",
        house.address
    );
    std::fs::write(kept.file("throughline.toml"), config).unwrap();
    let serving = Serving::start(&kept.folder, &[("OPENAI_API_KEY", "sk-vendor")], &[]);
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
        // A chat completion is asked for as a response, which this provider prefers.
        let expected = path.replace("/v1/chat/completions", "/v1/responses");
        assert_eq!(last.path, format!("/house{expected}"), "{answer}");
        assert!(last.headers.to_ascii_lowercase().contains("bearer sk-house"), "{}", last.headers);
    }
    assert_eq!(house.sent().len(), requests.len());
}
