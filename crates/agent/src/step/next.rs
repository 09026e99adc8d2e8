//! Decides how a run continues: checks the limits, then compacts if necessary, then calls the
//! model.

use throughline_core::{ModelErrorKind, Role};
use throughline_json::{self as json, Name, Number};
use throughline_spec::{LimitEvent, RunEvent, TurnEvent, TurnPhase};

use crate::action::Action;
use crate::compact;
use crate::permit::CallDenial;
use crate::progress::{Phase, Purpose, RunStatus};
use crate::step::{Step, StepResult};

impl Step {
    /// Calls the model for the next turn, unless a limit is exceeded or a summary is due.
    pub(super) fn next(&mut self) {
        if self.state.progress.breach.is_none()
            && let Some((limit, allowed, actual)) = self.exceeded_limit()
        {
            return self.report_limit(limit, allowed, actual);
        }
        if compact::covered_end(&self.state).is_some() {
            return self.call_model(Purpose::Summary);
        }
        let is_over_limit = self.state.progress.breach.is_some();
        self.call_model(if is_over_limit { Purpose::Final } else { Purpose::Turn });
    }

    /// Starts a model call, unless the circuit breaker is open.
    pub(super) fn call_model(&mut self, purpose: Purpose) {
        if purpose.is_turn() {
            if self.state.progress.gate.is_none() {
                self.state.progress.turn += 1;
            }
            if self.is_breaker_open() {
                let (model, kind) = (self.state.model(), ModelErrorKind::CircuitOpen);
                let message = format!("{model} failed repeatedly, and its circuit breaker is open");
                return self.apply_gate(purpose, kind, &message, None, false);
            }
        }
        self.state.progress.phase = Phase::Asking { purpose };
        self.start_attempt(purpose);
    }

    /// Starts one attempt of a model call and emits its `turn start` event.
    pub(super) fn start_attempt(&mut self, purpose: Purpose) {
        let mut event = TurnEvent::new(TurnPhase::Start, self.state.progress.turn);
        event.model = Some(self.state.model());
        event.purpose = (purpose != Purpose::Turn).then(|| purpose.as_str().into());
        self.emit(RunEvent::Turn(event));
        self.act(Action::Call(purpose));
    }

    /// Returns the first exceeded limit as name, allowed value and actual value.
    pub(super) fn exceeded_limit(&self) -> Option<(&'static str, f64, f64)> {
        let limits = self.state.current_agent()?.limits;
        let (progress, spent) = (&self.state.progress, &self.state.progress.spent);
        let since = progress.since.parse().unwrap_or(self.at);
        let wall = u64::try_from(self.at.duration_since(since).as_millis()).unwrap_or(0);
        // The model also sees the gate's and the caller's ephemeral messages, and its own
        // reflection notes.
        let placed = progress.ephemeral.iter().map(|placed| &placed.message);
        let exchange = progress.gate.iter().flat_map(|gate| &gate.exchange).chain(placed);
        let exchange: u64 = exchange.map(|message| self.state.cast.tokens(&message.text)).sum();
        let notes = self.state.note_tokens();
        let context = self.state.window.tokens().saturating_add(exchange).saturating_add(notes);
        // The context limit applies only if compaction cannot shorten the conversation.
        let can_compact = || compact::covered_end(&self.state).is_some();
        let context_limit = limits.max_context_tokens.filter(|_| !can_compact());
        // A retry belongs to the same turn as the failed attempt.
        let next_turn = progress.turn + u64::from(progress.gate.is_none());
        let as_floats = |limit: Option<u64>, actual: u64| (limit.map(to_f64), to_f64(actual));
        let limits = [
            ("maxWallClockMs", as_floats(limits.max_wall_clock_ms, wall)),
            ("maxCostUsd", (limits.max_cost_usd, spent.cost_usd)),
            ("maxTotalOutputTokens", as_floats(limits.max_total_output_tokens, spent.output)),
            ("maxContextTokens", as_floats(context_limit, context)),
            ("maxTurns", as_floats(limits.max_turns(), next_turn)),
        ];
        let exceeded = |(name, (limit, actual)): (_, (Option<f64>, f64))| {
            limit.filter(|limit| actual > *limit).map(|limit| (name, limit, actual))
        };
        limits.into_iter().find_map(exceeded)
    }

    /// Reports an exceeded limit. The tool-call limit still allows a final answer. Any other limit
    /// ends the run.
    pub(super) fn report_limit(&mut self, limit: &'static str, allowed: f64, actual: f64) {
        self.record_breach(limit, allowed, actual);
        // Exhausted time, cost or output tokens leave no room for a final answer.
        if limit == "maxToolCalls" {
            let notice = "[System Notice] Tool-call limit reached. Answer now with what you have.";
            let item = self.text_item(Role::User, notice);
            self.emit_message("user", &notice.into(), None);
            self.append_items(vec![item]);
            self.next();
        } else {
            self.end(RunStatus::Failed, Name::from(format!("limit reached: {limit}")));
        }
    }

    /// Ends the run because the call permit denied a model call.
    pub(super) fn on_call_denied(&mut self, purpose: Purpose, denial: &CallDenial) -> StepResult {
        self.check_calling(purpose)?;
        let CallDenial { limit, allowed, actual, message } = denial;
        self.discard_turn(message.clone());
        self.record_breach(limit, *allowed, *actual);
        self.end(RunStatus::Failed, Name::from(format!("limit reached: {limit}: {message}")));
        Ok(())
    }

    /// Emits the event for an exceeded limit and records the limit's name.
    fn record_breach(&mut self, limit: &str, allowed: f64, actual: f64) {
        let number = |value: f64| Number::from_f64(value).unwrap_or_else(|| Number::from(0));
        let event = LimitEvent::new(limit.into(), number(allowed), number(actual));
        self.emit(RunEvent::Limit(event));
        self.state.progress.breach = Some(limit.into());
        self.set_context("__limitBreached", Some(json::string(limit)));
    }
}

#[expect(clippy::cast_precision_loss, reason = "limits above 2^53 are not meaningful")]
pub(super) fn to_f64(value: u64) -> f64 {
    value as f64
}
