//! Tests that some paths, methods and headers are never forwarded, and tests requests for models by
//! name.

use serde_json::json;
use throughline_server::ReplayMode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::harness::begin;
use crate::isolation::account::{AccountGateway, SharedAccount};

/// Sends a handwritten request and returns the status line and headers of the response.
async fn head(gateway: &AccountGateway, text: &str) -> String {
    let address = gateway.url.strip_prefix("http://").unwrap();
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let text = text.replace("HOST", address);
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut read = Vec::new();
    while !read.windows(4).any(|end| end == b"\r\n\r\n") {
        if stream.read_buf(&mut read).await.unwrap() == 0 {
            break;
        }
    }
    String::from_utf8_lossy(&read).to_ascii_lowercase()
}

#[tokio::test(flavor = "multi_thread")]
async fn only_six_methods_are_forwarded() {
    for gateway in [
        AccountGateway::open(ReplayMode::Repair, SharedAccount::operators()).await,
        AccountGateway::open_to_all(false).await,
    ] {
        for method in ["TRACE", "OPTIONS", "PROPFIND", "FOO"] {
            for path in ["/v1/messages/batches", "/v1/files", "/v1beta/files", "/v1/anything", "/"]
            {
                let text = format!(
                    "{method} {path} HTTP/1.1\r\nhost: HOST\r\nx-api-key: tl_alpha\r\nconnection: close\r\n\r\n"
                );
                let head_text = head(&gateway, &text).await;
                assert!(head_text.starts_with("http/1.1 405"), "{method} {path}: {head_text}");
                assert!(
                    head_text.contains("allow: get, head, post, put, patch, delete"),
                    "{head_text}"
                );
            }
        }
        let connect =
            "CONNECT example.com:443 HTTP/1.1\r\nhost: HOST\r\nx-api-key: tl_alpha\r\n\r\n";
        let head_text = head(&gateway, connect).await;
        assert!(head_text.starts_with("http/1.1 405"), "{head_text}");
        assert!(gateway.account.take().is_empty());
    }
    let gateway = AccountGateway::open(ReplayMode::Repair, SharedAccount::operators()).await;
    let put =
        "PUT /v1/files HTTP/1.1\r\nhost: HOST\r\nx-api-key: tl_alpha\r\ncontent-length: 0\r\n\r\n";
    let head_text = head(&gateway, put).await;
    assert!(
        head_text.starts_with("http/1.1 405") && head_text.contains("allow: post, get"),
        "{head_text}"
    );
    assert!(gateway.account.take().is_empty());
}

