//! A run, followed: as server-sent events, or to its end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use throughline_agent::Runner;
use throughline_core::{
    Follow, Json, Name, RedactionPolicy, RunEvent, Store, StoreError, json, unpack,
};
use tokio::time::timeout;

use crate::exchange::Cut;
use crate::gateway::{Answered, Outgoing};
use crate::letta::AgentApi;
use crate::letta::denied::Denied;
use crate::letta::drives::Drives;
use crate::letta::project::{Known, Projector, Rest};
use crate::letta::redact;
use crate::letta::union::{self, Letter};

/// From where on a reader wants to hear.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct From {
    /// After the message of that number.
    pub(crate) seq_id: u64,
    /// After the event of that number.
    pub(crate) event: u64,
}

/// A message with its number.
pub(crate) struct Numbered {
    pub(crate) letter: Letter,
    pub(crate) seq_id: u64,
}

/// What comes next of a run that is followed.
pub(crate) enum Next {
    Letter(Numbered),
    /// Nothing happened for a while.
    Quiet,
    /// Nothing more comes before somebody says something.
    Rest(Rest),
}

/// Follows a run.
pub(crate) struct Follower<'s> {
    store: &'s dyn Store,
    known: Known,
    follow: Follow<'s>,
    projector: Projector<'s>,
    from: From,
    /// How many messages were told.
    told: u64,
    ready: VecDeque<Numbered>,
    rest: Option<Rest>,
    /// A rest that the reader has heard of, and the event that told it.
    heard: Option<(u64, Rest)>,
}

impl<'s> Follower<'s> {
    /// Follows from there. What was told before is read, and left out.
    pub(crate) fn new(store: &'s dyn Store, known: Known, from: From) -> Self {
        let projector = Projector::new(store, known.clone(), known.note.tokens);
        let follow = Follow::new(store, known.tenant.clone(), known.run.clone(), 0);
        let (ready, rest, heard) = (VecDeque::new(), None, None);
        Self { store, known, follow, projector, from, told: 0, ready, rest, heard }
    }

    /// What comes next. Waits for it no longer than that.
    pub(crate) async fn next(&mut self, patience: Duration) -> Result<Next, StoreError> {
        loop {
            if let Some(letter) = self.ready.pop_front() {
                return Ok(Next::Letter(letter));
            }
            if let Some(rest) = self.rest {
                return Ok(Next::Rest(rest));
            }
            if let Some((event, rest)) = self.heard
                && self.is_last(event).await?
            {
                return Ok(Next::Rest(rest));
            }
            let Ok(records) = timeout(patience, self.follow.next()).await else {
                return Ok(Next::Quiet);
            };
            for record in &records? {
                for (number, event) in unpack(record).unwrap_or_default() {
                    let event = Json::parse(event).ok();
                    let event = event.and_then(|event| RunEvent::parse(&event).ok());
                    let Some(event) = event else { continue };
                    self.take(number, &event, record.at).await?;
                    if self.rest.is_some() {
                        break;
                    }
                }
                if self.rest.is_some() {
                    break;
                }
            }
        }
    }

    async fn take(
        &mut self,
        number: u64,
        event: &RunEvent,
        at: jiff::Timestamp,
    ) -> Result<(), StoreError> {
        let said = self.projector.tell(event, at).await?;
        for letter in said.letters {
            self.told += 1;
            if self.told > self.from.seq_id && number > self.from.event {
                self.ready.push_back(Numbered { letter, seq_id: self.told });
            }
        }
        // A reader that has heard of a rest goes on behind it, if anything is there.
        let is_news = number > self.from.event && self.told > self.from.seq_id;
        self.heard = said.rest.filter(|_| !is_news).map(|rest| (number, rest));
        self.rest = said.rest.filter(|_| is_news);
        Ok(())
    }

    async fn is_last(&self, event: u64) -> Result<bool, StoreError> {
        let head = self.store.log(&self.known.tenant, &self.known.run).await?;
        Ok(head.is_none_or(|head| head.events <= event))
    }

    /// What the run used, as far as it was read.
    pub(crate) fn used(&self) -> Json {
        self.projector.used()
    }
}

/// How a stream is told.
pub(crate) struct Telling {
    pub(crate) known: Known,
    pub(crate) from: From,
    pub(crate) pings: bool,
    /// The types of messages that are wanted; all without any.
    pub(crate) types: Vec<Name>,
}

