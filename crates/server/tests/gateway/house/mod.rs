//! A gateway in front of a scripted provider on a raw socket.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "a test fails by panicking, and each test file uses only a part"
)]

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use throughline_agent::Ports;
use throughline_codec::Catalog;
use throughline_core::{Clock, Store, StoreFuture, Wire};
use throughline_json::{Json, Name};
use throughline_provider::{CredentialSource, Endpoint, EndpointOptions, Http, RetryPolicy};
use throughline_replay::{Claims, Replay};
use throughline_server::{
    Admission, AgentApi, Gateway, Keyring, Level, Limits, Log, ModelRouter, Price, Prices,
    ReplayMode, RouteTarget, Server, ServerHandle, StorePolicy, Telemetry, TokenPrices,
};
use throughline_store::Journal;
use throughline_testkit::Folder;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) const STREAM: &str = concat!(
    "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_01\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"claude-sonnet-4-5\",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":{\"input_tokens\":100,\"output_tokens\":1}}}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Hello there\"}}\n\n",
    "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n",
    "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\",\"stop_sequence\":null},\"usage\":{\"output_tokens\":20}}\n\n",
    "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
);
/// The head of a streamed response that ends when the connection closes.
pub(crate) const STREAM_HEAD: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
/// The body of a complete response with 100 input tokens and 20 output tokens.
pub(crate) const ANSWER: &str = r#"{"id":"msg_01","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[{"type":"text","text":"Hello"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":100,"output_tokens":20}}"#;

/// Formats a complete HTTP response.
pub(crate) fn http_response(status: &str, kind: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
}

/// A scripted provider on a raw socket.
pub(crate) struct RawProvider {
    pub(crate) url: String,
    pub(crate) open: Arc<AtomicUsize>,
}

impl RawProvider {
    /// Reads each request, then passes the connection to `act`.
    pub(crate) async fn with_handler<F>(
        act: impl Fn(TcpStream) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self::with_request_handler(move |_, stream| act(stream)).await
    }

    /// Reads each request, then passes the request's text and the connection to `act`.
    pub(crate) async fn with_request_handler<F>(
        act: impl Fn(String, TcpStream) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let open = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&open);
        let act = Arc::new(act);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (act, open) = (Arc::clone(&act), Arc::clone(&counted));
                open.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    if let Some(request) = read_request(&mut stream).await {
                        act(String::from_utf8_lossy(&request).into_owned(), stream).await;
                    }
                    open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { url, open }
    }

    /// Sends this text for each request and closes the connection.
    pub(crate) async fn with_reply(text: impl Into<String>) -> Self {
        let text: Arc<str> = text.into().into();
        Self::with_handler(move |mut stream| {
            let text = Arc::clone(&text);
            async move {
                stream.write_all(text.as_bytes()).await.ok();
                stream.shutdown().await.ok();
            }
        })
        .await
    }

    /// Returns a provider at this address, without starting a server.
    pub(crate) fn at(url: &str) -> Self {
        Self { url: url.to_owned(), open: Arc::default() }
    }

    /// Waits until no client is connected to the provider.
    pub(crate) async fn is_alone(&self) {
        until(|| self.open.load(Ordering::SeqCst) == 0).await;
    }
}

pub(crate) async fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        tokio::task::yield_now().await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Reads a request with its body; `None` if the caller disconnects early.
async fn read_request(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut read = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&read).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse::<usize>().ok()
            });
            if body.len() >= length.unwrap_or(0) {
                return Some(read);
            }
        }
        if stream.read_buf(&mut read).await.ok()? == 0 {
            return None;
        }
    }
}

#[derive(Default)]
pub(crate) struct LogLines(Mutex<Vec<String>>);

impl Log for LogLines {
    fn wants(&self, _: Level) -> bool {
        true
    }

    fn write(&self, level: Level, line: &Json) {
        self.0.lock().unwrap().push(format!("{} {}", level.as_str(), line.as_str()));
    }
}

