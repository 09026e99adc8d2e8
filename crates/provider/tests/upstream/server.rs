//! A server on raw sockets that writes scripted bytes and records requests.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use throughline_codec::Catalog;
use throughline_core::{Credential, UpstreamError, UpstreamRequest, UpstreamResponse};
use throughline_provider::{CredentialSource, Endpoint, EndpointOptions, Http, RetryPolicy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// What the server does with a request.
#[derive(Clone)]
pub(crate) enum Reaction {
    /// Writes the bytes and waits for the next request on the same connection.
    Answers(Vec<u8>),
    /// Writes the bytes and closes the connection.
    Breaks(Vec<u8>),
    /// Writes the bytes, then stalls until the client disconnects.
    Stalls(Vec<u8>),
}

/// Builds a response with a content length. Each line of `headers` must end with a line break.
pub(crate) fn response(status: u16, headers: &str, body: impl AsRef<[u8]>) -> Reaction {
    let body = body.as_ref();
    let length = body.len();
    let head = format!("HTTP/1.1 {status} Said\r\ncontent-length: {length}\r\n{headers}\r\n");
    Reaction::Answers([head.as_bytes(), body].concat())
}

/// Builds the start of a chunked response, with one chunk.
pub(crate) fn chunked_start(piece: &str) -> Vec<u8> {
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    format!("{head}{:x}\r\n{piece}\r\n", piece.len()).into_bytes()
}

#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    pub(crate) connection: usize,
    pub(crate) request_line: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl ReceivedRequest {
    /// Returns all values of a header. `name` must be in lower case.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        let named = self.headers.iter().filter(|(key, _)| key == name);
        named.map(|(_, value)| value.as_str()).collect()
    }
}

/// Chooses the reaction to a request; the number counts the earlier requests.
type ReactFn = dyn Fn(usize, &ReceivedRequest) -> Reaction + Send + Sync;

pub(crate) struct Server {
    pub(crate) address: String,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
    /// Receives a message whenever the client of a stalled connection disconnects.
    pub(crate) disconnects: mpsc::UnboundedReceiver<()>,
}

impl Server {
    /// Starts a server that performs one scripted reaction per request, in order, and then repeats
    /// the last reaction.
    pub(crate) async fn start(reactions: Vec<Reaction>) -> Self {
        Self::with_reaction(move |turn, _| reactions[turn.min(reactions.len() - 1)].clone()).await
    }

    /// Starts a server that chooses its reaction to each request.
    pub(crate) async fn with_reaction(
        react: impl Fn(usize, &ReceivedRequest) -> Reaction + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (disconnect_sender, disconnects) = mpsc::unbounded_channel();
        let react: Arc<ReactFn> = Arc::new(react);
        let request_count = Arc::new(AtomicUsize::new(0));
        let request_log = Arc::clone(&requests);
        tokio::spawn(async move {
            for connection in 0.. {
                let (socket, _) = listener.accept().await.unwrap();
                let client = ClientConnection {
                    socket,
                    connection,
                    react: Arc::clone(&react),
                    request_count: Arc::clone(&request_count),
                    requests: Arc::clone(&request_log),
                    disconnects: disconnect_sender.clone(),
                };
                tokio::spawn(client.serve());
            }
        });
        Self { address, requests, disconnects }
    }

    pub(crate) fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().unwrap().clone()
    }
}

struct ClientConnection {
    socket: TcpStream,
    connection: usize,
    react: Arc<ReactFn>,
    request_count: Arc<AtomicUsize>,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
    disconnects: mpsc::UnboundedSender<()>,
}

impl ClientConnection {
    async fn serve(mut self) {
        while let Some(request) = self.read().await {
            let turn = self.request_count.fetch_add(1, Ordering::SeqCst);
            let reaction = (self.react)(turn, &request);
            self.requests.lock().unwrap().push(request);
            match reaction {
                Reaction::Answers(bytes) => self.socket.write_all(&bytes).await.unwrap(),
                Reaction::Breaks(bytes) => {
                    self.socket.write_all(&bytes).await.unwrap();
                    return;
                }
                Reaction::Stalls(bytes) => {
                    self.socket.write_all(&bytes).await.unwrap();
                    // The read ends when the client closes the connection, cleanly or with a reset.
                    let left = self.socket.read(&mut [0; 64]).await;
                    assert_eq!(left.unwrap_or(0), 0, "the client sends more");
                    self.disconnects.send(()).unwrap();
                    return;
                }
            }
        }
    }

    async fn read(&mut self) -> Option<ReceivedRequest> {
        let mut bytes = Vec::new();
        let head = loop {
            if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                break end;
            }
            if self.socket.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                return None;
            }
        };
        let text = String::from_utf8(bytes[..head].to_vec()).unwrap();
        let mut lines = text.split("\r\n").map(str::to_owned);
        let request_line = lines.next().unwrap();
        let headers: Vec<(String, String)> = lines
            .map(|line| {
                let (name, value) = line.split_once(": ").unwrap();
                (name.to_ascii_lowercase(), value.to_owned())
            })
            .collect();
        let length = headers.iter().find(|(name, _)| name == "content-length");
        let length: usize = length.map_or(0, |(_, value)| value.parse().unwrap());
        let mut body = bytes.split_off(head + 4);
        while body.len() < length {
            self.socket.read_buf(&mut body).await.unwrap();
        }
        Some(ReceivedRequest { connection: self.connection, request_line, headers, body })
    }
}

/// Creates the credentials of an endpoint that uses a fixed key.
pub(crate) fn key(text: &str) -> CredentialSource {
    CredentialSource::Key(Credential::new(text))
}

/// Creates an endpoint named `here` for a catalog entry.
pub(crate) fn endpoint(row: &str, address: &str, credential: CredentialSource) -> Endpoint {
    let row = Catalog::builtin().provider(row).unwrap();
    Endpoint::new("here", row, address, credential).unwrap()
}

/// Creates a client with a single endpoint and a fixed clock.
pub(crate) fn client(endpoint: Endpoint) -> Http {
    let now = "2026-11-15T12:00:00Z".parse().unwrap();
    Http::new([endpoint], Arc::new(move || now)).unwrap()
}

/// Returns options with a retry delay of one millisecond, for fast tests.
pub(crate) fn swift() -> EndpointOptions {
    let retry = RetryPolicy { first_wait: Duration::from_millis(1), ..RetryPolicy::default() };
    EndpointOptions { retry, ..EndpointOptions::default() }
}

/// Builds a request to the endpoint `here`.
pub(crate) fn outgoing(path: &str) -> UpstreamRequest {
    UpstreamRequest {
        endpoint: "here".into(),
        model: None,
        method: "POST".into(),
        path: path.into(),
        headers: vec![("content-type".into(), "application/json".into())],
        body: Bytes::from_static(b"{\"a\": 1}"),
        credential: None,
    }
}

pub(crate) async fn read_body(response: UpstreamResponse) -> Result<Vec<u8>, UpstreamError> {
    let mut body = response.body;
    let mut bytes = Vec::new();
    while let Some(chunk) = body.next().await {
        bytes.extend_from_slice(&chunk?);
    }
    Ok(bytes)
}
