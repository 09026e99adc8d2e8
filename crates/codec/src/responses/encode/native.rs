//! Encodes elements that came from this wire, unchanged or without members that the target rejects.

use std::sync::Arc;

use throughline_core::{
    Body, Digest, Direction, Disposition, ElisionReason, Fate, Item, NativePart, ReshapeKind, Role,
    Thought, ThoughtKind, ToolCall, ToolResult,
};
use throughline_json::{self as json, Json, Name};

use crate::draft::{self, Draft};
use crate::responses::contract;
use crate::responses::encode::{ResponseStorage, ResponsesWriter, intact_element, without_members};
use crate::responses::wire::{self, IdPolicy};
use crate::seal_policy;

impl ResponsesWriter<'_> {
    /// Encodes an element that came from this wire, and returns its Fate.
    pub(super) fn native(
        &mut self,
        draft: &mut Draft<'_>,
        item: &Item,
        native: &NativePart,
        next: Option<&[&Item]>,
        prefix: Option<&Digest>,
    ) -> (Option<Json>, Fate) {
        let seals = seal_policy::seals(item, &self.call.target, prefix);
        let refusal = seal_policy::refusal(&seals);
        let kept = Fate { item: item.id.clone(), visible: Disposition::Kept, seals };
        match &item.body {
            Body::Thought(thought) => {
                match self.native_thought(item, native, thought, refusal, next) {
                    Ok(element) => (Some(element), kept),
                    Err(why) => (None, draft::elided_fate(item, why)),
                }
            }
            Body::Call(call) => self.native_call(item, native, call),
            Body::Result(result) if !self.can_resolve_media(result) => {
                let fate =
                    draft::reshaped_fate(item, ReshapeKind::Flattened, ElisionReason::Foreign);
                (Some(self.result(draft, result)), fate)
            }
            Body::Result(result) => (Some(self.native_result(draft, native, result)), kept),
            _ => {
                if let Some(why) = refusal.or_else(|| self.foreign_reason(item)) {
                    return (None, draft::elided_fate(item, why));
                }
                if !self.drops_ids(item) {
                    return (Some(self.projected(native)), kept);
                }
                let kind = native.json.tree().root().name_of("type").unwrap_or_default();
                if contract::requires_id(&kind) {
                    return (None, draft::elided_fate(item, ElisionReason::Altered));
                }
                let fate = Fate { visible: Disposition::Reshaped(ReshapeKind::IdsDropped), ..kept };
                (Some(without_members(&native.json, &["id"])), fate)
            }
        }
    }

    /// Encodes a hosted step, compaction or unknown element. An element of a response is first
    /// converted to the form that a request accepts.
    fn projected(&self, native: &NativePart) -> Json {
        let drops_ids = self.storage == ResponseStorage::Declined;
        let ids = if drops_ids { IdPolicy::Dropped } else { IdPolicy::Kept };
        match native.side {
            Direction::Request => native.json.clone(),
            Direction::Response => wire::to_request_element(native.json.tree().root(), ids),
        }
    }

    /// Encodes reasoning from this wire. Reasoning is sent whole or not at all.
    fn native_thought(
        &self,
        item: &Item,
        native: &NativePart,
        thought: &Thought,
        refusal: Option<ElisionReason>,
        next: Option<&[&Item]>,
    ) -> Result<Json, ElisionReason> {
        if !thought.whole {
            return Err(ElisionReason::Cut);
        }
        let foreign_reason = self.foreign_reason(item);
        // Only the endpoint that produced or stored unsealed reasoning can use it.
        let unsealed = foreign_reason.filter(|_| item.seals.is_empty());
        if let Some(why) = refusal.or(unsealed) {
            return Err(why);
        }
        let is_paired = self.storage == ResponseStorage::Stored && native.id.is_some();
        if is_paired && foreign_reason.is_none() && self.is_pair_broken(item, native, next) {
            return Err(ElisionReason::Altered);
        }
        if native.side == Direction::Request {
            return Ok(match foreign_reason {
                Some(_) => without_members(&native.json, &["id"]),
                None => native.json.clone(),
            });
        }
        let keeps_ids = self.storage != ResponseStorage::Declined && foreign_reason.is_none();
        let ids = if keeps_ids { IdPolicy::Kept } else { IdPolicy::Dropped };
        let says_nothing = item.seals.is_empty() && thought.kind != ThoughtKind::Text;
        if !keeps_ids && says_nothing {
            return Err(ElisionReason::Unsigned);
        }
        Ok(wire::to_request_element(native.json.tree().root(), ids))
    }

    /// Returns whether the element after `item`, a reasoning item, is not the element it led to. If
    /// no element follows, the pair is not broken.
    fn is_pair_broken(&self, item: &Item, native: &NativePart, next: Option<&[&Item]>) -> bool {
        let Some((next, first)) = next.and_then(|next| Some((next, next.first()?))) else {
            return false;
        };
        let is_same = || {
            intact_element(next).is_some()
                && next.iter().all(|item| self.foreign_reason(item).is_none())
        };
        match item.seals.iter().find_map(|seal| seal.attached.leads.as_ref()) {
            Some(led) => first.id != *led || !is_same(),
            None if native.side == Direction::Response => {
                first.role != Role::Assistant || !is_same()
            }
            None => false,
        }
    }

    fn native_call(
        &mut self,
        item: &Item,
        native: &NativePart,
        call: &ToolCall,
    ) -> (Option<Json>, Fate) {
        let drops = self.drops_ids(item);
        let mut element = match native.side {
            Direction::Request if drops => without_members(&native.json, &["id", "status"]),
            Direction::Request => native.json.clone(),
            Direction::Response => {
                wire::to_request_element(native.json.tree().root(), self.message_ids(drops))
            }
        };
        if call.custom {
            self.custom.insert(call.id.clone());
        }
        let mut is_renamed = false;
        if let Some(wire_id) = &call.wire_id {
            let is_new = self.sent.insert(Arc::clone(wire_id));
            let is_refused = self.foreign_reason(item).is_some() && !self.ids.accepts(wire_id);
            is_renamed = is_refused || (!is_new && native.side == Direction::Response);
            if is_renamed {
                let fresh = self.ids.assign(&call.id);
                self.renamed.insert(call.id.clone());
                element = with_call_id(&element, &fresh);
            } else {
                self.ids.record_native(&call.id, wire_id);
            }
        }
        let fate = if drops || is_renamed {
            draft::reshaped_fate(item, ReshapeKind::IdsDropped, ElisionReason::Altered)
        } else {
            draft::kept_fate(item)
        };
        (Some(element), fate)
    }

    /// Encodes a tool result with the id that was sent for its call. If the request moved to
    /// another target that rejects the id, the id is replaced.
    fn native_result(&self, draft: &Draft<'_>, native: &NativePart, result: &ToolResult) -> Json {
        let is_at_home = draft.source().is_some() && !draft.has_other_endpoint();
        let is_refused = |id: &Name| !is_at_home && !self.ids.accepts(id);
        let is_other =
            self.renamed.contains(&result.call) || result.wire_id.as_ref().is_some_and(is_refused);
        if is_other {
            return with_call_id(&native.json, &self.ids.result_id(&result.call));
        }
        native.json.clone()
    }
}

fn with_call_id(element: &Json, id: &str) -> Json {
    draft::with_member(element, "call_id", json::string(id))
}
