//! Tests which providers receive a caller's own key, and which paths a gateway without keys
//! forwards.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::stream;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use throughline_codec::Catalog;
use throughline_core::{
    Credential, Upstream, UpstreamError, UpstreamFuture, UpstreamRequest, UpstreamResponse, Wire,
};
use throughline_json::Name;
use throughline_server::{ModelRouter, ReplayMode, RouteTarget};
use throughline_testkit::Folder;

use crate::harness::{GatewayOptions, begin, serve};
use crate::websocket::{TestSocket, created};

/// Providers for which the gateway has no key of its own. They record each request that reaches
/// them: the endpoint, the method with the path, and the key.
#[derive(Default)]
struct CallersProviders {
    arrived: Mutex<Vec<(String, String, String)>>,
}

impl CallersProviders {
    fn at(row: &str, model: &str) -> RouteTarget {
        let provider = Catalog::builtin().provider(row).unwrap();
        RouteTarget {
            endpoint: provider.name.clone(),
            account: provider.name.clone(),
            is_callers: true,
            provider,
            model: model.into(),
        }
    }

    fn take(&self) -> Vec<(String, String, String)> {
        std::mem::take(&mut self.arrived.lock().unwrap())
    }
}

impl Upstream for CallersProviders {
    fn send(&self, request: UpstreamRequest) -> UpstreamFuture<'_> {
        let UpstreamRequest { endpoint, method, path, credential, .. } = request;
        let Some(key) = credential.as_ref().map(Credential::reveal) else {
            let variable = Catalog::builtin().provider(&endpoint).unwrap().key_env.clone();
            return Box::pin(async { Err(UpstreamError::NoCredential { endpoint, variable }) });
        };
        let entry = (endpoint.to_string(), format!("{method} {path}"), key.to_owned());
        self.arrived.lock().unwrap().push(entry);
        Box::pin(async {
            let headers = vec![("content-type".into(), "application/json".into())];
            let body = Box::pin(stream::iter([Ok(Bytes::from_static(b"{}"))]));
            Ok(UpstreamResponse { status: 400, headers, body })
        })
    }
}

impl ModelRouter for CallersProviders {
    fn reach(&self, model: &str) -> Result<Vec<RouteTarget>, String> {
        let rows = [("gpt", "openai"), ("claude", "anthropic"), ("gemini", "gemini")];
        let row = rows.iter().find(|(begins, _)| model.starts_with(begins));
        let (_, row) = row.ok_or_else(|| format!("there is no model `{model}`"))?;
        Ok(vec![Self::at(row, model)])
    }

    fn of_wire(&self, wire: &Wire) -> Option<RouteTarget> {
        let row = match wire.as_str() {
            "openai-chat" | "openai-responses" => "openai",
            "anthropic-messages" => "anthropic",
            "gemini" => "gemini",
            _ => return None,
        };
        Some(Self::at(row, ""))
    }

    fn models(&self) -> Vec<Name> {
        Vec::new()
    }
}

struct KeyGateway {
    url: String,
    providers: Arc<CallersProviders>,
    _folder: Folder,
}

impl KeyGateway {
    async fn open() -> Self {
        let providers = Arc::new(CallersProviders::default());
        let options = GatewayOptions {
            directory: Arc::<CallersProviders>::clone(&providers),
            ..GatewayOptions::of(ReplayMode::Repair)
        };
        let (url, _, folder) = serve(Arc::<CallersProviders>::clone(&providers), options).await;
        Self { url, providers, _folder: folder }
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        body: &Value,
        headers: &[(&str, &str)],
    ) -> (u16, Value) {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let response = begin(&self.url, method, path, body, headers).await;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }
}

/// A header with a key, and the only provider that may receive the key.
const KEYS: [((&str, &str), &str, &str); 6] = [
    (("x-api-key", "sk-ant-api03-secret"), "sk-ant-api03-secret", "anthropic"),
    (("x-api-key", "opaque-secret"), "opaque-secret", "anthropic"),
    (("authorization", "Bearer sk-ant-oat01-secret"), "sk-ant-oat01-secret", "anthropic"),
    (("x-goog-api-key", "AIzaSecret"), "AIzaSecret", "gemini"),
    (("authorization", "Bearer ya29.secret"), "ya29.secret", "gemini"),
    (("authorization", "Bearer sk-proj-secret"), "sk-proj-secret", "openai"),
];

