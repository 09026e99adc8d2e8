//! A streamed answer on its way through: read as it passes, and kept before its end is told.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::stream::Peekable;
use futures_util::{FutureExt as _, Stream, StreamExt as _, stream};
use throughline_codec::{
    Asked, Codec, CodecError, Framing, StreamDecoder, StreamEncoder, events_of,
};
use throughline_core::{Answer, Chunks, Delta, Event, Failure, Reply, Stop};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Instant, timeout};

use crate::answer::{LARGEST_ANSWER, UNREADABLE};
use crate::claimed::Dresser;
use crate::compression::Inflater;
use crate::exchange::Cut;
use crate::keeper::Keeper;
use crate::model_name::{ModelName, ModelNameStream};
use crate::operations::{Capture, Ticket};

/// What the caller gets next, or that its stream breaks.
type Piece = Result<Bytes, Cut>;

/// How many bytes are passed on at once, more or less, and what came at once.
const TOGETHER: usize = 16 << 10;
const AT_ONCE: Duration = Duration::from_millis(1);
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
    /// The model's name for a caller of the same dialect, where it differs from the provider's.
    pub(crate) model: Option<ModelName>,
    pub(crate) keeper: Keeper,
    /// How long a caller may take to read.
    pub(crate) slow_reader: Duration,
}

