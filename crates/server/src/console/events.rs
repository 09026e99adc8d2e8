//! Streams the events of a run as server-sent events. Each event has a number. After a lost
//! connection, a client continues from the last number it received.
//!
//! Consecutive pieces of one text are sent together, under the number of the last piece.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use throughline_core::{LogId, Record, Store, Tenant, unpack_events};
use throughline_json::{Json, Name, Node};
use throughline_spec::{RedactionPolicy, StreamRedactor};
use tokio::time::timeout;

use crate::api::{ApiRequest, ApiResult, ChunkSender, stream_response};
use crate::console::parse_stored;
use crate::letta::runs::is_open;
use crate::object::object;
use crate::records::StoreResult;

/// Number of earlier events to read for context, so that a resumed stream redacts a text in
/// progress as the earlier stream did.
const CONTEXT: u64 = 512;
/// Number of records in the first read, and the maximum number in later reads. The first read is
/// small, so that the beginning of a long run appears immediately.
const FIRST: u32 = 2;
const MOST: u32 = 256;
/// Approximate number of bytes to send at a time.
const CHUNK: usize = 64 << 10;

/// Streams a run's events from any position until the run ends.
pub(crate) async fn follow(request: &ApiRequest<'_>) -> ApiResult {
    let (tenant, run) = (request.caller.tenant.clone(), request.run_head().await?.log);
    let after = request.query_number("after").unwrap_or(0);
    let until = request.query_number("limit").map(|limit| after.saturating_add(limit.max(1)));
    let (store, ping) = (Arc::clone(&request.api.runner.store), request.api.ping);
    let feed = EventFeed::after(after, request.policy());
    let headers = [("content-type", "text/event-stream"), ("cache-control", "no-store")];
    // The task ends when the client disconnects or the run ends.
    Ok(stream_response(headers, 16, |sender| async move {
        stream_events(&*store, (&tenant, &run), feed, until, ping, &sender).await
    }))
}

/// Sends the events of a run, up to `until` or to the end of the run.
async fn stream_events(
    store: &dyn Store,
    (tenant, run): (&Tenant, &LogId),
    mut feed: EventFeed,
    until: Option<u64>,
    ping: Duration,
    sender: &ChunkSender,
) -> StoreResult<()> {
    let from = feed.after.saturating_sub(CONTEXT);
    let mut position = store.seq_before_event(tenant, run, from).await?;
    let mut page = FIRST;
    loop {
        // The head is read before the records, so that no event in between is missed.
        let head = store.log(tenant, run).await?;
        if head.is_none_or(|head| !is_open(&head) && head.events <= feed.read) {
            drop(sender.send(Ok(Bytes::from_static(b"event: end\ndata: {}\n\n"))).await);
            return Ok(());
        }
        let records = store.read(tenant, run, position, page).await?;
        let Some(last) = records.last() else {
            let more = tokio::select! {
                more = timeout(ping, store.wait(tenant, run, position)) => more,
                () = sender.closed() => return Ok(()),
            };
            let quiet = Bytes::from_static(b": still here\n\n");
            if more.is_err() && sender.send(Ok(quiet)).await.is_err() {
                return Ok(());
            }
            more.unwrap_or(Ok(()))?;
            continue;
        };
        (position, page) = (last.seq, (4 * page).min(MOST));
        for record in &records {
            feed.push_record(record);
            if feed.out.len() >= CHUNK && !feed.send(sender).await {
                return Ok(());
            }
            if until.is_some_and(|until| feed.read >= until) {
                break;
            }
        }
        if !feed.send(sender).await {
            return Ok(());
        }
        if until.is_some_and(|until| feed.read >= until) {
            let more = format!("event: more\ndata: {{\"n\":{}}}\n\n", feed.read);
            drop(sender.send(Ok(more.into())).await);
            return Ok(());
        }
    }
}

/// Redacts events, joins consecutive text pieces, and buffers the bytes to send.
struct EventFeed {
    policy: RedactionPolicy,
    /// Number of the last event that the client has received.
    after: u64,
    /// Number of the last event that was read from the store.
    read: u64,
    /// The text whose pieces are being joined.
    text: Option<OpenText>,
    out: Vec<u8>,
}

struct OpenText {
    of: TextKey,
    pieces: StreamRedactor,
    /// Redacted text that can be sent now.
    ready: String,
    at: Timestamp,
    number: u64,
}

