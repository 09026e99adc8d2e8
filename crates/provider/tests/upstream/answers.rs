//! What comes back: exactly what was said, for as long as somebody listens.

use std::time::Duration;

use futures_util::StreamExt;
use throughline_core::{Answer, Upstream, UpstreamError, Waiting};
use throughline_provider::{EndpointOptions, Http};

use crate::server::{Does, Server, answer, begun, client, endpoint, key, outgoing, swift, whole};

async fn start(does: Vec<Does>, options: EndpointOptions) -> (Server, Http) {
    let server = Server::start(does).await;
    let http = client(endpoint("openai", &server.address, key("own")).with(options));
    (server, http)
}

async fn ask(http: &Http) -> Result<Answer, UpstreamError> {
    http.send(outgoing("/responses")).await
}

#[tokio::test]
async fn connections_are_used_again() {
    let (server, http) = start(vec![answer(200, "", "ok")], swift()).await;
    for _ in 0..3 {
        assert_eq!(whole(ask(&http).await.unwrap()).await.unwrap(), b"ok");
    }
    let connections: Vec<usize> = server.seen().iter().map(|seen| seen.connection).collect();
    assert_eq!(connections, [0, 0, 0]);
}

#[tokio::test]
async fn a_redirect_is_passed_back() {
    let headers = "location: http://169.254.169.254/\r\nx-twice: 1\r\nx-twice: 2\r\n";
    let (server, http) = start(vec![answer(307, headers, "there")], swift()).await;
    let answer = ask(&http).await.unwrap();
    assert_eq!(answer.status, 307);
    assert_eq!(answer.header("Location"), Some("http://169.254.169.254/"));
    let twice: Vec<&str> = answer
        .headers
        .iter()
        .filter(|(name, _)| **name == *"x-twice")
        .map(|(_, value)| &**value)
        .collect();
    assert_eq!(twice, ["1", "2"]);
    assert_eq!(whole(answer).await.unwrap(), b"there");
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn a_compressed_body_is_not_touched() {
    let gzip = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0xcb, 0x48, 0xcd, 0xc9, 0xc9, 7, 0, 0x86];
    let headers = "content-encoding: gzip\r\nconnection: keep-alive\r\n";
    let (_server, http) = start(vec![answer(200, headers, gzip)], swift()).await;
    let answer = ask(&http).await.unwrap();
    assert_eq!(answer.header("content-encoding"), Some("gzip"));
    assert_eq!(answer.header("content-length"), Some("18"));
    assert_eq!(answer.header("connection"), None);
    assert_eq!(whole(answer).await.unwrap(), gzip);
}

#[tokio::test]
async fn pieces_come_as_they_are_said_and_dropping_the_rest_ends_it_at_the_provider() {
    let (mut server, http) = start(vec![Does::Stalls(begun("first"))], swift()).await;
    let mut answer = ask(&http).await.unwrap();
    assert_eq!(answer.body.next().await.unwrap().unwrap(), "first");
    drop(answer);
    assert_eq!(server.gone.recv().await, Some(()));
}

#[tokio::test]
async fn who_gives_up_waiting_ends_it_at_the_provider_too() {
    let (mut server, http) = start(vec![Does::Stalls(Vec::new())], swift()).await;
    {
        let mut waiting = std::pin::pin!(ask(&http));
        while server.seen().is_empty() {
            let nothing = tokio::time::timeout(Duration::from_millis(1), &mut waiting).await;
            assert!(nothing.is_err(), "nothing was answered");
        }
    }
    assert_eq!(server.gone.recv().await, Some(()));
}

#[tokio::test]
async fn an_answer_that_does_not_begin_is_given_up_and_not_asked_for_again() {
    let limit = Duration::from_millis(300);
    let options = EndpointOptions { first_byte: limit, ..swift() };
    let (mut server, http) = start(vec![Does::Stalls(Vec::new())], options).await;
    let error = ask(&http).await.unwrap_err();
    let (endpoint, waiting) = ("here".into(), Waiting::FirstByte);
    assert_eq!(error, UpstreamError::TimedOut { endpoint, waiting, limit });
    assert_eq!(server.gone.recv().await, Some(()));
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn an_answer_that_does_not_go_on_is_given_up() {
    let limit = Duration::from_millis(50);
    let options = EndpointOptions { between_bytes: limit, ..swift() };
    let (mut server, http) = start(vec![Does::Stalls(begun("first"))], options).await;
    let mut answer = ask(&http).await.unwrap();
    assert_eq!(answer.body.next().await.unwrap().unwrap(), "first");
    let (endpoint, waiting) = ("here".into(), Waiting::NextByte);
    let late = UpstreamError::TimedOut { endpoint, waiting, limit };
    assert_eq!(answer.body.next().await, Some(Err(late)));
    assert_eq!(answer.body.next().await, None);
    assert_eq!(server.gone.recv().await, Some(()), "although the body was not dropped");
}

#[tokio::test]
async fn an_answer_that_is_cut_says_so_and_is_not_asked_for_again() {
    let (server, http) = start(vec![Does::Breaks(begun("first"))], swift()).await;
    let mut answer = ask(&http).await.unwrap();
    assert_eq!(answer.body.next().await.unwrap().unwrap(), "first");
    let cut = answer.body.next().await.unwrap().unwrap_err();
    assert!(matches!(cut, UpstreamError::Cut { .. }), "{cut}");
    assert_eq!(answer.body.next().await, None);
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn an_answer_may_be_as_large_as_the_limit_and_no_larger() {
    let options = EndpointOptions { largest_answer: 4, ..swift() };
    let does = vec![answer(200, "", "four"), answer(200, "", "more than four")];
    let (_server, http) = start(does, options).await;
    assert_eq!(whole(ask(&http).await.unwrap()).await.unwrap(), b"four");
    let error = whole(ask(&http).await.unwrap()).await.unwrap_err();
    assert_eq!(error, UpstreamError::TooLarge { endpoint: "here".into(), limit: 4 });
}

#[tokio::test]
async fn a_connection_that_does_not_come_about_is_given_up() {
    // The server waits for a request, and the client for the server's half of the handshake.
    let server = Server::start(vec![answer(200, "", "ok")]).await;
    let address = server.address.replace("http://", "https://");
    let limit = Duration::from_millis(30);
    let options = EndpointOptions { connect: limit, ..swift() };
    let http = client(endpoint("openai", &address, key("own")).with(options));
    let error = ask(&http).await.unwrap_err();
    let (endpoint, waiting) = ("here".into(), Waiting::Connecting);
    assert_eq!(error, UpstreamError::TimedOut { endpoint, waiting, limit });
    assert_eq!(server.seen().len(), 0);
}
