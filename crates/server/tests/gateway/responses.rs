//! Tests of stored responses, and of conversations that continue from them.

use crate::harness::{MODELS, SimGateway};
use serde_json::{Value, json};
use throughline_core::{LogId, Tenant};
use throughline_server::ReplayMode;

async fn create(gateway: &SimGateway, body: &Value) -> (u16, Value) {
    gateway.raw("/v1/responses", body.to_string().into_bytes(), &[]).await
}

async fn create_ok(gateway: &SimGateway, body: &Value) -> Value {
    let (status, response) = create(gateway, body).await;
    assert_eq!(status, 200, "{body} → {response}");
    response
}

fn id(response: &Value) -> String {
    response["id"].as_str().unwrap().to_owned()
}

async fn delete(gateway: &SimGateway, id: &str) -> (u16, Value) {
    let (status, _, body) =
        gateway.send("DELETE", &format!("/v1/responses/{id}"), Vec::new(), &[]).await;
    (status, serde_json::from_slice(&body).unwrap())
}

/// Sends a request; returns the call record and the response.
async fn create_recorded(gateway: &SimGateway, body: &Value) -> (Value, Value) {
    let (status, headers, answer) =
        gateway.send("POST", "/v1/responses", body.to_string().into_bytes(), &[]).await;
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(status, 200, "{answer}");
    let call = headers["x-throughline-call"].to_str().unwrap();
    let (_, record) = gateway.get(&format!("/v1/throughline/calls/{call}")).await;
    (record, answer)
}

/// A conversation can continue from a stored response with any provider, whichever provider
/// returned the response.
#[tokio::test(flavor = "multi_thread")]
async fn previous_response_id_works_across_providers() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let mut previous = Value::Null;
    let order = [0, 1, 1, 2, 3, 0, 1];
    for (number, model) in order.into_iter().map(|model| MODELS[model]).enumerate() {
        let question = format!("Question {number}");
        let body = json!({"model": model, "input": question, "previous_response_id": previous});
        let (record, response) = create_recorded(&gateway, &body).await;
        assert_eq!(record["received"]["body"], body, "{record:#}");
        assert_eq!(
            response["previous_response_id"].is_null(),
            number == 0 || number == 1 || number == 6
        );
        let sent = record["sent"]["body"].to_string();
        // The provider that stores the last response receives only new input; other providers
        // receive the whole conversation.
        let is_sent = |question: usize| sent.contains(&format!("Question {question}"));
        let is_home = number == 2;
        assert!(is_sent(number), "{record:#}");
        assert!((0..number).all(|earlier| is_sent(earlier) != is_home), "{number}: {record:#}");
        let path = format!("/v1/responses/{}/input_items?order=asc&limit=100", id(&response));
        let (_, listed) = gateway.get(&path).await;
        let listed = listed.to_string();
        assert!((0..=number).all(|earlier| listed.contains(&format!("Question {earlier}"))));
        previous = response["id"].clone();
    }
    gateway.assert_nothing_refused();
}

