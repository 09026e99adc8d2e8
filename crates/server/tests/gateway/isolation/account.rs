//! A gateway in front of one account at each provider. Each account stores everything it receives
//! and cannot distinguish tenants.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::stream;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use throughline_codec::Catalog;
use throughline_core::{
    Provider, StoreFuture, Tenant, Upstream, UpstreamFuture, UpstreamRequest, UpstreamResponse,
    Wire,
};
use throughline_json::Name;
use throughline_server::{
    Admission, Allowance, Keyring, ModelRouter, Passthrough, ReplayMode, RouteTarget,
};
use throughline_store::Journal;
use throughline_testkit::Folder;

use crate::harness::{GatewayOptions, begin, serve};

static IDS: AtomicU64 = AtomicU64::new(0);

fn fresh(prefix: &str) -> String {
    format!("{prefix}{:012x}a", IDS.fetch_add(1, Ordering::SeqCst) + 0x1234_5678)
}

/// A simulated provider account that all tenants share.
pub(crate) struct SharedAccount {
    arrived: Mutex<Vec<String>>,
    /// Header names of the last request.
    headers: Mutex<Vec<Name>>,
    /// All created objects, each as its collection and its JSON document.
    created: Mutex<Vec<(String, Value)>>,
    /// Whether callers send their own provider keys.
    is_callers: bool,
}

impl SharedAccount {
    pub(crate) fn operators() -> Self {
        Self {
            arrived: Mutex::default(),
            headers: Mutex::default(),
            created: Mutex::default(),
            is_callers: false,
        }
    }

    /// Returns an account for callers that send their own provider keys.
    pub(crate) fn callers() -> Self {
        Self { is_callers: true, ..Self::operators() }
    }

    /// Removes and returns the requests that arrived since the previous `take`.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.arrived.lock().unwrap())
    }

    pub(crate) fn last_headers(&self) -> Vec<Name> {
        self.headers.lock().unwrap().clone()
    }

    fn answer(&self, outgoing: &UpstreamRequest) -> Value {
        let (path, query) = outgoing.path.split_once('?').unwrap_or((&outgoing.path, ""));
        let last = path.rsplit('/').next().unwrap();
        match (&*outgoing.method, last) {
            ("POST", "messages" | "responses") if forged_id(outgoing).is_some() => {
                forged(last, &forged_id(outgoing).unwrap())
            }
            ("POST", "responses") => {
                if outgoing.body.windows(6).any(|bytes| bytes == b"queued") {
                    return json!({"id": fresh("resp_"), "object": "response", "status": "queued",
                        "model": "gpt-5.2", "output": []});
                }
                response(&fresh("resp_"), &fresh("msg_"))
            }
            ("POST", "input_tokens" | "count_tokens") => json!({"input_tokens": 3}),
            ("POST", "completions") => {
                let object = json!({"id": fresh("chatcmpl-"), "object": "chat.completion", "created": 1,
                    "model": "gpt-5.2", "choices": [{"index": 0, "finish_reason": "stop",
                    "message": {"role": "assistant", "content": "Hello."}}]});
                self.created.lock().unwrap().push(("completions".to_owned(), object.clone()));
                object
            }
            ("POST", "messages") => {
                json!({"id": fresh("msg_"), "type": "message", "role": "assistant",
                "model": "claude-sonnet-4-5", "content": [{"type": "text", "text": "Hello."}],
                "container": {"id": fresh("container_"), "expires_at": "2027-01-01T00:00:00Z"},
                "thread": {"id": fresh("thread_")}, "stop_reason": "end_turn",
                "usage": {"input_tokens": 1, "output_tokens": 1}})
            }
            ("POST", verb) if verb.ends_with("enerateContent") && !verb.contains(":batch") => {
                json!({"candidates": [{"content": {"role": "model", "parts": [{"text": "Hello."}]},
                    "finishReason": "STOP"}], "modelVersion": "gemini-3-pro-preview"})
            }
            ("POST", verb) if verb.ends_with(":batchGenerateContent") => {
                self.make("v1beta/batches", "name")
            }
            ("POST", "files" | "cachedContents") if path.contains("v1beta") => {
                let object = self.make(&format!("v1beta/{last}"), "name");
                if last == "files" { json!({"file": object}) } else { object }
            }
            (
                "POST",
                "files" | "batches" | "conversations" | "containers" | "vector_stores"
                | "interactions",
            ) => self.make(last, "id"),
            ("GET", _) if path.contains("v1beta") => self.list(&format!("v1beta/{last}"), query),
            ("GET", _) => self.list(last, query),
            _ => json!({"id": "same", "deleted": true}),
        }
    }

    fn make(&self, collection: &str, member: &str) -> Value {
        let name = collection.trim_start_matches("v1beta/");
        let id = fresh(&format!("{}-", name.trim_end_matches('s')));
        let id = if member == "name" { format!("{name}/{id}") } else { id };
        let object = json!({member: id, "output_file_id": fresh("file-")});
        self.created.lock().unwrap().push((collection.to_owned(), object.clone()));
        object
    }

    /// Lists all tenants' objects in a collection. Returns pages if the query contains a limit.
    fn list(&self, collection: &str, query: &str) -> Value {
        let created = self.created.lock().unwrap();
        let all = created.iter().filter(|(kind, _)| kind == collection);
        let all: Vec<&Value> = all.map(|(_, object)| object).collect();
        let value =
            |key: &str| query.split('&').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='));
        let start =
            value("after").and_then(|after| all.iter().position(|object| object["id"] == after));
        let rest = &all[start.map_or(0, |at| at + 1)..];
        let limit = value("limit").and_then(|limit| limit.parse().ok()).unwrap_or(rest.len());
        let page = &rest[..limit.min(rest.len())];
        let array = match collection {
            "v1beta/cachedContents" => "cachedContents",
            "v1beta/files" => "files",
            "v1beta/batches" => "operations",
            _ => "data",
        };
        json!({"object": "list", array: page, "has_more": page.len() < rest.len(),
            "first_id": page.first().map(|object| object["id"].clone()),
            "last_id": page.last().map(|object| object["id"].clone())})
    }
}

