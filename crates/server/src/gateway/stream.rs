//! Relays a streamed response: decodes the stream while relaying it, and stores the reply before
//! forwarding the end.

mod frames;
mod sink;
mod writer;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::stream::Peekable;
use futures_util::{FutureExt as _, Stream, StreamExt as _, stream};
use throughline_codec::{
    Codec, CodecError, DecodeContext, Framing, StreamDecoder, StreamEncoder, events_from_reply,
};
use throughline_core::{
    BodyStream, Delta, Event, Failure, Reply, Stage, StopReason, UpstreamResponse,
};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::gateway::answer::{LARGEST_ANSWER, UNREADABLE};
use crate::gateway::capture::CaptureHandle;
use crate::gateway::compaction;
use crate::gateway::compression::Inflater;
use crate::gateway::continuation::{Continuer, InterruptedReply};
use crate::gateway::model_name::{ModelName, ModelNameStream};
use crate::gateway::removed_tools::RemovedTools;
use crate::gateway::stream::frames::{complete_frames, frame_length};
use crate::gateway::stream::sink::{
    ClientChunk, ClientSink, DISCONNECTED, QueuedChunk, RelayResult,
};
use crate::gateway::stream::writer::ReplyWriter;
use crate::response::StreamAborted;
use crate::telemetry::RequestScope;
use throughline_replay::ClaimRewriter;

/// Chunks are joined until they reach this size, or until `AT_ONCE` has passed.
const TOGETHER: usize = 16 << 10;
const AT_ONCE: Duration = Duration::from_millis(1);

/// The provider's response and how to relay it.
pub(crate) struct RelayParts {
    pub(crate) answer: UpstreamResponse,
    pub(crate) from: &'static dyn Codec,
    pub(crate) to: &'static dyn Codec,
    pub(crate) context: DecodeContext,
    /// The framing of the caller's stream.
    pub(crate) framing: Framing,
    /// Rewrites events for a caller of another dialect; `None` if the bytes pass unchanged.
    pub(crate) rewriter: Option<ClaimRewriter>,
    /// Continues a reply that the provider interrupts; `None` if the caller continues it.
    pub(crate) continuer: Option<Continuer>,
    /// The model name to show to a caller of the same dialect, if it differs from the provider's
    /// name.
    pub(crate) model: Option<ModelName>,
    pub(crate) keeper: CaptureHandle,
    /// How long the caller may stop reading before the stream ends.
    pub(crate) slow_reader: Duration,
    /// The tools that the reply must not call any more.
    pub(crate) removed_tools: RemovedTools,
}

/// Starts the relay and returns the bytes for the caller. If the caller disconnects, the request to
/// the provider is cancelled.
pub(crate) fn relay(relay: RelayParts) -> Pin<Box<dyn Stream<Item = ClientChunk> + Send>> {
    let (pieces, queue) = mpsc::unbounded_channel();
    let (status, chunks, passage) = StreamRelay::new(relay, pieces);
    tokio::spawn(run(status, chunks, passage));
    Box::pin(stream::unfold(queue, async |mut queue: mpsc::UnboundedReceiver<QueuedChunk>| {
        // Dropping the permit frees the queue space of this piece.
        queue.recv().await.map(|waiting| (waiting.piece, queue))
    }))
}

/// Forwards chunks until the stream ends or the caller disconnects.
async fn run(status: u16, chunks: BodyStream, mut passage: Box<StreamRelay>) {
    let (mut chunks, mut is_first) = (chunks.peekable(), true);
    let ended = loop {
        let chunk = tokio::select! {
            chunk = chunks.next() => chunk,
            // The caller disconnected, so the request is cancelled.
            () = passage.out.closed() => break DISCONNECTED,
        };
        let goes_on = match chunk {
            // The first chunk is forwarded at once. So are chunks of a stream without frame
            // boundaries, where only the chunk boundaries separate events.
            Some(Ok(bytes)) if is_first || !passage.has_frames => {
                passage.forward_chunk(&bytes).await
            }
            Some(Ok(bytes)) => passage.forward_chunk(&coalesce(bytes, &mut chunks).await).await,
            Some(Err(error)) => passage.finish(Some(error.to_string())).await,
            None => passage.finish(None).await,
        };
        if let Some(next) = passage.next_body.take() {
            (chunks, is_first) = (next.peekable(), true);
            continue;
        }
        is_first = false;
        if let Err(ended) = goes_on {
            break ended;
        }
    };
    let keeping = Arc::clone(&passage.keeper.replay);
    let leaving = (ended == DISCONNECTED && !passage.is_kept)
        .then(|| keeping.calls().disconnects().leaving());
    drop(chunks);
    if !passage.is_kept {
        Box::pin(passage.keeper.record_failure(status, ended)).await;
    }
    let StreamRelay { keeper, .. } = *passage;
    keeper.scope.end();
    if let Some(leaving) = leaving {
        leaving.done().await;
    }
}

