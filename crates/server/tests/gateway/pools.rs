//! Tests of pools: several accounts at each provider, of which some fail.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::stream;
use http_body_util::BodyExt as _;
use hyper::HeaderMap;
use serde_json::{Value, json};
use throughline_codec::Catalog;
use throughline_core::{
    Credential, StoreFuture, Tenant, Upstream, UpstreamFuture, UpstreamRequest, UpstreamResponse,
    Wire,
};
use throughline_json::Name;
use throughline_provider::{CredentialSource, Endpoint, EndpointOptions, Http, RetryPolicy};
use throughline_server::{
    AccountPool, Admission, Allowance, Balance, BoundPolicy, Keyring, ModelRouter, PoolAccount,
    PoolOptions, ReplayMode, RouteTarget,
};
use throughline_sim::{Simulator, Verdict};
use throughline_store::Journal;
use throughline_testkit::Folder;
use tokio::sync::Semaphore;

use crate::harness::{ClientDialect, GatewayOptions, begin, serve, serve_on};

const ROWS: [(&str, &str); 4] =
    [("gpt", "openai"), ("claude", "anthropic"), ("gemini", "gemini"), ("deepseek", "deepseek")];
const ACCOUNTS: [&str; 2] = ["a", "b"];

/// The reason in the Fate of a Seal that the account cannot read.
const OTHER_ACCOUNT: &str = "owned by another account";

/// A client dialect, a model, and whether the model's Seals are bound to the account.
const CASES: [(ClientDialect, &str, bool); 6] = [
    (ClientDialect::Responses, "gpt-5.2", true),
    (ClientDialect::Gemini, "gemini-3-pro-preview", true),
    (ClientDialect::Messages, "gpt-5.2", true),
    (ClientDialect::Chat, "gemini-3-pro-preview", true),
    (ClientDialect::Messages, "claude-sonnet-4-5", false),
    (ClientDialect::Chat, "deepseek-v4-pro", false),
];

/// Routes each model to the pool of its provider.
struct PoolRouter {
    pools: HashMap<&'static str, Arc<AccountPool>>,
}

impl PoolRouter {
    fn new(options: &PoolOptions, weights: [u32; 2]) -> Self {
        let pool = |(_, row): (&str, &'static str)| {
            let accounts = ACCOUNTS.into_iter().zip(weights);
            let accounts =
                accounts.map(|(name, weight)| PoolAccount { name: name.into(), weight }).collect();
            (row, Arc::new(AccountPool::new(row.into(), accounts, options.clone())))
        };
        Self { pools: ROWS.map(pool).into_iter().collect() }
    }

    fn target(row: &str, model: &str) -> RouteTarget {
        RouteTarget {
            endpoint: row.into(),
            account: row.into(),
            is_callers: false,
            provider: Catalog::builtin().provider(row).unwrap(),
            model: model.into(),
        }
    }
}

impl ModelRouter for PoolRouter {
    fn reach(&self, model: &str) -> Result<Vec<RouteTarget>, String> {
        let row = ROWS.iter().find(|(begins, _)| model.starts_with(begins));
        let (_, row) = row.ok_or_else(|| format!("there is no model `{model}`"))?;
        Ok(vec![Self::target(row, model)])
    }

    fn of_wire(&self, wire: &Wire) -> Option<RouteTarget> {
        let row = Catalog::builtin().default_provider(wire)?;
        Some(Self::target(row.name.trim_end_matches("-chat"), ""))
    }

    fn models(&self) -> Vec<Name> {
        Vec::new()
    }

    fn pool(&self, target: &RouteTarget) -> Option<Arc<AccountPool>> {
        self.pools.get(target.endpoint_name()).cloned()
    }
}

/// An upstream in front of the simulators whose accounts can be made to fail.
struct FailingAccounts {
    http: Http,
    /// The status that each failing account returns.
    failing: Mutex<HashMap<String, u16>>,
    /// The endpoints that received requests.
    arrived: Mutex<Vec<String>>,
}