/// Returns the id that a request instructs the model to repeat, written as `forge(ID)`.
fn forged_id(outgoing: &UpstreamRequest) -> Option<String> {
    let body = std::str::from_utf8(&outgoing.body).ok()?;
    let (_, rest) = body.split_once("forge(")?;
    rest.split_once(')').map(|(id, _)| id.to_owned())
}

/// Returns a response that contains the id in every field whose text a caller can choose.
fn forged(path: &str, id: &str) -> Value {
    let members = json!({"file_id": id, "container_id": id, "id": "x"});
    if path == "messages" {
        return json!({"id": fresh("msg_"), "type": "message", "role": "assistant",
            "model": "claude-sonnet-4-5", "stop_reason": "tool_use",
            "content": [{"type": "tool_use", "id": fresh("toolu_"), "name": "read", "input": members}],
            "usage": {"input_tokens": 1, "output_tokens": 1}});
    }
    json!({"id": fresh("resp_"), "object": "response", "created_at": 1, "status": "completed",
        "model": "gpt-5.2",
        "output": [
            {"type": "mcp_list_tools", "id": fresh("mcpl_"), "server_label": "own", "tools": [
                {"name": "read", "input_schema": members, "annotations": members}]},
            {"type": "file_search_call", "id": fresh("fs_"), "status": "completed", "queries": [],
             "results": [{"file_id": id, "attributes": members, "text": "x"}]},
            {"type": "function_call", "id": fresh("fc_"), "call_id": fresh("call_"), "name": "read",
             "arguments": members.to_string(), "status": "completed"}],
        "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}})
}

/// Returns a response with one message whose item id is this id.
pub(crate) fn response(id: &str, item: &str) -> Value {
    json!({"id": id, "object": "response", "created_at": 1, "status": "completed", "model": "gpt-5.2",
        "output": [
            {"type": "code_interpreter_call", "id": fresh("ci_"), "code": "1", "container_id": fresh("cntr_"),
             "status": "completed", "outputs": []},
            {"type": "message", "id": item, "role": "assistant", "status": "completed",
             "content": [{"type": "output_text", "text": "Hello.", "annotations": []}]}],
        "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}})
}

impl Upstream for SharedAccount {
    fn send(&self, outgoing: UpstreamRequest) -> UpstreamFuture<'_> {
        let summary = format!("{} {} {}", outgoing.endpoint, outgoing.method, outgoing.path);
        self.arrived.lock().unwrap().push(summary);
        *self.headers.lock().unwrap() =
            outgoing.headers.iter().map(|(name, _)| name.clone()).collect();
        let body = self.answer(&outgoing).to_string();
        Box::pin(async move {
            let headers = vec![("content-type".into(), "application/json".into())];
            let body = Box::pin(stream::iter([Ok(Bytes::from(body))]));
            Ok(UpstreamResponse { status: 200, headers, body })
        })
    }
}

impl ModelRouter for SharedAccount {
    fn reach(&self, model: &str) -> Result<Vec<RouteTarget>, String> {
        let model = model.strip_prefix("openai/").unwrap_or(model);
        let rows = [
            ("gpt", "openai"),
            ("text-embedding", "openai"),
            ("chat", "openai-chat"),
            ("claude", "anthropic"),
            ("gemini", "gemini"),
            ("house", "xai"),
        ];
        let row = rows.iter().find(|(begins, _)| model.starts_with(begins));
        let (_, row) = row.ok_or_else(|| format!("there is no model `{model}`"))?;
        Ok(vec![self.at(Catalog::builtin().provider(row).unwrap(), model)])
    }

    fn of_wire(&self, wire: &Wire) -> Option<RouteTarget> {
        let catalog = Catalog::builtin();
        let row = match wire.as_str() {
            "openai-chat" => catalog.provider("openai"),
            _ => catalog.default_provider(wire),
        };
        Some(self.at(row?, ""))
    }

    fn models(&self) -> Vec<Name> {
        ["gpt-5.2", "openai/gpt-5.2", "claude-sonnet-4-5"].map(Name::from).to_vec()
    }
}

impl SharedAccount {
    fn at(&self, provider: Arc<Provider>, model: &str) -> RouteTarget {
        RouteTarget {
            endpoint: provider.name.clone(),
            account: provider.name.clone(),
            is_callers: self.is_callers,
            provider,
            model: model.into(),
        }
    }
}

/// A keyring in which each key names its tenant. The tenant `narrow` may use only Claude models.
struct TenantKeys;

impl Keyring for TenantKeys {
    fn admit<'a>(&'a self, key: Option<&'a str>) -> StoreFuture<'a, Admission> {
        let tenant = key.and_then(|key| key.strip_prefix("tl_")).map(Tenant::from);
        let admission = tenant.map_or(Admission::Refused, |tenant| Admission::Key {
            role: None,
            id: tenant.0.clone(),
            models: if &*tenant.0 == "narrow" { vec!["claude-*".into()] } else { Vec::new() },
            tenant,
            allowance: Allowance::default(),
        });
        Box::pin(async move { Ok(admission) })
    }
}

#[derive(Clone)]
pub(crate) struct AccountGateway {
    pub(crate) url: String,
    pub(crate) account: Arc<SharedAccount>,
    pub(crate) journal: Journal,
    provider_key: &'static str,
    _folder: Arc<Folder>,
}

impl AccountGateway {
    pub(crate) async fn open(mode: ReplayMode, account: SharedAccount) -> Self {
        let keyring: Arc<dyn Keyring> = Arc::new(TenantKeys);
        Self::open_with(account, GatewayOptions { keyring, ..GatewayOptions::of(mode) }).await
    }

    /// Opens a gateway that requires no keys.
    pub(crate) async fn open_to_all(allow_open: bool) -> Self {
        let options = GatewayOptions { allow_open, ..GatewayOptions::of(ReplayMode::Repair) };
        Self::open_with(SharedAccount::operators(), options).await
    }

    /// Opens a gateway that also forwards paths that match these patterns.
    pub(crate) async fn open_with_passthrough(patterns: &[&str]) -> Self {
        let passthrough = Passthrough::new(patterns.iter().copied()).unwrap();
        let keyring: Arc<dyn Keyring> = Arc::new(TenantKeys);
        let options =
            GatewayOptions { keyring, passthrough, ..GatewayOptions::of(ReplayMode::Repair) };
        Self::open_with(SharedAccount::operators(), options).await
    }

    async fn open_with(account: SharedAccount, options: GatewayOptions) -> Self {
        let account = Arc::new(account);
        let directory = Arc::<SharedAccount>::clone(&account);
        let options = GatewayOptions { directory, ..options };
        let (url, journal, folder) = serve(Arc::<SharedAccount>::clone(&account), options).await;
        Self { url, account, journal, provider_key: "sk-shared", _folder: Arc::new(folder) }
    }

    /// Returns a client of the same gateway that sends this provider key.
    pub(crate) fn with_provider_key(&self, provider_key: &'static str) -> Self {
        Self { provider_key, ..self.clone() }
    }

    /// Sends a request in the dialect of its path.
    pub(crate) async fn request(
        &self,
        tenant: &str,
        method: &str,
        path: &str,
        body: &str,
    ) -> (u16, Value) {
        let dialect = if path.starts_with("/v1/messages") { "anthropic" } else { "openai" };
        self.request_in(dialect, tenant, method, path, body).await
    }

    pub(crate) async fn request_in(
        &self,
        dialect: &str,
        tenant: &str,
        method: &str,
        path: &str,
        body: &str,
    ) -> (u16, Value) {
        let answer = self.begin(dialect, tenant, method, path, body).await;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    /// Makes a model call and returns the call's id.
    pub(crate) async fn call(&self, dialect: &str, tenant: &str, path: &str, body: &str) -> String {
        let answer = self.begin(dialect, tenant, "POST", path, body).await;
        assert_eq!(answer.status().as_u16(), 200, "{path}");
        let call = answer.headers()["x-throughline-call"].to_str().unwrap().to_owned();
        drop(answer.into_body().collect().await.unwrap());
        call
    }

    async fn begin(
        &self,
        dialect: &str,
        tenant: &str,
        method: &str,
        path: &str,
        body: &str,
    ) -> hyper::Response<hyper::body::Incoming> {
        let key = format!("tl_{tenant}");
        let bearer = format!("Bearer {}", self.provider_key);
        let mut headers = vec![("x-api-key", &*key), ("authorization", &*bearer)];
        if dialect == "anthropic" {
            headers.push(("anthropic-version", "2023-06-01"));
        }
        if body.starts_with("--") {
            headers.push(("content-type", "multipart/form-data; boundary=b"));
        } else if !body.is_empty() {
            headers.push(("content-type", "application/json"));
        }
        begin(&self.url, method, path, body.as_bytes().to_vec(), &headers).await
    }
}