#[tokio::test(flavor = "multi_thread")]
async fn unstored_responses_cannot_be_continued() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    for model in MODELS {
        let unkept =
            create_ok(&gateway, &json!({"model": model, "input": "Hi", "store": false})).await;
        for previous in
            [id(&unkept), "resp_unknown".to_owned(), format!("resp_tl1{}", "x".repeat(32))]
        {
            let (status, _) = gateway.get(&format!("/v1/responses/{previous}")).await;
            assert_eq!(status, 404, "{model} {previous}");
            let body = json!({"model": model, "input": "Hi", "previous_response_id": previous});
            let (status, error) = create(&gateway, &body).await;
            // An open gateway forwards an id that the provider may have issued.
            let is_providers = model == MODELS[1] && !previous.starts_with("resp_tl");
            let expected = if is_providers { 400 } else { 404 };
            assert_eq!(status, expected, "{model} {previous}: {error}");
            let message = format!("Previous response with id '{previous}' not found.");
            let expected = json!({"error": {"message": message, "type": "invalid_request_error",
                "param": "previous_response_id", "code": "previous_response_not_found"}});
            assert_eq!(error, expected, "{model}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deleting_a_response_keeps_the_conversation() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    for model in MODELS {
        let first = id(&create_ok(&gateway, &json!({"model": model, "input": "One"})).await);
        let next = json!({"model": model, "input": "Two", "previous_response_id": first});
        let second = id(&create_ok(&gateway, &next).await);
        let (status, deleted) = delete(&gateway, &first).await;
        assert_eq!(status, 200, "{deleted}");
        assert_eq!(deleted, json!({"id": first, "object": "response", "deleted": true}));
        for path in [format!("/v1/responses/{first}"), format!("/v1/responses/{first}/input_items")]
        {
            assert_eq!(gateway.get(&path).await.0, 404, "{path}");
        }
        assert_eq!(delete(&gateway, &first).await.0, 404);
        assert_eq!(create(&gateway, &next).await.0, 404);
        let body = json!({"model": model, "input": "Three", "previous_response_id": second});
        create_ok(&gateway, &body).await;
    }
    gateway.assert_nothing_refused();
}

#[tokio::test(flavor = "multi_thread")]
async fn response_belongs_to_its_end_user() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    for model in [MODELS[0], MODELS[1]] {
        let body = json!({"model": model, "input": "Hi", "safety_identifier": "ann"});
        let first = id(&create_ok(&gateway, &body).await);
        let next = |user: &str| json!({"model": model, "input": "On", "previous_response_id": first, "safety_identifier": user});
        assert_eq!(create(&gateway, &next("bob")).await.0, 404);
        create_ok(&gateway, &next("ann")).await;
        // A header can name the end-user of any request.
        let body =
            json!({"model": model, "input": "On", "previous_response_id": first}).to_string();
        for (user, expected) in [("ann", 200), ("bob", 404)] {
            let headers = [("x-throughline-user", user)];
            let body = body.clone().into_bytes();
            assert_eq!(gateway.raw("/v1/responses", body, &headers).await.0, expected, "{user}");
        }
    }
}

/// Forgotten content does not remain in stored responses.
#[tokio::test(flavor = "multi_thread")]
async fn forgetting_a_conversation_removes_its_responses() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let (record, response) =
        create_recorded(&gateway, &json!({"model": MODELS[0], "input": "Hi"})).await;
    let thread = LogId::from(record["thread"].as_str().unwrap());
    let path = format!("/v1/responses/{}", id(&response));
    assert_eq!(gateway.get(&path).await.0, 200);
    gateway.journal().forget(&Tenant::from("default"), &thread, None).await.unwrap();
    assert_eq!(gateway.get(&path).await.0, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_list_parameters_are_refused() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let response = id(&create_ok(&gateway, &json!({"model": MODELS[0], "input": "Hi"})).await);
    let (status, error) =
        gateway.get(&format!("/v1/responses/{response}/input_items?limit=0")).await;
    assert_eq!(
        (status, &error["error"]["message"]),
        (400, &json!("`limit` must be from 1 to 100"))
    );
}

/// Sends a request without `store`, complete or streamed. Returns the call record and the output
/// items.
async fn output(
    gateway: &SimGateway,
    model: &str,
    input: &Value,
    stream: bool,
) -> (Value, Vec<Value>) {
    let body =
        json!({"model": model, "input": input, "stream": stream, "reasoning": {"summary": "auto"}});
    let (status, headers, answer) =
        gateway.send("POST", "/v1/responses", body.to_string().into_bytes(), &[]).await;
    let text = String::from_utf8_lossy(&answer).into_owned();
    assert_eq!(status, 200, "{model}: {text}");
    let response = if stream {
        let last = text.lines().filter_map(|line| line.strip_prefix("data: ")).next_back().unwrap();
        serde_json::from_str::<Value>(last).unwrap()["response"].clone()
    } else {
        serde_json::from_str(&text).unwrap()
    };
    let call = headers["x-throughline-call"].to_str().unwrap();
    let (_, record) = gateway.get(&format!("/v1/throughline/calls/{call}")).await;
    (record, response["output"].as_array().unwrap().clone())
}

fn references(output: &[Value]) -> Vec<Value> {
    let ids = output.iter().map(|item| &item["id"]);
    ids.map(|id| json!({"type": "item_reference", "id": id})).collect()
}

fn text_of(output: &[Value]) -> String {
    let message = output.iter().find(|item| item["type"] == "message").unwrap();
    message["content"][0]["text"].as_str().unwrap().to_owned()
}