impl FailingAccounts {
    fn new(base: &str) -> Self {
        let retry = RetryPolicy { retries: 0, ..RetryPolicy::default() };
        let options = EndpointOptions { retry, ..EndpointOptions::default() };
        let endpoint = |row: &str, account: &str| {
            let key = CredentialSource::Key(Credential::new(format!("key-of-{account}")));
            let address = format!("{base}/at/{row}");
            let (name, row) = (format!("{row}#{account}"), Catalog::builtin().provider(row));
            Endpoint::new(name, row.unwrap(), &address, key).unwrap().with_options(options)
        };
        let endpoints =
            ROWS.iter().flat_map(|(_, row)| ACCOUNTS.map(|account| endpoint(row, account)));
        let http = Http::new(endpoints, Arc::new(|| jiff::Timestamp::UNIX_EPOCH)).unwrap();
        Self { http, failing: Mutex::default(), arrived: Mutex::default() }
    }

    fn fail(&self, account: &str, status: u16) {
        self.failing.lock().unwrap().insert(account.to_owned(), status);
    }

    fn repair(&self) {
        self.failing.lock().unwrap().clear();
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.arrived.lock().unwrap())
    }
}

impl Upstream for FailingAccounts {
    fn send(&self, outgoing: UpstreamRequest) -> UpstreamFuture<'_> {
        self.arrived.lock().unwrap().push(outgoing.endpoint.to_string());
        let account = outgoing.endpoint.split_once('#').unwrap().1;
        let Some(status) = self.failing.lock().unwrap().get(account).copied() else {
            return self.http.send(outgoing);
        };
        Box::pin(async move {
            let body = json!({"error": {"type": "error", "message": "this account fails"}});
            let body = Bytes::from(body.to_string());
            let mut headers = vec![("content-type".into(), "application/json".into())];
            if matches!(status, 429 | 503) {
                headers.push(("retry-after".into(), "60".into()));
            }
            Ok(UpstreamResponse { status, headers, body: Box::pin(stream::iter([Ok(body)])) })
        })
    }
}

/// A keyring in which each key names its tenant.
struct TenantKeys;

impl Keyring for TenantKeys {
    fn admit<'a>(&'a self, key: Option<&'a str>) -> StoreFuture<'a, Admission> {
        let tenant = key.and_then(|key| key.strip_prefix("tl_")).map(Tenant::from);
        let admission = tenant.map_or(Admission::Refused, |tenant| Admission::Key {
            role: None,
            id: tenant.0.clone(),
            models: Vec::new(),
            tenant,
            allowance: Allowance::default(),
        });
        Box::pin(async move { Ok(admission) })
    }
}

/// A gateway with pools in front of the simulators.
struct PoolGateway {
    url: String,
    simulator: Simulator,
    upstream: Arc<FailingAccounts>,
    journal: Journal,
    _folder: Folder,
}

fn gateway_options(mode: ReplayMode, pool: &PoolOptions, weights: [u32; 2]) -> GatewayOptions {
    let directory = Arc::new(PoolRouter::new(pool, weights));
    GatewayOptions { directory, keyring: Arc::new(TenantKeys), ..GatewayOptions::of(mode) }
}

/// A response: its status, headers, and the messages that it adds to the history.
struct Answer {
    status: u16,
    headers: HeaderMap,
    reply: Vec<Value>,
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    fn account(&self) -> &str {
        self.header("x-throughline-account")
    }

    fn elided(&self) -> u32 {
        let fates = self.header("x-throughline-fates");
        fates.rsplit_once("elided=").unwrap().1.parse().unwrap()
    }
}

impl PoolGateway {
    async fn open(mode: ReplayMode, pool: PoolOptions) -> Self {
        let simulator = throughline_sim::start(throughline_sim::Options::default()).await.unwrap();
        let upstream = Arc::new(FailingAccounts::new(&simulator.url()));
        let shared: Arc<dyn Upstream> = Arc::<FailingAccounts>::clone(&upstream);
        let (url, journal, folder) = serve(shared, gateway_options(mode, &pool, [1, 1])).await;
        Self { url, simulator, upstream, journal, _folder: folder }
    }

    /// Starts another gateway with an empty store and this mode. Returns the store's folder.
    async fn serve_again(&mut self, mode: ReplayMode) -> Folder {
        let shared: Arc<dyn Upstream> = Arc::<FailingAccounts>::clone(&self.upstream);
        let options = gateway_options(mode, &PoolOptions::default(), [1, 1]);
        let (url, journal, folder) = serve(shared, options).await;
        (self.url, self.journal) = (url, journal);
        folder
    }

