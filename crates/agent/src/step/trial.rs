//! A model did not answer, or not as it had to: the gate decides.

use std::time::Duration;

use throughline_core::{
    FinalAnswerEvent, GateEvent, GatePhase, Item, ItemId, MessageEvent, ModelError, Name, Place,
    Reply, Role, RunEvent, Trouble, TurnEvent, TurnPhase,
};

use crate::gate::{Decision, Gate, MOST_ATTEMPTS, Seen};
use crate::progress::{Ephemeral, Purpose, RunStatus};
use crate::step::answer::text_of;
use crate::step::{Done, Step};

/// An answer that is not what it had to be.
pub(super) struct Misfit {
    pub(super) reply: Reply,
    /// What the model is told about it, where no rule says it better.
    pub(super) feedback: String,
}

impl Step {
    /// A model did not answer.
    pub(super) fn failed(&mut self, purpose: Purpose, error: &ModelError, streamed: bool) -> Done {
        self.must_be_asking(purpose)?;
        self.try_again(purpose, error.kind, &error.message, None, streamed);
        Ok(())
    }

    /// The gate decides what is done about an answer that did not come, or is not what it had to be.
    pub(super) fn try_again(
        &mut self,
        purpose: Purpose,
        kind: Trouble,
        message: &str,
        misfit: Option<Misfit>,
        streamed: bool,
    ) {
        // What is only for ourselves never breaks a run.
        match purpose {
            Purpose::Reflection => {
                self.next();
                return;
            }
            Purpose::Summary => {
                self.no_summary();
                return;
            }
            Purpose::Turn | Purpose::Final => {}
        }
        self.note_failure(kind);
        let from = self.state.model();
        let mut trial = self.state.progress.gate.take().unwrap_or_default();
        trial.attempts += 1;
        trial.errors.push(message.into());
        let gate = self.state.part().map(|part| part.config.gate.clone()).unwrap_or_default();
        let seen = Seen { kind, attempts: trial.attempts, errors: &trial.errors };
        let (mut decision, rule) = gate.decide(&seen);
        let (label, feedback) =
            (rule.and_then(|rule| rule.label.clone()), rule.and_then(|rule| rule.feedback.clone()));
        let mut why = Name::from(message);
        let cannot = |decision: &mut Decision, why: &mut Name, reason: &str| {
            *decision = Decision::FailFast;
            *why = Name::from(format!("{reason}: {message}"));
        };
        let takes_again = !matches!(decision, Decision::Ok | Decision::FailFast);
        if takes_again && streamed {
            cannot(&mut decision, &mut why, "mid-stream-not-retryable");
        } else if takes_again && trial.attempts >= MOST_ATTEMPTS {
            cannot(&mut decision, &mut why, "max-loop-exceeded");
        } else if decision == Decision::RetryOther && gate.other_models.len() <= trial.others {
            cannot(&mut decision, &mut why, "no-more-providers");
        } else if decision == Decision::Fallback && gate.fallback.is_none() {
            cannot(&mut decision, &mut why, "fallback-not-configured");
        } else if decision == Decision::Ok && misfit.is_none() {
            cannot(&mut decision, &mut why, "no-response");
        }
        if decision != Decision::Ok {
            let mut event = TurnEvent::new(TurnPhase::Discarded, self.state.progress.turn);
            event.reason = Some(message.into());
            self.tell(RunEvent::Turn(event));
        }
        let mut event = GateEvent::new(GatePhase::Retried, trial.attempts);
        event.action = Some(decision.as_str().into());
        event.error_kind = Some(kind.as_str().into());
        event.message = Some(why.clone());
        event.rule = label;
        event.from_model = Some(from);
        match decision {
            Decision::Retry | Decision::RetryOther => {
                trial.others += usize::from(decision == Decision::RetryOther);
                if let Some(misfit) = misfit {
                    let told =
                        feedback.map_or(misfit.feedback, |text| text.replace("{error}", message));
                    self.tell_ephemeral(&mut trial.exchange, &text_of(&misfit.reply), &told);
                }
                self.state.progress.gate = Some(trial);
                event.to_model = Some(self.state.model());
                self.tell(RunEvent::Gate(event));
                match self.breached() {
                    Some((limit, allowed, actual)) => self.breach(limit, allowed, actual),
                    None => self.ask(purpose),
                }
            }
            Decision::Ok => {
                // It counts as one that passed, whatever came before it.
                trial.attempts -= 1;
                self.state.progress.gate = (trial.attempts > 0).then_some(trial);
                if let Some(misfit) = misfit {
                    self.take(purpose, misfit.reply);
                }
            }
            Decision::Fallback => {
                self.tell(RunEvent::Gate(event));
                self.fall_back(&gate.fallback.unwrap_or_default());
            }
            Decision::FailFast => {
                event.phase = GatePhase::Failed;
                self.tell(RunEvent::Gate(event));
                self.end(RunStatus::Failed, why);
            }
        }
    }

    /// What the model said and is told about it. It reaches the model and every log, and no Thread.
    fn tell_ephemeral(&mut self, exchange: &mut Vec<Ephemeral>, said: &str, told: &str) {
        for (by_model, role, text) in [(true, "assistant", said), (false, "user", told)] {
            if text.is_empty() {
                continue;
            }
            let mut event = MessageEvent::new(role.into(), text.into());
            event.ephemeral = Some(true);
            self.tell(RunEvent::Message(event));
            exchange.push(Ephemeral { by_model, text: text.into() });
        }
    }

    /// What was set as a fallback is the agent's last answer.
    fn fall_back(&mut self, text: &str) {
        let id = self.fresh("i");
        let place = Place { message: self.state.window.next, part: 0 };
        let body = throughline_core::Body::Text(text.into());
        let mut event = MessageEvent::new("assistant".into(), text.into());
        event.id = Some(id.clone());
        self.keep(vec![Item::new(ItemId(id), place, Role::Assistant, body)]);
        self.tell(RunEvent::Message(event));
        self.tell(RunEvent::FinalAnswer(FinalAnswerEvent::new(text.into())));
        self.end(RunStatus::Completed, "the fallback is the answer");
    }

    /// An answer passed. Whatever was said on the way to it is over.
    pub(super) fn passed(&mut self) {
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
            self.tell(RunEvent::Gate(event));
            if trial.others > 0 {
                // The model that answered goes on.
                self.state.progress.model = Some(model);
            }
        }
    }

    fn breaker(&self) -> crate::gate::BreakerConfig {
        self.state.part().map_or_else(|| Gate::default().breaker, |part| part.config.gate.breaker)
    }

    /// Counts a failure of the provider's. A wrong answer is none.
    fn note_failure(&mut self, kind: Trouble) {
        if !matches!(kind, Trouble::Transient | Trouble::RateLimit) {
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

    /// Whether the model that would be asked is left alone for a while.
    pub(super) fn is_left_alone(&self) -> bool {
        let breaker = self.state.progress.breakers.get(&self.state.model());
        let until = breaker.and_then(|breaker| breaker.open_until.as_ref()?.parse().ok());
        until.is_some_and(|until: jiff::Timestamp| self.at < until)
    }
}