impl LogLines {
    /// Returns the log lines for an event, each prefixed with its level.
    pub(crate) fn of(&self, event: &str) -> Vec<String> {
        let lines = self.0.lock().unwrap();
        let event = format!("\"event\":\"{event}\"");
        lines.iter().filter(|line| line.contains(&event)).cloned().collect()
    }

    /// Returns the log lines for calls, each prefixed with its level.
    pub(crate) fn calls(&self) -> Vec<String> {
        let lines = self.0.lock().unwrap();
        lines.iter().filter(|line| line.contains(r#""event":"call""#)).cloned().collect()
    }
}

/// Charges one dollar per million input tokens and two per million output tokens; `claude-unpriced`
/// has no price.
pub(crate) struct FlatPrices;

impl Prices for FlatPrices {
    fn price(&self, _: &str, model: &str) -> Option<Price> {
        let million = 1_000_000;
        let prices =
            TokenPrices { input: million, cached: million, written: million, output: 2 * million };
        (model != "claude-unpriced").then_some(Price::flat(prices))
    }

    fn version(&self) -> Name {
        "one dollar".into()
    }
}

/// A keyring that gives every key the same admission, except that `tl_of_` keys get their own
/// tenant. With `None`, the gateway requires no key.
pub(crate) struct OneAdmission(pub(crate) Option<Admission>);

impl Keyring for OneAdmission {
    fn admit<'a>(&'a self, key: Option<&'a str>) -> StoreFuture<'a, Admission> {
        let admission = match (&self.0, key) {
            (None, _) => Admission::Open,
            // A key may name another tenant.
            (Some(Admission::Key { id, models, allowance, .. }), Some(key))
                if key.starts_with("tl_of_") =>
            {
                let (id, models, allowance) = (id.clone(), models.clone(), *allowance);
                Admission::Key { role: None, tenant: key.into(), id, models, allowance }
            }
            (Some(admission), Some(_)) => admission.clone(),
            (Some(_), None) => Admission::Refused,
        };
        Box::pin(async move { Ok(admission) })
    }
}

/// Routes every model to the raw provider, on Anthropic's wire or on the wire of the model's own
/// provider.
struct RawRouter {
    catalog: Arc<Catalog>,
    own_wires: bool,
}

/// Prefixes of model names, each with the catalog entry for the model's provider.
const VENDOR_ROWS: [(&str, &str); 5] = [
    ("gpt-4", "openai-chat"),
    ("gpt", "openai"),
    ("gemini", "gemini"),
    ("deepseek", "deepseek-anthropic"),
    ("", "anthropic"),
];

impl ModelRouter for RawRouter {
    fn reach(&self, model: &str) -> Result<Vec<RouteTarget>, String> {
        // The tests define these names over HTTP.
        if model.starts_with("route-") {
            return Err(format!("there is no model `{model}`"));
        }
        let maker = VENDOR_ROWS.iter().find(|(begins, _)| model.starts_with(begins)).unwrap().1;
        let row = if self.own_wires { maker } else { "anthropic" };
        let name = if row == "anthropic" { "raw".into() } else { format!("raw-{row}").into() };
        Ok(vec![RouteTarget {
            endpoint: Name::clone(&name),
            account: name,
            is_callers: false,
            provider: self.catalog.provider(row).unwrap(),
            model: model.into(),
        }])
    }

    fn of_wire(&self, _: &Wire) -> Option<RouteTarget> {
        self.reach("").ok()?.pop()
    }

    fn models(&self) -> Vec<Name> {
        Vec::new()
    }
}

pub(crate) struct RawGatewayOptions {
    pub(crate) limits: Limits,
    pub(crate) admission: Option<Admission>,
    /// How long the provider may be silent before the request times out.
    pub(crate) idle: Duration,
    pub(crate) body_limit: usize,
    /// Maximum memory of the gateway's caches in bytes.
    pub(crate) cache_size: usize,
    /// Whether replies are stored by write-behind.
    pub(crate) relaxed: bool,
    /// Whether each model uses the wire of its own provider. Otherwise all models use Anthropic's
    /// wire.
    pub(crate) own_wires: bool,
    /// The agent API and the console; `None` for tests that do not need them.
    pub(crate) agents: Option<Arc<AgentApi>>,
    /// How the gateway handles requests while the store fails.
    pub(crate) policy: StorePolicy,
    /// A keyring that replaces the one built from `admission`.
    pub(crate) keyring: Option<Arc<dyn Keyring>>,
    /// The clock that budget periods follow.
    pub(crate) clock: Arc<dyn Clock>,
}

impl Default for RawGatewayOptions {
    fn default() -> Self {
        Self {
            // The limit allows for slow disks, because tests read the stored replies.
            limits: Limits { capture: Duration::from_secs(5), ..Limits::default() },
            admission: None,
            idle: Duration::from_mins(1),
            body_limit: 64 << 20,
            cache_size: throughline_replay::DEFAULT_CACHE_SIZE,
            relaxed: false,
            own_wires: false,
            agents: None,
            policy: StorePolicy::default(),
            keyring: None,
            clock: Ports::with_system_clock([0; 32]).clock,
        }
    }
}

pub(crate) struct RawGateway {
    pub(crate) address: String,
    pub(crate) lines: Arc<LogLines>,
    /// The handle to the server, for requests without a connection.
    pub(crate) handle: ServerHandle,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<()>,
}

pub(crate) async fn store(folder: &Folder) -> Journal {
    let url = format!("sqlite://{}", folder.join("store.db").display());
    throughline_store::open(&url, &throughline_store::Options::default()).await.unwrap()
}

impl RawGateway {
    /// Starts a gateway with this store in front of the provider.
    pub(crate) fn open(
        provider: &RawProvider,
        store: &Journal,
        options: RawGatewayOptions,
    ) -> Self {
        Self::open_on(provider, Arc::new(store.clone()), options)
    }

    /// Starts a gateway with any store in front of the provider.
    pub(crate) fn open_on(
        provider: &RawProvider,
        store: Arc<dyn Store>,
        options: RawGatewayOptions,
    ) -> Self {
        let catalog = Arc::new(Catalog::builtin().clone());
        let retry = RetryPolicy { retries: 0, ..RetryPolicy::default() };
        let endpoint_options =
            EndpointOptions { retry, between_bytes: options.idle, ..EndpointOptions::default() };
        let endpoints = VENDOR_ROWS.map(|(_, row)| {
            let key = CredentialSource::Key(throughline_core::Credential::new("raw-key"));
            let name = if row == "anthropic" { "raw".to_owned() } else { format!("raw-{row}") };
            let row = catalog.provider(row).unwrap();
            Endpoint::new(name, row, &provider.url, key).unwrap().with_options(endpoint_options)
        });
        let upstream = Http::new(endpoints, Arc::new(|| jiff::Timestamp::UNIX_EPOCH)).unwrap();
        let lines = Arc::new(LogLines::default());
        let log = Arc::<LogLines>::clone(&lines);
        let limits = options.limits;
        let operations =
            Telemetry::new(Arc::clone(&store), Arc::new(FlatPrices), options.clock, log, limits)
                .unwrap();
        let operations = operations.with_store_policy(options.policy);
        let claims = Claims::new([7; 32]);
        let replay = Replay::with_cache_size(store, claims, options.cache_size);
        let gateway = Gateway {
            replay: Arc::new(if options.relaxed { replay.relaxed() } else { replay }),
            upstream: Arc::new(upstream),
            directory: Arc::new(RawRouter {
                catalog: Arc::clone(&catalog),
                own_wires: options.own_wires,
            }),
            catalog: catalog.into(),
            mode: ReplayMode::Repair,
            prefix: throughline_server::PrefixPolicy::default(),
            keyring: options.keyring.unwrap_or_else(|| Arc::new(OneAdmission(options.admission))),
            sign_in: None,
            allow_open: false,
            hosts: Vec::new(),
            passthrough: throughline_server::Passthrough::default(),
            body_limit: options.body_limit,
            depth_limit: 512,
            operations: Arc::new(operations),
            redaction: None,
        };
        let handle = ServerHandle::new(Server::new(gateway, options.agents));
        // By default the kernel would buffer megabytes for each caller that does not read.
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_send_buffer_size(16 << 10).unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(2048).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async { drop(stopped.await) };
        let never = std::future::pending();
        let serving = throughline_server::serve(handle.clone(), listener, stopped, never);
        let serving = tokio::spawn(serving);
        Self { address, lines, handle, stop: Some(stop), serving }
    }

    /// Shuts down the gateway and waits until it has stopped.
    pub(crate) async fn close(mut self) {
        drop(self.stop.take());
        self.serving.await.unwrap();
    }

    pub(crate) fn stop(&mut self) {
        drop(self.stop.take());
    }

    pub(crate) async fn stopped(self) {
        self.serving.await.unwrap();
    }

    /// Opens a connection and writes this text.
    pub(crate) async fn connect(&self, text: &str) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4 << 10).unwrap();
        let mut stream = socket.connect(self.address.parse().unwrap()).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        stream
    }