    /// Starts another gateway on the same store, with other weights.
    async fn restart(&mut self, weights: [u32; 2]) {
        let shared: Arc<dyn Upstream> = Arc::<FailingAccounts>::clone(&self.upstream);
        let options = gateway_options(ReplayMode::Repair, &PoolOptions::default(), weights);
        self.url = serve_on(self.journal.clone(), shared, options, std::future::pending()).await;
    }

    async fn send(
        &self,
        tenant: &str,
        dialect: ClientDialect,
        model: &str,
        history: &[Value],
        stream: bool,
    ) -> Answer {
        let (path, body) = dialect.request(model, history, stream);
        let key = format!("Bearer tl_{tenant}");
        let headers = [
            ("content-type", "application/json"),
            ("anthropic-version", "2023-06-01"),
            ("authorization", &*key),
        ];
        let body = body.to_string().into_bytes();
        let response = begin(&self.url, "POST", &path, body, &headers).await;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let kind = headers.get("content-type").map(|kind| kind.to_str().unwrap());
        let reply = match status {
            200 => dialect.reply(&body, kind.filter(|_| stream)),
            _ => vec![serde_json::from_slice(&body).unwrap()],
        };
        Answer { status, headers, reply }
    }

    async fn record(&self, tenant: &str, answer: &Answer) -> Value {
        let path = format!("/v1/throughline/calls/{}", answer.header("x-throughline-call"));
        let key = format!("Bearer tl_{tenant}");
        let response =
            begin(&self.url, "GET", &path, Vec::new(), &[("authorization", &*key)]).await;
        assert_eq!(response.status(), 200);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        serde_json::from_slice(&body).unwrap()
    }

    fn assert_all_verified(&self, label: &str) {
        let ledger = self.simulator.ledger();
        for entry in &ledger.entries {
            assert_eq!((&entry.refused, entry.status, entry.lost), (&None, 200, 0), "{label}");
            // Gemini requires a placeholder if its own signature is missing.
            let is_accepted = |verdict: &Verdict| match verdict {
                Verdict::Accepted => true,
                Verdict::Dropped(reason) => reason == "stand_in",
                Verdict::Refused(_) => false,
            };
            let mut returned = entry.returned.iter();
            assert!(returned.all(|seal| is_accepted(&seal.verdict)), "{label}: {entry:?}");
        }
    }
}

/// Adds a reply to the history, and the results of its calls or the next question.
fn extend(history: &mut Vec<Value>, dialect: ClientDialect, reply: Vec<Value>, drops: bool) {
    let calls = dialect.calls(&reply);
    history.extend(if drops { dialect.stripped(reply) } else { reply });
    if calls.is_empty() {
        history.push(dialect.user("Thank you. And once more, please."));
    } else {
        history.extend(dialect.results(&calls));
    }
}

fn other(account: &str) -> &'static str {
    if account == "a" { "b" } else { "a" }
}

fn question(number: usize) -> String {
    format!("What is the weather in city {number}, and what time is it there?")
}

#[tokio::test]
async fn conversation_moves_with_fates_if_its_account_fails() {
    for (dialect, model, is_bound) in CASES {
        for (stream, drops) in [(false, false), (true, false), (false, true), (true, true)] {
            let label = format!("{dialect:?} → {model}, streamed {stream}, drops {drops}");
            let gateway = PoolGateway::open(ReplayMode::Repair, PoolOptions::default()).await;
            let mut history = vec![dialect.user(&question(1))];
            let first = gateway.send("one", dialect, model, &history, stream).await;
            assert_eq!(first.status, 200, "{label}: {:?}", first.reply);
            let account = first.account().to_owned();
            extend(&mut history, dialect, first.reply, drops);

            let second = gateway.send("one", dialect, model, &history, stream).await;
            assert_eq!(second.account(), account, "{label}: the conversation stays");
            let fates = gateway.record("one", &second).await.to_string();
            assert!(!fates.contains(OTHER_ACCOUNT), "{label}: {fates}");
            extend(&mut history, dialect, second.reply, drops);

            // The account fails in the middle of the conversation.
            gateway.upstream.fail(&account, 429);
            gateway.upstream.take();
            let moved = gateway.send("one", dialect, model, &history, stream).await;
            assert_eq!(moved.status, 200, "{label}: {:?}", moved.reply);
            assert_eq!(moved.account(), other(&account), "{label}");
            assert_eq!(gateway.upstream.take().len(), 2, "{label}: both accounts were tried");
            let fates = gateway.record("one", &moved).await.to_string();
            assert_eq!(fates.contains(OTHER_ACCOUNT), is_bound, "{label}: {fates}");
            assert!(moved.elided() > 0 || !is_bound, "{label}: {}", moved.elided());
            extend(&mut history, dialect, moved.reply, drops);

            // The conversation stays with the second account, also after the first recovers.
            gateway.upstream.repair();
            let next = gateway.send("one", dialect, model, &history, stream).await;
            assert_eq!(next.account(), other(&account), "{label}");
            assert_eq!(gateway.upstream.take().len(), 1, "{label}");
            gateway.assert_all_verified(&label);
        }
    }
}

