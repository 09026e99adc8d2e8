//! Follows a run, as server-sent events or until it stops.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use schemars::JsonSchema;
use serde::Serialize;
use throughline_agent::Runner;
use throughline_core::{LogFollower, Store, StoreError, unpack_events};
use throughline_json::{Json, Name};
use throughline_spec::{RedactionPolicy, RunEvent};
use tokio::time::timeout;

use crate::api::{AgentApi, ApiError, RunPool, StopReasonRef, UsageRef, stream_response};
use crate::letta::message::{self, LettaMessage, MessageContent, UsageTotals};
use crate::letta::projector::{Projector, RunContext, RunStop};
use crate::redact;
use crate::response::{GatewayResponse, StreamAborted};

/// The position after which a reader wants messages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StreamPosition {
    /// Skip messages up to this sequence number.
    pub(crate) seq_id: u64,
    /// Skip messages of events up to this number.
    pub(crate) event: u64,
}

/// A message with its sequence number.
pub(crate) struct NumberedMessage {
    pub(crate) letter: LettaMessage,
    pub(crate) seq_id: u64,
}

/// The next outcome of following a run.
pub(crate) enum FollowStep {
    Letter(NumberedMessage),
    /// Nothing happened within the given time.
    Quiet,
    /// The run produces no more messages until it receives input.
    Rest(RunStop),
}

/// Follows one run and yields its messages in order.
pub(crate) struct RunFollower<'s> {
    store: &'s dyn Store,
    known: RunContext,
    follow: LogFollower<'s>,
    projector: Projector<'s>,
    from: StreamPosition,
    /// Number of messages produced, including skipped ones.
    told: u64,
    ready: VecDeque<NumberedMessage>,
    rest: Option<RunStop>,
    /// A stop that the reader has already received, with the number of its event.
    heard: Option<(u64, RunStop)>,
}

impl<'s> RunFollower<'s> {
    /// Follows a run from this position. Earlier messages are read but skipped.
    pub(crate) fn new(store: &'s dyn Store, known: RunContext, from: StreamPosition) -> Self {
        let projector = Projector::new(store, known.clone(), known.note.tokens);
        let follow = LogFollower::new(store, known.tenant.clone(), known.run.clone(), 0);
        let (ready, rest, heard) = (VecDeque::new(), None, None);
        Self { store, known, follow, projector, from, told: 0, ready, rest, heard }
    }

