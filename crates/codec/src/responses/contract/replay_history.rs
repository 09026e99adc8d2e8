//! Indexes the output items of earlier exchanges.

use std::collections::HashMap;

use throughline_core::{Body, ToolCall, Wire};
use throughline_json::Json;

use crate::draft::is_same_endpoint;
use crate::responses::contract::view::ResponsesElement;
use crate::responses::wire::{CONTENT, IdPolicy, ResponsesElementKind, to_request_element};
use crate::{AuditContext, Exchange};

/// The output items of all earlier exchanges, with indexes for lookup.
#[derive(Default)]
pub(super) struct ResponsesReplayHistory<'p> {
    pub(super) outputs: Vec<PriorOutput<'p>>,
    by_id: HashMap<&'p str, usize>,
    by_call: HashMap<&'p str, usize>,
    by_place: HashMap<(usize, u32), usize>,
}

/// An output item of an earlier response.
pub(super) struct PriorOutput<'p> {
    pub(super) number: usize,
    pub(super) exchange: usize,
    pub(super) kind: ResponsesElementKind,
    pub(super) id: Option<&'p str>,
    pub(super) json: &'p Json,
    /// Whether the target produced and stored the output, and can therefore resolve its id.
    pub(super) is_kept: bool,
    /// Whether the output came from the endpoint and account of the target.
    pub(super) is_own: bool,
    pub(super) seals: Vec<&'p [u8]>,
}

impl PriorOutput<'_> {
    /// Converts the output to the form that a request accepts.
    pub(super) fn to_request(&self, ids: IdPolicy) -> Json {
        to_request_element(self.json.tree().root(), ids)
    }

    /// Returns whether a request element has the id of this output.
    pub(super) fn is_named_by(&self, element: &ResponsesElement<'_>) -> bool {
        element.id.zip(self.id).is_some_and(|(id, own)| id.is(own))
    }
}

impl<'p> ResponsesReplayHistory<'p> {
    /// Indexes the outputs of the earlier exchanges in `case`.
    pub(super) fn new(case: &AuditContext<'p>) -> Self {
        let mut past = Self::default();
        for (number, exchange) in case.prior().exchanges().iter().enumerate() {
            past.read(case, number, exchange);
        }
        past
    }

    fn read(&mut self, case: &AuditContext<'p>, exchange_number: usize, exchange: &'p Exchange) {
        let Some(reply) = &exchange.reply else { return };
        let (was, is) = (&exchange.asked.target.origin, &case.target().origin);
        let is_own = is_same_endpoint(was, is) && was.account == is.account;
        let is_kept = is_own && was_stored(exchange);
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
            self.outputs.push(PriorOutput {
                number,
                exchange: exchange_number,
                kind: ResponsesElementKind::from_element(json.tree().root()),
                id,
                json,
                is_kept,
                is_own,
                seals: item.seals.iter().map(|seal| &**seal.reveal_to_tenant()).collect(),
            });
        }
    }

    /// Looks up, by id, the earlier output that a request element replays.
    pub(super) fn for_element(&self, element: &ResponsesElement<'_>) -> Option<&PriorOutput<'p>> {
        self.outputs.get(*self.by_id.get(&*element.id?.text()?)?)
    }

    /// Looks up an output by its exchange and its position in the response.
    pub(super) fn at(&self, exchange: usize, message: u32) -> Option<&PriorOutput<'p>> {
        self.outputs.get(*self.by_place.get(&(exchange, message))?)
    }

    pub(super) fn call(&self, call_id: &str) -> Option<&PriorOutput<'p>> {
        self.outputs.get(*self.by_call.get(call_id)?)
    }

    /// Returns the next non-reasoning output item of the same response.
    pub(super) fn following(&self, output: &PriorOutput<'p>) -> Option<&PriorOutput<'p>> {
        let later = self.outputs.iter().skip(output.number + 1);
        later
            .take_while(|later| later.exchange == output.exchange)
            .find(|later| later.kind != ResponsesElementKind::Reasoning)
    }

    /// Returns the reasoning that led to an output: the closest run of reasoning items before it in
    /// the same response.
    pub(super) fn reasoning_before(&self, output: &PriorOutput<'p>) -> &[PriorOutput<'p>] {
        let is_reasoning = |other: &PriorOutput<'p>| other.kind == ResponsesElementKind::Reasoning;
        let before = self.outputs.get(..output.number).unwrap_or_default();
        let own = before.iter().rev().take_while(|other| other.exchange == output.exchange);
        let skipped = own.clone().take_while(|other| !is_reasoning(other)).count();
        let count = own.skip(skipped).take_while(|other| is_reasoning(other)).count();
        let end = before.len() - skipped;
        before.get(end - count..end).unwrap_or_default()
    }
}

/// Returns whether the endpoint stored the response. The request's `store` member decides, or the
/// response's `store` member if the request has none.
pub(super) fn was_stored(exchange: &Exchange) -> bool {
    let requested = exchange.call.as_ref().and_then(|call| {
        call.extras.iter().rfind(|extra| &*extra.key == "store").map(|extra| &extra.value)
    });
    let answered = || {
        let extras = &exchange.reply.as_ref()?.extras;
        extras.iter().rfind(|(key, _)| &**key == "store").map(|(_, value)| value)
    };
    let declines = requested.or_else(answered).is_some_and(|value| value.as_str() == "false");
    exchange.asked.target.provider.dialect.stores && !declines
}