#[tokio::test]
async fn cooling_account_gets_no_request() {
    let gateway = PoolGateway::open(ReplayMode::Repair, PoolOptions::default()).await;
    let dialect = ClientDialect::Responses;
    gateway.upstream.fail("a", 429);
    let mut tried = Vec::new();
    for number in 0..12 {
        let history = [dialect.user(&question(number))];
        let answer = gateway.send("one", dialect, "gpt-5.2", &history, false).await;
        assert_eq!((answer.status, answer.account()), (200, "b"));
        tried.extend(gateway.upstream.take());
    }
    let count = tried.iter().filter(|endpoint| *endpoint == "openai#a").count();
    assert_eq!(count, 1, "the first 429 starts the cooldown: {tried:?}");
    gateway.upstream.fail("b", 429);
    let history = [dialect.user(&question(99))];
    let answer = gateway.send("one", dialect, "gpt-5.2", &history, false).await;
    assert_eq!(answer.status, 429, "the client gets the provider's response");
    assert_eq!(answer.header("retry-after"), "60");
}

#[tokio::test]
async fn rejected_key_is_replaced_by_another_account() {
    for status in [401, 402, 403, 500, 529] {
        let gateway = PoolGateway::open(ReplayMode::Repair, PoolOptions::default()).await;
        let dialect = ClientDialect::Messages;
        for account in ACCOUNTS {
            gateway.upstream.repair();
            gateway.upstream.fail(account, status);
            for number in 0..4 {
                let history = [dialect.user(&question(number))];
                let answer =
                    gateway.send("one", dialect, "claude-sonnet-4-5", &history, false).await;
                assert_eq!((answer.status, answer.account()), (200, other(account)), "{status}");
            }
        }
    }
}

#[tokio::test]
async fn bound_conversation_stays_if_so_configured() {
    let pool = PoolOptions { bound: BoundPolicy::Stay, ..PoolOptions::default() };
    let gateway = PoolGateway::open(ReplayMode::Repair, pool).await;
    for (dialect, model, is_bound) in CASES {
        let mut history = vec![dialect.user(&question(7))];
        let first = gateway.send("one", dialect, model, &history, false).await;
        let account = first.account().to_owned();
        extend(&mut history, dialect, first.reply, false);
        gateway.upstream.fail(&account, 503);
        let failed = gateway.send("one", dialect, model, &history, false).await;
        let expected = if is_bound { 503 } else { 200 };
        assert_eq!(failed.status, expected, "{dialect:?} → {model}");
        gateway.upstream.repair();
        if is_bound {
            let again = gateway.send("one", dialect, model, &history, false).await;
            assert_eq!((again.status, again.account()), (200, &*account));
            let fates = gateway.record("one", &again).await.to_string();
            assert!(!fates.contains(OTHER_ACCOUNT), "{dialect:?} → {model}: {fates}");
        }
    }
    gateway.assert_all_verified("stay");
}