    /// Returns the next message or stop, or `Quiet` after `patience`.
    pub(crate) async fn next(&mut self, patience: Duration) -> Result<FollowStep, StoreError> {
        loop {
            if let Some(letter) = self.ready.pop_front() {
                return Ok(FollowStep::Letter(letter));
            }
            if let Some(rest) = self.rest {
                return Ok(FollowStep::Rest(rest));
            }
            if let Some((event, rest)) = self.heard
                && self.is_last(event).await?
            {
                return Ok(FollowStep::Rest(rest));
            }
            let Ok(records) = timeout(patience, self.follow.next()).await else {
                return Ok(FollowStep::Quiet);
            };
            for record in &records? {
                for (number, event) in unpack_events(record).unwrap_or_default() {
                    let event = Json::parse(event).ok();
                    let event = event.and_then(|event| RunEvent::parse(&event).ok());
                    let Some(event) = event else { continue };
                    self.process_event(number, &event, record.at).await?;
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

    async fn process_event(
        &mut self,
        number: u64,
        event: &RunEvent,
        at: jiff::Timestamp,
    ) -> Result<(), StoreError> {
        let said = self.projector.tell(event, at).await?;
        for letter in said.letters {
            self.told += 1;
            if self.told > self.from.seq_id && number > self.from.event {
                self.ready.push_back(NumberedMessage { letter, seq_id: self.told });
            }
        }
        // A reader that has already received this stop continues after it, if more events follow.
        let is_news = number > self.from.event && self.told > self.from.seq_id;
        self.heard = said.rest.filter(|_| !is_news).map(|rest| (number, rest));
        self.rest = said.rest.filter(|_| is_news);
        Ok(())
    }

    async fn is_last(&self, event: u64) -> Result<bool, StoreError> {
        let head = self.store.log(&self.known.tenant, &self.known.run).await?;
        Ok(head.is_none_or(|head| head.events <= event))
    }

    /// The usage of the run, as far as it was read.
    pub(crate) fn usage(&self) -> UsageTotals {
        self.projector.used()
    }
}

/// The options of a stream.
pub(crate) struct RunStreamOptions {
    pub(crate) known: RunContext,
    pub(crate) from: StreamPosition,
    pub(crate) pings: bool,
    /// The requested message types; empty means all.
    pub(crate) types: Vec<Name>,
}

impl RunStreamOptions {
    /// Turns off token streaming under a redaction policy: a secret could be split across deltas.
    fn with_policy(mut self, policy: Option<&RedactionPolicy>) -> Self {
        self.known.note.tokens &= policy.is_none();
        self
    }

    fn wants(&self, content: &MessageContent) -> bool {
        content.is_frame() || content.is_one_of(&self.types)
    }
}

/// The whole response to a message.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Answer")]
pub(crate) struct WholeAnswer {
    #[schemars(with = "Vec<LettaMessage>")]
    messages: Vec<Json>,
    #[schemars(with = "StopReasonRef")]
    stop_reason: MessageContent,
    #[schemars(with = "UsageRef")]
    usage: MessageContent,
}

impl AgentApi {
    /// Streams the run as server-sent events until it stops.
    pub(crate) fn stream(&self, telling: RunStreamOptions) -> GatewayResponse {
        let (runner, drives, ping) = (self.runner.clone(), Arc::clone(&self.drives), self.ping);
        let policy = self.policy.clone();
        let telling = telling.with_policy(policy.as_deref());
        let (sender, receiver) = tokio::sync::mpsc::channel::<Result<Bytes, StreamAborted>>(64);
        // The task ends when the client disconnects or the run stops.
        tokio::spawn(async move {
            let shown = |said: Json| redact::shown(policy.as_deref(), said);
            let told = tell(&runner, &drives, ping, &telling, &sender, &shown).await;
            if let Err(error) = told {
                drop(sender.send(Err(StreamAborted(error.to_string()))).await);
            }
        });
        let headers = [("content-type", "text/event-stream"), ("cache-control", "no-cache")];
        stream_response(headers, receiver)
    }

    /// Collects the messages, stop reason and usage of the run until it stops.
    pub(crate) async fn whole(&self, telling: RunStreamOptions) -> Result<WholeAnswer, ApiError> {
        let telling = telling.with_policy(self.policy.as_deref());
        let (tenant, run) = (telling.known.tenant.clone(), telling.known.run.clone());
        let mut follower = RunFollower::new(self.store(), telling.known.clone(), telling.from);
        let mut messages = Vec::new();
        let rest = loop {
            match follower.next(self.ping).await? {
                FollowStep::Letter(NumberedMessage { letter, seq_id }) => {
                    if !letter.content.is_frame() && telling.wants(&letter.content) {
                        messages.push(letter.json(Some(seq_id)));
                    }
                }
                // The process that drove the run may be gone.
                FollowStep::Quiet => self.drives.drive(&tenant, &run),
                FollowStep::Rest(rest) => break rest,
            }
        };
        let stop_reason = MessageContent::StopReason { stop_reason: rest.reason };
        let usage = MessageContent::UsageStatistics(follower.usage());
        Ok(WholeAnswer { messages, stop_reason, usage })
    }
}

type FrameSender = tokio::sync::mpsc::Sender<Result<Bytes, StreamAborted>>;

async fn tell(
    runner: &Runner,
    drives: &Arc<RunPool>,
    ping: Duration,
    telling: &RunStreamOptions,
    pieces: &FrameSender,
    shown: &(impl Fn(Json) -> Json + Sync),
) -> Result<(), StoreError> {
    let known = &telling.known;
    let mut follower = RunFollower::new(&*runner.store, known.clone(), telling.from);
    loop {
        let next = tokio::select! {
            next = follower.next(ping) => next?,
            () = pieces.closed() => return Ok(()),
        };
        let said = match next {
            FollowStep::Letter(NumberedMessage { letter, seq_id })
                if telling.wants(&letter.content) =>
            {
                letter.json(Some(seq_id))
            }
            FollowStep::Letter(_) => continue,
            FollowStep::Quiet => {
                // The process that drove the run may be gone.
                drives.drive(&known.tenant, &known.run);
                if !telling.pings {
                    continue;
                }
                message::ping_frame(&known.run.0, runner.clock.now())
            }
            FollowStep::Rest(_) => {
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
