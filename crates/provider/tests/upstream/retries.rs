//! Tests of retries and circuit breakers.

use std::time::Duration;

use throughline_core::{Upstream, UpstreamError, UpstreamRequest, UpstreamResponse};
use throughline_provider::{BreakerPolicy, EndpointOptions, Http, RetryPolicy};
use tokio::net::TcpListener;
use tokio::time::{Instant, advance, pause, resume};

use crate::server::{
    Reaction, Server, client, endpoint, key, outgoing, read_body, response, swift,
};

async fn start(reactions: Vec<Reaction>, options: EndpointOptions) -> (Server, Http) {
    let server = Server::start(reactions).await;
    let http = client(endpoint("anthropic", &server.address, key("own")).with_options(options));
    (server, http)
}

async fn send_request(http: &Http) -> Result<UpstreamResponse, UpstreamError> {
    http.send(outgoing("/v1/messages")).await
}

#[tokio::test]
async fn rate_limited_request_is_retried_unchanged() {
    let reactions =
        vec![response(529, "", "busy"), response(429, "", "slow"), response(200, "", "ok")];
    let (server, http) = start(reactions, swift()).await;
    let response = send_request(&http).await.unwrap();
    assert_eq!(response.status, 200);
    assert_eq!(read_body(response).await.unwrap(), b"ok");
    let requests = server.requests();
    assert_eq!(requests.len(), 3);
    for request in &requests {
        assert_eq!(
            (&request.request_line, &request.body),
            (&requests[0].request_line, &requests[0].body)
        );
        assert_eq!(request.all("x-api-key"), ["own"]);
    }
}

#[tokio::test]
async fn last_response_is_returned_unchanged() {
    let (server, http) =
        start(vec![response(503, "x-reason: full\r\n", "{\"e\":1}")], swift()).await;
    let response = send_request(&http).await.unwrap();
    assert_eq!((response.status, response.header("x-reason")), (503, Some("full")));
    assert_eq!(read_body(response).await.unwrap(), b"{\"e\":1}");
    assert_eq!(server.requests().len(), 3, "one request and two retries");
}

#[tokio::test]
async fn rejected_request_is_not_retried() {
    for status in [400, 401, 404, 409, 501] {
        let (server, http) = start(vec![response(status, "", "no")], swift()).await;
        assert_eq!(send_request(&http).await.unwrap().status, status);
        assert_eq!(server.requests().len(), 1, "{status}");
    }
}

#[tokio::test]
async fn requested_delay_is_respected() {
    let reactions = vec![response(429, "retry-after-ms: 120\r\n", ""), response(200, "", "ok")];
    let (_server, http) = start(reactions, swift()).await;
    let began = Instant::now();
    assert_eq!(send_request(&http).await.unwrap().status, 200);
    assert!(began.elapsed() >= Duration::from_millis(120));
}