#[tokio::test]
async fn accounts_are_known_after_a_restart_and_per_tenant() {
    let mut gateway = PoolGateway::open(ReplayMode::Repair, PoolOptions::default()).await;
    let (dialect, model) = (ClientDialect::Responses, "gpt-5.2");
    let mut conversations = Vec::new();
    for number in 0..8 {
        for tenant in ["one", "two"] {
            let mut history = vec![dialect.user(&question(number))];
            let first = gateway.send(tenant, dialect, model, &history, number % 3 == 0).await;
            let account = first.account().to_owned();
            extend(&mut history, dialect, first.reply, number % 2 == 1);
            conversations.push((tenant, account, history));
        }
    }
    let used: BTreeSet<&str> =
        conversations.iter().map(|(_, account, _)| account.as_str()).collect();
    assert_eq!(used, BTreeSet::from(ACCOUNTS), "both accounts have conversations");
    // With these weights, nearly all new conversations use the same account.
    for weights in [[1, 1000], [1000, 1]] {
        gateway.restart(weights).await;
        for (tenant, account, history) in &mut conversations {
            let next = gateway.send(tenant, dialect, model, history, false).await;
            assert_eq!((next.status, next.account()), (200, account.as_str()));
            assert_eq!(next.elided(), 0);
            extend(history, dialect, next.reply, false);
        }
    }
    gateway.assert_all_verified("restart");
}

#[tokio::test]
async fn unmodified_requests_never_change_their_account() {
    let (dialect, model) = (ClientDialect::Responses, "gpt-5.2");
    for mode in [ReplayMode::Off, ReplayMode::Observe] {
        let gateway = PoolGateway::open(mode, PoolOptions::default()).await;
        for number in 0..6 {
            let mut history = vec![dialect.user(&question(number))];
            let first = gateway.send("one", dialect, model, &history, false).await;
            let account = first.account().to_owned();
            extend(&mut history, dialect, first.reply, false);
            gateway.upstream.fail(&account, 503);
            let failed = gateway.send("one", dialect, model, &history, false).await;
            assert_eq!(failed.status, 503, "{mode:?}: another account would refuse the Seals");
            gateway.upstream.repair();
            let next = gateway.send("one", dialect, model, &history, false).await;
            assert_eq!((next.status, next.account()), (200, &*account), "{mode:?}");
        }
        gateway.assert_all_verified("unmodified");
    }
}

/// If the store does not know which account issued the Seals, only one account gets them.
#[tokio::test]
async fn seals_of_an_unknown_account_reach_one_account() {
    let (dialect, model) = (ClientDialect::Responses, "gpt-5.2");
    for mode in [ReplayMode::Observe, ReplayMode::Repair] {
        // The mode `off` captures nothing, so no store knows the first turns.
        let mut gateway = PoolGateway::open(ReplayMode::Off, PoolOptions::default()).await;
        let mut conversations = Vec::new();
        for number in 0..6 {
            let mut history = vec![dialect.user(&question(number))];
            let first = gateway.send("one", dialect, model, &history, false).await;
            let account = first.account().to_owned();
            extend(&mut history, dialect, first.reply, false);
            conversations.push((account, history));
        }
        let _folder = gateway.serve_again(mode).await;
        for (account, history) in conversations {
            gateway.upstream.fail(&account, 429);
            gateway.upstream.take();
            let failed = gateway.send("one", dialect, model, &history, false).await;
            assert_eq!(failed.status, 429, "{mode:?}: another account would refuse the Seals");
            assert_eq!(gateway.upstream.take(), [format!("openai#{account}")], "{mode:?}");
            // The account is cooling down, but no other account can read the Seals.
            gateway.upstream.repair();
            let next = gateway.send("one", dialect, model, &history, false).await;
            assert_eq!((next.status, next.account()), (200, &*account), "{mode:?}");
        }
        gateway.assert_all_verified("unknown account");
    }
}

#[tokio::test]
async fn metrics_count_the_accounts() {
    let gateway = PoolGateway::open(ReplayMode::Repair, PoolOptions::default()).await;
    let dialect = ClientDialect::Messages;
    gateway.upstream.fail("a", 429);
    for number in 0..6 {
        let history = [dialect.user(&question(number))];
        gateway.send("one", dialect, "claude-sonnet-4-5", &history, false).await;
    }
    let expected = [
        "throughline_account_calls_total{provider=\"anthropic\",account=\"b\",status=\"200\"} 6",
        "throughline_account_cooldowns_total{provider=\"anthropic\",account=\"a\"} 1",
    ];
    let key = [("authorization", "Bearer tl_one")];
    let mut page = String::new();
    // A call is counted shortly after its response has ended.
    for _ in 0..200 {
        let response = begin(&gateway.url, "GET", "/metrics", Vec::new(), &key).await;
        let body = response.into_body().collect().await.unwrap().to_bytes();
        page = String::from_utf8(body.to_vec()).unwrap();
        if expected.iter().all(|line| page.contains(line)) {
            return;
        }
    }
    panic!("{expected:?} is not in {page}");
}

