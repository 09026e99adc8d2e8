//! Streams a run as server-sent events, or collects the run's messages until the run stops.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use schemars::JsonSchema;
use serde::Serialize;
use throughline_agent::Runner;
use throughline_core::{LogFollower, Store};
use throughline_json::{Json, Name};
use throughline_spec::{RedactionPolicy, RunEvent};
use tokio::time::timeout;

use crate::api::{
    AgentApi, ApiResult, ChunkSender, RunPool, StopReasonRef, UsageRef, stream_response,
};
use crate::letta::message::{self, LettaMessage, MessageContent};
use crate::letta::projector::{Projector, RunContext};
use crate::records::{StoreResult, run_events};
use crate::redact::redact_json;
use crate::response::GatewayResponse;

/// The position after which a reader continues.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StreamPosition {
    /// Skip messages up to this sequence number.
    pub(crate) seq_id: u64,
    /// Skip messages for events up to this event number.
    pub(crate) event: u64,
}

/// Outcome of waiting for a run's next message.
enum FollowStep {
    /// A message and its sequence number.
    Letter(LettaMessage, u64),
    /// No message arrived within the time limit.
    Quiet,
    /// The run stopped with this Letta stop reason. It produces no more messages until it receives
    /// input.
    Stop(&'static str),
}

/// Follows one run and yields its messages in order.
struct RunFollower<'s> {
    store: &'s dyn Store,
    known: RunContext,
    follow: LogFollower<'s>,
    projector: Projector<'s>,
    from: StreamPosition,
    /// Number of messages produced, including skipped messages.
    produced: u64,
    ready: VecDeque<(LettaMessage, u64)>,
    stop: Option<&'static str>,
    /// A stop that the reader has already received, with the number of the event that caused it.
    known_stop: Option<(u64, &'static str)>,
}

impl<'s> RunFollower<'s> {
    /// Follows a run from this position. Earlier messages are read but skipped.
    fn new(store: &'s dyn Store, known: RunContext, from: StreamPosition) -> Self {
        let projector = Projector::new(store, known.clone(), known.note.tokens, false);
        let follow = LogFollower::new(store, known.tenant.clone(), known.run.clone(), 0);
        let (ready, stop, known_stop) = (VecDeque::new(), None, None);
        Self { store, known, follow, projector, from, produced: 0, ready, stop, known_stop }
    }

    /// Returns the next message or stop, or `Quiet` after `patience`.
    async fn next(&mut self, patience: Duration) -> StoreResult<FollowStep> {
        loop {
            if let Some((letter, seq_id)) = self.ready.pop_front() {
                return Ok(FollowStep::Letter(letter, seq_id));
            }
            if let Some(reason) = self.stop {
                return Ok(FollowStep::Stop(reason));
            }
            if let Some((event, reason)) = self.known_stop
                && self.last_event().await? <= event
            {
                return Ok(FollowStep::Stop(reason));
            }
            let Ok(records) = timeout(patience, self.follow.next()).await else {
                return Ok(FollowStep::Quiet);
            };
            'records: for record in &records? {
                for (number, event) in run_events(record) {
                    self.process_event(number, &event, record.at).await?;
                    if self.stop.is_some() {
                        break 'records;
                    }
                }
            }
        }
    }

    async fn process_event(
        &mut self,
        number: u64,
        event: &RunEvent,
        at: jiff::Timestamp,
    ) -> StoreResult<()> {
        let output = self.projector.convert(event, at).await?;
        for letter in output.letters {
            self.produced += 1;
            if self.produced > self.from.seq_id && number > self.from.event {
                self.ready.push_back((letter, self.produced));
            }
        }
        // A reader that has already received this stop continues after it, if more events follow.
        let is_new = number > self.from.event && self.produced > self.from.seq_id;
        self.known_stop = output.stop.filter(|_| !is_new).map(|reason| (number, reason));
        self.stop = output.stop.filter(|_| is_new);
        Ok(())
    }

