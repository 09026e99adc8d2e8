//! The mock provider. It implements Anthropic's API and returns fixed content, streamed or as one
//! JSON document.
//!
//! `POST /release` resumes all paused streams.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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

/// Content type of a streamed reply.
const EVENTS: &str = "text/event-stream; charset=utf-8";

struct Mock {
    streamed: Finder<'static>,
    models: [(Model, Finder<'static>); Model::ALL.len()],
    release: watch::Sender<u64>,
    /// Number of streams that were cut off.
    broken: AtomicUsize,
}

pub(crate) async fn serve() -> anyhow::Result<()> {
    let (release, _) = watch::channel(0);
    let models = Model::ALL.map(|(model, name)| (model, Finder::new(name)));
    let streamed = Finder::new("\"stream\":true");
    let mock = Arc::new(Mock { streamed, models, release, broken: AtomicUsize::new(0) });
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
    let body = request.into_body().collect().await?.to_bytes();
    let entry = mock.models.iter().find(|(_, name)| name.find(&body).is_some());
    let model = entry.map_or(Model::Short, |(model, _)| *model);
    let reply = Reply::new(model);
    if mock.streamed.find(&body).is_none() {
        return Ok(pieces_response("application/json", vec![reply.document()]));
    }
    let mut events = reply.events();
    match model {
        Model::Short | Model::Long => return Ok(pieces_response(EVENTS, events)),
        Model::Held => {}
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

fn pieces_response(kind: &'static str, pieces: Vec<Bytes>) -> Response<Body> {
    let pieces = pieces.into_iter().map(|piece| Ok(Frame::data(piece)));
    response(kind, Box::pin(stream::iter(pieces)))
}

fn response(kind: &'static str, body: Pieces) -> Response<Body> {
    let mut response = Response::new(StreamBody::new(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
