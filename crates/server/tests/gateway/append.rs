//! Tests callers that change their system prompt and tools during a conversation with a model that
//! binds its Seals to them. The gateway appends the changes, so that no Seal is lost.

use std::sync::Arc;

use crate::harness::{ClientDialect, GatewayOptions, SimGateway, begin, serve, serve_on, upstream};
use axum::Router;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use throughline_codec::Catalog;
use throughline_server::ReplayMode;
use throughline_sim::{LedgerEntry, Options, Verdict};
use throughline_testkit::figure;

const FABLE: &str = "claude-fable-5-1";

/// Returns a model name for each prefix-bound family in the catalog.
fn bound_models() -> Vec<String> {
    let profiles = Catalog::builtin().profiles().iter();
    let bound = profiles.filter(|profile| profile.bound.prefix);
    let name = |pattern: &str| pattern.replace(['*', '{', '}'], "").replace('.', "-");
    let models: Vec<String> = bound.map(|profile| name(&profile.models[0])).collect();
    for model in [FABLE, "claude-fable-5-2"] {
        assert!(models.iter().any(|name| name == model), "{models:?}");
    }
    models
}

fn tool(name: &str, argument: &str) -> Value {
    json!({
        "name": name,
        "description": format!("Runs {name}."),
        "input_schema": {
            "type": "object",
            "properties": {argument: {"type": "string"}},
            "required": [argument],
        },
    })
}

/// A caller of the Messages API that returns every block that it received.
struct Conversation {
    model: String,
    system: Value,
    tools: Vec<Value>,
    messages: Vec<Value>,
}

/// The outcome of one request.
struct Answer {
    status: u16,
    fates: String,
    /// The value of `x-throughline-appended`.
    appended: usize,
    /// The value of `x-throughline-prefix`.
    changed: Option<String>,
    call: String,
    body: Value,
}

impl Conversation {
    fn new(model: &str) -> Self {
        Self {
            model: format!("sim/{model}"),
            system: json!("You are a weather service."),
            tools: vec![tool("get_weather", "city"), tool("get_time", "zone")],
            messages: vec![json!({"role": "user", "content": "What is the weather in Paris?"})],
        }
    }

    fn body(&self) -> Value {
        json!({
            "model": self.model, "max_tokens": 4096, "system": self.system, "tools": self.tools,
            "messages": self.messages,
        })
    }

    /// Sends the conversation without changing it.
    async fn send(&self, url: &str, headers: &[(&str, &str)]) -> Answer {
        let mut all =
            vec![("content-type", "application/json"), ("anthropic-version", "2023-06-01")];
        all.extend(headers);
        let body = self.body().to_string().into_bytes();
        let response = begin(url, "POST", "/v1/messages", body, &all).await;
        let text = |name: &str| {
            response.headers().get(name).map(|value| value.to_str().unwrap().to_owned())
        };
        let (fates, changed) = (text("x-throughline-fates"), text("x-throughline-prefix"));
        let appended = text("x-throughline-appended").map_or(0, |text| text.parse().unwrap());
        let call = text("x-throughline-call").unwrap_or_default();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body = serde_json::from_slice(&body).unwrap_or_default();
        Answer { status, fates: fates.unwrap_or_default(), appended, changed, call, body }
    }

    /// Adds the reply, and a tool result or the next question.
    fn extend(&mut self, reply: &Value) {
        let content = reply["content"].as_array().unwrap();
        self.messages.push(json!({"role": "assistant", "content": content}));
        let results: Vec<Value> = content
            .iter()
            .filter(|block| block["type"] == "tool_use")
            .map(|call| json!({"type": "tool_result", "tool_use_id": call["id"], "content": "21"}))
            .collect();
        let content = if results.is_empty() { json!("And tomorrow?") } else { json!(results) };
        self.messages.push(json!({"role": "user", "content": content}));
    }

    /// Sends the conversation and adds the reply.
    async fn continue_at(&mut self, url: &str) -> Answer {
        let answer = self.send(url, &[]).await;
        assert_eq!(answer.status, 200, "{}: {}", self.model, answer.body);
        self.extend(&answer.body);
        answer
    }
}