    /// Formats an HTTP request: GET without a body, POST with a body.
    pub(crate) fn request(&self, path: &str, headers: &str, body: &str) -> String {
        let (address, length) = (&self.address, body.len());
        let method = if body.is_empty() { "GET" } else { "POST" };
        format!(
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\nx-api-key: tl_any\r\nconnection: close\r\n\
             content-length: {length}\r\n{headers}\r\n{body}"
        )
    }

    /// Sends a request and reads the response until the connection ends.
    pub(crate) async fn send(&self, path: &str, headers: &str, body: &str) -> RawResponse {
        let mut stream = self.connect(&self.request(path, headers, body)).await;
        read_response(&mut stream).await
    }

    /// Sends a question to the model in Anthropic's dialect.
    pub(crate) async fn send_question(&self, model: &str, stream: bool) -> RawResponse {
        self.send("/v1/messages", "", &question(model, stream)).await
    }

    /// Returns the value of a metric. `name` includes the labels.
    pub(crate) async fn metric(&self, name: &str) -> String {
        let page = self.send("/metrics", "", "").await.body;
        let line = page.lines().find(|line| line.starts_with(name) && !line.starts_with('#'));
        line.and_then(|line| line.rsplit_once(' '))
            .map(|(_, value)| value.to_owned())
            .unwrap_or(page)
    }
}

