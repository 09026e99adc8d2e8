//! Tests the headers that name the provider and the model that answered.

use hyper::HeaderMap;
use serde_json::json;
use throughline_server::ReplayMode;

use crate::harness::{ClientDialect, MODELS, QUESTION, SimGateway, begin};
use crate::websocket::{TestSocket, created, request, user};

/// The endpoint that serves each of [`MODELS`].
const PROVIDERS: [&str; 4] = ["sim-anthropic", "sim-openai", "sim-gemini", "sim-deepseek"];

/// A script with which the simulators refuse every request.
const REFUSALS: &str =
    "[[turn]]\nrefuse = { status = 429, message = \"Slow down.\" }\ntimes = \"always\"\n";

async fn set_script(gateway: &SimGateway, script: &str) {
    let body = script.as_bytes().to_vec();
    let response = begin(&gateway.simulator_url(), "PUT", "/sim/script", body, &[]).await;
    assert_eq!(response.status(), 204);
}

fn named(headers: &HeaderMap) -> [Option<&str>; 2] {
    ["x-throughline-provider", "x-throughline-model"]
        .map(|name| headers.get(name).map(|value| value.to_str().unwrap()))
}

/// Returns the headers that name the provider of a model, and the model as the provider knows it.
fn expected(model: &'static str, provider: &'static str) -> [Option<&'static str>; 2] {
    [Some(provider), model.strip_prefix("sim/")]
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_streams_and_provider_errors_name_the_provider() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    for (script, expected_status) in [("", 200), (REFUSALS, 429)] {
        set_script(&gateway, script).await;
        for dialect in ClientDialect::ALL {
            for (model, provider) in MODELS.into_iter().zip(PROVIDERS) {
                for stream in [false, true] {
                    let label = format!("{dialect:?} → {model}, streamed {stream}");
                    let (path, body) = dialect.request(model, &[dialect.user(QUESTION)], stream);
                    let body = body.to_string().into_bytes();
                    let own = [("content-type", "application/json")];
                    let (status, headers, _) = gateway.send("POST", &path, body, &own).await;
                    let found = (status, named(&headers));
                    assert_eq!(found, (expected_status, expected(model, provider)), "{label}");
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn token_counts_name_the_provider_that_counted() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let messages = json!([{"role": "user", "content": "Hello"}]);
    for (model, provider) in MODELS.into_iter().zip(PROVIDERS) {
        let body = json!({"model": model, "messages": messages}).to_string().into_bytes();
        let own = [("content-type", "application/json")];
        let (status, headers, _) =
            gateway.send("POST", "/v1/messages/count_tokens", body, &own).await;
        assert_eq!(status, 200, "{model}");
        let is_counted = headers["x-throughline-count"] == "counted";
        let expected = if is_counted { expected(model, provider) } else { [None; 2] };
        assert_eq!((named(&headers), is_counted), (expected, !model.contains("deepseek")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_a_socket_name_the_provider() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    for (model, provider) in MODELS.into_iter().zip(PROVIDERS) {
        let body = request(model, &[user(QUESTION)], None);
        let mut socket = TestSocket::open(gateway.url()).await;
        socket.send(&created(&body)).await;
        let first = socket.until("response.created").await;
        assert_eq!(first["headers"]["x-throughline-provider"], provider, "{first}");
        assert_eq!(first["headers"]["x-throughline-model"], &model[4..], "{first}");
        let call = first["headers"]["x-throughline-call"].as_str().unwrap().to_owned();
        let last = socket.until("response.completed").await;
        assert!(last.get("headers").is_none(), "only the first event has headers: {last}");
        let (status, record) = gateway.get(&format!("/v1/throughline/calls/{call}")).await;
        assert_eq!(status, 200, "{record}");
        set_script(&gateway, REFUSALS).await;
        let error = socket.create_refused(&body).await;
        set_script(&gateway, "").await;
        assert_eq!(error["headers"]["x-throughline-provider"], provider, "{error}");
        assert_eq!(error["headers"]["x-throughline-model"], &model[4..], "{error}");
    }
}