/// Joins chunks that arrive at the same time, so that they are decoded and written once.
async fn coalesce(first: Bytes, chunks: &mut Peekable<BodyStream>) -> Bytes {
    let (started, mut all, mut has_waited) = (Instant::now(), BytesMut::new(), false);
    while first.len().max(all.len()) < TOGETHER && started.elapsed() < AT_ONCE {
        match Pin::new(&mut *chunks).next_if(Result::is_ok).now_or_never() {
            Some(Some(Ok(more))) => {
                if all.is_empty() {
                    all.extend_from_slice(&first);
                }
                all.extend_from_slice(&more);
                has_waited = false;
            }
            // The stream ended or failed.
            Some(_) => break,
            None if has_waited => break,
            // Let the task that reads from the provider run once.
            None => {
                has_waited = true;
                tokio::task::yield_now().await;
            }
        }
    }
    if all.is_empty() { first } else { all.freeze() }
}

struct StreamRelay {
    decoder: StreamDecoder,
    inflater: Inflater,
    /// Codec and context to decode a response that is one JSON object.
    from: &'static dyn Codec,
    context: DecodeContext,
    shape: BodyShape,
    /// Whether empty lines end frames. If so, only the last frame needs to be held back.
    has_frames: bool,
    to: &'static dyn Codec,
    writer: Option<ReplyWriter>,
    /// Replaces the model's name in bytes that otherwise pass unchanged.
    renamer: Option<ModelNameStream>,
    model: Option<ModelName>,
    keeper: CaptureHandle,
    out: ClientSink,
    continuer: Option<Continuer>,
    /// The reply before its last interruption.
    interrupted: Option<InterruptedReply>,
    /// The body of the response that continues an interrupted reply.
    next_body: Option<BodyStream>,
    is_kept: bool,
    removed_tools: RemovedTools,
    /// The framing of the caller's stream.
    framing: Framing,
    /// The start of an incomplete frame. Only a reply that might call a removed tool is held back
    /// until its frames are complete.
    held: BytesMut,
    /// Set after a decode error: the rest of the stream is neither decoded nor captured.
    is_unreadable: bool,
}

/// The form of a response body that is re-encoded for another dialect.
enum BodyShape {
    /// Only white space has arrived so far.
    Unknown,
    /// Frames of a stream, or a response in the caller's own dialect.
    Frames,
    /// One JSON object: the provider returned a complete reply to a streaming request.
    Whole(BytesMut),
}

const NO_REPLY: &str = "the response contains no reply";
const REMOVED_TOOL: &str = "the model called a tool that this conversation no longer offers";

impl StreamRelay {
    /// Creates the state and returns it with the response's status and body. Thousands of streams
    /// may be open at once, so the state is boxed separately from the task that drives it.
    fn new(
        relay: RelayParts,
        pieces: mpsc::UnboundedSender<QueuedChunk>,
    ) -> (u16, BodyStream, Box<Self>) {
        let RelayParts {
            answer,
            from,
            to,
            context,
            framing,
            rewriter,
            continuer,
            model,
            keeper,
            slow_reader,
            removed_tools,
        } = relay;
        let provider_framing = framing_of(&answer, from);
        let inflater = Inflater::new(answer.header("content-encoding"));
        // Every JSON line is an object, so an object does not mean that the reply is complete.
        let may_be_whole = rewriter.is_some() && provider_framing != Framing::JsonLines;
        let passage = Box::new(Self {
            shape: if may_be_whole { BodyShape::Unknown } else { BodyShape::Frames },
            has_frames: provider_framing == Framing::Sse && matches!(inflater, Inflater::Plain),
            decoder: StreamDecoder::with_framing(from, &context, provider_framing),
            inflater,
            from,
            context,
            to,
            writer: rewriter.map(|rewriter| ReplyWriter {
                rewriter,
                encoder: StreamEncoder::with_framing(to, framing),
            }),
            renamer: model.clone().map(|model| ModelNameStream::new(model, provider_framing)),
            model,
            keeper,
            out: ClientSink::new(pieces, slow_reader),
            continuer,
            interrupted: None,
            next_body: None,
            is_kept: false,
            removed_tools,
            framing,
            held: BytesMut::new(),
            is_unreadable: false,
        });
        (answer.status, answer.body, passage)
    }