/// Starts a second gateway on the same store, which knows nothing but the store.
async fn second_node(gateway: &SimGateway) -> String {
    let upstream = Arc::new(upstream(&gateway.simulator_url()));
    let options = GatewayOptions::of(ReplayMode::Repair);
    serve_on(gateway.journal().clone(), upstream, options, std::future::pending()).await
}

fn assert_every_seal_accepted(entries: &[LedgerEntry], label: &str) {
    let mut issued = 0;
    for entry in entries {
        assert_eq!(entry.refused, None, "{label}: {entry:?}");
        assert_eq!(entry.returned.len(), issued, "{label}: all Seals were returned: {entry:?}");
        let is_accepted =
            entry.returned.iter().all(|returned| returned.verdict == Verdict::Accepted);
        assert!(is_accepted && entry.lost == 0, "{label}: {entry:?}");
        issued += entry.issued.len();
    }
    assert!(issued > 0, "{label}: the model issued Seals");
}

/// Thirty requests, of which two change the system prompt and three change the tools. Two gateways
/// on one store take turns, so the earlier changes come from the store. Another provider answers
/// one further request.
#[tokio::test(flavor = "multi_thread")]
async fn thirty_turns_with_five_changes_keep_every_seal_and_the_cached_prefix() {
    const FOREIGN: usize = 15;
    for model in bound_models() {
        let gateway = SimGateway::open(ReplayMode::Repair).await;
        let nodes = [gateway.url().to_owned(), second_node(&gateway).await];
        let mut conversation = Conversation::new(&model);
        let mut changes = 0;
        for request in 0..30 {
            match request {
                5 => conversation.tools.push(tool("get_news", "topic")),
                9 => conversation.system = json!("You are a pirate."),
                13 => drop(conversation.tools.remove(1)),
                18 => {
                    conversation.system = json!([
                        {"type": "text", "text": "You are a weather service."},
                        {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}},
                    ]);
                }
                22 => {
                    conversation.tools =
                        vec![tool("get_weather", "place"), tool("get_time", "zone")];
                }
                _ => {}
            }
            if request == FOREIGN {
                let own = std::mem::replace(&mut conversation.model, "sim/gpt-5.2".to_owned());
                conversation.continue_at(&nodes[0]).await;
                conversation.model = own;
            }
            changes += usize::from(matches!(request, 5 | 9 | 13 | 18 | 22));
            let answer = conversation.continue_at(&nodes[request % 2]).await;
            assert_eq!(answer.appended, changes, "{model} {request}");
            assert_eq!(answer.changed, None, "{model} {request}");
            // The other provider's Thought is left out of the later requests.
            let is_complete = request >= FOREIGN || answer.fates.ends_with("elided=0");
            assert!(is_complete, "{model} {request}: {}", answer.fates);
        }
        let mut entries = gateway.ledger().entries;
        entries.retain(|entry| *entry.model == *model);
        assert_eq!(entries.len(), 30);
        assert_every_seal_accepted(&entries, &model);
        for pair in entries.windows(2) {
            let [before, after] = pair else { unreachable!() };
            assert_eq!(after.cached, before.input, "{model}: the request extends the last one");
        }
        let last = entries.last().unwrap();
        let (returned, cached, input) = (last.returned.len(), last.cached, last.input);
        let value = format!("{returned} Seals returned, 0 lost; {cached} of {input} tokens cached");
        figure(&format!("request 30 after 5 changes, {model}"), value);
    }
}

/// Returns a conversation with one tool call and its result, whose system prompt then changes.
async fn changed_conversation(gateway: &SimGateway, model: &str) -> Conversation {
    let mut conversation = Conversation::new(model);
    conversation.continue_at(gateway.url()).await;
    conversation.system = json!("You are a pirate.");
    conversation
}

