//! What comes next: limits first, then a summary, then the model.

use throughline_core::{
    Body, Item, ItemId, LimitEvent, MessageEvent, Name, Number, Place, Role, RunEvent, Trouble,
    TurnEvent, TurnPhase,
};

use crate::action::Action;
use crate::compact;
use crate::permit::CallDenial;
use crate::progress::{Phase, Purpose, RunStatus};
use crate::step::{Done, Step};

impl Step {
    /// The model is asked for the next step, unless something comes before that.
    pub(super) fn next(&mut self) {
        if self.state.progress.breach.is_none()
            && let Some((limit, allowed, actual)) = self.breached()
        {
            self.breach(limit, allowed, actual);
            return;
        }
        if compact::due(&self.state).is_some() {
            self.ask(Purpose::Summary);
            return;
        }
        let purpose =
            if self.state.progress.breach.is_some() { Purpose::Final } else { Purpose::Turn };
        self.ask(purpose);
    }

    /// A model is asked.
    pub(super) fn ask(&mut self, purpose: Purpose) {
        if purpose.is_turn() {
            if self.state.progress.gate.is_none() {
                self.state.progress.turn += 1;
            }
            if self.is_left_alone() {
                let message = format!("{} failed repeatedly and is left alone", self.state.model());
                self.try_again(purpose, Trouble::CircuitOpen, &message, None, false);
                return;
            }
        }
        self.state.progress.phase = Phase::Asking { purpose };
        self.start_attempt(purpose);
    }

    /// Starts a model call and writes its `turn start`. Every attempt of a turn has its own.
    pub(super) fn start_attempt(&mut self, purpose: Purpose) {
        let mut event = TurnEvent::new(TurnPhase::Start, self.state.progress.turn);
        event.model = Some(self.state.model());
        event.purpose = (purpose != Purpose::Turn).then(|| purpose.as_str().into());
        self.tell(RunEvent::Turn(event));
        self.act(Action::Call(purpose));
    }

    /// The first limit that is reached: its name, how much it allows, and how much there is.
    pub(super) fn breached(&self) -> Option<(&'static str, f64, f64)> {
        let limits = self.state.part()?.limits;
        let progress = &self.state.progress;
        let since = progress.since.parse().unwrap_or(self.at);
        let wall = self.at.duration_since(since).as_millis();
        let wall = u64::try_from(wall).unwrap_or(0);
        let over = |limit: Option<u64>, actual: u64| {
            let limit = limit.filter(|limit| actual > *limit)?;
            Some((float(limit), float(actual)))
        };
        let cost = limits.max_cost_usd.filter(|limit| progress.spent.cost_usd > *limit);
        let cost = cost.map(|limit| (limit, progress.spent.cost_usd));
        let context = || {
            let tokens = self.state.window.tokens().saturating_add(self.tokens_of_trial());
            // Where older parts can still be summarised, they are.
            let limit = limits.max_context_tokens.filter(|_| compact::due(&self.state).is_none());
            over(limit, tokens)
        };
        // What is asked for again is the same turn.
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

    /// How many tokens the model is shown besides the conversation: what it said and was told in a gate.
    fn tokens_of_trial(&self) -> u64 {
        let said = self.state.progress.gate.iter().flat_map(|gate| &gate.exchange);
        said.map(|said| self.state.cast.tokens(&said.text)).sum()
    }

    /// A limit is reached: that is told, and the model may say one last thing, if what is left allows it.
    pub(super) fn breach(&mut self, limit: &'static str, allowed: f64, actual: f64) {
        let number = |value: f64| Number::of(value).unwrap_or_else(|| Number::from(0));
        let event = LimitEvent::new(limit.into(), number(allowed), number(actual));
        self.tell(RunEvent::Limit(event));
        self.state.progress.breach = Some(limit.into());
        self.set_context("__limitBreached", Some(throughline_core::json::string(limit)));
        // Time, money and words that are used up leave none for a last answer.
        if limit == "maxToolCalls" {
            let notice = "[System Notice] Tool-call limit reached. Answer now with what you have.";
            let id = self.fresh("i");
            let place = Place { message: self.state.window.next, part: 0 };
            let item = Item::new(ItemId(id), place, Role::User, Body::Text(notice.into()));
            self.tell(RunEvent::Message(MessageEvent::new("user".into(), notice.into())));
            self.keep(vec![item]);
            self.next();
        } else {
            self.end(RunStatus::Failed, Name::from(format!("limit reached: {limit}")));
        }
    }
}

impl Step {
    /// The run may not make its next model call: it ends as by a limit.
    pub(super) fn denied(&mut self, purpose: Purpose, denial: &CallDenial) -> Done {
        self.must_be_asking(purpose)?;
        let mut event = TurnEvent::new(TurnPhase::Discarded, self.state.progress.turn);
        event.reason = Some(denial.message.clone());
        self.tell(RunEvent::Turn(event));
        let number = |value: f64| Number::of(value).unwrap_or_else(|| Number::from(0));
        let CallDenial { limit, allowed, actual, message } = denial;
        let event = LimitEvent::new(limit.clone(), number(*allowed), number(*actual));
        self.tell(RunEvent::Limit(event));
        self.state.progress.breach = Some(limit.clone());
        self.set_context("__limitBreached", Some(throughline_core::json::string(limit)));
        self.end(RunStatus::Failed, Name::from(format!("limit reached: {limit}: {message}")));
        Ok(())
    }
}

#[expect(clippy::cast_precision_loss, reason = "a limit of more than 2^53 is no limit")]
pub(super) fn float(value: u64) -> f64 {
    value as f64
}
