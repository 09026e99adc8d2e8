//! Applies the gate to failed model calls and invalid answers.

use std::time::Duration;

use throughline_core::{ModelError, ModelErrorKind, Reply, Role};
use throughline_json::Name;
use throughline_spec::{FinalAnswerEvent, GateEvent, GatePhase, MessageEvent, RunEvent};

use crate::gate::{BreakerConfig, Decision, FEEDBACK, GateRule, MAX_ATTEMPTS};
use crate::progress::{EphemeralMessage, Purpose, RunStatus};
use crate::step::answer::text_of;
use crate::step::{Step, StepResult};

impl Step {
    pub(super) fn on_model_failed(
        &mut self,
        purpose: Purpose,
        error: &ModelError,
        streamed: bool,
    ) -> StepResult {
        self.check_calling(purpose)?;
        self.apply_gate(purpose, error.kind, &error.message, None, streamed);
        Ok(())
    }

    /// Applies the gate's decision on a failed call or on an `invalid` answer.
    pub(super) fn apply_gate(
        &mut self,
        purpose: Purpose,
        kind: ModelErrorKind,
        message: &str,
        invalid: Option<Reply>,
        streamed: bool,
    ) {
        // A failed reflection or summary does not fail a turn.
        match purpose {
            Purpose::Reflection => return self.next(),
            Purpose::Summary => return self.on_summary_failed(),
            Purpose::Turn | Purpose::Final => {}
        }
        self.record_failure(kind);
        let from = self.state.model();
        let mut trial = self.state.progress.gate.take().unwrap_or_default();
        trial.attempts += 1;
        trial.errors.push(message.into());
        let agent = self.state.current_agent();
        let gate = agent.map(|agent| agent.config.gate.clone()).unwrap_or_default();
        let GateRule { then: mut decision, label, feedback, .. } = gate.decide(kind, &trial);
        let obstacle = match decision {
            Decision::Ok if invalid.is_none() => Some("no-response"),
            Decision::Ok | Decision::FailFast => None,
            _ if streamed => Some("mid-stream-not-retryable"),
            _ if trial.attempts >= MAX_ATTEMPTS => Some("max-loop-exceeded"),
            Decision::RetryOther if gate.other_models.len() <= trial.others => {
                Some("no-more-providers")
            }
            Decision::Fallback if gate.fallback.is_none() => Some("fallback-not-configured"),
            Decision::Retry | Decision::RetryOther | Decision::Fallback => None,
        };
        let mut reason = Name::from(message);
        if let Some(obstacle) = obstacle {
            (decision, reason) = (Decision::FailFast, format!("{obstacle}: {message}").into());
        }
        if decision != Decision::Ok {
            self.discard_turn(message);
        }
        let mut event = GateEvent::new(GatePhase::Retried, trial.attempts);
        event.action = Some(decision.as_str().into());
        event.error_kind = Some(kind.as_str().into());
        event.message = Some(reason.clone());
        event.rule = label;
        event.from_model = Some(from);
        match decision {
            Decision::Retry | Decision::RetryOther => {
                trial.others += usize::from(decision == Decision::RetryOther);
                if let Some(reply) = invalid {
                    let feedback = feedback.map_or_else(
                        || format!("{FEEDBACK} What was wrong: {message}"),
                        |text| text.replace("{error}", message),
                    );
                    self.emit_ephemeral(&mut trial.exchange, &text_of(&reply), &feedback);
                }
                self.state.progress.gate = Some(trial);
                event.to_model = Some(self.state.model());
                self.emit(RunEvent::Gate(event));
                match self.exceeded_limit() {
                    Some((limit, allowed, actual)) => self.report_limit(limit, allowed, actual),
                    None => self.call_model(purpose),
                }
            }
            Decision::Ok => {
                // The rule accepts the invalid answer, so the attempt does not count as failed.
                trial.attempts -= 1;
                self.state.progress.gate = (trial.attempts > 0).then_some(trial);
                if let Some(reply) = invalid {
                    self.accept_answer(purpose, reply);
                }
            }
            Decision::Fallback => {
                self.emit(RunEvent::Gate(event));
                self.use_fallback(&gate.fallback.unwrap_or_default());
            }
            Decision::FailFast => {
                event.phase = GatePhase::Failed;
                self.emit(RunEvent::Gate(event));
                self.end(RunStatus::Failed, reason);
            }
        }
    }

    /// Emits the invalid answer and the gate's feedback as ephemeral messages. The model receives
    /// both messages and all logs contain them, but they are not stored in the Thread.
    fn emit_ephemeral(
        &mut self,
        exchange: &mut Vec<EphemeralMessage>,
        answer: &str,
        feedback: &str,
    ) {
        for (by_model, role, text) in [(true, "assistant", answer), (false, "user", feedback)] {
            if text.is_empty() {
                continue;
            }
            let mut event = MessageEvent::new(role.into(), text.into());
            event.ephemeral = Some(true);
            self.emit(RunEvent::Message(event));
            exchange.push(EphemeralMessage { by_model, text: text.into() });
        }
    }

    /// Ends the run with the configured fallback text as its final answer.
    fn use_fallback(&mut self, text: &Name) {
        let item = self.text_item(Role::Assistant, text);
        let id = item.id.clone();
        self.append_items(vec![item]);
        self.emit_message("assistant", text, Some(&id));
        self.emit(RunEvent::FinalAnswer(FinalAnswerEvent::new(text.clone())));
        self.end(RunStatus::Completed, "answered with the fallback");
    }

    /// Counts a success for the model's circuit breaker and discards the record of failed attempts.
    pub(super) fn on_gate_passed(&mut self) {
        let model = self.state.model();
        let config = self.breaker();
        if let Some(breaker) = self.state.progress.breakers.get_mut(&model) {
            breaker.successes += 1;
            breaker.failures = 0;
            if breaker.successes >= config.half_open_success_threshold {
                self.state.progress.breakers.remove(&model);
            }
        }
        if let Some(trial) = self.state.progress.gate.take() {
            let mut event = GateEvent::new(GatePhase::Recovered, trial.attempts + 1);
            event.to_model = Some(model.clone());
            self.emit(RunEvent::Gate(event));
            if trial.others > 0 {
                // Later calls stay with the fallback model that answered.
                self.state.progress.model = Some(model);
            }
        }
    }

    fn breaker(&self) -> BreakerConfig {
        self.state.current_agent().map(|agent| agent.config.gate.breaker).unwrap_or_default()
    }

    /// Counts a provider failure towards the circuit breaker. Invalid answers do not count.
    fn record_failure(&mut self, kind: ModelErrorKind) {
        if !matches!(kind, ModelErrorKind::Transient | ModelErrorKind::RateLimit) {
            return;
        }
        let (config, at, model) = (self.breaker(), self.at, self.state.model());
        let breaker = self.state.progress.breakers.entry(model).or_default();
        breaker.failures += 1;
        breaker.successes = 0;
        if breaker.failures >= config.failure_threshold {
            let until = at.checked_add(Duration::from_millis(config.cooldown_ms)).unwrap_or(at);
            breaker.open_until = Some(Name::from(until.to_string()));
        }
    }

    pub(super) fn is_breaker_open(&self) -> bool {
        let breaker = self.state.progress.breakers.get(&self.state.model());
        let until = breaker.and_then(|breaker| breaker.open_until.as_ref()?.parse().ok());
        until.is_some_and(|until: jiff::Timestamp| self.at < until)
    }
}
