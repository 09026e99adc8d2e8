//! Tests of retries and circuit breakers.

use std::time::Duration;

use throughline_core::{Upstream, UpstreamError, UpstreamRequest, UpstreamResponse};
use throughline_provider::{BreakerPolicy, EndpointOptions, Http, RetryPolicy};
use tokio::net::TcpListener;
use tokio::time::{Instant, advance, pause, resume};

use crate::server::{Reaction, Server, answer, client, endpoint, key, outgoing, swift, whole};

async fn start(does: Vec<Reaction>, options: EndpointOptions) -> (Server, Http) {
    let server = Server::start(does).await;
    let http = client(endpoint("anthropic", &server.address, key("own")).with_options(options));
    (server, http)
}

async fn ask(http: &Http) -> Result<UpstreamResponse, UpstreamError> {
    http.send(outgoing("/v1/messages")).await
}

#[tokio::test]
async fn rate_limited_request_is_retried_unchanged() {
    let does = vec![answer(529, "", "busy"), answer(429, "", "slow"), answer(200, "", "ok")];
    let (server, http) = start(does, swift()).await;
    let answer = ask(&http).await.unwrap();
    assert_eq!(answer.status, 200);
    assert_eq!(whole(answer).await.unwrap(), b"ok");
    let seen = server.seen();
    assert_eq!(seen.len(), 3);
    for again in &seen {
        assert_eq!((&again.line, &again.body), (&seen[0].line, &seen[0].body));
        assert_eq!(again.all("x-api-key"), ["own"]);
    }
}

#[tokio::test]
async fn last_response_is_returned_unchanged() {
    let (server, http) = start(vec![answer(503, "x-reason: full\r\n", "{\"e\":1}")], swift()).await;
    let answer = ask(&http).await.unwrap();
    assert_eq!((answer.status, answer.header("x-reason")), (503, Some("full")));
    assert_eq!(whole(answer).await.unwrap(), b"{\"e\":1}");
    assert_eq!(server.seen().len(), 3, "one request and two retries");
}

#[tokio::test]
async fn rejected_request_is_not_retried() {
    for status in [400, 401, 404, 409, 501] {
        let (server, http) = start(vec![answer(status, "", "no")], swift()).await;
        assert_eq!(ask(&http).await.unwrap().status, status);
        assert_eq!(server.seen().len(), 1, "{status}");
    }
}

#[tokio::test]
async fn requested_delay_is_respected() {
    let does = vec![answer(429, "retry-after-ms: 120\r\n", ""), answer(200, "", "ok")];
    let (_server, http) = start(does, swift()).await;
    let began = Instant::now();
    assert_eq!(ask(&http).await.unwrap().status, 200);
    assert!(began.elapsed() >= Duration::from_millis(120));
}

#[tokio::test]
async fn too_long_delay_returns_the_response() {
    let (server, http) = start(vec![answer(429, "retry-after: 3600\r\n", "")], swift()).await;
    let answer = ask(&http).await.unwrap();
    assert_eq!((answer.status, answer.header("retry-after")), (429, Some("3600")));
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn broken_connection_is_retried_only_if_allowed() {
    let does = vec![Reaction::Breaks(Vec::new()), answer(200, "", "ok")];
    let (server, http) = start(does.clone(), swift()).await;
    let error = ask(&http).await.unwrap_err();
    assert!(matches!(error, UpstreamError::Cut { .. }), "{error}");
    assert_eq!(server.seen().len(), 1);

    let retry = RetryPolicy { resend_when_cut: true, ..swift().retry };
    let (server, http) = start(does, EndpointOptions { retry, ..swift() }).await;
    assert_eq!(ask(&http).await.unwrap().status, 200);
    assert_eq!(server.seen().len(), 2);
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
    let error = ask(&http).await.unwrap_err();
    assert!(matches!(error, UpstreamError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("refused"), "{error}");
    // Three failed attempts open the breaker.
    let error = ask(&http).await.unwrap_err();
    assert!(matches!(error, UpstreamError::Resting { .. }), "{error}");
}

#[tokio::test]
async fn breaker_stays_open_until_a_probe_succeeds() {
    let retry = RetryPolicy { retries: 0, ..swift().retry };
    let breaker = BreakerPolicy { failures: 2, pause: PAUSE };
    let options = EndpointOptions { retry, breaker, ..swift() };
    let does = vec![
        answer(500, "", "a"),
        answer(502, "", "b"),
        answer(503, "", "still down"),
        answer(200, "", "back"),
    ];
    let (server, http) = start(does, options).await;
    assert_eq!(ask(&http).await.unwrap().status, 500);
    assert_eq!(ask(&http).await.unwrap().status, 502);
    rested(&http).await;
    assert_eq!(server.seen().len(), 2, "nothing was sent while the breaker was open");
    assert_eq!(ask(&http).await.unwrap().status, 503, "one request probes the endpoint");
    rested(&http).await;
    assert_eq!(ask(&http).await.unwrap().status, 200);
    assert_eq!(ask(&http).await.unwrap().status, 200);
    assert_eq!(server.seen().len(), 5);
}

#[tokio::test]
async fn failing_model_does_not_block_other_models() {
    let retry = RetryPolicy { retries: 0, ..swift().retry };
    let breaker = BreakerPolicy { failures: 2, pause: PAUSE };
    let options = EndpointOptions { retry, breaker, ..swift() };
    let does = vec![answer(500, "", "a"), answer(500, "", "a"), answer(200, "", "b")];
    let (server, http) = start(does, options).await;
    let asked = |model: &'static str| {
        http.send(UpstreamRequest { model: Some(model.into()), ..outgoing("/v1/messages") })
    };
    assert_eq!(asked("failing").await.unwrap().status, 500);
    assert_eq!(asked("failing").await.unwrap().status, 500);
    let error = asked("failing").await.unwrap_err();
    assert!(matches!(error, UpstreamError::Resting { .. }), "{error}");
    assert_eq!(asked("working").await.unwrap().status, 200, "another model still works");
    let error = asked("failing").await.unwrap_err();
    assert!(
        matches!(error, UpstreamError::Resting { .. }),
        "the breaker of the model stays open: {error}"
    );
    assert_eq!(server.seen().len(), 3);
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
        let sent =
            http.send(UpstreamRequest { model: Some(model.into()), ..outgoing("/v1/messages") });
        let error = sent.await.unwrap_err();
        let is_resting = matches!(error, UpstreamError::Resting { .. });
        assert_eq!(is_resting, model == "three", "{model}: {error}");
    }
}

const PAUSE: Duration = Duration::from_mins(1);

/// Sends a request while the breaker is open, then advances the clock by the delay in the error.
async fn rested(http: &Http) {
    let error = ask(http).await.unwrap_err();
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
    let (server, http) = start(vec![answer(503, "", "down")], options).await;
    assert_eq!(ask(&http).await.unwrap().status, 503);
    assert_eq!(server.seen().len(), 2);
}
