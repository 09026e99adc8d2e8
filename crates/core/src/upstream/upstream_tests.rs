//! Tests for the port's debug output and error messages.

use std::time::Duration;

use bytes::Bytes;

use super::{Credential, TimeoutPhase, UpstreamError, UpstreamRequest};

#[test]
fn debug_output_hides_keys_and_body() {
    let outgoing = UpstreamRequest {
        endpoint: "gemini".into(),
        model: None,
        method: "POST".into(),
        path: "/v1beta/models/m:generateContent?key=canary".into(),
        headers: vec![("authorization".into(), "Bearer canary".into())],
        body: Bytes::from_static(b"canary"),
        credential: Some(Credential::new("canary")),
    };
    let debug = format!("{outgoing:?}");
    assert!(!debug.contains("canary"), "{debug}");
    assert!(debug.contains("models/m:generateContent"), "{debug}");
    assert_eq!(outgoing.credential.as_ref().map(Credential::reveal), Some("canary"));
}

#[test]
fn only_requests_that_were_sent_may_be_charged() {
    let (endpoint, cause) = (|| "openai".into(), || "reset".into());
    let timed_out = |waiting| UpstreamError::TimedOut {
        endpoint: "openai".into(),
        waiting,
        limit: Duration::from_secs(1),
    };
    for (error, expected) in [
        (timed_out(TimeoutPhase::Connecting), false),
        (timed_out(TimeoutPhase::FirstByte), true),
        (timed_out(TimeoutPhase::NextByte), true),
        (UpstreamError::Cut { endpoint: endpoint(), cause: cause() }, true),
        (UpstreamError::Unreachable { endpoint: endpoint(), cause: cause() }, false),
        (UpstreamError::TooLarge { endpoint: endpoint(), limit: 1 }, true),
        (UpstreamError::UnknownEndpoint { endpoint: endpoint() }, false),
    ] {
        assert_eq!(error.may_be_charged(), expected, "{error}");
    }
}

#[test]
fn errors_explain_how_to_fix_them() {
    let missing = |variable: Option<&str>| UpstreamError::NoCredential {
        endpoint: "openai".into(),
        variable: variable.map(Into::into),
    };
    assert_eq!(
        missing(Some("OPENAI_API_KEY")).to_string(),
        "no API key for openai; set OPENAI_API_KEY or send a key with the request"
    );
    assert_eq!(
        missing(None).to_string(),
        "no API key for openai; configure a key or send one with the request"
    );
    let slow = UpstreamError::TimedOut {
        endpoint: "openai".into(),
        waiting: TimeoutPhase::NextByte,
        limit: Duration::from_secs(90),
    };
    assert_eq!(slow.to_string(), "openai took more than 90 s to continue its response");
    let resting =
        UpstreamError::Resting { endpoint: "xai".into(), left: Duration::from_millis(250) };
    assert_eq!(resting.to_string(), "xai failed repeatedly; the next request is allowed in 250 ms");
}