#[tokio::test]
async fn too_long_delay_returns_the_response() {
    let (server, http) = start(vec![response(429, "retry-after: 3600\r\n", "")], swift()).await;
    let response = send_request(&http).await.unwrap();
    assert_eq!((response.status, response.header("retry-after")), (429, Some("3600")));
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn broken_connection_is_retried_only_if_allowed() {
    let reactions = vec![Reaction::Breaks(Vec::new()), response(200, "", "ok")];
    let (server, http) = start(reactions.clone(), swift()).await;
    let error = send_request(&http).await.unwrap_err();
    assert!(matches!(error, UpstreamError::Cut { .. }), "{error}");
    assert_eq!(server.requests().len(), 1);

    let retry = RetryPolicy { resend_when_cut: true, ..swift().retry };
    let (server, http) = start(reactions, EndpointOptions { retry, ..swift() }).await;
    assert_eq!(send_request(&http).await.unwrap().status, 200);
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn missing_server_is_unreachable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let breaker = BreakerPolicy { failures: 3, pause: Duration::from_mins(1) };
    let http = client(
        endpoint("anthropic", &address, key("own"))
            .with_options(EndpointOptions { breaker, ..swift() }),
    );
    let error = send_request(&http).await.unwrap_err();
    assert!(matches!(error, UpstreamError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("refused"), "{error}");
    // Three failed attempts open the breaker.
    let error = send_request(&http).await.unwrap_err();
    assert!(matches!(error, UpstreamError::Resting { .. }), "{error}");
}

#[tokio::test]
async fn breaker_stays_open_until_a_probe_succeeds() {
    let retry = RetryPolicy { retries: 0, ..swift().retry };
    let breaker = BreakerPolicy { failures: 2, pause: PAUSE };
    let options = EndpointOptions { retry, breaker, ..swift() };
    let reactions = vec![
        response(500, "", "a"),
        response(502, "", "b"),
        response(503, "", "still down"),
        response(200, "", "back"),
    ];
    let (server, http) = start(reactions, options).await;
    assert_eq!(send_request(&http).await.unwrap().status, 500);
    assert_eq!(send_request(&http).await.unwrap().status, 502);
    wait_for_breaker(&http).await;
    assert_eq!(server.requests().len(), 2, "nothing was sent while the breaker was open");
    assert_eq!(send_request(&http).await.unwrap().status, 503, "one request probes the endpoint");
    wait_for_breaker(&http).await;
    assert_eq!(send_request(&http).await.unwrap().status, 200);
    assert_eq!(send_request(&http).await.unwrap().status, 200);
    assert_eq!(server.requests().len(), 5);
}

#[tokio::test]
async fn failing_model_does_not_block_other_models() {
    let retry = RetryPolicy { retries: 0, ..swift().retry };
    let breaker = BreakerPolicy { failures: 2, pause: PAUSE };
    let options = EndpointOptions { retry, breaker, ..swift() };
    let reactions = vec![response(500, "", "a"), response(500, "", "a"), response(200, "", "b")];
    let (server, http) = start(reactions, options).await;
    let send_to = |model: &'static str| {
        http.send(UpstreamRequest { model: Some(model.into()), ..outgoing("/v1/messages") })
    };
    assert_eq!(send_to("failing").await.unwrap().status, 500);
    assert_eq!(send_to("failing").await.unwrap().status, 500);
    let error = send_to("failing").await.unwrap_err();
    assert!(matches!(error, UpstreamError::Resting { .. }), "{error}");
    assert_eq!(send_to("working").await.unwrap().status, 200, "another model still works");
    let error = send_to("failing").await.unwrap_err();
    assert!(
        matches!(error, UpstreamError::Resting { .. }),
        "the breaker of the model stays open: {error}"
    );
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn connection_failures_block_all_models_of_the_endpoint() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let retry = RetryPolicy { retries: 0, ..swift().retry };
    let breaker = BreakerPolicy { failures: 2, pause: PAUSE };
    let options = EndpointOptions { retry, breaker, ..swift() };
    let http = client(endpoint("anthropic", &address, key("own")).with_options(options));
    for model in ["one", "two", "three"] {
        let response =
            http.send(UpstreamRequest { model: Some(model.into()), ..outgoing("/v1/messages") });
        let error = response.await.unwrap_err();
        let is_resting = matches!(error, UpstreamError::Resting { .. });
        assert_eq!(is_resting, model == "three", "{model}: {error}");
    }
}

const PAUSE: Duration = Duration::from_mins(1);

/// Sends a request while the breaker is open, then advances the clock by the delay in the error.
async fn wait_for_breaker(http: &Http) {
    let error = send_request(http).await.unwrap_err();
    let UpstreamError::Resting { left, .. } = error else { panic!("{error}") };
    assert!(left <= PAUSE);
    pause();
    advance(left).await;
    resume();
}

#[tokio::test]
async fn opening_the_breaker_stops_retries() {
    let breaker = BreakerPolicy { failures: 2, pause: Duration::from_mins(1) };
    let options = EndpointOptions { breaker, ..swift() };
    let (server, http) = start(vec![response(503, "", "down")], options).await;
    assert_eq!(send_request(&http).await.unwrap().status, 503);
    assert_eq!(server.requests().len(), 2);
}