/// An upstream that stores files and responses per account, and holds streams open.
struct StoringAccounts {
    arrived: Mutex<Vec<String>>,
    count: Mutex<u32>,
    /// Each permit releases one held response.
    release: Arc<Semaphore>,
}

impl StoringAccounts {
    fn new() -> Self {
        let release = Arc::new(Semaphore::new(0));
        Self { arrived: Mutex::default(), count: Mutex::default(), release }
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.arrived.lock().unwrap())
    }

    fn fresh(&self, prefix: &str) -> String {
        let mut count = self.count.lock().unwrap();
        *count += 1;
        format!("{prefix}{:024x}", *count)
    }
}

impl Upstream for StoringAccounts {
    fn send(&self, outgoing: UpstreamRequest) -> UpstreamFuture<'_> {
        self.arrived.lock().unwrap().push(outgoing.endpoint.to_string());
        let body = match (&*outgoing.method, &*outgoing.path) {
            ("POST", "/files") => json!({"id": self.fresh("file-"), "object": "file"}),
            ("POST", "/responses") => {
                json!({"id": self.fresh("resp_"), "object": "response", "created_at": 1,
                    "status": "completed", "model": "gpt-5.2", "output": [
                        {"type": "message", "id": self.fresh("msg_"), "role": "assistant",
                         "status": "completed", "content": [
                            {"type": "output_text", "text": "Hello.", "annotations": []}]}],
                    "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}})
            }
            _ => json!({"object": "list", "data": []}),
        };
        let is_held = outgoing.body.windows(4).any(|bytes| bytes == b"hold");
        let (body, release) = (Bytes::from(body.to_string()), Arc::clone(&self.release));
        Box::pin(async move {
            let headers = vec![("content-type".into(), "application/json".into())];
            let chunks = stream::once(async move {
                if is_held {
                    release.acquire().await.unwrap().forget();
                }
                Ok(body)
            });
            Ok(UpstreamResponse { status: 200, headers, body: Box::pin(chunks) })
        })
    }
}

/// A gateway in front of accounts that store objects.
struct StoringGateway {
    url: String,
    upstream: Arc<StoringAccounts>,
    _folder: Folder,
}

impl StoringGateway {
    async fn open(mode: ReplayMode, pool: &PoolOptions) -> Self {
        let upstream = Arc::new(StoringAccounts::new());
        let shared: Arc<dyn Upstream> = Arc::<StoringAccounts>::clone(&upstream);
        let (url, _, folder) = serve(shared, gateway_options(mode, pool, [1, 1])).await;
        Self { url, upstream, _folder: folder }
    }