/// The provider that issued an item receives the item reference unchanged. Other providers receive
/// the item itself.
#[tokio::test(flavor = "multi_thread")]
async fn item_references_are_resolved_for_every_target() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let mut resolved = 0;
    for stream in [false, true] {
        for issuer in MODELS {
            let question = json!([{"role": "user", "content": "Hi"}]);
            let (_, items) = output(&gateway, issuer, &question, stream).await;
            let mut input = vec![json!({"role": "user", "content": "Hi"})];
            input.extend(references(&items));
            input.push(json!({"role": "user", "content": "More"}));
            for target in MODELS {
                let (record, _) = output(&gateway, target, &json!(input), stream).await;
                let sent = record["sent"]["body"].to_string();
                let label = format!("{issuer} → {target}, streamed {stream}: {record:#}");
                assert!(!sent.contains("resp_tl1"), "{label}");
                assert_eq!(record["audit"], "accept", "{label}");
                let is_home = issuer == MODELS[1] && target == issuer;
                assert_eq!(sent.contains("item_reference"), is_home, "{label}");
                if is_home {
                    assert_eq!(record["sent"]["body"]["input"], json!(input), "{label}");
                } else {
                    assert!(sent.contains(&text_of(&items)), "{label}");
                    resolved += references(&items).len();
                }
            }
        }
    }
    gateway.assert_nothing_refused();
    // Every provider that received its own thoughts by reference accepted them.
    let ledger = gateway.ledger();
    let accepted =
        ledger.returned().filter(|back| back.verdict == throughline_sim::Verdict::Accepted);
    throughline_testkit::figure(
        "item references",
        format!(
            "{resolved} resolved from the store, {} own seals returned, 0 refused",
            accepted.count()
        ),
    );
}

/// `previous_response_id` still works if the previous response contained references to a response
/// that was deleted.
#[tokio::test(flavor = "multi_thread")]
async fn references_work_after_their_response_was_deleted() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let first = create_ok(&gateway, &json!({"model": MODELS[0], "input": "Hi"})).await;
    let output = first["output"].as_array().unwrap().clone();
    let mut input = vec![json!({"role": "user", "content": "Hi"})];
    input.extend(references(&output));
    input.push(json!({"role": "user", "content": "More"}));
    let second = create_ok(&gateway, &json!({"model": MODELS[3], "input": input})).await;
    assert_eq!(delete(&gateway, &id(&first)).await.0, 200);
    let body = json!({"model": MODELS[2], "input": "On", "previous_response_id": id(&second)});
    let (record, _) = create_recorded(&gateway, &body).await;
    assert!(record["sent"]["body"].to_string().contains(&text_of(&output)), "{record:#}");
    gateway.assert_nothing_refused();
}

/// A reference is refused if neither the gateway's store nor the target provider can resolve it.
#[tokio::test(flavor = "multi_thread")]
async fn unknown_item_references_are_rejected() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let kept =
        create_ok(&gateway, &json!({"model": MODELS[0], "input": "Hi", "user": "ann"})).await;
    let unkept =
        create_ok(&gateway, &json!({"model": MODELS[0], "input": "Hi", "store": false})).await;
    let deleted = create_ok(&gateway, &json!({"model": MODELS[0], "input": "Hi"})).await;
    delete(&gateway, &id(&deleted)).await;
    let item = |response: &Value| response["output"][0]["id"].as_str().unwrap().to_owned();
    let forged = format!("rs_resp_tl1{}_0", "x".repeat(32));
    let before = gateway.requests();
    for (model, id) in [
        (MODELS[0], item(&kept)),
        (MODELS[1], item(&kept)),
        (MODELS[1], item(&unkept)),
        (MODELS[2], item(&unkept)),
        (MODELS[1], item(&deleted)),
        (MODELS[3], item(&deleted)),
        (MODELS[1], forged.clone()),
        (MODELS[0], "msg_68f0a1b2c3d4e5f6".to_owned()),
    ] {
        // The type of a reference is optional.
        for reference in [json!({"type": "item_reference", "id": id}), json!({"id": id})] {
            let input = json!([{"role": "user", "content": "Hi"}, reference]);
            let (status, error) = create(&gateway, &json!({"model": model, "input": input})).await;
            assert_eq!(status, 404, "{model} {id}: {error}");
            let message = error["error"]["message"].as_str().unwrap();
            assert!(message.starts_with(&format!("Item with id '{id}' not found.")), "{message}");
        }
    }
    assert_eq!(gateway.requests(), before, "the simulators get none of these");
    let input = json!([{"role": "user", "content": "Hi"}, {"type": "item_reference", "id": item(&kept)},
                       {"role": "user", "content": "More"}]);
    create_ok(&gateway, &json!({"model": MODELS[1], "input": input, "user": "ann"})).await;
}
