//! Tests of responses: exact bytes, timeouts, size limits and cancellation.

use std::time::Duration;

use futures_util::StreamExt;
use throughline_core::{TimeoutPhase, Upstream, UpstreamError, UpstreamResponse};
use throughline_provider::{EndpointOptions, Http};

use crate::server::{
    Reaction, Server, chunked_start, client, endpoint, key, outgoing, read_body, response, swift,
};

async fn start(reactions: Vec<Reaction>, options: EndpointOptions) -> (Server, Http) {
    let server = Server::start(reactions).await;
    let http = client(endpoint("openai", &server.address, key("own")).with_options(options));
    (server, http)
}

async fn send_request(http: &Http) -> Result<UpstreamResponse, UpstreamError> {
    http.send(outgoing("/responses")).await
}

#[tokio::test]
async fn connections_are_reused() {
    let (server, http) = start(vec![response(200, "", "ok")], swift()).await;
    for _ in 0..3 {
        assert_eq!(read_body(send_request(&http).await.unwrap()).await.unwrap(), b"ok");
    }
    let connections: Vec<usize> =
        server.requests().iter().map(|request| request.connection).collect();
    assert_eq!(connections, [0, 0, 0]);
}

#[tokio::test]
async fn redirect_is_returned_unfollowed() {
    let headers = "location: http://169.254.169.254/\r\nx-twice: 1\r\nx-twice: 2\r\n";
    let (server, http) = start(vec![response(307, headers, "there")], swift()).await;
    let response = send_request(&http).await.unwrap();
    assert_eq!(response.status, 307);
    assert_eq!(response.header("Location"), Some("http://169.254.169.254/"));
    let twice: Vec<&str> = response
        .headers
        .iter()
        .filter(|(name, _)| **name == *"x-twice")
        .map(|(_, value)| &**value)
        .collect();
    assert_eq!(twice, ["1", "2"]);
    assert_eq!(read_body(response).await.unwrap(), b"there");
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn compressed_body_is_passed_through() {
    let gzip = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0xcb, 0x48, 0xcd, 0xc9, 0xc9, 7, 0, 0x86];
    let headers = "content-encoding: gzip\r\nconnection: keep-alive\r\n";
    let (_server, http) = start(vec![response(200, headers, gzip)], swift()).await;
    let response = send_request(&http).await.unwrap();
    assert_eq!(response.header("content-encoding"), Some("gzip"));
    assert_eq!(response.header("content-length"), Some("18"));
    assert_eq!(response.header("connection"), None);
    assert_eq!(read_body(response).await.unwrap(), gzip);
}

#[tokio::test]
async fn chunks_arrive_immediately_and_dropping_the_body_cancels_the_request() {
    let (mut server, http) = start(vec![Reaction::Stalls(chunked_start("first"))], swift()).await;
    let mut response = send_request(&http).await.unwrap();
    assert_eq!(response.body.next().await.unwrap().unwrap(), "first");
    drop(response);
    assert_eq!(server.disconnects.recv().await, Some(()));
}

#[tokio::test]
async fn dropping_the_future_cancels_the_request() {
    let (mut server, http) = start(vec![Reaction::Stalls(Vec::new())], swift()).await;
    {
        let mut waiting = std::pin::pin!(send_request(&http));
        while server.requests().is_empty() {
            let outcome = tokio::time::timeout(Duration::from_millis(1), &mut waiting).await;
            assert!(outcome.is_err(), "there was no response");
        }
    }
    assert_eq!(server.disconnects.recv().await, Some(()));
}

#[tokio::test]
async fn first_byte_timeout_is_not_retried() {
    let limit = Duration::from_millis(300);
    let options = EndpointOptions { first_byte: limit, ..swift() };
    let (mut server, http) = start(vec![Reaction::Stalls(Vec::new())], options).await;
    let error = send_request(&http).await.unwrap_err();
    let (endpoint, waiting) = ("here".into(), TimeoutPhase::FirstByte);
    assert_eq!(error, UpstreamError::TimedOut { endpoint, waiting, limit });
    assert_eq!(server.disconnects.recv().await, Some(()));
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn stalled_body_times_out() {
    let limit = Duration::from_millis(50);
    let options = EndpointOptions { between_bytes: limit, ..swift() };
    let (mut server, http) = start(vec![Reaction::Stalls(chunked_start("first"))], options).await;
    let mut response = send_request(&http).await.unwrap();
    assert_eq!(response.body.next().await.unwrap().unwrap(), "first");
    let (endpoint, waiting) = ("here".into(), TimeoutPhase::NextByte);
    let timed_out = UpstreamError::TimedOut { endpoint, waiting, limit };
    assert_eq!(response.body.next().await, Some(Err(timed_out)));
    assert_eq!(response.body.next().await, None);
    assert_eq!(server.disconnects.recv().await, Some(()), "although the body was not dropped");
}

#[tokio::test]
async fn truncated_body_is_an_error_and_not_retried() {
    let (server, http) = start(vec![Reaction::Breaks(chunked_start("first"))], swift()).await;
    let mut response = send_request(&http).await.unwrap();
    assert_eq!(response.body.next().await.unwrap().unwrap(), "first");
    let cut = response.body.next().await.unwrap().unwrap_err();
    assert!(matches!(cut, UpstreamError::Cut { .. }), "{cut}");
    assert_eq!(response.body.next().await, None);
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn response_size_limit_is_inclusive() {
    let options = EndpointOptions { largest_answer: 4, ..swift() };
    let reactions = vec![response(200, "", "four"), response(200, "", "more than four")];
    let (_server, http) = start(reactions, options).await;
    assert_eq!(read_body(send_request(&http).await.unwrap()).await.unwrap(), b"four");
    let error = read_body(send_request(&http).await.unwrap()).await.unwrap_err();
    assert_eq!(error, UpstreamError::TooLarge { endpoint: "here".into(), limit: 4 });
}

#[tokio::test]
async fn connect_timeout_is_reported() {
    // The server waits for a request while the client waits for a TLS handshake.
    let server = Server::start(vec![response(200, "", "ok")]).await;
    let address = server.address.replace("http://", "https://");
    let limit = Duration::from_millis(30);
    let options = EndpointOptions { connect: limit, ..swift() };
    let http = client(endpoint("openai", &address, key("own")).with_options(options));
    let error = send_request(&http).await.unwrap_err();
    let (endpoint, waiting) = ("here".into(), TimeoutPhase::Connecting);
    assert_eq!(error, UpstreamError::TimedOut { endpoint, waiting, limit });
    assert_eq!(server.requests().len(), 0);
}