#[tokio::test(flavor = "multi_thread")]
async fn the_header_selects_the_policy_of_a_request() {
    for model in bound_models() {
        let gateway = SimGateway::open(ReplayMode::Repair).await;
        let mut conversation = changed_conversation(&gateway, &model).await;
        for name in ["refuse", "error", "freeze_or_error"] {
            let sent = gateway.requests();
            let refused = conversation.send(gateway.url(), &[("x-throughline-prefix", name)]).await;
            assert_eq!(refused.status, 400, "{model} {name}: {}", refused.body);
            let message = refused.body["error"]["message"].as_str().unwrap();
            assert!(message.contains("`system` changed"), "{model} {name}: {message}");
            assert_eq!(gateway.requests(), sent, "{model} {name}: nothing was sent");
        }
        for name in ["drop", "drop_block", "freeze"] {
            let dropped = conversation.send(gateway.url(), &[("x-throughline-prefix", name)]).await;
            assert_eq!(dropped.status, 200, "{model} {name}: {}", dropped.body);
            assert_eq!(dropped.changed.as_deref(), Some("system"), "{model} {name}");
            assert_eq!(dropped.appended, 0, "{model} {name}");
            let last = gateway.ledger().entries.pop().unwrap();
            assert_eq!(last.returned, [], "{model} {name}: the Seal was dropped");
        }
        let appended = conversation.continue_at(gateway.url()).await;
        assert_eq!((appended.appended, appended.changed), (1, None), "{model}");
        let last = gateway.ledger().entries.pop().unwrap();
        let verdicts: Vec<_> = last.returned.iter().map(|returned| &returned.verdict).collect();
        assert_eq!(verdicts, [&Verdict::Accepted], "{model}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_policy_in_the_header_is_refused() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let conversation = Conversation::new(FABLE);
    let refused = conversation.send(gateway.url(), &[("x-throughline-prefix", "apend")]).await;
    assert_eq!(refused.status, 400);
    let message = refused.body["error"]["message"].as_str().unwrap();
    assert!(message.contains("x-throughline-prefix must be one of append, freeze"), "{message}");
    assert_eq!(gateway.requests(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_call_record_shows_the_appended_messages() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let mut conversation = changed_conversation(&gateway, FABLE).await;
    conversation.tools.remove(0);
    conversation.tools.push(tool("get_news", "topic"));
    let answer = conversation.continue_at(gateway.url()).await;
    let (_, record) = gateway.get(&format!("/v1/throughline/calls/{}", answer.call)).await;
    assert_eq!(
        record["appended"],
        json!([{
            "message": 3, "system": true, "tools_added": ["get_news"],
            "tools_removed": ["get_weather"],
        }])
    );
    let sent = &record["sent"]["body"];
    assert_eq!(sent["system"], json!("You are a weather service."));
    assert_eq!(sent["tools"][0], tool("get_weather", "city"));
    assert_eq!(
        sent["messages"][3],
        json!({"role": "system", "content": [
            {
                "type": "text",
                "text": "The following system prompt replaces every earlier system prompt of this \
                         conversation.",
            },
            {"type": "text", "text": "You are a pirate."},
            {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "get_weather"}},
            {
                "type": "tool_addition",
                "tool": {"type": "tool_definition", "definition": tool("get_news", "topic")},
            },
        ]})
    );
    let fates = record["fates"].as_array().unwrap();
    let appended: Vec<&str> = fates
        .iter()
        .filter(|fate| fate["visible"] == "reshaped: appended as a system message")
        .map(|fate| fate["item"].as_str().unwrap())
        .collect();
    assert_eq!(
        appended,
        ["system.0", "appended.0.0", "appended.0.1", "appended.0.2", "appended.0.3"]
    );
    let betas = record["sent"]["headers"].as_array().unwrap().iter();
    let betas: Vec<_> = betas.filter(|header| header[0] == "anthropic-beta").collect();
    assert_eq!(betas, [&json!(["anthropic-beta", "inline-tools-2026-09-15"])]);
}

/// A prompt that returns to its first version is appended again, and the earlier changes stay.
#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_that_changes_back_keeps_every_seal() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let mut conversation = changed_conversation(&gateway, FABLE).await;
    assert_eq!(conversation.continue_at(gateway.url()).await.appended, 1);
    conversation.system = json!("You are a weather service.");
    assert_eq!(conversation.continue_at(gateway.url()).await.appended, 2);
    conversation.system = json!([]);
    assert_eq!(conversation.continue_at(gateway.url()).await.appended, 3);
    assert_eq!(conversation.continue_at(gateway.url()).await.appended, 3);
    assert_every_seal_accepted(&gateway.ledger().entries, FABLE);
}

/// Two branches of one conversation change the prompt differently.
#[tokio::test(flavor = "multi_thread")]
async fn branches_append_their_own_changes() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let trunk = changed_conversation(&gateway, FABLE).await;
    for system in ["You are a pirate.", "You are a poet."] {
        let mut branch = Conversation { system: json!(system), ..Conversation::new(FABLE) };
        branch.messages.clone_from(&trunk.messages);
        for _ in 0..3 {
            assert_eq!(branch.continue_at(gateway.url()).await.appended, 1, "{system}");
        }
    }
    let dropped = gateway.ledger().entries.iter().any(|entry| !entry.all_verified());
    assert!(!dropped, "{:?}", gateway.ledger());
}

/// Claude Code starts its system prompt with an attribution line that differs in every request.
#[tokio::test(flavor = "multi_thread")]
async fn a_changed_attribution_line_appends_nothing() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let mut conversation = Conversation::new(FABLE);
    for request in 0..4 {
        conversation.system = json!([
            {"type": "text", "text": format!("x-anthropic-billing-header: cc_version=2; cch={request};")},
            {"type": "text", "text": "You are a weather service."},
        ]);
        let answer = conversation.continue_at(gateway.url()).await;
        assert_eq!((answer.appended, answer.changed), (0, None), "{request}");
    }
    assert_every_seal_accepted(&gateway.ledger().entries, FABLE);
}