/// The attributes that all pieces of one text share.
#[derive(PartialEq, Eq)]
struct TextKey {
    kind: Name,
    turn: Option<Json>,
    id: Option<Name>,
}

impl EventFeed {
    fn after(after: u64, policy: RedactionPolicy) -> Self {
        Self { policy, after, read: after, text: None, out: Vec::new() }
    }

    /// Sends the ready bytes; returns whether the client is still connected.
    async fn send(&mut self, sender: &ChunkSender) -> bool {
        self.flush();
        let out = std::mem::take(&mut self.out);
        out.is_empty() || sender.send(Ok(Bytes::from(out))).await.is_ok()
    }

    fn push_record(&mut self, record: &Record) {
        self.read = self.read.max(record.events.map_or(0, |(_, last)| last));
        match unpack_events(record) {
            Ok(events) => {
                for (number, event) in events {
                    self.push_event(number, record.at, event);
                }
            }
            Err(why) => {
                let Some((first, last)) = record.events.filter(|(_, last)| *last > self.after)
                else {
                    return;
                };
                self.flush();
                let (count, why) = (last - first + 1, why.to_string());
                let event = object! { "type": "forgotten", "count": count, "why": why };
                self.write_event(last, record.at, &event);
            }
        }
    }

    fn push_event(&mut self, number: u64, at: Timestamp, event: Bytes) {
        if let Some((piece, text)) = text_piece(&event) {
            if self.omits_pieces(&piece) {
                return;
            }
            return self.push_piece(number, at, piece, &text);
        }
        self.flush();
        self.text = None;
        if number <= self.after {
            return;
        }
        let Ok(event) = Json::parse(event) else { return };
        let name = event.tree().root().text_of("type").unwrap_or_default().into_owned();
        let event = self.policy.redact_event(&name, &event).into_owned();
        self.write_event(number, at, &event);
    }

    /// Returns whether pieces of this text are not streamed, because a configured pattern may match
    /// across any number of pieces. The event that ends the text contains the whole text, redacted.
    fn omits_pieces(&self, piece: &TextKey) -> bool {
        let policy = &self.policy;
        let is_thought = &*piece.kind == "thought";
        !policy.secret_patterns.is_empty() || (is_thought && !policy.thinking_patterns.is_empty())
    }

    fn push_piece(&mut self, number: u64, at: Timestamp, of: TextKey, text: &str) {
        if self.text.as_ref().is_none_or(|known| known.of != of) {
            self.flush();
            let (pieces, ready) = (StreamRedactor::default(), String::new());
            self.text = Some(OpenText { of, pieces, ready, at, number });
        }
        let Some(known) = &mut self.text else { return };
        let ready = known.pieces.push(text, |text| self.policy.redact_thought(text));
        (known.at, known.number) = (at, number);
        if number > self.after {
            known.ready.push_str(&ready);
        }
    }

    /// Writes the part of the text in progress that is ready to be sent.
    fn flush(&mut self) {
        let Some(text) = &mut self.text else { return };
        let ready = std::mem::take(&mut text.ready);
        if ready.is_empty() {
            return;
        }
        let TextKey { kind, turn, id } = &text.of;
        let phase = (&**kind == "thought").then_some("delta");
        let event = object! { "type": kind, "phase"? phase, "turn"? turn, "id"? id, "text": ready };
        let (number, at) = (text.number, text.at);
        self.write_event(number, at, &event);
    }

    fn write_event(&mut self, number: u64, at: Timestamp, event: &Json) {
        let data = object! { "n": number, "at": at.to_string(), "event": event };
        self.out.extend([b"data: ", &**data.bytes(), b"\n\n"].concat());
    }
}

/// Parses an event that is a piece of text; `None` for other events.
fn text_piece(event: &Bytes) -> Option<(TextKey, String)> {
    let tree = parse_stored(event)?;
    let event = tree.root();
    let kind = event.name_of("type")?;
    let is_piece = match &*kind {
        "stream" => true,
        "thought" => event.get("phase")?.is("delta"),
        _ => false,
    };
    let text = is_piece.then(|| event.text_of("text").unwrap_or_default().into_owned())?;
    let turn = event.get("turn").map(Node::json);
    Some((TextKey { kind, turn, id: event.name_of("id") }, text))
}
