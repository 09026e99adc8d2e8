//! A provider that answers with the same bytes whoever asks, in whichever pieces and compression a test wants. What it says
//! are answers of the simulators.

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
use throughline_core::{Outgoing, Upstream as _};
use throughline_testkit::{Dice, split};

use super::{MODELS, QUESTION, Say, upstream};

/// How the bytes of an answer are cut.
#[derive(Clone, Debug)]
pub(crate) enum Cut {
    OneByte,
    Random(u64),
    At(Vec<usize>),
}

impl Cut {
    fn pieces(&self, bytes: &[u8]) -> Vec<Bytes> {
        let mut dice = match self {
            Cut::OneByte => return bytes.chunks(1).map(Bytes::copy_from_slice).collect(),
            Cut::At(places) => return pieces(bytes, places),
            Cut::Random(seed) => Dice::new(*seed),
        };
        let places: Vec<usize> = (0..40).map(|_| dice.below(bytes.len())).collect();
        pieces(bytes, &places)
    }
}

fn pieces(bytes: &[u8], places: &[usize]) -> Vec<Bytes> {
    let pieces = split(bytes, places).into_iter().filter(|piece| !piece.is_empty());
    pieces.map(Bytes::copy_from_slice).collect()
}

/// How an answer is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    Plain,
    Gzip,
    Deflate,
    Brotli,
}

impl Coding {
    pub(crate) const ALL: [Coding; 4] =
        [Coding::Plain, Coding::Gzip, Coding::Deflate, Coding::Brotli];

    pub(crate) fn name(self) -> Option<&'static str> {
        match self {
            Coding::Plain => None,
            Coding::Gzip => Some("gzip"),
            Coding::Deflate => Some("deflate"),
            Coding::Brotli => Some("br"),
        }
    }

    pub(crate) fn of(self, bytes: &[u8]) -> Vec<u8> {
        let fast = flate2::Compression::fast();
        match self {
            Coding::Plain => bytes.to_vec(),
            Coding::Gzip => {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), fast);
                encoder.write_all(bytes).unwrap();
                encoder.finish().unwrap()
            }
            Coding::Deflate => {
                let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), fast);
                encoder.write_all(bytes).unwrap();
                encoder.finish().unwrap()
            }
            Coding::Brotli => {
                let mut encoder = brotli::CompressorWriter::new(Vec::new(), 4096, 4, 20);
                encoder.write_all(bytes).unwrap();
                encoder.into_inner()
            }
        }
    }
}

/// An answer as a simulator gave it.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    pub(crate) kind: String,
    pub(crate) body: Bytes,
}

/// How it answers now.
#[derive(Clone, Debug)]
pub(crate) struct Manner {
    pub(crate) cut: Cut,
    pub(crate) coding: Coding,
    /// Whether a streaming request is answered with one JSON object.
    pub(crate) ignores_stream: bool,
}

impl Manner {
    pub(crate) fn new(cut: Cut, coding: Coding) -> Self {
        Self { cut, coding, ignores_stream: false }
    }
}

/// A provider that always says the same.
pub(crate) struct Scripted {
    pub(crate) url: String,
    answers: Vec<(Say, bool, Said)>,
    manner: Mutex<Manner>,
    asked: Mutex<Vec<(HeaderMap, Bytes)>>,
}

impl Scripted {
    /// Takes down what the simulators answer on each wire, whole and streamed, and says that from then on.
    pub(crate) async fn open() -> Arc<Self> {
        let simulator = throughline_sim::start(throughline_sim::Options::default()).await.unwrap();
        let mut answers = Vec::new();
        for say in Say::ALL {
            for stream in [false, true] {
                answers.push((say, stream, recorded(&simulator.url(), say, stream).await));
            }
        }
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let manner = Mutex::new(Manner::new(Cut::At(Vec::new()), Coding::Plain));
        let scripted = Arc::new(Self { url, answers, manner, asked: Mutex::default() });
        let router = Router::new().fallback(answer).with_state(Arc::clone(&scripted));
        let listener = listener.tap_io(|connection| drop(connection.set_nodelay(true)));
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        scripted
    }

    pub(crate) fn answers(&self, manner: Manner) {
        *self.manner.lock().unwrap() = manner;
    }

    pub(crate) fn said(&self, say: Say, stream: bool) -> &Said {
        let found = self.answers.iter().find(|(own, how, _)| *own == say && *how == stream);
        &found.unwrap().2
    }

    /// What it was asked last.
    pub(crate) fn last(&self) -> (HeaderMap, Bytes) {
        self.asked.lock().unwrap().last().cloned().unwrap()
    }
}

/// The model of a wire's own maker, under the name that its maker knows, so that answers pass byte for byte.
pub(crate) fn model(say: Say) -> &'static str {
    let name = match say {
        Say::Messages => MODELS[0],
        Say::Responses => MODELS[1],
        Say::Gemini => MODELS[2],
        Say::Chat => MODELS[3],
    };
    name.strip_prefix("sim/").unwrap()
}

async fn recorded(simulator: &str, say: Say, stream: bool) -> Said {
    let row = match say {
        Say::Messages => "anthropic",
        Say::Responses => "openai",
        Say::Gemini => "gemini",
        Say::Chat => "deepseek",
    };
    let provider = Catalog::builtin().provider(row).unwrap();
    let model = model(say);
    let target = Catalog::builtin().target(&provider, model, "sim");
    let path = codec(&provider.wire).unwrap().path(&target, stream);
    let (_, body) = say.request(model, &[say.user(QUESTION)], stream);
    let header = |name: &str, value: &str| (name.into(), value.into());
    let outgoing = Outgoing {
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
    assert_eq!(answer.status, 200, "{say:?}, streamed {stream}");
    let kind = answer.header("content-type").unwrap().to_owned();
    let chunks: Vec<Bytes> = answer.body.map(Result::unwrap).collect().await;
    Said { kind, body: chunks.concat().into() }
}

async fn answer(State(scripted): State<Arc<Scripted>>, request: Request<Body>) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    let path = parts.uri.path();
    let endings = [
        ("/messages", Say::Messages),
        ("/responses", Say::Responses),
        ("/chat/completions", Say::Chat),
        ("enerateContent", Say::Gemini),
    ];
    let (_, say) = endings.into_iter().find(|(ending, _)| path.ends_with(ending)).unwrap();
    let asked: serde_json::Value = serde_json::from_slice(&body).unwrap();
    let stream = asked["stream"] == true || path.ends_with("streamGenerateContent");
    scripted.asked.lock().unwrap().push((parts.headers, body));
    let Manner { cut, coding, ignores_stream } = scripted.manner.lock().unwrap().clone();
    let said = scripted.said(say, stream && !ignores_stream);
    let pieces = cut.pieces(&coding.of(&said.body));
    let body = Body::from_stream(stream::iter(pieces.into_iter().map(Ok::<_, Infallible>)));
    let mut response = Response::builder().header("content-type", &said.kind);
    if let Some(name) = coding.name() {
        response = response.header("content-encoding", name);
    }
    response.body(body).unwrap()
}