impl Telling {
    /// The same, under that policy. What it leaves out may be cut anywhere, so nothing is told in pieces.
    fn under(mut self, policy: Option<&RedactionPolicy>) -> Self {
        self.known.note.tokens &= policy.is_none();
        self
    }

    fn wants(&self, kind: &str) -> bool {
        let is_frame = matches!(kind, union::STOP | union::USAGE | union::ERROR);
        is_frame || self.types.is_empty() || self.types.iter().any(|wanted| **wanted == *kind)
    }
}

impl AgentApi {
    /// The run as server-sent events, until it rests.
    pub(crate) fn stream(&self, telling: Telling) -> Answered {
        let (runner, drives, ping) = (self.runner.clone(), Arc::clone(&self.drives), self.ping);
        let policy = self.policy.clone();
        let telling = telling.under(policy.as_deref());
        let (sender, receiver) = tokio::sync::mpsc::channel::<Result<Bytes, Cut>>(64);
        // It ends with its reader, or with the run.
        tokio::spawn(async move {
            let shown = |said: Json| redact::shown(policy.as_deref(), said);
            let told = tell(&runner, &drives, ping, &telling, &sender, &shown).await;
            if let Err(error) = told {
                drop(sender.send(Err(Cut(error.to_string()))).await);
            }
        });
        let pieces = stream::unfold(receiver, |mut receiver| async move {
            receiver.recv().await.map(|piece| (piece, receiver))
        });
        let headers = [("content-type", "text/event-stream"), ("cache-control", "no-cache")];
        let headers = headers.map(|(name, value)| (Name::from(name), Name::from(value)));
        Answered {
            status: 200,
            headers: headers.to_vec(),
            body: Outgoing::Stream(Box::pin(pieces)),
        }
    }

    /// The run to where it rests: its messages, why it stopped, and what it used.
    pub(crate) async fn whole(&self, telling: Telling) -> Result<Json, Denied> {
        let telling = telling.under(self.policy.as_deref());
        let (tenant, run) = (telling.known.tenant.clone(), telling.known.run.clone());
        let mut follower = Follower::new(self.store(), telling.known.clone(), telling.from);
        let mut letters = Vec::new();
        let rest = loop {
            match follower.next(self.ping).await? {
                Next::Letter(numbered) => {
                    let is_frame =
                        matches!(numbered.letter.kind, union::STOP | union::USAGE | union::ERROR);
                    if !is_frame && telling.wants(numbered.letter.kind) {
                        letters.push(numbered.letter.json(Some(numbered.seq_id)));
                    }
                }
                // Whoever drove it may be gone.
                Next::Quiet => self.drives.drive(&tenant, &run),
                Next::Rest(rest) => break rest,
            }
        };
        Ok(json::object(|o| {
            o.array("messages", |list| {
                for letter in &letters {
                    list.raw(letter);
                }
            });
            o.object("stop_reason", |o| {
                o.string("message_type", union::STOP).string("stop_reason", rest.reason);
            });
            o.object("usage", |o| {
                o.string("message_type", union::USAGE);
                for (name, value) in follower.used().tree().root().members() {
                    o.node(&name.text().unwrap_or_default(), value);
                }
            });
        }))
    }
}

type Pieces = tokio::sync::mpsc::Sender<Result<Bytes, Cut>>;

async fn tell(
    runner: &Runner,
    drives: &Arc<Drives>,
    ping: Duration,
    telling: &Telling,
    pieces: &Pieces,
    shown: &(impl Fn(Json) -> Json + Sync),
) -> Result<(), StoreError> {
    let known = &telling.known;
    let mut follower = Follower::new(&*runner.store, known.clone(), telling.from);
    loop {
        let next = tokio::select! {
            next = follower.next(ping) => next?,
            () = pieces.closed() => return Ok(()),
        };
        let said = match next {
            Next::Letter(Numbered { letter, seq_id }) if telling.wants(letter.kind) => {
                letter.json(Some(seq_id))
            }
            Next::Letter(_) => continue,
            Next::Quiet => {
                // Whoever drove it may be gone.
                drives.drive(&known.tenant, &known.run);
                if !telling.pings {
                    continue;
                }
                union::ping(&known.run.0, runner.clock.now())
            }
            Next::Rest(_) => {
                drop(pieces.send(Ok(Bytes::from_static(b"data: [DONE]\n\n"))).await);
                return Ok(());
            }
        };
        let frame = [b"data: ", &**shown(said).bytes(), b"\n\n"].concat();
        if pieces.send(Ok(Bytes::from(frame))).await.is_err() {
            return Ok(());
        }
    }
}
