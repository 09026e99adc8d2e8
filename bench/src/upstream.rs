//! The mock provider: it speaks Anthropic's wire, whole and streamed, and thinks of nothing.
//!
//! `POST /release` lets the streams go on that were held after their beginning.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::{Request, Response};
use memchr::memmem::Finder;
use tokio::sync::watch;

use crate::process;
use crate::reply::{Model, Reply};

type Body = StreamBody<Pin<Box<dyn Stream<Item = Result<Frame<Bytes>, Infallible>> + Send>>>;

struct Mock {
    streamed: Finder<'static>,
    models: [(Model, Finder<'static>); 3],
    release: watch::Sender<u64>,
}

pub(crate) async fn serve() -> anyhow::Result<()> {
    let (release, _) = watch::channel(0);
    let models = Model::ALL.map(|model| (model, Finder::new(model.name())));
    let mock = Arc::new(Mock { streamed: Finder::new("\"stream\":true"), models, release });
    process::listen(move |request| {
        let mock = Arc::clone(&mock);
        async move { answer(&mock, request).await }
    })
    .await
}

async fn answer(mock: &Mock, request: Request<Incoming>) -> anyhow::Result<Response<Body>> {
    if request.uri().path() == "/release" {
        mock.release.send_modify(|times| *times += 1);
        return Ok(said("text/plain", vec![Bytes::from_static(b"ok")]));
    }
    let body = request.into_body().collect().await?.to_bytes();
    let asked = mock.models.iter().find(|(_, name)| name.find(&body).is_some());
    let model = asked.map_or(Model::Short, |(model, _)| *model);
    let reply = Reply::new(model);
    if mock.streamed.find(&body).is_none() {
        return Ok(said("application/json", vec![reply.whole()]));
    }
    let mut events = reply.events();
    if model != Model::Held {
        return Ok(said("text/event-stream; charset=utf-8", events));
    }
    let rest = events.split_off(events.len() / 2);
    let mut release = mock.release.subscribe();
    let held = stream::once(async move {
        // The sender lives as long as the server.
        release.changed().await.ok();
        stream::iter(rest)
    });
    let all = stream::iter(events).chain(held.flatten());
    Ok(response(
        "text/event-stream; charset=utf-8",
        Box::pin(all.map(|piece| Ok(Frame::data(piece)))),
    ))
}

fn said(kind: &'static str, pieces: Vec<Bytes>) -> Response<Body> {
    let pieces = pieces.into_iter().map(|piece| Ok(Frame::data(piece)));
    response(kind, Box::pin(stream::iter(pieces)))
}

fn response(
    kind: &'static str,
    body: Pin<Box<dyn Stream<Item = Result<Frame<Bytes>, Infallible>> + Send>>,
) -> Response<Body> {
    let mut response = Response::new(StreamBody::new(body));
    let kind = hyper::header::HeaderValue::from_static(kind);
    response.headers_mut().insert(hyper::header::CONTENT_TYPE, kind);
    response
}