/// The bytes that the caller gets. When it goes away, so does the request at the provider.
pub(crate) fn relay(relay: Relay) -> Pin<Box<dyn Stream<Item = Piece> + Send>> {
    let (pieces, queue) = mpsc::unbounded_channel();
    let (status, chunks, passage) = Passage::of(relay, pieces);
    tokio::spawn(run(status, chunks, passage));
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

/// Passes on what comes, until it ends or nobody hears it.
async fn run(status: u16, chunks: Chunks, mut passage: Box<Passage>) {
    let (mut chunks, mut is_first) = (chunks.peekable(), true);
    let ended = loop {
        let chunk = tokio::select! {
            chunk = chunks.next() => chunk,
            // The caller has gone, and so does the request.
            () = passage.out.pieces.closed() => break LEFT,
        };
        let goes_on = match chunk {
            // The first waits for no other, nor do those that can only be told apart where they are cut.
            Some(Ok(bytes)) if is_first || !passage.has_frames => passage.pass(&bytes).await,
            Some(Ok(bytes)) => passage.pass(&gathered(bytes, &mut chunks).await).await,
            Some(Err(error)) => passage.end(Some(error.to_string())).await,
            None => passage.end(None).await,
        };
        is_first = false;
        if let Err(ended) = goes_on {
            break ended;
        }
    };
    let keeping = Arc::clone(&passage.keeper.replay);
    let leaving = (ended == LEFT && !passage.is_kept).then(|| keeping.stories().left().leaving());
    drop(chunks);
    if !passage.is_kept {
        Box::pin(passage.keeper.fail(status, ended)).await;
    }
    drop(passage);
    if let Some(leaving) = leaving {
        leaving.done().await;
    }
}

/// A chunk with those that came at the same time: they are read at once, and written to the caller at once.
async fn gathered(first: Bytes, chunks: &mut Peekable<Chunks>) -> Bytes {
    let (begun, mut all, mut has_waited) = (Instant::now(), BytesMut::new(), false);
    while first.len().max(all.len()) < TOGETHER && begun.elapsed() < AT_ONCE {
        match Pin::new(&mut *chunks).next_if(Result::is_ok).now_or_never() {
            Some(Some(Ok(more))) => {
                if all.is_empty() {
                    all.extend_from_slice(&first);
                }
                all.extend_from_slice(&more);
                has_waited = false;
            }
            // It ends there, or breaks.
            Some(_) => break,
            None if has_waited => break,
            // Whoever reads from the provider gets its turn.
            None => {
                has_waited = true;
                tokio::task::yield_now().await;
            }
        }
    }
    if all.is_empty() { first } else { all.freeze() }
}

/// A stream on its way.
struct Passage {
    decoder: StreamDecoder,
    inflater: Inflater,
    /// The codec and the request, to decode an answer that is one JSON object.
    from: &'static dyn Codec,
    said: Asked,
    shape: Shape,
    /// Whether frames end where lines are empty, so that the last one can be held alone.
    has_frames: bool,
    to: &'static dyn Codec,
    writer: Option<Writer>,
    /// Changes the model's name in bytes that pass otherwise.
    renamer: Option<ModelNameStream>,
    model: Option<ModelName>,
    keeper: Keeper,
    ticket: Arc<Ticket>,
    out: Out,
    is_kept: bool,
    /// Whether something of it could not be read. Then nothing more is, and nothing of it is kept.
    is_unreadable: bool,
    /// How many bytes of text were heard.
    heard: u64,
}

/// What the body of an answer turns out to be, where it is written anew for another dialect.
enum Shape {
    /// Nothing but white space arrived so far.
    Unknown,
    /// Frames of a stream, or an answer of the caller's own dialect.
    Frames,
    /// One JSON object: the provider answered a streaming request with a whole reply.
    Whole(BytesMut),
}

/// Whether the stream goes on; else why it does not.
type GoesOn = Result<(), &'static str>;

const ENDED: &str = "nothing was answered";
const LEFT: &str = "the caller went away";

impl Passage {
    /// A way for an answer, with its status and what comes of it. As there may be thousands, each is held once and apart from
    /// the task that goes along it.
    fn of(relay: Relay, pieces: mpsc::UnboundedSender<Waiting>) -> (u16, Chunks, Box<Self>) {
        let Relay { answer, from, to, said, framing, dresser, model, keeper, slow_reader } = relay;
        let theirs = answer.header("content-type").and_then(Framing::of_content_type);
        let theirs = theirs.unwrap_or_else(|| from.framing());
        let inflater = Inflater::of(answer.header("content-encoding"));
        // Each of several JSON lines is an object too; they are frames.
        let may_be_whole = dresser.is_some() && theirs != Framing::JsonLines;
        let passage = Box::new(Self {
            shape: if may_be_whole { Shape::Unknown } else { Shape::Frames },
            has_frames: theirs == Framing::Sse && matches!(inflater, Inflater::Plain),
            decoder: StreamDecoder::framed(from, &said, theirs),
            inflater,
            from,
            said,
            to,
            writer: dresser
                .map(|dresser| Writer { dresser, encoder: StreamEncoder::framed(to, framing) }),
            renamer: model.clone().map(|model| ModelNameStream::new(model, theirs)),
            model,
            ticket: Arc::clone(&keeper.ticket),
            keeper,
            out: Out { pieces, room: Arc::new(Semaphore::new(AHEAD as usize)), slow_reader },
            is_kept: false,
            is_unreadable: false,
            heard: 0,
        });
        (answer.status, answer.body, passage)
    }

    /// Passes on what came. Only the frame that ends the answer waits until that is kept.
    async fn pass(&mut self, bytes: &Bytes) -> GoesOn {
        if self.is_unreadable {
            return self.out.send(Ok(bytes.clone())).await;
        }
        let Ok(readable) = self.inflater.push(bytes) else { return self.give_up(bytes, 0).await };
        if self.gather_whole(&readable) {
            return Ok(());
        }
        let (mut begin, mut passed) = (0, 0);
        let mut written = Vec::new();
        while begin < readable.len() {
            let rest = readable.get(begin..).unwrap_or_default();
            let length = if self.has_frames { frame(rest) } else { rest.len() };
            let frame = rest.get(..length).unwrap_or_default();
            match self.decoder.push(frame) {
                Ok(events) => {
                    if self.has_ended(&events) {
                        let before = if self.is_rewritten() {
                            std::mem::take(&mut written).into()
                        } else if self.has_frames {
                            bytes.slice(passed..begin)
                        } else {
                            Bytes::new()
                        };
                        passed = if self.has_frames { begin } else { passed };
                        self.out.send(Ok(before)).await?;
                    }
                    self.hear(events, None, &mut written).await;
                    if let Some(renamer) = &mut self.renamer {
                        renamer.push(frame, &mut written);
                        passed = begin + length;
                    }
                }
                Err(_) => {
                    self.out.send(Ok(written.into())).await?;
                    return self.give_up(bytes, passed).await;
                }
            }
            begin += length;
        }
        let piece = if self.is_rewritten() { written.into() } else { bytes.slice(passed..) };
        self.out.send(Ok(piece)).await
    }

    /// What cannot be read passes all the same from there on, and is not kept. In another dialect it cannot even be said.
    async fn give_up(&mut self, bytes: &Bytes, from: usize) -> GoesOn {
        self.is_unreadable = true;
        if !self.is_kept {
            self.ticket.note(|facts| facts.capture = Capture::Lost(UNREADABLE.to_owned()));
        }
        if let Some(mut renamer) = self.renamer.take() {
            if !matches!(self.inflater, Inflater::Plain) {
                // The caller was promised a stream that is not compressed.
                self.out.send(Err(Cut(UNREADABLE.to_owned()))).await?;
                return Err(UNREADABLE);
            }
            let mut pending = Vec::new();
            renamer.finish(&mut pending);
            self.out.send(Ok(pending.into())).await?;
        }
        let Some(writer) = &mut self.writer else {
            return self.out.send(Ok(bytes.slice(from..))).await;
        };
        let mut written = Vec::new();
        writer.write(Event::Failed(failure(UNREADABLE)), &mut written);
        writer.encoder.finish(&mut written);
        self.out.send(Ok(written.into())).await?;
        Err(UNREADABLE)
    }

    /// Buffers an answer that is one JSON object instead of a stream; `false` if it is a stream.
    fn gather_whole(&mut self, readable: &[u8]) -> bool {
        if let Shape::Unknown = self.shape {
            let first = readable.iter().find(|byte| !byte.is_ascii_whitespace());
            match first {
                None => {}
                Some(b'{') => self.shape = Shape::Whole(BytesMut::new()),
                Some(_) => self.shape = Shape::Frames,
            }
        }
        let Shape::Whole(body) = &mut self.shape else { return false };
        // What exceeds the limit is cut off, so the rest does not parse and is refused as unreadable.
        let room = LARGEST_ANSWER.saturating_sub(body.len());
        body.extend_from_slice(readable.get(..room).unwrap_or(readable));
        true
    }

    /// Events of an answer that is one JSON object: of the reply, or of the error that it describes.
    fn whole_events(&mut self) -> Result<Vec<Event>, CodecError> {
        let body = match std::mem::replace(&mut self.shape, Shape::Frames) {
            Shape::Whole(body) => body.freeze(),
            Shape::Unknown | Shape::Frames => return self.decoder.finish(),
        };
        if let Ok(reply) = self.from.decode_reply(&body, &self.said) {
            return Ok(events_of(&reply));
        }
        self.decoder = StreamDecoder::framed(self.from, &self.said, Framing::JsonArray);
        let mut events = self.decoder.push(&body)?;
        events.extend(self.decoder.finish()?);
        Ok(events)
    }

    /// There is no more: the answer is over, or it broke.
    async fn end(&mut self, broke: Option<String>) -> GoesOn {
        let mut written = Vec::new();
        if !self.is_unreadable {
            match self.whole_events() {
                Ok(events) => self.hear(events, broke.as_deref(), &mut written).await,
                Err(_) => self.give_up(&Bytes::new(), 0).await?,
            }
        }
        if let Some(problem) = &broke {
            self.ticket.note(|facts| facts.problem = Some(problem.clone()));
        }
        if let Some(renamer) = &mut self.renamer {
            renamer.finish(&mut written);
            self.out.send(Ok(std::mem::take(&mut written).into())).await?;
        }
        let piece = match (&mut self.writer, broke) {
            (None, None) => return Err(if self.is_unreadable { UNREADABLE } else { ENDED }),
            // The caller's connection breaks as the provider's did.
            (None, Some(problem)) => Err(Cut(problem)),
            (Some(writer), _) => {
                writer.encoder.finish(&mut written);
                Ok(written.into())
            }
        };
        self.out.send(piece).await?;
        Err(ENDED)
    }

    /// Whether the caller gets other bytes than the provider sent.
    fn is_rewritten(&self) -> bool {
        self.writer.is_some() || self.renamer.is_some()
    }

    fn has_ended(&self, events: &[Event]) -> bool {
        !self.is_kept && events.iter().any(|event| matches!(event, Event::Ended(_)))
    }

    /// Keeps the answer when it ends, and says all of it to a caller of another dialect.
    async fn hear(&mut self, events: Vec<Event>, broke: Option<&str>, written: &mut Vec<u8>) {
        note(&self.ticket, &events, &mut self.heard);
        for event in events {
            if let Event::Began { id, origin } = &event {
                self.keeper.begin(id.as_ref(), origin).await;
            }
            if let Event::Ended(reply) = &event
                && !self.is_kept
            {
                self.is_kept = true;
                let keeps = self.keeper.keeps_response();
                let shown = keeps.then(|| shown(self.writer.as_mut(), self.to, reply));
                let shown = shown.map(|shown| match &self.model {
                    Some(model) => shown.map(|shown| model.document(&shown)),
                    None => shown,
                });
                Box::pin(self.keeper.keep(Reply::clone(reply), shown.flatten())).await;
            }
            if let Some(writer) = &mut self.writer {
                writer.write(or_failure(event, broke), written);
            }
        }
    }
}

/// How long the first frame is, or all of it where that does not end here.
fn frame(bytes: &[u8]) -> usize {
    let mut begin = 0;
    while let Some(at) = bytes.get(begin..).and_then(|rest| memchr::memchr(b'\n', rest)) {
        let end = begin + at + 1;
        let rest = bytes.get(end..).unwrap_or_default();
        match rest {
            [b'\n', ..] => return end + 1,
            [b'\r', b'\n', ..] => return end + 2,
            _ => begin = end,
        }
    }
    bytes.len()
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
    /// Sends a piece to a caller who still reads.
    async fn send(&self, piece: Piece) -> GoesOn {
        const DEAF: &str = "the caller does not read";
        let length = piece.as_ref().map_or(0, Bytes::len);
        if length == 0 && piece.is_ok() {
            return Ok(());
        }
        let length = u32::try_from(length).map_or(AHEAD, |length| length.min(AHEAD));
        let room = match Arc::clone(&self.room).try_acquire_many_owned(length) {
            Ok(room) => room,
            Err(_) => {
                let room = Arc::clone(&self.room).acquire_many_owned(length);
                let room = tokio::select! {
                    room = timeout(self.slow_reader, room) => room,
                    () = self.pieces.closed() => return Err(LEFT),
                };
                let Ok(Ok(room)) = room else { return Err(DEAF) };
                room
            }
        };
        self.pieces.send(Waiting { piece, _room: room }).map_err(|_| LEFT)
    }
}

/// Says an answer in the caller's dialect.
struct Writer {
    dresser: Dresser,
    encoder: StreamEncoder,
}

impl Writer {
    fn write(&mut self, event: Event, out: &mut Vec<u8>) {
        // A frame that no codec knows is native to the provider's dialect, and may hold its seals.
        if matches!(event, Event::Alien(_)) {
            return;
        }
        let event = self.dresser.event(event);
        // What this dialect cannot say is left out.
        drop(self.encoder.push(&event, out));
    }
}
