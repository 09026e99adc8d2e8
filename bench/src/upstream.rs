//! The mock provider. It implements Anthropic's API and returns fixed content, streamed or as one
//! JSON document.
//!
//! `POST /release` resumes all paused streams, and ends paced streams with their next events.
//! `GET /received/MODEL` returns the number of requests for a model.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue, LOCATION};
use hyper::{Request, Response, StatusCode};
use memchr::memmem::Finder;
use tokio::sync::watch;

use crate::process;
use crate::reply::{Model, Reply};

type Pieces = Pin<Box<dyn Stream<Item = io::Result<Frame<Bytes>>> + Send>>;
type Body = StreamBody<Pieces>;

/// Number of events that a paced stream sends at once.
const PACED_EVENTS: usize = 3;

/// Content type of a streamed reply.
const EVENTS: &str = "text/event-stream; charset=utf-8";

struct Mock {
    streamed: Finder<'static>,
    models: [(Model, Finder<'static>); Model::ALL.len()],
    /// Number of requests per model, in the order of `models`.
    received: [AtomicUsize; Model::ALL.len()],
    /// Time between the events of paced streams.
    pace: Duration,
    release: watch::Sender<u64>,
    /// Number of streams that were cut off.
    broken: AtomicUsize,
}

pub(crate) async fn serve(pace: Duration) -> anyhow::Result<()> {
    let (release, _) = watch::channel(0);
    let models = Model::ALL.map(|(model, name)| (model, Finder::new(name)));
    let streamed = Finder::new("\"stream\":true");
    let (received, broken) = (Default::default(), AtomicUsize::new(0));
    let mock = Arc::new(Mock { streamed, models, received, pace, release, broken });
    process::listen(move |request| {
        let mock = Arc::clone(&mock);
        async move { answer(&mock, request).await }
    })
    .await
}

async fn answer(mock: &Mock, request: Request<Incoming>) -> anyhow::Result<Response<Body>> {
    if request.uri().path() == "/release" {
        mock.release.send_modify(|times| *times += 1);
        return Ok(pieces_response("text/plain", vec![Bytes::from_static(b"ok")]));
    }
    if let Some(name) = request.uri().path().strip_prefix("/received/") {
        let counts = Model::ALL.iter().zip(&mock.received);
        let count = counts.filter(|((_, known), _)| *known == name);
        let count: usize = count.map(|(_, count)| count.load(Ordering::Relaxed)).sum();
        return Ok(pieces_response("text/plain", vec![count.to_string().into()]));
    }
    let body = request.into_body().collect().await?.to_bytes();
    let mut entries = mock.models.iter().zip(&mock.received);
    let entry = entries.find(|((_, name), _)| name.find(&body).is_some());
    let model = entry.map_or(Model::Short, |((model, _), received)| {
        received.fetch_add(1, Ordering::Relaxed);
        *model
    });
    let reply = Reply::new(model);
    if mock.streamed.find(&body).is_none() {
        return Ok(pieces_response("application/json", vec![reply.document()]));
    }
    let mut events = reply.events();
    match model {
        Model::Short | Model::Long | Model::Probed => return Ok(pieces_response(EVENTS, events)),
        Model::Held => {}
        Model::Paced => {
            let pieces = paced_pieces(&events, mock.release.subscribe(), mock.pace);
            return Ok(response(EVENTS, Box::pin(pieces)));
        }
        Model::Broken => {
            let stream_bytes = events.concat();
            let length = mock.broken.fetch_add(1, Ordering::Relaxed) % stream_bytes.len();
            let beginning = Bytes::from(stream_bytes).slice(..length);
            let broken = [Ok(Frame::data(beginning)), Err(io::ErrorKind::ConnectionReset.into())];
            return Ok(response(EVENTS, Box::pin(stream::iter(broken))));
        }
        Model::Babbling => {
            let babble =
                Bytes::from_static(b"event: \xff\xfe\ndata: {\"type\":[[[\n\n:\n\ndata\n\n");
            return Ok(pieces_response(EVENTS, vec![babble; 64]));
        }
        Model::Mistyped => {
            return Ok(pieces_response("text/html", vec![Bytes::from_static(b"<p>Hello</p>")]));
        }
        Model::Elsewhere => {
            let mut elsewhere = pieces_response("text/plain", Vec::new());
            *elsewhere.status_mut() = StatusCode::TEMPORARY_REDIRECT;
            let location = HeaderValue::from_static("http://192.0.2.1/v1/messages");
            elsewhere.headers_mut().insert(LOCATION, location);
            return Ok(elsewhere);
        }
    }
    let rest = events.split_off(events.len() / 2);
    let mut release = mock.release.subscribe();
    let remainder = stream::once(async move {
        // The sender lives as long as the server, so this cannot fail.
        release.changed().await.ok();
        stream::iter(rest)
    });
    let all = stream::iter(events).chain(remainder.flatten());
    Ok(response(EVENTS, Box::pin(all.map(|piece| Ok(Frame::data(piece))))))
}

/// Streams the events at the provider's pace. After a release, the next piece contains all events
/// that remain, so that not all streams end at the same time.
fn paced_pieces(
    events: &[Bytes],
    release: watch::Receiver<u64>,
    pace: Duration,
) -> impl Stream<Item = io::Result<Frame<Bytes>>> + Send + use<> {
    let pieces: Vec<Vec<u8>> = events.chunks(PACED_EVENTS).map(<[Bytes]>::concat).collect();
    let first = pieces.len();
    stream::unfold((pieces.into_iter(), release), move |(mut pieces, release)| async move {
        if pieces.len() < first {
            tokio::time::sleep(pace).await;
        }
        let mut piece = pieces.next()?;
        if release.has_changed().unwrap_or(true) {
            piece.extend(pieces.by_ref().flatten());
        }
        Some((Ok(Frame::data(Bytes::from(piece))), (pieces, release)))
    })
}

fn pieces_response(kind: &'static str, pieces: Vec<Bytes>) -> Response<Body> {
    let pieces = pieces.into_iter().map(|piece| Ok(Frame::data(piece)));
    response(kind, Box::pin(stream::iter(pieces)))
}

fn response(kind: &'static str, body: Pieces) -> Response<Body> {
    let mut response = Response::new(StreamBody::new(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
