//! Tests of messages to agents and their replies: whole, streamed and listed.

use serde_json::{Value, json};

use crate::letta::scene::{AgentGateway, kinds, user_message};

/// Returns a validator for Letta's JSON Schema of a reasoning message.
fn lettas_schema() -> jsonschema::Validator {
    let schema =
        include_str!("../../../../spec/tests/fixtures/letta-reasoning-message.schema.json");
    let schema = serde_json::from_str(schema).unwrap();
    jsonschema::options().should_validate_formats(true).build(&schema).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn reasoning_messages_are_valid_under_lettas_schema() {
    let gateway = AgentGateway::open().await;
    let agent = gateway.agent(&json!({})).await;
    let answer = gateway.send_message(&agent, "What is the weather?").await;
    let path = format!("/v1/agents/{agent}/messages");
    let list = gateway.request("GET", &path, &json!(null)).await;
    let schema = lettas_schema();
    for messages in [&answer["messages"], &list] {
        let is_reasoning = |one: &&Value| one["message_type"] == "reasoning_message";
        let reasoning: Vec<_> = messages.as_array().unwrap().iter().filter(is_reasoning).collect();
        assert_eq!(reasoning.len(), 4, "{messages}");
        for message in reasoning {
            let problem = schema.iter_errors(message).next().map(|error| error.to_string());
            assert_eq!(problem, None, "{message}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answer_contains_all_message_types_with_one_signature_per_thought() {
    let gateway = AgentGateway::open().await;
    let agent = gateway.agent(&json!({})).await;
    let response = gateway.send_message(&agent, "What is the weather?").await;
    let messages = &response["messages"];
    assert_eq!(
        kinds(messages),
        [
            "reasoning_message",
            "reasoning_message",
            "tool_call_message",
            "tool_return_message",
            "reasoning_message",
            "reasoning_message",
            "assistant_message",
        ]
    );
    let signatures: Vec<&Value> =
        messages.as_array().unwrap().iter().map(|one| &one["signature"]).collect();
    assert_eq!(signatures[0], "signature-0-0");
    assert_eq!(signatures[1], "signature-0-1");
    assert_ne!(signatures[4], signatures[5]);
    assert_eq!(messages[0]["source"], "reasoner_model");
    assert_eq!(messages[0]["reasoning"], "Let me see.");
    assert_eq!(messages[2]["tool_call"]["name"], "get_weather");
    assert_eq!(messages[2]["tool_calls"][0], messages[2]["tool_call"]);
    assert_eq!(messages[3]["status"], "success");
    assert_eq!(messages[3]["tool_call_id"], messages[2]["tool_call"]["tool_call_id"]);
    assert_eq!(messages[6]["content"], "That is what the tools say.");
    // An answer and the results of its calls form one step.
    assert_eq!(messages[0]["step_id"], messages[3]["step_id"]);
    assert_ne!(messages[0]["step_id"], messages[6]["step_id"]);
    let date = messages[0]["date"].as_str().unwrap();
    assert!(date.ends_with("+00:00") && !date.contains('.'), "dates are to the second: {date}");
    assert_eq!(response["stop_reason"]["stop_reason"], "end_turn");
    assert_eq!(response["usage"]["step_count"], 2);
    assert_eq!(response["usage"]["total_tokens"], 220);
    assert_eq!(*gateway.ran.lock().unwrap(), [r#"get_weather {"city":"Paris"}"#]);

    // The list returns the same messages under the same ids, after the user's message.
    let path = format!("/v1/agents/{agent}/messages?order=asc");
    let list = gateway.request("GET", &path, &json!(null)).await;
    assert_eq!(list[0]["message_type"], "user_message");
    let bare = |message: &Value| {
        let mut message = message.clone();
        message.as_object_mut().unwrap().remove("seq_id");
        message
    };
    let answered: Vec<Value> = messages.as_array().unwrap().iter().map(bare).collect();
    assert_eq!(list.as_array().unwrap()[1..], answered);
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_are_paged_in_both_orders() {
    let gateway = AgentGateway::open().await;
    let agent = gateway.agent(&json!({})).await;
    for number in 0..3 {
        gateway.send_message(&agent, &format!("Hello {number}")).await;
    }
    let path = format!("/v1/agents/{agent}/messages");
    let all = gateway.request("GET", &format!("{path}?order=asc"), &json!(null)).await;
    let all = all.as_array().unwrap().clone();
    assert_eq!(all.len(), 12);
    for order in ["asc", "desc"] {
        let mut expected = all.clone();
        if order == "desc" {
            expected.reverse();
        }
        let (mut found, mut after) = (Vec::new(), String::new());
        loop {
            let page = format!("{path}?order={order}&limit=5&after={after}");
            let page = gateway.request("GET", &page, &json!(null)).await;
            let page = page.as_array().unwrap().clone();
            let Some(last) = page.last() else { break };
            after = last["id"].as_str().unwrap().to_owned();
            found.extend(page);
        }
        assert_eq!(found, expected);
        let third = expected[3]["id"].as_str().unwrap();
        let before = format!("{path}?order={order}&limit=2&before={third}");
        let page = gateway.request("GET", &before, &json!(null)).await;
        assert_eq!(page.as_array().unwrap()[..], expected[1..3]);
    }
    let texts = format!("{path}?include_return_message_types=assistant_message");
    let texts = gateway.request("GET", &texts, &json!(null)).await;
    assert_eq!(kinds(&texts), ["assistant_message"; 3]);
    for query in ["limit=0", "limit=x", "order=up"] {
        let (status, error) =
            gateway.try_request("GET", &format!("{path}?{query}"), &json!(null)).await;
        assert_eq!(status, 422, "{error}");
    }
}

/// Joins deltas into one text per message.
fn joined(frames: &[Value]) -> Vec<(String, String, String)> {
    let mut joined: Vec<(String, String, String)> = Vec::new();
    for frame in frames {
        let kind = frame["message_type"].as_str().unwrap().to_owned();
        let Some(text) = frame["reasoning"].as_str().or(frame["content"].as_str()) else {
            continue;
        };
        let id = frame["id"].as_str().unwrap().to_owned();
        match joined.iter_mut().find(|(known, of, _)| *known == id && *of == kind) {
            Some((_, _, text_so_far)) => text_so_far.push_str(text),
            None => joined.push((id, kind, text.to_owned())),
        }
    }
    joined
}

#[tokio::test(flavor = "multi_thread")]
async fn deltas_are_streamed_on_request() {
    let gateway = AgentGateway::open().await;
    let agent = gateway.agent(&json!({})).await;
    let path = format!("/v1/agents/{agent}/messages/stream");
    let stream = gateway.stream(&path, &user_message("What is the weather?")).await;
    let frames: Value = stream.clone().into();
    assert_eq!(
        kinds(&frames)[..4],
        ["reasoning_message", "reasoning_message", "tool_call_message", "tool_return_message"]
    );
    assert_eq!(kinds(&frames)[7..], ["stop_reason", "usage_statistics"]);
    let mut body = user_message("What is the weather, piece by piece?");
    body["stream_tokens"] = json!(true);
    let pieces = gateway.stream(&path, &body).await;
    assert!(pieces.len() > stream.len(), "{pieces:#?}");
    // The joined deltas equal the listed messages, under the same ids.
    let list = format!("/v1/agents/{agent}/messages?order=asc");
    let list = gateway.request("GET", &list, &json!(null)).await;
    let list = list.as_array().unwrap();
    let of_run: Vec<Value> =
        list.iter().filter(|one| one["run_id"] == pieces[0]["run_id"]).cloned().collect();
    let mut expected = joined(&of_run);
    expected.retain(|(_, kind, _)| kind != "user_message");
    assert_eq!(joined(&pieces), expected);
    // Each thought has its own signature, once.
    let signed: Vec<(&Value, &Value)> = pieces
        .iter()
        .filter(|frame| frame["signature"].is_string())
        .map(|frame| (&frame["id"], &frame["signature"]))
        .collect();
    let kept: Vec<(&Value, &Value)> = of_run
        .iter()
        .filter(|one| one["signature"].is_string())
        .map(|one| (&one["id"], &one["signature"]))
        .collect();
    assert_eq!(signed, kept);
    assert_eq!(signed.len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_resumes_from_any_sequence_number() {
    let gateway = AgentGateway::open().await;
    let agent = gateway.agent(&json!({})).await;
    let mut body = user_message("What is the weather?");
    body["background"] = json!(true);
    body["stream_tokens"] = json!(true);
    let stream = gateway.stream(&format!("/v1/agents/{agent}/messages/stream"), &body).await;
    let run = stream[0]["run_id"].as_str().unwrap();
    let numbers: Vec<u64> = stream.iter().map(|frame| frame["seq_id"].as_u64().unwrap()).collect();
    let counted: Vec<u64> = (1..=stream.len() as u64).collect();
    assert_eq!(numbers, counted, "numbered from 1 without a gap");
    for after in 0..=stream.len() {
        let rest = gateway
            .stream(&format!("/v1/runs/{run}/stream"), &json!({"starting_after": after}))
            .await;
        assert_eq!(rest, stream[after..], "after {after}");
        let of = format!("/v1/conversations/{agent}/stream");
        let rest = gateway.stream(&of, &json!({"starting_after": after, "run_id": run})).await;
        assert_eq!(rest, stream[after..], "after {after}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_stream_sends_pings() {
    let gateway = AgentGateway::open().await;
    let agent = gateway.agent(&json!({})).await;
    let path = format!("/v1/agents/{agent}/messages/stream");
    let body = user_message("Be slow, please.").to_string().into_bytes();
    let headers = [("authorization", "Bearer tl_us"), ("content-type", "application/json")];
    let response = crate::harness::begin(&gateway.url, "POST", &path, body, &headers).await;
    let mut body = response.into_body();
    let mut text = String::new();
    while !text.contains("\"ping\"") {
        let frame = http_body_util::BodyExt::frame(&mut body).await.unwrap().unwrap();
        text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
    }
    gateway.permits.add_permits(1);
    while !text.contains("[DONE]") {
        let frame = http_body_util::BodyExt::frame(&mut body).await.unwrap().unwrap();
        text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
    }
    assert!(text.contains("You said: Be slow"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_messages_are_refused() {
    let gateway = AgentGateway::open().await;
    let agent = gateway.agent(&json!({})).await;
    let path = format!("/v1/agents/{agent}/messages");
    for (body, message) in [
        (json!({}), "Must specify either"),
        (json!({"input": "a", "messages": []}), "Cannot specify both"),
        (json!({"messages": []}), "messages: is empty"),
        (json!({"messages": [{"role": "assistant", "content": "x"}]}), "messages.0.role"),
        (json!({"messages": [{"role": "user"}]}), "messages.0.content"),
        (json!({"messages": [{"role": "user", "content": [{"type": "sound"}]}]}), "content.0"),
        (json!({"messages": [{"type": "approval", "approvals": []}]}), "is empty"),
        (json!({"input": "x", "throughline": {"ctxx": {}}}), "throughline: unknown field `ctxx`"),
        (json!({"input": "x", "throughline": 5}), "throughline: must be an object"),
        (
            json!({"messages": [{"role": "user", "content": "x", "ephemeral": true}]}),
            "messages: contains only ephemeral messages; add one that is kept",
        ),
        (
            json!({"messages": [
                {"role": "user", "content": "a", "otid": "same"},
                {"role": "user", "content": "b", "otid": "same"},
            ]}),
            "the otid same is repeated",
        ),
    ] {
        let (status, error) = gateway.try_request("POST", &path, &body).await;
        assert_eq!(status, 422, "{error}");
        assert!(error["detail"].as_str().unwrap().contains(message), "{error}");
    }
    let list = gateway.request("GET", &path, &json!(null)).await;
    assert_eq!(list, json!([]), "no message was stored");
}

#[tokio::test(flavor = "multi_thread")]
async fn retried_request_starts_one_run() {
    let gateway = AgentGateway::open().await;
    let agent = gateway.agent(&json!({})).await;
    let path = format!("/v1/agents/{agent}/messages");
    let body = json!({"messages": [{"role": "user", "content": "weather", "otid": "one"}]});
    let first = gateway.request("POST", &path, &body).await;
    let again = gateway.request("POST", &path, &body).await;
    assert_eq!(again, first);
    assert_eq!(gateway.ran.lock().unwrap().len(), 1, "the tool ran once");
    let list = gateway.request("GET", &format!("{path}?order=asc"), &json!(null)).await;
    assert_eq!(list[0]["otid"], "one", "a message keeps its otid");
    assert_eq!(list.as_array().unwrap().len(), 8);

    // Other content under the same otid is not a retry.
    let other = json!({"messages": [{"role": "user", "content": "Hello", "otid": "one"}]});
    let (status, error) = gateway.try_request("POST", &path, &other).await;
    assert_eq!(status, 409, "{error}");
    let detail = error["detail"].as_str().unwrap();
    assert!(detail.starts_with("otid one was used before with other content"), "{detail}");
    assert_eq!(
        gateway.request("POST", &path, &body).await,
        first,
        "the first content is still a retry"
    );

    // The values of `ctx` are part of the content.
    let mut other = body.clone();
    other["throughline"] = json!({"ctx": {"customer": 1}});
    let (status, error) = gateway.try_request("POST", &path, &other).await;
    assert_eq!(status, 409, "{error}");

    // The otid of an ephemeral message also identifies the request.
    let hinted = json!({"messages": [
        {"role": "user", "content": "Be brief.", "ephemeral": true, "otid": "hint"},
        {"role": "user", "content": "Hello"},
    ]});
    let first = gateway.request("POST", &path, &hinted).await;
    assert_eq!(gateway.request("POST", &path, &hinted).await, first);
    let list = gateway.request("GET", &format!("{path}?order=asc"), &json!(null)).await;
    let hello = list.as_array().unwrap().iter().find(|one| one["content"] == "Hello").unwrap();
    assert_ne!(hello["otid"], "hint", "the message itself has another otid");

    // A retry also works while the run is active.
    let slow = json!({"messages": [{"role": "user", "content": "slow", "otid": "two"}]});
    let run = gateway.request("POST", &format!("{path}/async"), &slow).await;
    assert_eq!(run["status"], "running");
    assert_eq!(gateway.request("POST", &format!("{path}/async"), &slow).await["id"], run["id"]);
    let (status, error) =
        gateway.try_request("POST", &path, &crate::letta::scene::user_message("other")).await;
    assert_eq!(status, 409, "{error}");
    assert_eq!(error["detail"]["code"], "CONVERSATION_BUSY");
    assert_eq!(error["detail"]["run_id"], run["id"], "the run is named");
    gateway.permits.add_permits(1);
    let response = gateway.request("POST", &path, &slow).await;
    assert_eq!(response["stop_reason"]["stop_reason"], "end_turn");
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_name_their_sender_their_otid_and_failures() {
    let gateway = AgentGateway::open().await;
    let agent = gateway.agent(&json!({"name": "Ada"})).await;
    let path = format!("/v1/agents/{agent}/messages");
    let message = |name: &str| {
        json!({"messages": [
            {"role": "user", "content": "What is the weather?", "name": name,
             "sender_id": "identity-1", "otid": "one"},
        ]})
    };
    let response = gateway.request("POST", &path, &message("Bob")).await;
    let list = gateway.request("GET", &format!("{path}?order=asc"), &json!(null)).await;
    let list = list.as_array().unwrap();
    let head = |message: &Value| {
        [&message["name"], &message["sender_id"], &message["is_err"]].map(Clone::clone)
    };
    assert_eq!(head(&list[0]), [json!("Bob"), json!("identity-1"), json!(false)]);
    assert_eq!(list[0]["otid"], "one");
    let mut otids = std::collections::HashSet::new();
    for message in list {
        let kind = message["message_type"].as_str().unwrap();
        let expected = match kind {
            "user_message" => continue,
            "tool_return_message" => [json!("get_weather"), json!(null), json!(false)],
            _ => [json!("Ada"), json!(agent), json!(false)],
        };
        assert_eq!(head(message), expected, "{message}");
        assert!(otids.insert(message["otid"].as_str().unwrap()), "{message}");
    }
    assert_eq!(otids.len(), 7);
    assert_eq!(response["messages"][0]["otid"], list[1]["otid"]);
    // The name is part of the content that the otid identifies.
    let (status, error) = gateway.try_request("POST", &path, &message("Eve")).await;
    assert_eq!(status, 409, "{error}");

    // All pieces of a streamed message have the members of the whole message.
    let mut body = user_message("What is the weather, piece by piece?");
    body["stream_tokens"] = json!(true);
    let pieces = gateway.stream(&format!("{path}/stream"), &body).await;
    let list = gateway.request("GET", &path, &json!(null)).await;
    for piece in pieces.iter().filter(|piece| piece["message_type"] == "reasoning_message") {
        let whole = list.as_array().unwrap().iter().find(|one| one["id"] == piece["id"]).unwrap();
        for member in ["name", "sender_id", "is_err", "otid", "source"] {
            assert_eq!(piece[member], whole[member], "{member} of {piece}");
        }
    }
    // The model calls a tool that this agent does not have.
    let failed = gateway.send_message(&agent, "What does the clock say?").await;
    let returned = &failed["messages"][3];
    assert_eq!((&returned["status"], &returned["is_err"]), (&json!("error"), &json!(true)));
}

#[tokio::test(flavor = "multi_thread")]
async fn reflections_are_reasoning_of_a_non_reasoner_model() {
    let gateway = AgentGateway::open().await;
    let reflection =
        json!({"cadence": "after_tool", "promptTemplate": "Hello, note it.", "keepLast": 0});
    let reasoning = json!({"level": "low", "reflection": reflection});
    let agent = gateway.agent(&json!({"throughline": {"reasoning": reasoning}})).await;
    let response = gateway.send_message(&agent, "What is the weather?").await;
    let messages = response["messages"].as_array().unwrap();
    let notes: Vec<&Value> =
        messages.iter().filter(|one| one["source"] == "non_reasoner_model").collect();
    let [note] = notes[..] else { panic!("{messages:#?}") };
    assert_eq!(note["message_type"], "reasoning_message");
    assert_eq!(note["reasoning"], "You said: Hello, note it.");
    assert_eq!(note["sender_id"], agent);
    let natives = messages.iter().filter(|one| one["source"] == "reasoner_model").count();
    assert_eq!(natives, 4, "native Thoughts keep their source");
    // The list contains the note after the tool result that it is about.
    let path = format!("/v1/agents/{agent}/messages?order=asc");
    let list = gateway.request("GET", &path, &json!(null)).await;
    let ids = |list: &[Value]| list.iter().map(|one| one["id"].clone()).collect::<Vec<_>>();
    assert_eq!(ids(&list.as_array().unwrap()[1..]), ids(messages));
}
