//! Tests that keys never appear in `Debug` output or in errors.

use std::fmt::Debug;
use std::time::Duration;

use throughline_core::{Credential, Upstream, UpstreamError, UpstreamRequest};
use throughline_provider::{AwsKeys, CredentialSource, EndpointOptions};
use tokio::net::TcpListener;

use crate::server::{
    Reaction, Server, client, endpoint, key, outgoing, read_body, response, swift,
};

const CANARY: &str = "sk-canary-7d1f";

fn assert_no_secrets(value: &(impl Debug + ?Sized)) {
    let text = format!("{value:?} {value:#?}");
    assert!(!text.contains("canary"), "{text}");
}

fn sources() -> Vec<CredentialSource> {
    let aws = AwsKeys {
        id: "AKID".into(),
        secret: Credential::new(CANARY),
        session_token: Some(Credential::new(CANARY)),
        region: None,
    };
    vec![key(CANARY), CredentialSource::Aws(aws), CredentialSource::Caller]
}

/// Builds a request with keys in every position where clients send them.
fn request() -> UpstreamRequest {
    let mut request = outgoing(&format!("/v1beta/models/m:generateContent?key={CANARY}"));
    request.headers.push(("authorization".into(), format!("Bearer {CANARY}").into()));
    request.credential = Some(Credential::new(CANARY));
    request
}

#[tokio::test]
async fn debug_output_hides_keys() {
    let server =
        Server::start(vec![response(200, &format!("set-cookie: {CANARY}\r\n"), "ok")]).await;
    for source in sources() {
        assert_no_secrets(&source);
        let endpoint = endpoint("gemini", &server.address, source);
        assert_no_secrets(&endpoint);
        let http = client(endpoint);
        assert_no_secrets(&http);
        assert_no_secrets(&request());
        assert_no_secrets(&http.send(request()).await.unwrap());
    }
    let lines: Vec<String> =
        server.requests().into_iter().map(|request| request.request_line).collect();
    assert_eq!(lines, ["POST /v1beta/models/m:generateContent HTTP/1.1"; 3]);
}

#[tokio::test]
async fn errors_hide_keys() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let unknown = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    let breaks = Server::start(vec![Reaction::Breaks(Vec::new())]).await;
    let garbles = Server::start(vec![Reaction::Breaks(b"canary what\r\n\r\n".to_vec())]).await;
    let stalls = Server::start(vec![Reaction::Stalls(Vec::new())]).await;
    let first_byte = Duration::from_millis(20);
    let options = EndpointOptions { first_byte, largest_answer: 0, ..swift() };
    let large = Server::start(vec![response(200, "", "canary")]).await;
    let tls = breaks.address.replace("http:", "https:");
    let addresses = [
        unknown.as_str(),
        &breaks.address,
        &garbles.address,
        &stalls.address,
        &large.address,
        &tls,
        "http://169.254.169.254",
        "http://nowhere.invalid",
    ];
    for address in addresses {
        for source in sources() {
            let http = client(endpoint("gemini", address, source).with_options(options));
            let error = match http.send(request()).await {
                Ok(response) => read_body(response).await.unwrap_err(),
                Err(error) => error,
            };
            assert_no_secrets(&error);
            assert_no_secrets(&error.to_string());
        }
    }
}

#[tokio::test]
async fn malformed_key_is_hidden() {
    for source in [key("canary\n"), CredentialSource::Caller] {
        let http = client(endpoint("openai", "http://127.0.0.1:1", source));
        let mut request = outgoing("/responses");
        request.credential = Some(Credential::new("canary\n"));
        let error = http.send(request).await.unwrap_err();
        assert!(matches!(error, UpstreamError::Invalid { .. }), "{error}");
        assert_no_secrets(&error.to_string());
    }
    let http = client(endpoint("openai", "http://127.0.0.1:1", key("own")));
    let mut request = outgoing("/responses");
    request.headers.push(("x-note".into(), "canary\n".into()));
    let error = http.send(request).await.unwrap_err();
    let problem = "the header \"x-note\" is malformed".into();
    assert_eq!(error, UpstreamError::Invalid { endpoint: "here".into(), problem });
}