/// Returns a request body that is valid in both Anthropic's dialect and the chat dialect.
pub(crate) fn question(model: &str, stream: bool) -> String {
    format!(
        r#"{{"model":"{model}","max_tokens":100,"stream":{stream},"messages":[{{"role":"user","content":"Hello"}}]}}"#
    )
}

#[derive(Debug)]
pub(crate) struct RawResponse {
    pub(crate) status: u16,
    pub(crate) head: String,
    /// The call id from the response headers.
    pub(crate) call: String,
    pub(crate) body: String,
    /// Whether the body is complete.
    pub(crate) is_complete: bool,
}

/// Reads a response until the connection ends in any way.
pub(crate) async fn read_response(stream: &mut TcpStream) -> RawResponse {
    let mut read = Vec::new();
    while let Ok(1..) = stream.read_buf(&mut read).await {}
    let text = String::from_utf8_lossy(&read).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let call = head.lines().find_map(|line| line.strip_prefix("x-throughline-call: "));
    let call = call.unwrap_or_default().to_owned();
    let head = head.to_ascii_lowercase();
    if !head.contains("transfer-encoding: chunked") {
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let is_complete = length.is_some_and(|length| length.parse() == Ok(body.len()));
        return RawResponse { status, body: body.to_owned(), is_complete, head, call };
    }
    let (mut decoded, mut rest) = (String::new(), body);
    let is_complete = loop {
        let Some((length, more)) = rest.split_once("\r\n") else { break false };
        let length = usize::from_str_radix(length, 16).unwrap();
        if length == 0 {
            break true;
        }
        let Some(chunk) = more.get(..length) else { break false };
        decoded.push_str(chunk);
        rest = more.get(length + 2..).unwrap_or_default();
    };
    RawResponse { status, body: decoded, is_complete, head, call }
}