/// The caller's cache markers and those of the first prompt together exceed the provider's limit.
#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_cache_markers_stays_within_the_limit() {
    let marked =
        |text: &str| json!({"type": "text", "text": text, "cache_control": {"type": "ephemeral"}});
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let mut conversation = Conversation::new(FABLE);
    conversation.system = json!([marked("You are a weather service."), marked("Be brief.")]);
    conversation.continue_at(gateway.url()).await;
    conversation.system = json!("You are a pirate.");
    conversation.messages[0] = json!({"role": "user", "content": [
        marked("What is the weather in Paris?"),
    ]});
    let last = conversation.messages.last_mut().unwrap();
    for text in ["One.", "Two.", "Three."] {
        last["content"].as_array_mut().unwrap().push(marked(text));
    }
    let answer = conversation.continue_at(gateway.url()).await;
    assert_eq!(answer.appended, 1);
    let (_, record) = gateway.get(&format!("/v1/throughline/calls/{}", answer.call)).await;
    let sent = record["sent"]["body"].to_string();
    assert_eq!(sent.matches("cache_control").count(), 4, "{sent}");
    assert_every_seal_accepted(&gateway.ledger().entries, FABLE);
}

/// A caller of another dialect drops all reasoning and changes its prompt and its tools.
#[tokio::test(flavor = "multi_thread")]
async fn changes_of_a_chat_client_are_appended() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let dialect = ClientDialect::Chat;
    let mut history = vec![dialect.user("What is the weather in Paris?")];
    let function = |name: &str| {
        let parameters = tool(name, "topic")["input_schema"].clone();
        json!({"type": "function", "function": {"name": name, "parameters": parameters}})
    };
    for request in 0..8 {
        let (path, mut body) = dialect.request(&format!("sim/{FABLE}"), &history, false);
        // Both changes happen inside a tool loop, where call ids identify the captured turns.
        let prompt = if request < 1 { "You are a weather service." } else { "You are a pirate." };
        let system = json!({"role": "system", "content": prompt});
        body["messages"].as_array_mut().unwrap().insert(0, system);
        if request >= 4 {
            body["tools"].as_array_mut().unwrap().remove(0);
            body["tools"].as_array_mut().unwrap().push(function("get_news"));
        }
        let (status, reply) = gateway.raw(&path, body.to_string().into_bytes(), &[]).await;
        assert_eq!(status, 200, "{request}: {reply}");
        let reply = dialect.answer(&reply);
        let calls = dialect.calls(&reply);
        history.extend(dialect.stripped(reply));
        if calls.is_empty() {
            history.push(dialect.user("And once more, please."));
        } else {
            history.extend(dialect.results(&calls));
        }
    }
    assert_every_seal_accepted(&gateway.ledger().entries, "chat");
}

