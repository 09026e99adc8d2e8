//! A streamed answer on its way through: read as it passes, and kept before its end is told.

use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use throughline_codec::{Asked, Codec, Framing, StreamDecoder, StreamEncoder};
use throughline_core::{Answer, Event, Reply};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::claimed::Dresser;
use crate::compression::Inflater;
use crate::exchange::Keeper;

/// How many pieces wait for a slow reader.
const AHEAD: usize = 16;
/// How long the end of a stream is held until its answer is kept.
const LONGEST_HOLD: Duration = Duration::from_secs(5);

/// What is passed on, and how.
pub(crate) struct Relay {
    pub(crate) answer: Answer,
    /// What the provider speaks.
    pub(crate) from: &'static dyn Codec,
    /// What the caller speaks.
    pub(crate) to: &'static dyn Codec,
    pub(crate) said: Asked,
    /// How the caller's stream is framed.
    pub(crate) framing: Framing,
    /// What is changed for a caller of another dialect; without it, the bytes pass.
    pub(crate) dresser: Option<Dresser>,
    pub(crate) keeper: Keeper,
}

/// The bytes that the caller gets. When it goes away, so does the request at the provider.
pub(crate) fn relay(relay: Relay) -> Pin<Box<dyn Stream<Item = Bytes> + Send>> {
    let (pieces, queue) = mpsc::channel(AHEAD);
    tokio::spawn(run(relay, pieces));
    Box::pin(stream::unfold(queue, async |mut queue: mpsc::Receiver<Bytes>| {
        queue.recv().await.map(|piece| (piece, queue))
    }))
}

async fn run(relay: Relay, pieces: mpsc::Sender<Bytes>) {
    let Relay { answer, from, to, said, framing, dresser, keeper } = relay;
    let theirs = answer.header("content-type").and_then(Framing::of_content_type);
    let mut decoder = StreamDecoder::framed(from, &said, theirs.unwrap_or_else(|| from.framing()));
    let mut inflater = Inflater::of(answer.header("content-encoding"));
    let mut writer =
        dresser.map(|dresser| Writer { dresser, encoder: StreamEncoder::framed(to, framing) });
    let mut chunks = answer.body;
    let mut is_kept = false;
    loop {
        let chunk = chunks.next().await;
        let (events, bytes) = match &chunk {
            Some(Ok(bytes)) => {
                let readable = inflater.push(bytes).unwrap_or_default();
                (decoder.push(&readable), Some(bytes.clone()))
            }
            Some(Err(_)) | None => (decoder.finish(), None),
        };
        // What cannot be read passes all the same, and is not kept.
        let events = events.unwrap_or_default();
        let mut written = Vec::new();
        for event in events {
            if let Event::Ended(reply) = &event
                && !is_kept
            {
                is_kept = true;
                keep(&keeper, reply).await;
            }
            if let Some(writer) = &mut writer {
                writer.write(event, &mut written);
            }
        }
        let piece = match (&mut writer, bytes) {
            (None, Some(bytes)) => bytes,
            (None, None) => return,
            (Some(_), Some(_)) => written.into(),
            (Some(writer), None) => {
                writer.encoder.finish(&mut written);
                written.into()
            }
        };
        let is_over = !matches!(chunk, Some(Ok(_)));
        if !piece.is_empty() && pieces.send(piece).await.is_err() {
            return;
        }
        if is_over {
            return;
        }
    }
}

/// Keeps the answer before its end is told, but does not hold that for ever.
async fn keep(keeper: &Keeper, reply: &Reply) {
    drop(timeout(LONGEST_HOLD, keeper.keep(reply)).await);
}

/// Says an answer in the caller's dialect.
struct Writer {
    dresser: Dresser,
    encoder: StreamEncoder,
}

impl Writer {
    fn write(&mut self, event: Event, out: &mut Vec<u8>) {
        let event = self.dresser.event(event);
        // What this dialect cannot say is left out.
        drop(self.encoder.push(&event, out));
    }
}
