//! A provider that replays fixed simulator replies, with any chunking and compression.

use std::convert::Infallible;
use std::io::Write as _;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Request};
use axum::response::Response;
use axum::serve::ListenerExt as _;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use throughline_codec::{Catalog, codec};
use throughline_core::{Upstream as _, UpstreamRequest};
use throughline_testkit::{TestRng, split};

use super::{ClientDialect, MODELS, QUESTION, upstream};

/// How the bytes of a reply are split into chunks.
#[derive(Clone, Debug)]
pub(crate) enum Chunking {
    OneByte,
    Random(u64),
    At(Vec<usize>),
}

impl Chunking {
    fn pieces(&self, bytes: &[u8]) -> Vec<Bytes> {
        let mut rng = match self {
            Chunking::OneByte => return bytes.chunks(1).map(Bytes::copy_from_slice).collect(),
            Chunking::At(places) => return pieces(bytes, places),
            Chunking::Random(seed) => TestRng::new(*seed),
        };
        let places: Vec<usize> = (0..40).map(|_| rng.below(bytes.len())).collect();
        pieces(bytes, &places)
    }
}

fn pieces(bytes: &[u8], places: &[usize]) -> Vec<Bytes> {
    let pieces = split(bytes, places).into_iter().filter(|piece| !piece.is_empty());
    pieces.map(Bytes::copy_from_slice).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    Plain,
    Gzip,
    Deflate,
    Brotli,
}

impl Compression {
    pub(crate) const ALL: [Compression; 4] =
        [Compression::Plain, Compression::Gzip, Compression::Deflate, Compression::Brotli];

    pub(crate) fn name(self) -> Option<&'static str> {
        match self {
            Compression::Plain => None,
            Compression::Gzip => Some("gzip"),
            Compression::Deflate => Some("deflate"),
            Compression::Brotli => Some("br"),
        }
    }

    pub(crate) fn of(self, bytes: &[u8]) -> Vec<u8> {
        let fast = flate2::Compression::fast();
        match self {
            Compression::Plain => bytes.to_vec(),
            Compression::Gzip => {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), fast);
                encoder.write_all(bytes).unwrap();
                encoder.finish().unwrap()
            }
            Compression::Deflate => {
                let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), fast);
                encoder.write_all(bytes).unwrap();
                encoder.finish().unwrap()
            }
            Compression::Brotli => {
                let mut encoder = brotli::CompressorWriter::new(Vec::new(), 4096, 4, 20);
                encoder.write_all(bytes).unwrap();
                encoder.into_inner()
            }
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct RecordedReply {
    pub(crate) kind: String,
    pub(crate) body: Bytes,
}

#[derive(Clone, Debug)]
pub(crate) struct ReplyStyle {
    pub(crate) cut: Chunking,
    pub(crate) coding: Compression,
    /// Whether the provider ignores a request's `stream` option and returns one JSON object.
    pub(crate) ignores_stream: bool,
}

impl ReplyStyle {
    pub(crate) fn new(cut: Chunking, coding: Compression) -> Self {
        Self { cut, coding, ignores_stream: false }
    }
}

pub(crate) struct FixedProvider {
    pub(crate) url: String,
    replies: Vec<(ClientDialect, bool, RecordedReply)>,
    style: Mutex<ReplyStyle>,
    requests: Mutex<Vec<(HeaderMap, Bytes)>>,
}

impl FixedProvider {
    /// Records the simulators' replies on each wire, whole and streamed, and replays them
    /// afterwards.
    pub(crate) async fn open() -> Arc<Self> {
        let simulator = throughline_sim::start(throughline_sim::Options::default()).await.unwrap();
        let mut replies = Vec::new();
        for dialect in ClientDialect::ALL {
            for stream in [false, true] {
                replies.push((dialect, stream, recorded(&simulator.url(), dialect, stream).await));
            }
        }
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let style = Mutex::new(ReplyStyle::new(Chunking::At(Vec::new()), Compression::Plain));
        let scripted = Arc::new(Self { url, replies, style, requests: Mutex::default() });
        let router = Router::new().fallback(answer).with_state(Arc::clone(&scripted));
        let listener = listener.tap_io(|connection| drop(connection.set_nodelay(true)));
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        scripted
    }

