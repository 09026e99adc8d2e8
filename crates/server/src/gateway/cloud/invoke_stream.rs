//! Converts a stream of server-sent events to the event stream of `InvokeModelWithResponseStream`.

use std::pin::Pin;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use throughline_codec::{Frame, FrameWriter, Framer, Framing, error_message};
use throughline_json::Tree;

use crate::object::object;
use crate::response::StreamAborted;

type Chunk = Result<Bytes, StreamAborted>;
type ChunkStream = Pin<Box<dyn Stream<Item = Chunk> + Send>>;

/// Reads events and writes them in Bedrock's framing.
struct InvokeStream {
    events: ChunkStream,
    framer: Framer,
    writer: FrameWriter,
}

/// Converts a stream. Each event becomes one frame that contains the event as base64.
pub(super) fn to_event_stream(events: ChunkStream) -> ChunkStream {
    let (framer, writer) = (Framer::new(Framing::Sse), FrameWriter::new(Framing::EventStream));
    let start = Some(InvokeStream { events, framer, writer });
    Box::pin(stream::unfold(start, async |stream| stream?.next().await))
}

impl InvokeStream {
    /// Returns the next bytes, and the stream unless it has ended.
    async fn next(mut self) -> Option<(Chunk, Option<Self>)> {
        loop {
            let (mut frames, chunk) = (Vec::new(), self.events.next().await);
            let has_ended = chunk.is_none();
            let read = match chunk {
                Some(Ok(bytes)) => self.framer.push(&bytes, &mut frames),
                Some(Err(aborted)) => return Some((Err(aborted), None)),
                None => self.framer.finish(&mut frames),
            };
            let mut written = Vec::new();
            for frame in &frames {
                if let Some(frame) = bedrock_frame(frame) {
                    self.writer.write(&frame, &mut written);
                }
            }
            if let Err(error) = read {
                return Some((Err(StreamAborted(error.to_string())), None));
            }
            if has_ended {
                return (!written.is_empty()).then(|| (Ok(written.into()), None));
            }
            if !written.is_empty() {
                return Some((Ok(written.into()), Some(self)));
            }
        }
    }
}

/// Returns the frame of an event. Bedrock sends no `ping`, and reports an error as an exception.
fn bedrock_frame(event: &Frame) -> Option<Frame> {
    let named = |event: &str, data| Frame { event: Some(Arc::from(event)), ..data };
    let of = |json: throughline_json::Json, exception| Frame {
        event: None,
        data: json.bytes().clone(),
        exception,
    };
    match event.event.as_deref() {
        Some("ping") => None,
        Some("error") => {
            let tree = Tree::parse(event.data.clone()).ok();
            let kind = tree.as_ref().and_then(|tree| tree.root().at("/error/type")?.name());
            let message = error_message(&event.data).unwrap_or_default();
            let body = object! { "message": message };
            Some(named(exception(kind.as_deref().unwrap_or_default()), of(body, true)))
        }
        Some(_) | None => {
            let body = object! { "bytes": STANDARD.encode(&event.data) };
            Some(named("chunk", of(body, false)))
        }
    }
}

/// Returns Bedrock's exception for a type of Anthropic's errors.
fn exception(kind: &str) -> &'static str {
    match kind {
        "invalid_request_error" | "request_too_large" => "validationException",
        "rate_limit_error" => "throttlingException",
        "overloaded_error" => "serviceUnavailableException",
        "timeout_error" => "modelTimeoutException",
        "api_error" => "internalServerException",
        _ => "modelStreamErrorException",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    async fn converted(chunks: Vec<Chunk>) -> (Vec<Frame>, Option<String>) {
        let mut stream = to_event_stream(Box::pin(stream::iter(chunks)));
        let (mut reader, mut frames) = (Framer::new(Framing::EventStream), Vec::new());
        while let Some(chunk) = stream.next().await {
            match chunk {
                Ok(bytes) => reader.push(&bytes, &mut frames).unwrap(),
                Err(aborted) => return (frames, Some(aborted.to_string())),
            }
        }
        reader.finish(&mut frames).unwrap();
        (frames, None)
    }

    fn payload(frame: &Frame) -> String {
        let tree = Tree::parse(frame.data.clone()).unwrap();
        let bytes = tree.root().name_of("bytes").unwrap();
        String::from_utf8(STANDARD.decode(bytes.as_bytes()).unwrap()).unwrap()
    }

    #[tokio::test]
    async fn chunking_does_not_change_the_frames() {
        let sse = "event: message_start\ndata: {\"type\":\"message_start\"}\n\n\
                   event: ping\ndata: {\"type\":\"ping\"}\n\n\
                   event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
        for cut in 0..sse.len() {
            let (first, second) = sse.split_at(cut);
            let chunks = [first, second].map(|text| Ok(Bytes::copy_from_slice(text.as_bytes())));
            let (frames, aborted) = converted(chunks.into()).await;
            assert_eq!(aborted, None);
            let payloads: Vec<String> = frames.iter().map(payload).collect();
            assert_eq!(payloads, ["{\"type\":\"message_start\"}", "{\"type\":\"message_stop\"}"]);
            assert!(frames.iter().all(|frame| frame.event.as_deref() == Some("chunk")));
        }
    }

    #[tokio::test]
    async fn errors_become_exceptions() {
        let sse = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\
                   \"message\":\"Overloaded\"}}\n\n";
        let (frames, _) = converted(vec![Ok(Bytes::from(sse))]).await;
        assert_eq!(frames.len(), 1);
        assert!(frames[0].exception);
        assert_eq!(frames[0].event.as_deref(), Some("serviceUnavailableException"));
        assert_eq!(frames[0].data, r#"{"message":"Overloaded"}"#);
    }

    #[tokio::test]
    async fn broken_stream_stays_broken() {
        let chunks = vec![
            Ok(Bytes::from("data: {\"type\":\"message_start\"}\n\n")),
            Err(StreamAborted("reset".to_owned())),
        ];
        let (frames, aborted) = converted(chunks).await;
        assert_eq!((frames.len(), aborted.as_deref()), (1, Some("reset")));
    }
}
