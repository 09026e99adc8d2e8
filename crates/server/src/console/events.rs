//! The events of a run as server-sent events. Each has its number, after which a reader goes on when its connection was lost.
//!
//! Pieces of one text that come together are told together, under the number of the last of them.

use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use jiff::Timestamp;
use throughline_agent::Runner;
use throughline_core::{
    Json, LogId, Name, Record, RedactionPolicy, StoreError, Tenant, json, unpack,
};
use tokio::sync::mpsc::{Sender, channel};
use tokio::time::timeout;

use crate::console::pieces::Pieces;
use crate::console::tree_of;
use crate::exchange::Cut;
use crate::gateway::{Answered, Outgoing};
use crate::letta::runs::{is_open, is_run};
use crate::letta::{Asked, Denied, Told};

/// How many events before the first one are read along, so that a text that is being written is looked at as before.
const CONTEXT: u64 = 512;
/// How many records are read at first, and at most: who opens a long run reads its beginning at once.
const FIRST: u32 = 2;
const MOST: u32 = 256;
/// About how many bytes are sent at a time.
const CHUNK: usize = 64 << 10;

/// Follows a run from any event on, until it is over.
pub(crate) async fn follow(asked: &Asked<'_>) -> Told {
    let (tenant, run) = (asked.caller.tenant.clone(), LogId(asked.id(0)));
    let head = asked.api.store().log(&tenant, &run).await?.filter(is_run);
    head.ok_or_else(|| Denied::missing("run", &run.0))?;
    let number = |name: &str| asked.query.get(name).and_then(|number| number.parse::<u64>().ok());
    let after = number("after").unwrap_or(0);
    let stretch =
        Stretch { after, until: number("limit").map(|limit| after.saturating_add(limit.max(1))) };
    let (runner, ping, policy) = (asked.api.runner.clone(), asked.api.ping, asked.policy());
    let (sender, receiver) = channel::<Result<Bytes, Cut>>(16);
    // It ends with its reader, or with the run.
    tokio::spawn(async move {
        if let Err(error) = tell(&runner, (tenant, run), stretch, ping, &sender, policy).await {
            drop(sender.send(Err(Cut(error.to_string()))).await);
        }
    });
    let pieces = stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|piece| (piece, receiver))
    });
    let headers = [("content-type", "text/event-stream"), ("cache-control", "no-store")];
    let headers = headers.map(|(name, value)| (Name::from(name), Name::from(value)));
    Ok(Answered { status: 200, headers: headers.into(), body: Outgoing::Stream(Box::pin(pieces)) })
}

/// Which events are asked for: those behind one, up to another or to the end.
#[derive(Clone, Copy)]
struct Stretch {
    after: u64,
    until: Option<u64>,
}

async fn tell(
    runner: &Runner,
    (tenant, run): (Tenant, LogId),
    Stretch { after, until }: Stretch,
    ping: Duration,
    sender: &Sender<Result<Bytes, Cut>>,
    policy: RedactionPolicy,
) -> Result<(), StoreError> {
    let (store, from) = (&*runner.store, after.saturating_sub(CONTEXT));
    let mut place = store.place_of_event(&tenant, &run, from).await?;
    let (mut telling, mut page) = (Telling::after(after, policy), FIRST);
    loop {
        // It is looked at before it is listened to: what comes meanwhile is heard then.
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
            telling.hear(record);
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

/// What was heard, and what is to be sent of it.
struct Telling {
    policy: RedactionPolicy,
    /// What the reader has.
    after: u64,
    /// The last event that was heard.
    heard: u64,
    /// The text that is being written.
    text: Option<Text>,
    out: Vec<u8>,
}

/// A text that is being written, by its event without the text.
struct Text {
    of: Piece,
    pieces: Pieces,
    /// What is to be sent of it.
    ready: String,
    at: Timestamp,
    number: u64,
}

/// What pieces of one text have in common.
#[derive(PartialEq, Eq)]
struct Piece {
    kind: Name,
    turn: Option<Json>,
    id: Option<Name>,
}

impl Telling {
    fn after(after: u64, policy: RedactionPolicy) -> Self {
        Self { policy, after, heard: after, text: None, out: Vec::new() }
    }

    /// Sends what is ready; says whether anybody still listens.
    async fn send(&mut self, sender: &Sender<Result<Bytes, Cut>>) -> bool {
        self.flush();
        let out = std::mem::take(&mut self.out);
        out.is_empty() || sender.send(Ok(Bytes::from(out))).await.is_ok()
    }

    fn hear(&mut self, record: &Record) {
        self.heard = self.heard.max(record.events.map_or(0, |(_, last)| last));
        match unpack(record) {
            Ok(events) => {
                for (number, event) in events {
                    self.take(number, record.at, event);
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
                self.put(last, record.at, &said);
            }
        }
    }

    fn take(&mut self, number: u64, at: Timestamp, event: Bytes) {
        if let Some((piece, text)) = piece(&event) {
            if self.leaves_out(&piece) {
                return;
            }
            return self.write(number, at, piece, &text);
        }
        self.flush();
        self.text = None;
        if number <= self.after {
            return;
        }
        let Ok(event) = Json::parse(event) else { return };
        let name = event.tree().root().text_of("type").unwrap_or_default().into_owned();
        let said = self.policy.redact_event(&name, &event).into_owned();
        self.put(number, at, &said);
    }

    /// Whether pieces of this text are left out: a pattern of the configuration may match across any number of pieces. The
    /// event that ends the text has all of it, redacted.
    fn leaves_out(&self, piece: &Piece) -> bool {
        let policy = &self.policy;
        let is_thought = &*piece.kind == "thought";
        !policy.secret_patterns.is_empty() || (is_thought && !policy.thinking_patterns.is_empty())
    }

    /// A piece of a text has come.
    fn write(&mut self, number: u64, at: Timestamp, of: Piece, text: &str) {
        if self.text.as_ref().is_none_or(|known| known.of != of) {
            self.flush();
            let (pieces, ready) = (Pieces::default(), String::new());
            self.text = Some(Text { of, pieces, ready, at, number });
        }
        let Some(known) = &mut self.text else { return };
        let ready = known.pieces.push(text, &self.policy);
        (known.at, known.number) = (at, number);
        if number > self.after {
            known.ready.push_str(&ready);
        }
    }

    /// Puts what is ready of the text that is being written.
    fn flush(&mut self) {
        let Some(text) = &mut self.text else { return };
        let ready = std::mem::take(&mut text.ready);
        if ready.is_empty() {
            return;
        }
        let Piece { kind, turn, id } = &text.of;
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
        self.put(number, at, &said);
    }

    fn put(&mut self, number: u64, at: Timestamp, said: &Json) {
        let data = json::object(|o| {
            o.number("n", number).string("at", &at.to_string()).raw("said", said);
        });
        self.out.extend_from_slice(b"data: ");
        self.out.extend_from_slice(data.bytes());
        self.out.extend_from_slice(b"\n\n");
    }
}

/// The event as a piece of a text, if it is one.
fn piece(event: &Bytes) -> Option<(Piece, String)> {
    let tree = tree_of(event)?;
    let said = tree.root();
    let kind = said.name_of("type")?;
    let is_piece = match &*kind {
        "stream" => true,
        "thought" => said.get("phase")?.is("delta"),
        _ => false,
    };
    let text = is_piece.then(|| said.text_of("text").unwrap_or_default().into_owned())?;
    let turn = said.get("turn").map(throughline_core::Node::json);
    Some((Piece { kind, turn, id: said.name_of("id") }, text))
}