    /// Forwards bytes. Only the frame that ends the response waits until the reply is stored.
    async fn forward_chunk(&mut self, bytes: &Bytes) -> RelayResult {
        if self.is_unreadable {
            let held = std::mem::take(&mut self.held).freeze();
            self.out.send(Ok(held)).await?;
            return self.out.send(Ok(bytes.clone())).await;
        }
        if self.removed_tools.is_empty() || !self.has_frames {
            return self.forward_frames(bytes).await;
        }
        self.held.extend_from_slice(bytes);
        let complete = complete_frames(&self.held);
        let frames = self.held.split_to(complete).freeze();
        if self.held.len() > LARGEST_ANSWER {
            return Err(UNREADABLE);
        }
        self.forward_frames(&frames).await
    }

    async fn forward_frames(&mut self, bytes: &Bytes) -> RelayResult {
        let Ok(readable) = self.inflater.push(bytes) else {
            return self.stop_decoding(bytes, 0).await;
        };
        if self.buffer_whole(&readable) {
            return Ok(());
        }
        let (mut begin, mut passed) = (0, 0);
        let mut written = Vec::new();
        while begin < readable.len() {
            let rest = readable.get(begin..).unwrap_or_default();
            let length = if self.has_frames { frame_length(rest) } else { rest.len() };
            let frame = rest.get(..length).unwrap_or_default();
            match Stage::Parse.run(|| self.decoder.push(frame)) {
                Ok(events) => {
                    if let Some(problem) = self.removed_tools.find_call(&events) {
                        let before = if self.is_rewritten() {
                            written.into()
                        } else if self.has_frames {
                            bytes.slice(passed..begin)
                        } else {
                            Bytes::new()
                        };
                        self.out.send(Ok(before)).await?;
                        record_usage(&self.keeper.scope, &events);
                        return self.refuse(&problem).await;
                    }
                    let has_ended = events.iter().any(|event| matches!(event, Event::Ended(_)));
                    if has_ended && !self.is_kept {
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
                    self.handle_events(events, None, &mut written).await;
                    if let Some(renamer) = &mut self.renamer {
                        renamer.push(frame, &mut written);
                        passed = begin + length;
                    }
                }
                Err(_) => {
                    self.out.send(Ok(written.into())).await?;
                    return self.stop_decoding(bytes, passed).await;
                }
            }
            begin += length;
        }
        let piece = if self.is_rewritten() { written.into() } else { bytes.slice(passed..) };
        self.out.send(Ok(piece)).await
    }

    /// Stops decoding after an error. The rest of the stream passes unchanged and is not captured.
    /// A caller of another dialect gets an error instead.
    async fn stop_decoding(&mut self, bytes: &Bytes, from: usize) -> RelayResult {
        self.is_unreadable = true;
        if !self.is_kept {
            self.keeper.scope.record_lost_capture(UNREADABLE);
        }
        if let Some(mut renamer) = self.renamer.take() {
            if !matches!(self.inflater, Inflater::Plain) {
                // The response headers already announced an uncompressed stream.
                self.out.send(Err(StreamAborted(UNREADABLE.to_owned()))).await?;
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

    /// Ends the caller's stream with an error.
    async fn refuse(&mut self, problem: &str) -> RelayResult {
        self.keeper.scope.record().problem = Some(problem.to_owned());
        let mut written = Vec::new();
        if let Some(writer) = &mut self.writer {
            writer.write(Event::Failed(failure(problem)), &mut written);
            writer.encoder.finish(&mut written);
        } else if self.renamer.is_some() || matches!(self.inflater, Inflater::Plain) {
            let mut encoder = StreamEncoder::with_framing(self.to, self.framing);
            drop(encoder.push(&Event::Failed(failure(problem)), &mut written));
        } else {
            // An error cannot be added to a compressed stream.
            self.out.send(Err(StreamAborted(problem.to_owned()))).await?;
            return Err(REMOVED_TOOL);
        }
        self.out.send(Ok(written.into())).await?;
        Err(REMOVED_TOOL)
    }

    /// Buffers a response that is one JSON object instead of a stream; returns `false` for a
    /// stream.
    fn buffer_whole(&mut self, readable: &[u8]) -> bool {
        if let BodyShape::Unknown = self.shape
            && let Some(first) = readable.iter().find(|byte| !byte.is_ascii_whitespace())
        {
            let is_object = *first == b'{';
            self.shape =
                if is_object { BodyShape::Whole(BytesMut::new()) } else { BodyShape::Frames };
        }
        let BodyShape::Whole(body) = &mut self.shape else { return false };
        // Bytes over the limit are cut off, so the body does not parse and is refused as
        // unreadable.
        let room = LARGEST_ANSWER.saturating_sub(body.len());
        body.extend_from_slice(readable.get(..room).unwrap_or(readable));
        true
    }

    /// Decodes a response that is one JSON object, either a reply or an error.
    fn whole_events(&mut self) -> Result<Vec<Event>, CodecError> {
        let body = match std::mem::replace(&mut self.shape, BodyShape::Frames) {
            BodyShape::Whole(body) => body.freeze(),
            BodyShape::Unknown | BodyShape::Frames => return self.decoder.finish(),
        };
        if let Ok(reply) = self.from.decode_reply(&body, &self.context) {
            return Ok(events_from_reply(&reply));
        }
        self.decoder = StreamDecoder::with_framing(self.from, &self.context, Framing::JsonArray);
        let mut events = self.decoder.push(&body)?;
        events.extend(self.decoder.finish()?);
        Ok(events)
    }

    /// Handles the end of the provider's stream, whether complete or broken.
    async fn finish(&mut self, broke: Option<String>) -> RelayResult {
        let held = std::mem::take(&mut self.held).freeze();
        if self.is_unreadable {
            self.out.send(Ok(held)).await?;
        } else if !held.is_empty() {
            self.forward_frames(&held).await?;
        }
        let mut written = Vec::new();
        if !self.is_unreadable {
            match self.whole_events() {
                Ok(events) => {
                    if let Some(problem) = self.removed_tools.find_call(&events) {
                        record_usage(&self.keeper.scope, &events);
                        return self.refuse(&problem).await;
                    }
                    let events = self.continue_reply(events, broke.as_deref(), &mut written).await;
                    if self.next_body.is_some() {
                        return self.out.send(Ok(written.into())).await;
                    }
                    self.handle_events(events, broke.as_deref(), &mut written).await;
                }
                Err(_) => self.stop_decoding(&Bytes::new(), 0).await?,
            }
        }
        if let Some(problem) = &broke {
            self.keeper.scope.record().problem = Some(problem.clone());
        }
        if let Some(renamer) = &mut self.renamer {
            renamer.finish(&mut written);
            self.out.send(Ok(std::mem::take(&mut written).into())).await?;
        }
        let piece = match (&mut self.writer, broke) {
            (None, None) => return Err(if self.is_unreadable { UNREADABLE } else { NO_REPLY }),
            // The caller's connection breaks as the provider's did.
            (None, Some(problem)) => Err(StreamAborted(problem)),
            (Some(writer), _) => {
                writer.encoder.finish(&mut written);
                Ok(written.into())
            }
        };
        self.out.send(piece).await?;
        Err(NO_REPLY)
    }

    /// Requests the rest of a reply that the provider interrupted. Returns the events that are left
    /// to handle: all events if the reply is complete, or the failure of the request.
    async fn continue_reply(
        &mut self,
        mut events: Vec<Event>,
        broke: Option<&str>,
        written: &mut Vec<u8>,
    ) -> Vec<Event> {
        let Some(continuer) = self.continuer.as_mut().filter(|_| broke.is_none()) else {
            return events;
        };
        let Some(Event::Ended(reply)) = events.last() else { return events };
        let sent = match continuer.next_request(reply) {
            Ok(None) => return events,
            Ok(Some(request)) => continuer
                .send(request)
                .await
                .map_err(|error| format!("the provider did not continue its response: {error}")),
            Err(problem) => Err(problem),
        };
        let reply = events.pop();
        self.handle_events(events, None, written).await;
        let Some(Event::Ended(reply)) = reply else { return Vec::new() };
        let reply = self.joined(Event::Ended(reply));
        let Some(Event::Ended(reply)) = reply else { return Vec::new() };
        let problem = match sent {
            Ok(answer) if answer.status < 400 => {
                let framing = framing_of(&answer, self.from);
                self.inflater = Inflater::new(answer.header("content-encoding"));
                self.has_frames =
                    framing == Framing::Sse && matches!(self.inflater, Inflater::Plain);
                self.shape = BodyShape::Unknown;
                self.decoder = StreamDecoder::with_framing(self.from, &self.context, framing);
                self.interrupted = Some(InterruptedReply::new(*reply));
                self.next_body = Some(answer.body);
                return Vec::new();
            }
            Ok(answer) => {
                format!("the provider did not continue its response: status {}", answer.status)
            }
            Err(problem) => problem,
        };
        // The provider charges for the first part even if the rest fails.
        self.keeper.scope.record().set_reply(&reply);
        vec![Event::Failed(failure(&problem))]
    }

    /// Converts an event of a continuation to an event of the whole reply.
    fn joined(&self, event: Event) -> Option<Event> {
        match &self.interrupted {
            Some(interrupted) => interrupted.joined(event),
            None => Some(event),
        }
    }

    /// Returns whether the bytes sent to the caller differ from the provider's bytes.
    fn is_rewritten(&self) -> bool {
        self.writer.is_some() || self.renamer.is_some()
    }

    /// Encodes the reply as the complete response that the caller can retrieve later.
    fn stored_response(&mut self, reply: &Reply) -> Option<Bytes> {
        let response = match &mut self.writer {
            Some(writer) => self.to.encode_reply(&writer.rewriter.reply(reply.clone())).ok()?,
            None => self.to.encode_reply(reply).ok()?,
        };
        Some(self.model.as_ref().map_or(response.clone(), |model| model.rewrite(&response)))
    }

    /// Captures the reply when it ends, and encodes events for a caller of another dialect.
    async fn handle_events(
        &mut self,
        events: Vec<Event>,
        broke: Option<&str>,
        written: &mut Vec<u8>,
    ) {
        let events: Vec<Event> = match &self.interrupted {
            Some(reply) => events.into_iter().filter_map(|event| reply.joined(event)).collect(),
            None => events,
        };
        record_usage(&self.keeper.scope, &events);
        for event in events {
            if let Event::Began { id, origin } = &event {
                self.keeper.record_early_id(id.as_ref(), origin).await;
            }
            let unusable = match (&event, &self.writer) {
                (Event::Ended(reply), Some(writer))
                    if writer.rewriter.is_compacting() && reply.stop != StopReason::Cut =>
                {
                    compaction::problem(reply)
                }
                _ => None,
            };
            if let Event::Ended(reply) = &event
                && !self.is_kept
            {
                self.is_kept = true;
                if let Some(problem) = &unusable {
                    // The provider charges for the unusable reply.
                    self.keeper.scope.record().set_reply(reply);
                    Box::pin(self.keeper.record_failure(502, problem)).await;
                } else {
                    let is_stored = self.keeper.stores_response();
                    let response = if is_stored { self.stored_response(reply) } else { None };
                    Box::pin(self.keeper.capture(Reply::clone(reply), response)).await;
                }
            }
            if let Some(writer) = &mut self.writer {
                let problem = match &event {
                    Event::Ended(reply) if reply.stop == StopReason::Cut => {
                        Some(broke.unwrap_or("the provider ended its answer early").to_owned())
                    }
                    _ => unusable,
                };
                let event = problem.map_or(event, |problem| Event::Failed(failure(&problem)));
                writer.write(event, written);
            }
        }
    }
}

/// Returns the framing of a provider's response.
fn framing_of(answer: &UpstreamResponse, from: &dyn Codec) -> Framing {
    let framing = answer.header("content-type").and_then(Framing::from_content_type);
    framing.unwrap_or_else(|| from.framing())
}

/// Records usage and the length of the received text. If the provider sends no usage, billing is
/// based on the text length.
fn record_usage(scope: &RequestScope, events: &[Event]) {
    use Event::{Alien, Began, Closed, Ended, Failed, Opened};
    let mut record = scope.record();
    for event in events {
        match event {
            Event::Delta { delta, .. } => {
                let length = match delta {
                    Delta::Text(text) | Delta::Thought(text) | Delta::Args(text) => text.len(),
                    Delta::ArgsAt { value, .. } => value.as_str().len(),
                };
                record.received += length as u64;
            }
            Event::Usage(so_far) => record.usage = Some(*so_far),
            Began { .. } | Opened { .. } | Closed { .. } | Ended(_) | Failed(_) | Alien(_) => {}
        }
    }
}

fn failure(message: &str) -> Failure {
    Failure { status: Some(502), kind: None, message: message.into(), body: Bytes::new() }
}
