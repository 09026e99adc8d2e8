//! What becomes of one call, noted as it goes and told once, at its end.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use throughline_codec::Verdict;
use throughline_core::{Did, Fate, Json, Name, StoreError, Tenant, Usage, Wire, json};
use tokio::time::Instant;

use crate::access::Admission;
use crate::exchange::{Caller, Problem};
use crate::operations::room::Room;
use crate::operations::shares::Share;
use crate::operations::trace::Placed;
use crate::operations::usage::{Used, UsedFor};
use crate::operations::{Operations, log};

/// How many bytes of text a token has, where nobody counted.
const BYTES_OF_A_TOKEN: u64 = 4;

/// Goes with one call. Whoever works on the call holds it; when the last one is done, the call is told.
pub(crate) struct Ticket {
    operations: Arc<Operations>,
    started: Instant,
    facts: Mutex<Facts>,
    _slot: Share,
    /// The memory of the request.
    room: Mutex<Option<Room>>,
}

/// What is known of a call.
#[derive(Default)]
pub(crate) struct Facts {
    pub(crate) call: Option<Name>,
    pub(crate) tenant: Option<Tenant>,
    /// The id of the key.
    pub(crate) key: Option<Name>,
    pub(crate) dialect: Dialect,
    pub(crate) provider: Option<Name>,
    pub(crate) model: Option<Name>,
    pub(crate) status: u16,
    pub(crate) is_stream: bool,
    /// After what time the first byte came from the provider.
    pub(crate) first_byte: Option<Duration>,
    pub(crate) usage: Option<Usage>,
    /// Whether the answer came to its end, so that what it used was told.
    pub(crate) is_whole: bool,
    /// What was sent and heard, in bytes, where nobody counted the tokens.
    pub(crate) sent: u64,
    pub(crate) heard: u64,
    pub(crate) fates: Option<Fates>,
    pub(crate) verdict: Option<Verdict>,
    /// How many others were asked before.
    pub(crate) fallbacks: u64,
    pub(crate) capture: Capture,
    /// What went wrong on our side or the provider's, in words of our own.
    pub(crate) problem: Option<String>,
    /// Its place in a trace, and its caller's.
    pub(crate) trace: Option<Placed>,
}

/// The caller's dialect.
pub(crate) struct Dialect(Wire);

impl Default for Dialect {
    fn default() -> Self {
        Self(Wire::OPENAI_CHAT)
    }
}

impl Dialect {
    pub(crate) fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

/// What was done with the answer.
#[derive(Default)]
pub(crate) enum Capture {
    /// There was nothing to keep.
    #[default]
    None,
    Kept,
    /// It could not be kept.
    Lost(String),
}

/// What was done with the Items and Seals of a call, counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fates {
    pub(crate) kept: u64,
    pub(crate) restored: u64,
    pub(crate) elided: u64,
}

impl Fates {
    pub(crate) fn of(fates: &[Fate]) -> Self {
        let mut counted = Self::default();
        for did in fates.iter().flat_map(|fate| fate.seals.iter().chain([&fate.visible])) {
            match did {
                Did::Kept => counted.kept += 1,
                Did::Restored(_) => counted.restored += 1,
                Did::Elided(_) => counted.elided += 1,
                Did::Reshaped(_) => {}
            }
        }
        counted
    }
}

impl std::fmt::Display for Fates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kept, restored, elided } = self;
        write!(f, "kept={kept} restored={restored} elided={elided}")
    }
}

impl Ticket {
    pub(super) fn new(
        operations: Arc<Operations>,
        caller: &Caller,
        dialect: &Wire,
        slot: Share,
    ) -> Arc<Self> {
        let key = match &caller.admission {
            Admission::Key { id, .. } => Some(id.clone()),
            Admission::Open | Admission::Refused => None,
        };
        let facts = Facts {
            tenant: Some(caller.tenant.clone()),
            key,
            dialect: Dialect(dialect.clone()),
            ..Facts::default()
        };
        let facts = Mutex::new(facts);
        let (started, room) = (Instant::now(), Mutex::new(None));
        Arc::new(Self { operations, started, facts, _slot: slot, room })
    }

    /// Holds the memory of the request for as long as the call lasts.
    pub(crate) fn hold(&self, room: Room) {
        *self.room.lock().unwrap_or_else(PoisonError::into_inner) = Some(room);
    }