    pub(crate) fn set_style(&self, style: ReplyStyle) {
        *self.style.lock().unwrap() = style;
    }

    pub(crate) fn reply(&self, dialect: ClientDialect, stream: bool) -> &RecordedReply {
        let found = self.replies.iter().find(|reply| (reply.0, reply.1) == (dialect, stream));
        &found.unwrap().2
    }

    /// Returns the headers and body of the last request.
    pub(crate) fn last(&self) -> (HeaderMap, Bytes) {
        self.requests.lock().unwrap().last().cloned().unwrap()
    }
}

/// Returns the provider's own name for a model on this wire. With this name, replies are forwarded
/// byte for byte.
pub(crate) fn model(dialect: ClientDialect) -> &'static str {
    let name = match dialect {
        ClientDialect::Messages => MODELS[0],
        ClientDialect::Responses => MODELS[1],
        ClientDialect::Gemini => MODELS[2],
        ClientDialect::Chat => MODELS[3],
    };
    name.strip_prefix("sim/").unwrap()
}

async fn recorded(simulator: &str, dialect: ClientDialect, stream: bool) -> RecordedReply {
    let row = match dialect {
        ClientDialect::Messages => "anthropic",
        ClientDialect::Responses => "openai",
        ClientDialect::Gemini => "gemini",
        ClientDialect::Chat => "deepseek",
    };
    let provider = Catalog::builtin().provider(row).unwrap();
    let model = model(dialect);
    let target = Catalog::builtin().target(&provider, model, "sim");
    let path = codec(&provider.wire).unwrap().path(&target, stream);
    let (_, body) = dialect.request(model, &[dialect.user(QUESTION)], stream);
    let header = |name: &str, value: &str| (name.into(), value.into());
    let outgoing = UpstreamRequest {
        endpoint: format!("sim-{row}").into(),
        model: None,
        method: "POST".into(),
        path: path.into(),
        headers: vec![
            header("content-type", "application/json"),
            header("anthropic-version", "2023-06-01"),
        ],
        body: body.to_string().into(),
        credential: None,
    };
    let answer = upstream(simulator).send(outgoing).await.unwrap();
    assert_eq!(answer.status, 200, "{dialect:?}, streamed {stream}");
    let kind = answer.header("content-type").unwrap().to_owned();
    let chunks: Vec<Bytes> = answer.body.map(Result::unwrap).collect().await;
    RecordedReply { kind, body: chunks.concat().into() }
}

async fn answer(State(scripted): State<Arc<FixedProvider>>, request: Request<Body>) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    let path = parts.uri.path();
    let endings = [
        ("/messages", ClientDialect::Messages),
        ("/responses", ClientDialect::Responses),
        ("/chat/completions", ClientDialect::Chat),
        ("enerateContent", ClientDialect::Gemini),
    ];
    let (_, dialect) = endings.into_iter().find(|(ending, _)| path.ends_with(ending)).unwrap();
    let request_json: serde_json::Value = serde_json::from_slice(&body).unwrap();
    let stream = request_json["stream"] == true || path.ends_with("streamGenerateContent");
    scripted.requests.lock().unwrap().push((parts.headers, body));
    let ReplyStyle { cut, coding, ignores_stream } = scripted.style.lock().unwrap().clone();
    let reply = scripted.reply(dialect, stream && !ignores_stream);
    let pieces = cut.pieces(&coding.of(&reply.body));
    let body = Body::from_stream(stream::iter(pieces.into_iter().map(Ok::<_, Infallible>)));
    let mut response = Response::builder().header("content-type", &reply.kind);
    if let Some(name) = coding.name() {
        response = response.header("content-encoding", name);
    }
    response.body(body).unwrap()
}