/// Opens a gateway in front of a model that calls the removed tool in its second reply.
async fn open_disobedient() -> (SimGateway, Conversation) {
    let script = r#"
        [[turn]]
        step = 1
        parts = [{ thought = "Hm." }, { text = "One moment." }, { call = "get_weather" }]
    "#;
    let simulators = Options { script: script.parse().unwrap(), ..Options::default() };
    let gateway = SimGateway::open_with(GatewayOptions::of(ReplayMode::Repair), simulators).await;
    let mut conversation = Conversation::new(FABLE);
    conversation.continue_at(gateway.url()).await;
    conversation.tools.remove(0);
    (gateway, conversation)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_of_a_removed_tool_becomes_a_retryable_error() {
    let (gateway, mut conversation) = open_disobedient().await;
    let refused = conversation.send(gateway.url(), &[]).await;
    assert_eq!(refused.status, 502, "{}", refused.body);
    let message = refused.body["error"]["message"].as_str().unwrap();
    assert!(message.contains("called the tool `get_weather`"), "{message}");
    let (_, record) = gateway.get(&format!("/v1/throughline/calls/{}", refused.call)).await;
    assert_eq!(record["status"], 502, "{record}");
    // The script applies once, so the repeated request succeeds.
    assert_eq!(conversation.continue_at(gateway.url()).await.appended, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_streamed_call_of_a_removed_tool_ends_the_stream_with_an_error() {
    let (gateway, conversation) = open_disobedient().await;
    let mut body = conversation.body();
    body["stream"] = json!(true);
    let headers = [("content-type", "application/json"), ("anthropic-version", "2023-06-01")];
    let body = body.to_string().into_bytes();
    let (status, _, stream) = gateway.send("POST", "/v1/messages", body, &headers).await;
    let stream = String::from_utf8(stream.to_vec()).unwrap();
    assert_eq!(status, 200, "{stream}");
    let data = stream.lines().filter_map(|line| line.strip_prefix("data: "));
    let events = data.map(|data| serde_json::from_str::<Value>(data).unwrap());
    let texts = events.filter_map(|event| event["delta"]["text"].as_str().map(str::to_owned));
    assert_eq!(texts.collect::<String>(), "One moment.", "{stream}");
    assert!(!stream.contains("tool_use"), "{stream}");
    let (_, end) = stream.trim_end().rsplit_once("\n\n").unwrap();
    assert!(end.starts_with("event: error\n") && end.contains("`get_weather`"), "{stream}");
}

/// A reply that calls the first tool of a chat client.
const CALL: &str = r#"{"id":"msg_01A","type":"message","role":"assistant","model":"claude-fable-5-1","content":[{"type":"thinking","thinking":"Hm.","signature":"RXhhbXBsZQ=="},{"type":"tool_use","id":"toolu_017f3a9c21b0","name":"get_weather","input":{"city":"Paris"}}],"stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":1}}"#;

/// A provider may answer a streaming request with one JSON object. Its calls are checked too.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_of_a_removed_tool_in_a_whole_reply_ends_the_stream_with_an_error() {
    let router = Router::new().fallback(async || ([("content-type", "application/json")], CALL));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let options = GatewayOptions::of(ReplayMode::Repair);
    let (url, _journal, _folder) = serve(Arc::new(upstream(&address)), options).await;
    let dialect = ClientDialect::Chat;
    let mut history = vec![dialect.user("What is the weather in Paris?")];
    for keeps_tool in [true, false] {
        let (path, mut body) = dialect.request(&format!("sim/{FABLE}"), &history, !keeps_tool);
        if !keeps_tool {
            let removed = body["tools"].as_array_mut().unwrap().remove(0);
            assert_eq!(removed["function"]["name"], "get_weather");
        }
        let headers = [("content-type", "application/json")];
        let response = begin(&url, "POST", &path, body.to_string().into_bytes(), &headers).await;
        assert_eq!(response.status(), 200);
        let reply = response.into_body().collect().await.unwrap().to_bytes();
        if keeps_tool {
            let reply = dialect.answer(&serde_json::from_slice(&reply).unwrap());
            let calls = dialect.calls(&reply);
            history.extend(dialect.stripped(reply));
            history.extend(dialect.results(&calls));
            continue;
        }
        let stream = String::from_utf8(reply.to_vec()).unwrap();
        assert!(stream.contains("called the tool `get_weather`"), "{stream}");
        assert!(!stream.contains("tool_calls"), "{stream}");
    }
}
