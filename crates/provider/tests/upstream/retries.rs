//! What is sent again, how often, and when an endpoint is left alone.

use std::time::Duration;

use throughline_core::{Answer, Outgoing, Upstream, UpstreamError};
use throughline_provider::{BreakerPolicy, EndpointOptions, Http, RetryPolicy};
use tokio::net::TcpListener;
use tokio::time::{Instant, advance, pause, resume};

use crate::server::{Does, Server, answer, client, endpoint, key, outgoing, swift, whole};

async fn start(does: Vec<Does>, options: EndpointOptions) -> (Server, Http) {
    let server = Server::start(does).await;
    let http = client(endpoint("anthropic", &server.address, key("own")).with(options));
    (server, http)
}

async fn ask(http: &Http) -> Result<Answer, UpstreamError> {
    http.send(outgoing("/v1/messages")).await
}

#[tokio::test]
async fn a_request_that_comes_too_early_is_sent_again_as_it_was() {
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
async fn the_last_answer_is_passed_on_untouched() {
    let (server, http) = start(vec![answer(503, "x-reason: full\r\n", "{\"e\":1}")], swift()).await;
    let answer = ask(&http).await.unwrap();
    assert_eq!((answer.status, answer.header("x-reason")), (503, Some("full")));
    assert_eq!(whole(answer).await.unwrap(), b"{\"e\":1}");
    assert_eq!(server.seen().len(), 3, "once, and two times more");
}

#[tokio::test]
async fn a_refusal_is_not_sent_again() {
    for status in [400, 401, 404, 409, 501] {
        let (server, http) = start(vec![answer(status, "", "no")], swift()).await;
        assert_eq!(ask(&http).await.unwrap().status, status);
        assert_eq!(server.seen().len(), 1, "{status}");
    }
}

#[tokio::test]
async fn the_wait_that_the_provider_asks_for_is_kept() {
    let does = vec![answer(429, "retry-after-ms: 120\r\n", ""), answer(200, "", "ok")];
    let (_server, http) = start(does, swift()).await;
    let began = Instant::now();
    assert_eq!(ask(&http).await.unwrap().status, 200);
    assert!(began.elapsed() >= Duration::from_millis(120));
}

#[tokio::test]
async fn a_wait_that_is_too_long_is_passed_on() {
    let (server, http) = start(vec![answer(429, "retry-after: 3600\r\n", "")], swift()).await;
    let answer = ask(&http).await.unwrap();
    assert_eq!((answer.status, answer.header("retry-after")), (429, Some("3600")));
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn a_connection_that_breaks_before_the_answer_is_an_error_unless_one_may_ask_again() {
    let does = vec![Does::Breaks(Vec::new()), answer(200, "", "ok")];
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
async fn a_server_that_is_not_there_cannot_be_reached() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let breaker = BreakerPolicy { failures: 3, pause: Duration::from_mins(1) };
    let http = client(
        endpoint("anthropic", &address, key("own")).with(EndpointOptions { breaker, ..swift() }),
    );
    let error = ask(&http).await.unwrap_err();
    assert!(matches!(error, UpstreamError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("refused"), "{error}");
    // It was tried three times, which is enough to leave it alone.
    let error = ask(&http).await.unwrap_err();
    assert!(matches!(error, UpstreamError::Resting { .. }), "{error}");
}

#[tokio::test]
async fn an_endpoint_that_keeps_failing_is_left_alone_until_one_request_succeeds() {
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
    assert_eq!(server.seen().len(), 2, "nothing was sent while it rested");
    assert_eq!(ask(&http).await.unwrap().status, 503, "one request sees whether it is back");
    rested(&http).await;
    assert_eq!(ask(&http).await.unwrap().status, 200);
    assert_eq!(ask(&http).await.unwrap().status, 200);
    assert_eq!(server.seen().len(), 5);
}

#[tokio::test]
async fn a_model_that_keeps_failing_does_not_stop_other_models() {
    let retry = RetryPolicy { retries: 0, ..swift().retry };
    let breaker = BreakerPolicy { failures: 2, pause: PAUSE };
    let options = EndpointOptions { retry, breaker, ..swift() };
    let does = vec![answer(500, "", "a"), answer(500, "", "a"), answer(200, "", "b")];
    let (server, http) = start(does, options).await;
    let asked = |model: &'static str| {
        http.send(Outgoing { model: Some(model.into()), ..outgoing("/v1/messages") })
    };
    assert_eq!(asked("failing").await.unwrap().status, 500);
    assert_eq!(asked("failing").await.unwrap().status, 500);
    let error = asked("failing").await.unwrap_err();
    assert!(matches!(error, UpstreamError::Resting { .. }), "{error}");
    assert_eq!(asked("working").await.unwrap().status, 200, "another model is asked");
    let error = asked("failing").await.unwrap_err();
    assert!(matches!(error, UpstreamError::Resting { .. }), "its success changes nothing: {error}");
    assert_eq!(server.seen().len(), 3);
}

#[tokio::test]
async fn failures_to_connect_stop_all_models_of_the_endpoint() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let retry = RetryPolicy { retries: 0, ..swift().retry };
    let breaker = BreakerPolicy { failures: 2, pause: PAUSE };
    let options = EndpointOptions { retry, breaker, ..swift() };
    let http = client(endpoint("anthropic", &address, key("own")).with(options));
    for model in ["one", "two", "three"] {
        let sent = http.send(Outgoing { model: Some(model.into()), ..outgoing("/v1/messages") });
        let error = sent.await.unwrap_err();
        let is_resting = matches!(error, UpstreamError::Resting { .. });
        assert_eq!(is_resting, model == "three", "{model}: {error}");
    }
}

const PAUSE: Duration = Duration::from_mins(1);

/// Asks while the endpoint rests, and moves the clock on by as long as the error says.
async fn rested(http: &Http) {
    let error = ask(http).await.unwrap_err();
    let UpstreamError::Resting { left, .. } = error else { panic!("{error}") };
    assert!(left <= PAUSE);
    pause();
    advance(left).await;
    resume();
}

#[tokio::test]
async fn when_it_opens_nothing_is_sent_again() {
    let breaker = BreakerPolicy { failures: 2, pause: Duration::from_mins(1) };
    let options = EndpointOptions { breaker, ..swift() };
    let (server, http) = start(vec![answer(503, "", "down")], options).await;
    assert_eq!(ask(&http).await.unwrap().status, 503);
    assert_eq!(server.seen().len(), 2);
}