    /// Gives the memory back that only reading and preparing the request took. Its texts are held to the end.
    pub(crate) fn request_is_ready(&self) {
        if let Some(room) = &mut *self.room.lock().unwrap_or_else(PoisonError::into_inner) {
            room.keep_texts_only();
        }
    }

    /// Notes something.
    pub(crate) fn note(&self, note: impl FnOnce(&mut Facts)) {
        note(&mut self.facts.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Notes why there is no answer; of a failure of ours, also the reason.
    pub(crate) fn note_problem(&self, problem: &Problem) {
        self.note(|facts| {
            facts.status = problem.status;
            if problem.status == 503 && facts.problem.is_none() {
                facts.problem = Some(problem.message.clone());
            }
        });
    }

    /// Notes what became of keeping the answer.
    pub(crate) fn note_capture<T>(&self, kept: &Result<Option<T>, StoreError>) {
        match kept {
            Ok(Some(_)) => self.operations.note_write(None),
            Ok(None) => {}
            Err(error) => self.operations.note_write(Some(error)),
        }
        let capture = match kept {
            Ok(Some(_)) => Capture::Kept,
            Ok(None) => Capture::None,
            Err(error) => Capture::Lost(error.to_string()),
        };
        self.note(|facts| facts.capture = capture);
    }

    /// Takes a place in the caller's trace, or in one of its own, where anybody wants to know. The headers that go on to the
    /// provider then name this place.
    pub(crate) fn trace(&self, headers: &mut Vec<(Name, Name)>) {
        if self.operations.traces.is_some() {
            let placed = Placed::of(headers);
            self.note(|facts| facts.trace = placed);
        }
    }

    /// Notes that the provider has begun to answer.
    pub(crate) fn note_first_byte(&self) {
        let after = self.started.elapsed();
        self.note(|facts| facts.first_byte = Some(after));
    }

    /// What that costs, as a story tells it: dollars, and the table that they are from. Nothing where nobody knows.
    pub(crate) fn cost(&self, usage: &Usage) -> Option<Json> {
        let facts = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        let meter = &self.operations.meter;
        let price = meter.price(facts.provider.as_ref()?, facts.model.as_ref()?)?;
        let used = Used::once(*usage, Some(price));
        Some(json::object(|o| {
            o.number("micro_usd", used.micro_usd()).string("prices", meter.prices());
        }))
    }

    /// Notes that the answer is a stream, which is open from now on.
    pub(crate) fn note_stream(&self) {
        self.note(|facts| facts.is_stream = true);
        self.operations.metrics.stream_opened();
    }
}

impl Facts {
    /// What was used: as the provider counted, or as much as the bytes are worth that went to and fro.
    fn used_tokens(&self) -> Option<Usage> {
        // Who leaves before the first byte has been answered all the same: the provider works on it.
        let is_under_way = self.status == 0 && self.sent > 0;
        let has_answered =
            (is_under_way || (200..300).contains(&self.status)) && self.model.is_some();
        let told = self.usage.unwrap_or_default();
        if !has_answered || self.is_whole && told.total() > 0 {
            return self.usage.filter(|_| has_answered);
        }
        let input = if told.input > 0 { told.input } else { self.sent / BYTES_OF_A_TOKEN };
        Some(Usage { input, output: told.output.max(self.heard / BYTES_OF_A_TOKEN), ..told })
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let facts = self.facts.get_mut().unwrap_or_else(PoisonError::into_inner);
        let took = self.started.elapsed();
        facts.usage = facts.used_tokens();
        let mut used = Used::default();
        if let (Some(usage), Some(tenant), Some(provider), Some(model)) =
            (facts.usage, &facts.tenant, &facts.provider, &facts.model)
        {
            used = Used::once(usage, self.operations.meter.price(provider, model));
            let (tenant, key) = (tenant.clone(), facts.key.clone());
            let (provider, model) = (provider.clone(), model.clone());
            self.operations.meter.charge(UsedFor { tenant, key, provider, model }, &used);
        }
        self.operations.metrics.count(facts, &used, took);
        if let Some(traces) = &self.operations.traces
            && let Some(ended) = facts.ended(took)
        {
            traces.ended(ended);
        }
        let level = log::level(facts);
        if self.operations.log.wants(level) {
            let milliseconds = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
            let line = log::line(facts, milliseconds, used.micro_usd());
            self.operations.log.write(level, &line);
        }
    }
}
