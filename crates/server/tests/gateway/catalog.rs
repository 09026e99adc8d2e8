//! A catalog that is replaced while the gateway runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::stream;
use http_body_util::BodyExt as _;
use serde_json::json;
use throughline_codec::{Catalog, SharedCatalog};
use throughline_core::{Upstream, UpstreamFuture, UpstreamRequest, UpstreamResponse, Wire};
use throughline_json::Name;
use throughline_server::{ModelRouter, ReplayMode, RouteTarget};

use crate::harness::{GatewayOptions, begin, serve};

/// A row under which the request of this test is invalid.
const ADAPTIVE_ONLY: &str = r#"
[[profile]]
name = "claude-4.5"
models = ["*claude-sonnet-4-5*"]
vendor = "anthropic"
modes = ["adaptive"]
bound = { model = true }
"#;

/// An overloaded provider and its fallback. The overloaded one replaces the catalog before it
/// answers, so the catalog changes while a request is in flight.
struct UpdatingProvider {
    catalog: SharedCatalog,
    requests: AtomicUsize,
}

impl Upstream for UpdatingProvider {
    fn send(&self, request: UpstreamRequest) -> UpstreamFuture<'_> {
        self.requests.fetch_add(1, Ordering::SeqCst);
        let status = if &*request.endpoint == "first" { 503 } else { 200 };
        if status == 503 {
            let updated = self.catalog.current().with_profiles(ADAPTIVE_ONLY).unwrap();
            self.catalog.replace(updated);
        }
        let body = json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5",
            "stop_reason": "end_turn", "stop_sequence": null,
            "usage": {"input_tokens": 1, "output_tokens": 1},
            "content": [{"type": "text", "text": "Hello"}],
        });
        let headers = vec![(Name::from("content-type"), Name::from("application/json"))];
        let body = Box::pin(stream::iter([Ok(Bytes::from(body.to_string()))]));
        Box::pin(async move { Ok(UpstreamResponse { status, headers, body }) })
    }
}

impl ModelRouter for UpdatingProvider {
    fn reach(&self, model: &str) -> Result<Vec<RouteTarget>, String> {
        let target = |endpoint: &str| RouteTarget {
            endpoint: Name::from(endpoint),
            account: Name::from("test"),
            is_callers: false,
            provider: Catalog::builtin().provider("anthropic").unwrap(),
            model: Name::from(model),
        };
        Ok(vec![target("first"), target("second")])
    }

    fn of_wire(&self, _: &Wire) -> Option<RouteTarget> {
        None
    }

    fn models(&self) -> Vec<Name> {
        Vec::new()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn request_in_flight_keeps_its_catalog() {
    let catalog = SharedCatalog::default();
    let provider =
        Arc::new(UpdatingProvider { catalog: catalog.clone(), requests: AtomicUsize::new(0) });
    let options = GatewayOptions {
        directory: Arc::clone(&provider) as Arc<dyn ModelRouter>,
        catalog,
        ..GatewayOptions::of(ReplayMode::Enforce)
    };
    let (url, _store, _folder) = serve(Arc::clone(&provider) as Arc<dyn Upstream>, options).await;
    let request = json!({
        "model": "claude-sonnet-4-5", "max_tokens": 4096,
        "thinking": {"type": "enabled", "budget_tokens": 2048},
        "messages": [{"role": "user", "content": "Hello"}],
    });
    let send = async || {
        let body = request.to_string().into_bytes();
        let headers = [("anthropic-version", "2023-06-01")];
        let response = begin(&url, "POST", "/v1/messages", body, &headers).await;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8_lossy(&body).into_owned())
    };
    // The second target is prepared after the catalog was replaced.
    let (status, body) = send().await;
    assert_eq!((status, provider.requests.load(Ordering::SeqCst)), (200, 2), "{body}");
    // The next request uses the new row, so it is refused before it is sent.
    let (status, body) = send().await;
    assert_eq!((status, provider.requests.load(Ordering::SeqCst)), (400, 2), "{body}");
}