/// Requests on paths of all dialects, to each provider: the path, the body and the provider.
fn requests() -> Vec<(&'static str, &'static str, Value, &'static str)> {
    let mut requests = vec![
        ("GET", "/v1/files", json!(null), "openai"),
        ("GET", "/v1/fine_tuning/jobs", json!(null), "openai"),
        ("GET", "/v1/messages/batches", json!(null), "anthropic"),
        ("GET", "/v1beta/files", json!(null), "gemini"),
    ];
    let user = json!([{"role": "user", "content": "Hello"}]);
    for (model, provider) in
        [("gpt-5.2", "openai"), ("claude-sonnet-4-5", "anthropic"), ("gemini-3-pro", "gemini")]
    {
        let messages = json!({"model": model, "max_tokens": 9, "messages": user});
        requests.push(("POST", "/v1/messages", messages.clone(), provider));
        requests.push(("POST", "/v1/chat/completions", messages, provider));
        let input = json!({"model": model, "input": "Hello"});
        requests.push(("POST", "/v1/responses", input, provider));
    }
    requests
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_other_vendors_are_never_sent() {
    let gateway = KeyGateway::open().await;
    for (header, key, owner) in KEYS {
        for (method, path, body, provider) in requests() {
            let label = format!("{header:?} {method} {path} to {provider}");
            let (status, answer) = gateway.send(method, path, &body, &[header]).await;
            let arrived = gateway.providers.take();
            if provider == owner {
                assert_eq!(arrived.len(), 1, "{label}: {answer}");
                assert_eq!((&*arrived[0].0, &*arrived[0].2), (owner, key), "{label}");
                continue;
            }
            assert!(arrived.is_empty(), "{label}: {arrived:?}");
            assert_eq!(status, 401, "{label}: {answer}");
            let message = answer["error"]["message"].as_str().unwrap();
            assert!(message.contains("is not a key of"), "{label}: {message}");
            assert!(!message.contains(key), "{label}: {message}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_other_vendors_are_never_sent_from_a_socket() {
    let gateway = KeyGateway::open().await;
    for (header, key, owner) in KEYS {
        for (model, provider) in
            [("gpt-5.2", "openai"), ("claude-sonnet-4-5", "anthropic"), ("gemini-3-pro", "gemini")]
        {
            let label = format!("{header:?} to {provider}");
            let mut socket = TestSocket::open_with(&gateway.url, &[header]).await.unwrap();
            socket.send(&created(&json!({"model": model, "input": "Hello"}))).await;
            let error = socket.until("error").await;
            let arrived = gateway.providers.take();
            if provider == owner {
                assert_eq!(arrived.len(), 1, "{label}: {error}");
                assert_eq!((&*arrived[0].0, &*arrived[0].2), (owner, key), "{label}");
            } else {
                assert!(arrived.is_empty(), "{label}: {arrived:?}");
                assert_eq!(error["status"], 401, "{label}: {error}");
            }
        }
    }
}

type Headers = &'static [(&'static str, &'static str)];

/// A path that no dialect defines gets an error in the format of the client's dialect, and reaches
/// no provider.
#[tokio::test(flavor = "multi_thread")]
async fn undefined_paths_are_not_forwarded_without_keys() {
    let gateway = KeyGateway::open().await;
    let cases: [(&str, Headers, &str); 8] = [
        ("/v1/unknown", &[], "openai"),
        ("/v1/unknown", &[("authorization", "Bearer ya29.secret")], "openai"),
        ("/v1/unknown", &[("x-api-key", "sk-ant-secret")], "anthropic"),
        ("/v1/unknown", &[("anthropic-version", "2023-06-01")], "anthropic"),
        ("/v1/unknown/path", &[("x-goog-api-key", "AIzaSecret")], "gemini"),
        ("/v1beta/unknown", &[("x-goog-api-key", "AIzaSecret")], "gemini"),
        ("/v1beta/unknown/models/x", &[], "gemini"),
        ("/v1/embedding", &[("authorization", "Bearer sk-proj-secret")], "openai"),
    ];
    for (path, headers, dialect) in cases {
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
            let (status, answer) = gateway.send(method, path, &json!({}), headers).await;
            let label = format!("{method} {path} {headers:?}: {answer}");
            assert_eq!(status, 404, "{label}");
            match dialect {
                "anthropic" => assert_eq!(answer["error"]["type"], "not_found_error", "{label}"),
                "gemini" => assert_eq!(answer["error"]["status"], "NOT_FOUND", "{label}"),
                _ => assert!(answer["error"]["param"].is_null(), "{label}"),
            }
            assert_eq!(answer["type"] == "error", dialect == "anthropic", "{label}");
            let message = answer["error"]["message"].as_str().unwrap();
            for expected in [method, path, "passthrough", "docs/gateway.md"] {
                assert!(message.contains(expected), "{label}");
            }
        }
    }
    assert!(gateway.providers.take().is_empty());
}
