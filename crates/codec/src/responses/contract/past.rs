//! What the model said in earlier exchanges, element by element, and what each element pairs with.

use std::collections::HashMap;

use throughline_core::{Body, Json, ToolCall, Wire};

use crate::responses::contract::view::Element;
use crate::responses::wire::{CONTENT, Ids, Kind, project};
use crate::{Case, Exchange};

/// What was said before.
#[derive(Default)]
pub(super) struct Past<'p> {
    outputs: Vec<Output<'p>>,
    by_id: HashMap<&'p str, usize>,
    by_call: HashMap<&'p str, usize>,
    by_place: HashMap<(usize, u32), usize>,
}

/// One element that the model said.
pub(super) struct Output<'p> {
    /// Its number among all.
    pub(super) number: usize,
    /// The number of its exchange.
    pub(super) exchange: usize,
    /// What it is.
    pub(super) kind: Kind,
    /// Its id.
    pub(super) id: Option<&'p str>,
    /// The element as it came.
    pub(super) json: &'p Json,
    /// Whether the endpoint that is asked now said it and kept it, so that its id resolves.
    pub(super) is_kept: bool,
    /// Whether the endpoint that is asked now said it, under this account.
    pub(super) is_own: bool,
    /// Its opaque values.
    seals: Vec<&'p [u8]>,
}

impl Output<'_> {
    /// The element as a request says it.
    pub(super) fn said(&self, ids: Ids) -> Json {
        project(self.json.tree().root(), ids)
    }
}

impl<'p> Past<'p> {
    /// What the earlier exchanges of a case said.
    pub(super) fn of(case: &Case<'p>) -> Self {
        let mut past = Self::default();
        for (number, exchange) in case.prior().exchanges().iter().enumerate() {
            past.read(case, number, exchange);
        }
        past
    }

    fn read(&mut self, case: &Case<'p>, exchange_number: usize, exchange: &'p Exchange) {
        let Some(reply) = &exchange.reply else { return };
        let (was, is) = (&exchange.asked.target.origin, &case.target().origin);
        let is_own =
            was.provider == is.provider && was.endpoint == is.endpoint && was.account == is.account;
        let is_kept = is_own && was_kept(exchange);
        let mut last = None;
        for item in &reply.items {
            let Some(native) = item.native_on(&Wire::OPENAI_RESPONSES) else { continue };
            if last.replace(item.place.message) == Some(item.place.message) {
                continue;
            }
            let envelope = native.envelope.as_ref().filter(|_| native.slot == CONTENT);
            let json = envelope.map_or(&native.json, |envelope| &envelope.json);
            let number = self.outputs.len();
            let id = native.id.as_deref();
            if let Some(id) = id {
                self.by_id.entry(id).or_insert(number);
            }
            self.by_place.insert((exchange_number, item.place.message), number);
            if let Body::Call(ToolCall { wire_id: Some(call), .. }) = &item.body {
                self.by_call.insert(call, number);
            }
            self.outputs.push(Output {
                number,
                exchange: exchange_number,
                kind: Kind::of(json.tree().root()),
                id,
                json,
                is_kept,
                is_own,
                seals: item.seals.iter().map(|seal| &**seal.reveal_to_tenant()).collect(),
            });
        }
    }

    /// What was said under that id.
    pub(super) fn by_id(&self, id: &str) -> Option<&Output<'p>> {
        self.outputs.get(*self.by_id.get(id)?)
    }

    /// What a request's element was said as: found by its id.
    pub(super) fn of_element(&self, element: &Element<'_>) -> Option<&Output<'p>> {
        self.by_id(&element.id?.text()?)
    }

    /// The element of that number in that exchange.
    pub(super) fn at(&self, exchange: usize, message: u32) -> Option<&Output<'p>> {
        self.outputs.get(*self.by_place.get(&(exchange, message))?)
    }

    /// The call of that id.
    pub(super) fn call(&self, call_id: &str) -> Option<&Output<'p>> {
        self.outputs.get(*self.by_call.get(call_id)?)
    }

    /// The first element behind it in its answer that is no reasoning.
    pub(super) fn following(&self, output: &Output<'p>) -> Option<&Output<'p>> {
        let later = self.outputs.iter().skip(output.number + 1);
        later
            .take_while(|later| later.exchange == output.exchange)
            .find(|later| later.kind != Kind::Reasoning)
    }

    /// The reasoning that led to an element: the last before it in its answer, with the ones right before that, in order.
    pub(super) fn reasoning_before(&self, output: &Output<'p>) -> &[Output<'p>] {
        let before = self.outputs.get(..output.number).unwrap_or_default();
        let is_other = |other: &&Output<'p>| other.exchange != output.exchange;
        let start = before.iter().rposition(|other| is_other(&other)).map_or(0, |at| at + 1);
        let own = before.get(start..).unwrap_or_default();
        let Some(last) = own.iter().rposition(|other| other.kind == Kind::Reasoning) else {
            return &[];
        };
        let run = own.get(..=last).unwrap_or_default();
        let first = run.iter().rposition(|other| other.kind != Kind::Reasoning);
        run.get(first.map_or(0, |at| at + 1)..).unwrap_or_default()
    }

    /// Whether a request's seal is the one that this element came with.
    pub(super) fn has_seal(output: &Output<'p>, seal: &[u8]) -> bool {
        output.seals.contains(&seal)
    }

    /// Everything that was said, in order.
    pub(super) fn outputs(&self) -> &[Output<'p>] {
        &self.outputs
    }
}

/// Whether the endpoint kept the answer: by what the request asked for, or else by what the answer says.
pub(super) fn was_kept(exchange: &Exchange) -> bool {
    let is_false = |value: &Json| value.as_str() == "false";
    let asked = exchange.call.as_ref().and_then(|call| {
        call.extras.iter().rfind(|extra| &*extra.key == "store").map(|extra| &extra.value)
    });
    let answered = || {
        let extras = &exchange.reply.as_ref()?.extras;
        extras.iter().rfind(|(key, _)| &**key == "store").map(|(_, value)| value)
    };
    let declines = asked.or_else(answered).is_some_and(is_false);
    exchange.asked.target.provider.dialect.stores && !declines
}