/// Headers of proxies, of the connection and of the caller's session are not forwarded. Headers
/// that belong to the provider's API are forwarded.
#[tokio::test(flavor = "multi_thread")]
async fn proxy_and_connection_headers_are_not_forwarded() {
    let gateway = AccountGateway::open(ReplayMode::Repair, SharedAccount::operators()).await;
    let headers = [
        ("x-api-key", "tl_alpha"),
        ("anthropic-version", "2023-06-01"),
        ("content-type", "application/json"),
        ("x-forwarded-for", "192.0.2.7"),
        ("x-forwarded-host", "inner.example"),
        ("x-forwarded-proto", "https"),
        ("forwarded", "for=192.0.2.7"),
        ("via", "1.1 inner"),
        ("cookie", "session=1"),
        ("x-http-method-override", "DELETE"),
        ("connection", "close, X-Internal"),
        ("x-internal", "1"),
        ("x-kept", "1"),
    ];
    let body = json!({"model": "claude-sonnet-4-5", "max_tokens": 9,
        "messages": [{"role": "user", "content": "Hi"}]});
    for (method, path, body) in
        [("POST", "/v1/messages", body.to_string()), ("GET", "/v1/messages/batches", String::new())]
    {
        let answer = begin(&gateway.url, method, path, body.into_bytes(), &headers).await;
        assert_eq!(answer.status().as_u16(), 200, "{path}");
        let sent = gateway.account.last_headers();
        for (name, _) in &headers[3..12] {
            assert!(!sent.iter().any(|sent| **sent == **name), "{path} forwards {name}");
        }
        assert!(sent.iter().any(|sent| &**sent == "x-kept"), "{path}: {sent:?}");
        assert!(sent.iter().any(|sent| &**sent == "anthropic-version"), "{path}: {sent:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_paths_are_not_forwarded_with_a_gateway_key() {
    let gateway = AccountGateway::open(ReplayMode::Repair, SharedAccount::operators()).await;
    let unknown = [
        ("openai", "GET", "/v1/fine_tuning/jobs"),
        ("openai", "GET", "/v1/organization/users"),
        ("openai", "GET", "/v1/assistants"),
        ("openai", "GET", "/v1/responses/../files"),
        ("openai", "GET", "/v1/files/%2e%2e/batches"),
        ("anthropic", "GET", "/v1/organizations/me"),
        ("anthropic", "GET", "/v1/skills"),
        ("gemini", "GET", "/v1beta/tunedModels"),
        ("gemini", "POST", "/v1beta/corpora"),
    ];
    for (dialect, method, path) in unknown {
        let (status, answer) = gateway.request_in(dialect, "alpha", method, path, "").await;
        assert_eq!(status, 404, "{dialect} {path}: {answer}");
        assert!(answer["error"]["message"].is_string(), "{answer}");
    }
    assert!(gateway.account.take().is_empty());
    let gateway = AccountGateway::open_with_passthrough(&[
        "GET /v1/fine_tuning/*",
        "/v1/vector_stores/vs_shared",
    ])
    .await;
    assert_eq!(gateway.request("alpha", "GET", "/v1/fine_tuning/jobs", "").await.0, 200);
    assert_eq!(gateway.request("alpha", "POST", "/v1/fine_tuning/jobs", "{}").await.0, 404);
    assert_eq!(gateway.request("alpha", "GET", "/v1/fine_tuning/../files", "").await.0, 404);
    // Only an object under an allowed path is shared.
    for (id, expected) in [("vs_shared", 200), ("vs_other", 404)] {
        let tool = json!({"type": "file_search", "vector_store_ids": [id]});
        let body = json!({"model": "gpt-5.2", "input": "On", "tools": [tool]}).to_string();
        assert_eq!(
            gateway.request("beta", "POST", "/v1/responses", &body).await.0,
            expected,
            "{id}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_agent_paths_return_letta_errors() {
    let paths = [
        "archives",
        "archives/a/passages",
        "blocks",
        "blocks/b/agents",
        "client-side-access-tokens",
        "folders",
        "folders/f/files",
        "groups",
        "identities",
        "jobs",
        "mcp-servers",
        "mcp-servers/m/tools/t/run",
        "messages/search",
        "messages/message-1",
        "models/embedding",
        "passages/search",
        "providers",
        "runs/r/trace",
        "sources",
        "steps",
        "steps/s/feedback",
        "tags",
        "templates",
        "tools/search",
        "agents/a/passages",
        "conversations/conv-1/nothing",
    ];
    for gateway in [
        AccountGateway::open(ReplayMode::Repair, SharedAccount::operators()).await,
        AccountGateway::open_to_all(false).await,
    ] {
        for path in paths {
            for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
                for path in
                    [format!("/v1/{path}"), format!("/v1/{path}/"), format!("/letta/v1/{path}")]
                {
                    let (status, answer) = gateway.request("alpha", method, &path, "").await;
                    assert_eq!(status, 404, "{method} {path}: {answer}");
                    assert!(answer["detail"].is_string(), "{method} {path}: {answer}");
                }
            }
        }
        assert!(gateway.account.take().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_listed_model_can_be_retrieved_by_name() {
    let gateway = AccountGateway::open(ReplayMode::Repair, SharedAccount::operators()).await;
    let shapes = [
        ("openai", "/v1/models", "id"),
        ("anthropic", "/v1/models", "id"),
        ("gemini", "/v1beta/models", "name"),
    ];
    for (dialect, path, member) in shapes {
        let (_, list) = gateway.request_in(dialect, "alpha", "GET", path, "").await;
        let models = list["data"].as_array().or(list["models"].as_array()).unwrap().clone();
        assert_eq!(models.len(), 3, "{list}");
        for model in &models {
            let name = model[member].as_str().unwrap();
            let name = name.strip_prefix("models/").unwrap_or(name);
            for written in [name.to_owned(), name.replace('/', "%2F")] {
                let path = format!("{path}/{written}");
                let (status, model_json) =
                    gateway.request_in(dialect, "alpha", "GET", &path, "").await;
                assert_eq!((status, &model_json), (200, model), "{dialect} {path}");
            }
        }
        let (status, error) =
            gateway.request_in(dialect, "alpha", "GET", &format!("{path}/nothing"), "").await;
        assert_eq!(status, 404, "{error}");
        assert!(error["error"]["message"].as_str().unwrap().contains("nothing"), "{error}");
        let (_, list) = gateway.request_in(dialect, "narrow", "GET", path, "").await;
        let models = list["data"].as_array().or(list["models"].as_array()).unwrap();
        assert_eq!(models.len(), 1, "{list}");
        let path = format!("{path}/gpt-5.2");
        assert_eq!(gateway.request_in(dialect, "narrow", "GET", &path, "").await.0, 404);
    }
    assert!(gateway.account.take().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn embeddings_reach_the_provider_of_their_model() {
    let gateway = AccountGateway::open(ReplayMode::Repair, SharedAccount::operators()).await;
    for model in ["openai/text-embedding-3-small", "text-embedding-3-small"] {
        let body = json!({"model": model, "input": "Hi"}).to_string();
        assert_eq!(
            gateway.request("alpha", "POST", "/v1/embeddings", &body).await.0,
            200,
            "{model}"
        );
        assert_eq!(gateway.account.take(), ["openai POST /embeddings"], "{model}");
    }
}

/// Sends a request with these headers and without a key; returns the status.
async fn status(
    gateway: &AccountGateway,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> u16 {
    begin(&gateway.url, method, path, Vec::new(), headers).await.status().as_u16()
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_from_other_sites_are_refused() {
    let gateway = AccountGateway::open_to_all(false).await;
    for (site, expected) in
        [("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)]
    {
        let headers = [("sec-fetch-site", site)];
        assert_eq!(status(&gateway, "GET", "/v1/models", &headers).await, expected, "{site}");
    }
    let gateway = AccountGateway::open_to_all(true).await;
    let hosts = [
        ("rebound.example:4400", 403),
        ("rebound.example", 403),
        ("192.0.2.7:4400", 200),
        ("[2001:db8::1]:4400", 200),
        ("localhost:4400", 200),
        ("throughline:4400", 200),
        ("gateway.example:4400", 200),
    ];
    for (host, expected) in hosts {
        let headers = [("host", host)];
        for path in ["/v1/throughline/token", "/v1/models"] {
            assert_eq!(status(&gateway, "GET", path, &headers).await, expected, "{host} {path}");
        }
    }
}

/// Google reads objects in Cloud Storage with the gateway's account. A key can use only those that
/// the operator lists, unless the request is sent with the caller's own key.
#[tokio::test(flavor = "multi_thread")]
async fn keys_use_only_listed_cloud_storage_objects() {
    let requests = |uri: &str| {
        let part = json!({"fileData": {"mimeType": "image/png", "fileUri": uri}});
        let contents = json!([{"role": "user", "parts": [{"text": "Describe."}, part]}]);
        let body = json!({"contents": contents}).to_string();
        let model = "gemini-3-pro-preview";
        let cached = json!({"model": format!("models/{model}"), "contents": contents}).to_string();
        let batch = json!({"batch": {"inputConfig": {"requests": {"requests": [
            {"request": {"contents": contents}}]}}}});
        [
            (format!("/v1beta/models/{model}:generateContent"), body.clone()),
            (format!("/v1beta/models/{model}:countTokens"), body.clone()),
            (
                format!(
                    "/v1/projects/p/locations/l/publishers/google/models/{model}:generateContent"
                ),
                body,
            ),
            ("/v1beta/cachedContents".to_owned(), cached),
            (format!("/v1beta/models/{model}:batchGenerateContent"), batch.to_string()),
        ]
    };
    let gateway = AccountGateway::open_with_passthrough(&["gs://shared/*"]).await;
    let own = AccountGateway::open(ReplayMode::Repair, SharedAccount::callers()).await;
    let own = own.with_provider_key("AIzaOwn");
    for tenant in ["alpha", "beta"] {
        for (path, body) in requests("gs://private/a.png") {
            let (status, answer) = gateway.request(tenant, "POST", &path, &body).await;
            assert_eq!(status, 404, "{path}: {answer}");
            let message = answer["error"]["message"].as_str().unwrap();
            for expected in ["gs://private/a.png", "passthrough"] {
                assert!(message.contains(expected), "{path}: {message}");
            }
        }
        assert!(gateway.account.take().is_empty());
        for (gateway, uri) in [(&gateway, "gs://shared/a.png"), (&own, "gs://private/a.png")] {
            for (path, body) in requests(uri) {
                let (_, answer) = gateway.request(tenant, "POST", &path, &body).await;
                assert_eq!(gateway.account.take().len(), 1, "{path}: {answer}");
            }
        }
    }
}
