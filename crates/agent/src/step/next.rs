//! Decides what follows a step: limits first, then a summary, then the model.

use throughline_core::{ModelErrorKind, Role};
use throughline_json::{self as json, Name, Number};
use throughline_spec::{LimitEvent, MessageEvent, RunEvent, TurnEvent, TurnPhase};

use crate::action::Action;
use crate::compact;
use crate::permit::CallDenial;
use crate::progress::{Phase, Purpose, RunStatus};
use crate::step::{Step, StepResult};

impl Step {
    /// Calls the model for the next step, unless a limit or a summary comes first.
    pub(super) fn next(&mut self) {
        if self.state.progress.breach.is_none()
            && let Some((limit, allowed, actual)) = self.exceeded_limit()
        {
            return self.report_limit(limit, allowed, actual);
        }
        if compact::covered_end(&self.state).is_some() {
            return self.call_model(Purpose::Summary);
        }
        let purpose =
            if self.state.progress.breach.is_some() { Purpose::Final } else { Purpose::Turn };
        self.call_model(purpose);
    }

    /// Starts a model call, unless the circuit breaker is open.
    pub(super) fn call_model(&mut self, purpose: Purpose) {
        if purpose.is_turn() {
            if self.state.progress.gate.is_none() {
                self.state.progress.turn += 1;
            }
            if self.is_breaker_open() {
                let message = format!(
                    "{} failed repeatedly, and its circuit breaker is open",
                    self.state.model()
                );
                return self.apply_gate(
                    purpose,
                    ModelErrorKind::CircuitOpen,
                    &message,
                    None,
                    false,
                );
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

    /// Returns the first exceeded limit: its name, the allowed value and the actual value.
    pub(super) fn exceeded_limit(&self) -> Option<(&'static str, f64, f64)> {
        let limits = self.state.current_agent()?.limits;
        let progress = &self.state.progress;
        let since = progress.since.parse().unwrap_or(self.at);
        let wall = self.at.duration_since(since).as_millis();
        let wall = u64::try_from(wall).unwrap_or(0);
        let over = |limit: Option<u64>, actual: u64| {
            let limit = limit.filter(|limit| actual > *limit)?;
            Some((to_f64(limit), to_f64(actual)))
        };
        let cost = limits.max_cost_usd.filter(|limit| progress.spent.cost_usd > *limit);
        let cost = cost.map(|limit| (limit, progress.spent.cost_usd));
        let context = || {
            let tokens = self.state.window.tokens().saturating_add(self.gate_tokens());
            // The context limit applies only if compaction cannot reduce the conversation.
            let limit =
                limits.max_context_tokens.filter(|_| compact::covered_end(&self.state).is_none());
            over(limit, tokens)
        };
        // A retry belongs to the same turn.
        let next_turn = progress.turn + u64::from(progress.gate.is_none());
        let named =
            |name, pair: Option<(f64, f64)>| pair.map(|(limit, actual)| (name, limit, actual));
        named("maxWallClockMs", over(limits.max_wall_clock_ms, wall))
            .or_else(|| named("maxCostUsd", cost))
            .or_else(|| {
                let limit = limits.max_total_output_tokens;
                named("maxTotalOutputTokens", over(limit, progress.spent.output))
            })
            .or_else(|| named("maxContextTokens", context()))
            .or_else(|| named("maxTurns", over(limits.max_turns(), next_turn)))
    }

    /// Returns the tokens of ephemeral gate messages, which the model sees besides the
    /// conversation.
    fn gate_tokens(&self) -> u64 {
        let said = self.state.progress.gate.iter().flat_map(|gate| &gate.exchange);
        said.map(|said| self.state.cast.tokens(&said.text)).sum()
    }

    /// Reports an exceeded limit. The model may give a final answer if the limit still allows one.
    pub(super) fn report_limit(&mut self, limit: &'static str, allowed: f64, actual: f64) {
        self.record_breach(limit, allowed, actual);
        // Exhausted time, cost or output tokens leave no room for a final answer.
        if limit == "maxToolCalls" {
            let notice = "[System Notice] Tool-call limit reached. Answer now with what you have.";
            let item = self.text_item(Role::User, notice);
            self.emit(RunEvent::Message(MessageEvent::new("user".into(), notice.into())));
            self.append_items(vec![item]);
            self.next();
        } else {
            self.end(RunStatus::Failed, Name::from(format!("limit reached: {limit}")));
        }
    }

    /// Ends the run because its call permit was denied.
    pub(super) fn on_call_denied(&mut self, purpose: Purpose, denial: &CallDenial) -> StepResult {
        self.check_calling(purpose)?;
        let CallDenial { limit, allowed, actual, message } = denial;
        self.discard_turn(message.clone());
        self.record_breach(limit, *allowed, *actual);
        self.end(RunStatus::Failed, Name::from(format!("limit reached: {limit}: {message}")));
        Ok(())
    }

    /// Emits the event of an exceeded limit and records its name.
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