    async fn last_event(&self) -> StoreResult<u64> {
        let head = self.store.log(&self.known.tenant, &self.known.run).await?;
        Ok(head.map_or(0, |head| head.events))
    }
}

/// The run to follow, the start position, and which frames to send.
pub(crate) struct RunStreamOptions {
    pub(crate) known: RunContext,
    pub(crate) from: StreamPosition,
    pub(crate) pings: bool,
    /// The requested message types; empty means all.
    pub(crate) types: Vec<Name>,
    /// Whether the reader may continue a run that no process drives.
    pub(crate) may_drive: bool,
}

impl RunStreamOptions {
    /// Turns off token streaming if a redaction policy is set, because a secret could be split
    /// across deltas.
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
    /// Streams the run as server-sent events until the run stops.
    pub(crate) fn stream(&self, options: RunStreamOptions) -> GatewayResponse {
        let (runner, drives, ping) = (self.runner.clone(), Arc::clone(&self.drives), self.ping);
        let policy = self.policy.clone();
        let options = options.with_policy(policy.as_deref());
        let headers = [("content-type", "text/event-stream"), ("cache-control", "no-cache")];
        // The task ends when the client disconnects or the run stops.
        stream_response(headers, 64, |sender| async move {
            send_frames(&runner, &drives, ping, &options, &sender, policy.as_deref()).await
        })
    }

    /// Collects the messages, stop reason and usage of the run until the run stops.
    pub(crate) async fn collect_answer(&self, options: RunStreamOptions) -> ApiResult<WholeAnswer> {
        let options = options.with_policy(self.policy.as_deref());
        let (tenant, run) = (options.known.tenant.clone(), options.known.run.clone());
        let mut follower = RunFollower::new(self.store(), options.known.clone(), options.from);
        let mut messages = Vec::new();
        let stop_reason = loop {
            match follower.next(self.ping).await? {
                FollowStep::Letter(letter, seq_id) => {
                    if !letter.content.is_frame() && options.wants(&letter.content) {
                        messages.push(letter.json(Some(seq_id)));
                    }
                }
                // The process that drove the run may be gone.
                FollowStep::Quiet => self.drives.drive(&tenant, &run),
                FollowStep::Stop(reason) => break reason,
            }
        };
        let stop_reason = MessageContent::StopReason { stop_reason };
        let usage = MessageContent::UsageStatistics(follower.projector.used());
        Ok(WholeAnswer { messages, stop_reason, usage })
    }
}

async fn send_frames(
    runner: &Runner,
    drives: &Arc<RunPool>,
    ping: Duration,
    options: &RunStreamOptions,
    pieces: &ChunkSender,
    policy: Option<&RedactionPolicy>,
) -> StoreResult<()> {
    let known = &options.known;
    let mut follower = RunFollower::new(&*runner.store, known.clone(), options.from);
    loop {
        let next = tokio::select! {
            next = follower.next(ping) => next?,
            () = pieces.closed() => return Ok(()),
        };
        let mut frame = match next {
            FollowStep::Letter(letter, seq_id) if options.wants(&letter.content) => {
                letter.json(Some(seq_id))
            }
            FollowStep::Letter(..) => continue,
            FollowStep::Quiet => {
                // The process that drove the run may be gone.
                if options.may_drive {
                    drives.drive(&known.tenant, &known.run);
                }
                if !options.pings {
                    continue;
                }
                message::ping_frame(&known.run.0, runner.clock.now())
            }
            FollowStep::Stop(_) => {
                drop(pieces.send(Ok(Bytes::from_static(b"data: [DONE]\n\n"))).await);
                return Ok(());
            }
        };
        if let Some(policy) = policy {
            frame = redact_json(policy, &frame);
        }
        let frame = [b"data: ", &**frame.bytes(), b"\n\n"].concat();
        if pieces.send(Ok(Bytes::from(frame))).await.is_err() {
            return Ok(());
        }
    }
}
