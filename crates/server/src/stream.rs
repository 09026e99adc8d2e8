//! A streamed answer on its way through: read as it passes, and kept before its end is told.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use throughline_codec::{Asked, Codec, Framing, StreamDecoder, StreamEncoder};
use throughline_core::{Answer, Delta, Event, Failure, Reply, Stop};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;

use crate::answer::UNREADABLE;
use crate::claimed::Dresser;
use crate::compression::Inflater;
use crate::exchange::Cut;
use crate::keeper::Keeper;
use crate::operations::{Capture, Ticket};

/// What the caller gets next, or that its stream breaks.
type Piece = Result<Bytes, Cut>;

/// How many bytes wait for a slow reader, at most and beside one piece that is larger.
const AHEAD: u32 = 64 << 10;

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
    /// How long a caller may take to read.
    pub(crate) slow_reader: Duration,
}

/// The bytes that the caller gets. When it goes away, so does the request at the provider.
pub(crate) fn relay(relay: Relay) -> Pin<Box<dyn Stream<Item = Piece> + Send>> {
    let (pieces, queue) = mpsc::unbounded_channel();
    tokio::spawn(run(relay, pieces));
    Box::pin(stream::unfold(queue, async |mut queue: mpsc::UnboundedReceiver<Waiting>| {
        // The room that it took is free again when it is on its way.
        queue.recv().await.map(|waiting| (waiting.piece, queue))
    }))
}

/// A piece, and the room that it takes while it waits.
struct Waiting {
    piece: Piece,
    _room: OwnedSemaphorePermit,
}

async fn run(relay: Relay, pieces: mpsc::UnboundedSender<Waiting>) {
    let Relay { answer, from, to, said, framing, dresser, mut keeper, slow_reader } = relay;
    let ticket = Arc::clone(&keeper.ticket);
    let status = answer.status;
    let room = Arc::new(Semaphore::new(AHEAD as usize));
    let out = Out { pieces, room, slow_reader };
    let theirs = answer.header("content-type").and_then(Framing::of_content_type);
    let mut decoder = StreamDecoder::framed(from, &said, theirs.unwrap_or_else(|| from.framing()));
    let mut inflater = Inflater::of(answer.header("content-encoding"));
    let mut writer =
        dresser.map(|dresser| Writer { dresser, encoder: StreamEncoder::framed(to, framing) });
    let mut chunks = answer.body;
    let mut is_kept = false;
    let mut heard = 0;
    let ended = loop {
        let chunk = tokio::select! {
            chunk = chunks.next() => chunk,
            // The caller has gone, and so does the request.
            () = out.pieces.closed() => break "the caller went away",
        };
        let (events, bytes) = match &chunk {
            Some(Ok(bytes)) => {
                let readable = inflater.push(bytes).unwrap_or_default();
                (decoder.push(&readable), Some(bytes.clone()))
            }
            Some(Err(_)) | None => (decoder.finish(), None),
        };
        let broke = chunk.as_ref().and_then(|chunk| chunk.as_ref().err().map(ToString::to_string));
        let mut is_over = !matches!(chunk, Some(Ok(_)));
        let mut written = Vec::new();
        match events {
            Ok(events) => {
                note(&ticket, &events, &mut heard);
                for event in events {
                    if let Event::Ended(reply) = &event
                        && !is_kept
                    {
                        is_kept = true;
                        let shown =
                            keeper.story.keeps_response.then(|| shown(writer.as_mut(), to, reply));
                        keeper.keep(reply, shown.flatten()).await;
                    }
                    if let Some(writer) = &mut writer {
                        writer.write(or_failure(event, broke.as_deref()), &mut written);
                    }
                }
            }
            // What cannot be read passes all the same, and is not kept. In another dialect it cannot even be said.
            Err(_) => {
                ticket.note(|facts| facts.capture = Capture::Lost(UNREADABLE.to_owned()));
                if let Some(writer) = &mut writer {
                    is_over = true;
                    writer.write(Event::Failed(failure(UNREADABLE)), &mut written);
                }
            }
        }
        if let Some(problem) = &broke {
            ticket.note(|facts| facts.problem = Some(problem.clone()));
        }
        let piece = match (&mut writer, bytes, broke) {
            (None, Some(bytes), _) => Ok(bytes),
            (None, None, None) => break "nothing was answered",
            // The caller's connection breaks as the provider's did.
            (None, None, Some(problem)) => Err(Cut(problem)),
            (Some(writer), _, _) => {
                if is_over {
                    writer.encoder.finish(&mut written);
                }
                Ok(written.into())
            }
        };
        if !out.send(piece).await {
            break "the caller does not read";
        }
        if is_over {
            break "nothing was answered";
        }
    };
    if !is_kept {
        keeper.fail(status, ended).await;
    }
}

/// The answer as the caller could ask for it later.
fn shown(writer: Option<&mut Writer>, to: &dyn Codec, reply: &Reply) -> Option<Bytes> {
    match writer {
        Some(writer) => to.encode_reply(&writer.dresser.reply(reply.clone())).ok(),
        None => to.encode_reply(reply).ok(),
    }
}

/// Notes what is heard: it counts where the provider does not come to say it.
fn note(ticket: &Ticket, events: &[Event], heard: &mut u64) {
    let mut usage = None;
    for event in events {
        match event {
            Event::Delta { delta, .. } => {
                let length = match delta {
                    Delta::Text(text) | Delta::Thought(text) | Delta::Args(text) => text.len(),
                    Delta::ArgsAt { value, .. } => value.as_str().len(),
                };
                *heard += length as u64;
            }
            Event::Usage(so_far) => usage = Some(*so_far),
            Event::Began { .. }
            | Event::Opened { .. }
            | Event::Closed { .. }
            | Event::Ended(_)
            | Event::Failed(_)
            | Event::Alien(_) => {}
        }
    }
    ticket.note(|facts| {
        facts.heard = *heard;
        facts.usage = usage.or(facts.usage);
    });
}

/// The end of a stream that was cut is a failure to a caller of another dialect, and no end.
fn or_failure(event: Event, broke: Option<&str>) -> Event {
    match event {
        Event::Ended(reply) if reply.stop == Stop::Cut => {
            Event::Failed(failure(broke.unwrap_or("the provider ended its answer early")))
        }
        event => event,
    }
}

fn failure(message: &str) -> Failure {
    Failure { status: Some(502), kind: None, message: message.into(), body: Bytes::new() }
}

/// The way to the caller.
struct Out {
    pieces: mpsc::UnboundedSender<Waiting>,
    room: Arc<Semaphore>,
    slow_reader: Duration,
}

impl Out {
    /// Whether the caller still reads, after this.
    async fn send(&self, piece: Piece) -> bool {
        let length = piece.as_ref().map_or(0, Bytes::len);
        if length == 0 && piece.is_ok() {
            return true;
        }
        let length = u32::try_from(length).map_or(AHEAD, |length| length.min(AHEAD));
        let room = match Arc::clone(&self.room).try_acquire_many_owned(length) {
            Ok(room) => room,
            Err(_) => {
                let room = Arc::clone(&self.room).acquire_many_owned(length);
                let room = tokio::select! {
                    room = timeout(self.slow_reader, room) => room,
                    () = self.pieces.closed() => return false,
                };
                let Ok(Ok(room)) = room else { return false };
                room
            }
        };
        self.pieces.send(Waiting { piece, _room: room }).is_ok()
    }
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
