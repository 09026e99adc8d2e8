//! Streams the events of a run as server-sent events. Each event has a number, from which a client
//! continues after a lost connection.
//!
//! Consecutive pieces of one text are sent together, under the number of the last piece.

use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use throughline_agent::Runner;
use throughline_core::{LogId, Record, StoreError, Tenant, unpack_events};
use throughline_json::{self as json, Json, Name};
use throughline_spec::RedactionPolicy;
use tokio::sync::mpsc::{Sender, channel};
use tokio::time::timeout;

use crate::api::{ApiError, ApiRequest, ApiResult, stream_response};
use crate::console::parse_stored;
use crate::console::stream_redactor::StreamRedactor;
use crate::letta::runs::{is_open, is_run};
use crate::response::StreamAborted;

/// How many events before the first one are read as context, so that a text in progress is redacted
/// as before.
const CONTEXT: u64 = 512;
/// How many records are read at first and at most. The first read is small, so that the beginning
/// of a long run appears at once.
const FIRST: u32 = 2;
const MOST: u32 = 256;
/// About how many bytes are sent at a time.
const CHUNK: usize = 64 << 10;

/// Follows a run from any event until the run ends.
pub(crate) async fn follow(asked: &ApiRequest<'_>) -> ApiResult {
    let (tenant, run) = (asked.caller.tenant.clone(), LogId(asked.id(0)));
    let head = asked.api.store().log(&tenant, &run).await?.filter(is_run);
    head.ok_or_else(|| ApiError::not_found("run", &run.0))?;
    let number = |name: &str| asked.query.get(name).and_then(|number| number.parse::<u64>().ok());
    let after = number("after").unwrap_or(0);
    let stretch = EventRange {
        after,
        until: number("limit").map(|limit| after.saturating_add(limit.max(1))),
    };
    let (runner, ping, policy) = (asked.api.runner.clone(), asked.api.ping, asked.policy());
    let (sender, receiver) = channel::<Result<Bytes, StreamAborted>>(16);
    // The task ends with its reader, or with the run.
    tokio::spawn(async move {
        if let Err(error) =
            stream_events(&runner, (tenant, run), stretch, ping, &sender, policy).await
        {
            drop(sender.send(Err(StreamAborted(error.to_string()))).await);
        }
    });
    let headers = [("content-type", "text/event-stream"), ("cache-control", "no-store")];
    Ok(stream_response(headers, receiver))
}

/// The requested events: those after one, up to another or to the end.
#[derive(Clone, Copy)]
struct EventRange {
    after: u64,
    until: Option<u64>,
}

async fn stream_events(
    runner: &Runner,
    (tenant, run): (Tenant, LogId),
    EventRange { after, until }: EventRange,
    ping: Duration,
    sender: &Sender<Result<Bytes, StreamAborted>>,
    policy: RedactionPolicy,
) -> Result<(), StoreError> {
    let (store, from) = (&*runner.store, after.saturating_sub(CONTEXT));
    let mut place = store.seq_before_event(&tenant, &run, from).await?;
    let (mut telling, mut page) = (EventFeed::after(after, policy), FIRST);
    loop {
        // The head is read before the records, so that no event in between is missed.
        let head = store.log(&tenant, &run).await?;
        if head.is_none_or(|head| !is_open(&head) && head.events <= telling.heard) {
            drop(sender.send(Ok(Bytes::from_static(b"event: end\ndata: {}\n\n"))).await);
            return Ok(());
        }
        let records = store.read(&tenant, &run, place, page).await?;
        let Some(last) = records.last() else {
            let more = tokio::select! {
                more = timeout(ping, store.wait(&tenant, &run, place)) => more,
                () = sender.closed() => return Ok(()),
            };
            let quiet = Bytes::from_static(b": still here\n\n");
            if more.is_err() && sender.send(Ok(quiet)).await.is_err() {
                return Ok(());
            }
            more.unwrap_or(Ok(()))?;
            continue;
        };
        (place, page) = (last.seq, (4 * page).min(MOST));
        for record in &records {
            telling.push_record(record);
            if telling.out.len() >= CHUNK && !telling.send(sender).await {
                return Ok(());
            }
            if until.is_some_and(|until| telling.heard >= until) {
                break;
            }
        }
        if !telling.send(sender).await {
            return Ok(());
        }
        if until.is_some_and(|until| telling.heard >= until) {
            let more = format!("event: more\ndata: {{\"n\":{}}}\n\n", telling.heard);
            drop(sender.send(Ok(more.into())).await);
            return Ok(());
        }
    }
}

