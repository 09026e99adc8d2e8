//! Tests of the credentials that are sent, and of client headers that must not be forwarded.

use throughline_core::{Credential, Upstream, UpstreamError, UpstreamRequest};
use throughline_provider::{AwsKeys, CredentialSource};

use crate::server::{ReceivedRequest, Server, client, endpoint, key, outgoing, response};

/// Headers in which clients send keys, and hop-by-hop headers.
const CALLERS: [(&str, &str); 11] = [
    ("Authorization", "Bearer callers"),
    ("X-Api-Key", "callers"),
    ("api-key", "callers"),
    ("x-goog-api-key", "callers"),
    ("X-Amz-Security-Token", "callers"),
    ("Cookie", "callers=1"),
    ("Host", "gateway.example"),
    ("Connection", "keep-alive, x-callers"),
    ("Content-Length", "7777"),
    ("anthropic-beta", "one"),
    ("x-title", "Zürich"),
];

const KEY_HEADERS: [&str; 6] =
    ["authorization", "x-api-key", "api-key", "x-goog-api-key", "x-amz-security-token", "cookie"];

/// Sends a request with all client headers and returns the request that the server received.
async fn received_request(
    row: &str,
    credential: CredentialSource,
    callers: Option<&str>,
) -> ReceivedRequest {
    let server = Server::start(vec![response(200, "", "ok")]).await;
    let mut request = outgoing("/path?query=1");
    let more = CALLERS.iter().map(|(name, value)| ((*name).into(), (*value).into()));
    request.headers.extend(more);
    request.credential = callers.map(Credential::new);
    let base = format!("{}/base", server.address);
    client(endpoint(row, &base, credential)).send(request).await.unwrap();
    server.requests().remove(0)
}