    async fn request(&self, tenant: &str, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let key = format!("Bearer tl_{tenant}");
        let headers = [("content-type", "application/json"), ("authorization", &*key)];
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let response = begin(&self.url, method, path, body, &headers).await;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    /// Sends a request and returns its response and the endpoint that received the request.
    async fn endpoint_of(
        &self,
        tenant: &str,
        method: &str,
        path: &str,
        body: &Value,
    ) -> (Value, String) {
        self.upstream.take();
        let (status, answer) = self.request(tenant, method, path, body).await;
        assert_eq!(status, 200, "{method} {path}: {answer}");
        let arrived = self.upstream.take();
        assert_eq!(arrived.len(), 1, "{arrived:?}");
        (answer, arrived[0].clone())
    }
}

#[tokio::test]
async fn objects_stay_at_their_account() {
    let gateway = StoringGateway::open(ReplayMode::Repair, &PoolOptions::default()).await;
    let mut used = BTreeSet::new();
    for tenant in ["one", "two", "three", "four", "five", "six", "seven", "eight"] {
        let upload = json!({"purpose": "user_data"});
        let (file, endpoint) = gateway.endpoint_of(tenant, "POST", "/v1/files", &upload).await;
        let (_, second) = gateway.endpoint_of(tenant, "POST", "/v1/files", &upload).await;
        assert_eq!(second, endpoint, "the files of a tenant are at one account");
        let (_, listed) = gateway.endpoint_of(tenant, "GET", "/v1/files", &Value::Null).await;
        assert_eq!(listed, endpoint);
        let path = format!("/v1/files/{}", file["id"].as_str().unwrap());
        let (_, read) = gateway.endpoint_of(tenant, "GET", &path, &Value::Null).await;
        assert_eq!(read, endpoint);
        for number in 0..4 {
            let body = json!({"model": "gpt-5.2", "store": false, "input": [{"role": "user",
                "content": [{"type": "input_text", "text": question(number)},
                            {"type": "input_file", "file_id": file["id"]}]}]});
            let (_, called) = gateway.endpoint_of(tenant, "POST", "/v1/responses", &body).await;
            assert_eq!(called, endpoint, "the model must be able to read the file");
        }
        let (status, _) = gateway.request("other", "GET", &path, &Value::Null).await;
        assert_eq!(status, 404, "another tenant cannot read the file");
        used.insert(endpoint);
    }
    assert_eq!(used.len(), 2, "the tenants are distributed: {used:?}");
}

/// The end users of a tenant share its objects, so their objects are at one account.
#[tokio::test]
async fn objects_of_all_end_users_are_at_one_account() {
    let gateway = StoringGateway::open(ReplayMode::Repair, &PoolOptions::default()).await;
    let upload = json!({"purpose": "user_data"}).to_string();
    for user in ["u1", "u2", "u3", "u4", "u5", "u6", "u7", "u8"] {
        let headers = [
            ("content-type", "application/json"),
            ("authorization", "Bearer tl_one"),
            ("x-throughline-user", user),
        ];
        let body = upload.clone().into_bytes();
        let response = begin(&gateway.url, "POST", "/v1/files", body, &headers).await;
        assert_eq!(response.status(), 200);
    }
    let used: BTreeSet<String> = gateway.upstream.take().into_iter().collect();
    assert_eq!(used.len(), 1, "{used:?}");
}

#[tokio::test]
async fn stored_response_is_continued_at_its_account() {
    for mode in [ReplayMode::Off, ReplayMode::Repair] {
        let gateway = StoringGateway::open(mode, &PoolOptions::default()).await;
        let mut used = BTreeSet::new();
        for number in 0..8 {
            let body = json!({"model": "gpt-5.2", "input": question(number)});
            let (first, endpoint) =
                gateway.endpoint_of("one", "POST", "/v1/responses", &body).await;
            let body = json!({"model": "gpt-5.2", "input": "And now?",
                "previous_response_id": first["id"]});
            let (_, next) = gateway.endpoint_of("one", "POST", "/v1/responses", &body).await;
            assert_eq!(next, endpoint, "{mode:?}");
            used.insert(endpoint);
        }
        assert_eq!(used.len(), 2, "{mode:?}: {used:?}");
    }
}

/// Waits for a request and returns its endpoint.
async fn next_arrival(gateway: &StoringGateway) -> String {
    loop {
        if let Some(endpoint) = gateway.upstream.take().pop() {
            return endpoint;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn least_busy_account_takes_the_next_conversation() {
    let pool = PoolOptions { balance: Balance::LeastBusy, ..PoolOptions::default() };
    let gateway = Arc::new(StoringGateway::open(ReplayMode::Repair, &pool).await);
    let body = json!({"model": "gpt-5.2", "store": false, "input": "hold this response"});
    let (held, held_body) = (Arc::clone(&gateway), body.clone());
    let first =
        tokio::spawn(async move { held.request("one", "POST", "/v1/responses", &held_body).await });
    let first_endpoint = next_arrival(&gateway).await;
    // While the first response is open, an equal request uses the other account.
    let (again, again_body) = (Arc::clone(&gateway), body);
    let second =
        tokio::spawn(
            async move { again.request("one", "POST", "/v1/responses", &again_body).await },
        );
    assert_ne!(next_arrival(&gateway).await, first_endpoint);
    gateway.upstream.release.add_permits(2);
    assert_eq!(first.await.unwrap().0, 200);
    assert_eq!(second.await.unwrap().0, 200);
}