/// The events received so far, and the bytes to send.
struct EventFeed {
    policy: RedactionPolicy,
    /// The last event that the client has.
    after: u64,
    /// The last event that was read.
    heard: u64,
    /// The text in progress.
    text: Option<OpenText>,
    out: Vec<u8>,
}

/// A text in progress.
struct OpenText {
    of: TextKey,
    pieces: StreamRedactor,
    /// The part that is ready to be sent.
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
        Self { policy, after, heard: after, text: None, out: Vec::new() }
    }

    /// Sends the ready bytes; returns whether the client is still connected.
    async fn send(&mut self, sender: &Sender<Result<Bytes, StreamAborted>>) -> bool {
        self.flush();
        let out = std::mem::take(&mut self.out);
        out.is_empty() || sender.send(Ok(Bytes::from(out))).await.is_ok()
    }

    fn push_record(&mut self, record: &Record) {
        self.heard = self.heard.max(record.events.map_or(0, |(_, last)| last));
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
                let said = json::object(|o| {
                    o.string("type", "forgotten").number("count", last - first + 1);
                    o.string("why", &why.to_string());
                });
                self.flush();
                self.write_event(last, record.at, &said);
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
        let said = self.policy.redact_event(&name, &event).into_owned();
        self.write_event(number, at, &said);
    }

    /// Whether pieces of this text are left out, because a configured pattern may match across any
    /// number of pieces. The event that ends the text contains all of it, redacted.
    fn omits_pieces(&self, piece: &TextKey) -> bool {
        let policy = &self.policy;
        let is_thought = &*piece.kind == "thought";
        !policy.secret_patterns.is_empty() || (is_thought && !policy.thinking_patterns.is_empty())
    }

    /// Adds a piece to the text in progress.
    fn push_piece(&mut self, number: u64, at: Timestamp, of: TextKey, text: &str) {
        if self.text.as_ref().is_none_or(|known| known.of != of) {
            self.flush();
            let (pieces, ready) = (StreamRedactor::default(), String::new());
            self.text = Some(OpenText { of, pieces, ready, at, number });
        }
        let Some(known) = &mut self.text else { return };
        let ready = known.pieces.push(text, &self.policy);
        (known.at, known.number) = (at, number);
        if number > self.after {
            known.ready.push_str(&ready);
        }
    }

    /// Writes the ready part of the text in progress.
    fn flush(&mut self) {
        let Some(text) = &mut self.text else { return };
        let ready = std::mem::take(&mut text.ready);
        if ready.is_empty() {
            return;
        }
        let TextKey { kind, turn, id } = &text.of;
        let said = json::object(|o| {
            o.string("type", kind);
            if &**kind == "thought" {
                o.string("phase", "delta");
            }
            if let Some(turn) = turn {
                o.raw("turn", turn);
            }
            o.maybe_string("id", id.as_deref()).string("text", &ready);
        });
        let (number, at) = (text.number, text.at);
        self.write_event(number, at, &said);
    }

    fn write_event(&mut self, number: u64, at: Timestamp, said: &Json) {
        let data = json::object(|o| {
            o.number("n", number).string("at", &at.to_string()).raw("said", said);
        });
        self.out.extend_from_slice(b"data: ");
        self.out.extend_from_slice(data.bytes());
        self.out.extend_from_slice(b"\n\n");
    }
}

/// Reads an event as a piece of a text, if it is one.
fn text_piece(event: &Bytes) -> Option<(TextKey, String)> {
    let tree = parse_stored(event)?;
    let said = tree.root();
    let kind = said.name_of("type")?;
    let is_piece = match &*kind {
        "stream" => true,
        "thought" => said.get("phase")?.is("delta"),
        _ => false,
    };
    let text = is_piece.then(|| said.text_of("text").unwrap_or_default().into_owned())?;
    let turn = said.get("turn").map(throughline_json::Node::json);
    Some((TextKey { kind, turn, id: said.name_of("id") }, text))
}