fn keys(request: &ReceivedRequest) -> Vec<(&str, &str)> {
    let is_key = |name: &str| KEY_HEADERS.contains(&name);
    let keys = request.headers.iter().filter(|(name, _)| is_key(name));
    keys.map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

#[tokio::test]
async fn each_scheme_uses_its_header_and_drops_client_keys() {
    for (row, name, value) in [
        ("anthropic", "x-api-key", "own"),
        ("openai", "authorization", "Bearer own"),
        ("openai-chat", "authorization", "Bearer own"),
        ("openrouter", "authorization", "Bearer own"),
        ("azure", "api-key", "own"),
        ("gemini", "x-goog-api-key", "own"),
        ("vertex", "x-goog-api-key", "own"),
        ("bedrock", "authorization", "Bearer own"),
        ("ollama", "authorization", "Bearer own"),
    ] {
        let request = received_request(row, key("own"), Some("callers")).await;
        assert_eq!(keys(&request), [(name, value)], "{row}");
    }
}

#[tokio::test]
async fn client_key_is_sent_in_the_endpoints_scheme() {
    for (row, callers, name, value) in [
        ("anthropic", "theirs", "x-api-key", "theirs"),
        ("anthropic", "sk-ant-oat01-x", "authorization", "Bearer sk-ant-oat01-x"),
        ("anthropic", "eyJ0.x.y", "x-api-key", "eyJ0.x.y"),
        ("deepseek-anthropic", "ya29.x", "x-api-key", "ya29.x"),
        ("azure-anthropic", "eyJ0.x.y", "authorization", "Bearer eyJ0.x.y"),
        ("vertex-anthropic", "ya29.x", "authorization", "Bearer ya29.x"),
        ("anthropic-google", "ya29.x", "authorization", "Bearer ya29.x"),
        ("openai", "theirs", "authorization", "Bearer theirs"),
        ("azure", "theirs", "api-key", "theirs"),
        ("azure", "eyJ0.x.y", "authorization", "Bearer eyJ0.x.y"),
        ("gemini", "theirs", "x-goog-api-key", "theirs"),
        ("vertex", "ya29.x", "authorization", "Bearer ya29.x"),
        ("bedrock", "theirs", "authorization", "Bearer theirs"),
    ] {
        let request = received_request(row, CredentialSource::Caller, Some(callers)).await;
        assert_eq!(keys(&request), [(name, value)], "{row}");
    }
    assert_eq!(keys(&received_request("ollama", CredentialSource::Open, None).await), []);
}

#[tokio::test]
async fn other_headers_are_forwarded_unchanged() {
    let request = received_request("anthropic", key("own"), None).await;
    assert_eq!(request.request_line, "POST /base/path?query=1 HTTP/1.1");
    assert_eq!(request.body, b"{\"a\": 1}");
    assert_eq!(request.all("anthropic-beta"), ["one"]);
    assert_eq!(request.all("x-title"), ["Zürich"]);
    assert_eq!(request.all("content-type"), ["application/json"]);
    assert_eq!(request.all("content-length"), ["8"]);
    assert_eq!(request.all("connection"), [""; 0]);
    assert_eq!(request.all("accept-encoding"), [""; 0], "no compression was requested");
    assert!(request.all("host")[0].starts_with("127.0.0.1:"));
}

#[tokio::test]
async fn bedrock_requests_are_signed_with_aws_keys() {
    // The host contains no region, so the keys' region applies.
    for (configured, region) in [(None, "us-east-1"), (Some("eu-west-1"), "eu-west-1")] {
        let aws = AwsKeys {
            id: "AKIDEXAMPLE".into(),
            secret: Credential::new("secret"),
            session_token: Some(Credential::new("token")),
            region: configured.map(Into::into),
        };
        let request =
            received_request("bedrock", CredentialSource::Aws(aws), Some("callers")).await;
        assert_eq!(request.all("x-amz-date"), ["20261115T120000Z"]);
        assert_eq!(request.all("x-amz-security-token"), ["token"]);
        let [authorization] = request.all("authorization")[..] else { panic!("one signature") };
        let signed = format!(
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20261115/{region}/bedrock/aws4_request, \
             SignedHeaders=content-type;host;x-amz-date;x-amz-security-token, Signature="
        );
        let signature = authorization.strip_prefix(&signed).unwrap();
        assert_eq!(signature.len(), 64);
    }
}

#[tokio::test]
async fn request_without_required_key_is_rejected() {
    let server = Server::start(vec![response(200, "", "ok")]).await;
    let error = client(endpoint("deepseek", &server.address, CredentialSource::Caller))
        .send(outgoing("/chat/completions"))
        .await
        .unwrap_err();
    let variable = Some("DEEPSEEK_API_KEY".into());
    assert_eq!(error, UpstreamError::NoCredential { endpoint: "here".into(), variable });
    // A client's key is never used if the endpoint's own key is missing.
    let missing = CredentialSource::Missing("$WORK_KEY is not set".into());
    let mut request = outgoing("/chat/completions");
    request.credential = Some(Credential::new("callers"));
    let error = client(endpoint("deepseek", &server.address, missing)).send(request).await;
    let problem = "$WORK_KEY is not set".into();
    assert_eq!(error.unwrap_err(), UpstreamError::Invalid { endpoint: "here".into(), problem });
    assert_eq!(server.requests().len(), 0);
}

#[tokio::test]
async fn unconfigured_endpoint_is_unknown() {
    let request = UpstreamRequest { endpoint: "elsewhere".into(), ..outgoing("/") };
    let http = client(endpoint("openai", "http://localhost", key("own")));
    let error = http.send(request).await.unwrap_err();
    assert_eq!(error, UpstreamError::UnknownEndpoint { endpoint: "elsewhere".into() });
}

#[tokio::test]
async fn metadata_services_are_refused_by_name_and_by_address() {
    for (base, address) in [
        ("http://169.254.169.254/latest", "169.254.169.254"),
        ("http://2852039166", "169.254.169.254"),
        ("http://[fe80::1]:8080", "[fe80::1]"),
        ("http://[fd00:ec2::254]", "[fd00:ec2::254]"),
        ("http://metadata.google.internal", "metadata.google.internal"),
    ] {
        let http = client(endpoint("ollama", base, key("own")));
        let error = http.send(outgoing("/chat/completions")).await.unwrap_err();
        let refused = UpstreamError::Refused { endpoint: "here".into(), address: address.into() };
        assert_eq!(error, refused, "{base}");
    }
}

/// Account headers are forwarded only with the client's own key.
#[tokio::test]
async fn account_headers_require_the_clients_own_key() {
    const ACCOUNTS: [&str; 3] = ["openai-organization", "openai-project", "x-goog-user-project"];
    for (credential, callers, is_forwarded) in [
        (key("own"), Some("callers"), false),
        (key("own"), None, false),
        (CredentialSource::Open, None, false),
        (CredentialSource::Open, Some("callers"), true),
        (CredentialSource::Caller, Some("callers"), true),
    ] {
        let server = Server::start(vec![response(200, "", "ok")]).await;
        let mut request = outgoing("/path");
        request.headers.extend(ACCOUNTS.map(|name| (name.into(), "theirs".into())));
        request.credential = callers.map(Credential::new);
        client(endpoint("openai", &server.address, credential)).send(request).await.unwrap();
        let received = server.requests().remove(0);
        for name in ACCOUNTS {
            let is_present = received.headers.iter().any(|(known, _)| known == name);
            assert_eq!(is_present, is_forwarded, "{name}");
        }
    }
}
