//! Elements that this wire said, written again: as they were, or as far as the target may have them.

use std::borrow::Cow;
use std::sync::Arc;

use throughline_core::{
    Body, Did, Digest, Fate, How, Item, Json, Name, Native, Role, Side, Thought, ThoughtKind,
    ToolCall, ToolResult, Why, json,
};

use crate::draft::{self, Draft};
use crate::gate;
use crate::responses::contract;
use crate::responses::encode::{Storage, Writer, whole, without};
use crate::responses::wire::{self, Ids};

impl Writer<'_> {
    /// An element that this wire said.
    pub(super) fn native(
        &mut self,
        draft: &mut Draft<'_>,
        item: &Item,
        native: &Native,
        next: Option<&[&Item]>,
        prefix: Option<&Digest>,
    ) -> (Option<Json>, Fate) {
        let seals = gate::seals(item, &self.call.target, prefix);
        let refusal = gate::refusal(&seals);
        let kept = Fate { item: item.id.clone(), visible: Did::Kept, seals };
        match &item.body {
            Body::Thought(thought) => {
                match self.native_thought(item, native, thought, refusal, next) {
                    Ok(element) => (Some(element), kept),
                    Err(why) => (None, draft::elided(item, why)),
                }
            }
            Body::Call(call) => self.native_call(item, native, call),
            Body::Result(result) if !self.owns_media(result) => {
                let fate = draft::reshaped(item, How::Flattened, Why::Foreign);
                (Some(self.result(draft, result)), fate)
            }
            Body::Result(result) => {
                let element = self.native_result(draft, native, result);
                (Some(element), kept)
            }
            Body::Hosted(_)
            | Body::Compaction
            | Body::Unknown
            | Body::Text(_)
            | Body::Media(_)
            | Body::Summary { .. } => {
                if let Some(why) = refusal.or_else(|| self.stranger(item)) {
                    return (None, draft::elided(item, why));
                }
                if !self.drops_ids(item) {
                    return (Some(self.projected(native)), kept);
                }
                let kind = native.json.tree().root().name_of("type").unwrap_or_default();
                if contract::needs_id(&kind) {
                    return (None, draft::elided(item, Why::Altered));
                }
                let fate = Fate { visible: Did::Reshaped(How::IdsDropped), ..kept };
                (Some(without(&native.json, &["id"])), fate)
            }
        }
    }

    /// A hosted step, a compaction or something unknown, as a request says it.
    fn projected(&self, native: &Native) -> Json {
        let ids = if self.storage == Storage::Declined { Ids::Dropped } else { Ids::Kept };
        match native.side {
            Side::Request => native.json.clone(),
            Side::Response => wire::project(native.json.tree().root(), ids),
        }
    }

    /// Reasoning goes whole or not at all.
    fn native_thought(
        &self,
        item: &Item,
        native: &Native,
        thought: &Thought,
        refusal: Option<Why>,
        next: Option<&[&Item]>,
    ) -> Result<Json, Why> {
        if !thought.whole {
            return Err(Why::Cut);
        }
        let stranger = self.stranger(item);
        // Without a Seal it is only what its author stored, or wrote for itself.
        let unsealed = stranger.filter(|_| item.seals.is_empty());
        if let Some(why) = refusal.or(unsealed) {
            return Err(why);
        }
        let is_paired = self.storage == Storage::Stored && native.id.is_some();
        if is_paired && stranger.is_none() && self.is_broken(item, native, next) {
            return Err(Why::Altered);
        }
        if native.side == Side::Request {
            return Ok(match stranger {
                Some(_) => without(&native.json, &["id"]),
                None => native.json.clone(),
            });
        }
        let ids = match self.storage {
            Storage::Stored | Storage::Never if stranger.is_none() => Ids::Kept,
            Storage::Stored | Storage::Never | Storage::Declined => Ids::Dropped,
        };
        let says_nothing = item.seals.is_empty() && thought.kind != ThoughtKind::Text;
        if ids == Ids::Dropped && says_nothing {
            return Err(Why::Unsigned);
        }
        Ok(wire::project(native.json.tree().root(), ids))
    }

    /// Whether something else stands now where stood what the reasoning led to. While nothing does, it may yet come.
    fn is_broken(&self, item: &Item, native: &Native, next: Option<&[&Item]>) -> bool {
        let Some((next, first)) = next.and_then(|next| Some((next, next.first()?))) else {
            return false;
        };
        let is_same =
            || whole(next).is_some() && next.iter().all(|item| self.stranger(item).is_none());
        match item.seals.iter().find_map(|seal| seal.attached.leads.as_ref()) {
            Some(led) => first.id != *led || !is_same(),
            None if native.side == Side::Response => first.role != Role::Assistant || !is_same(),
            None => false,
        }
    }

    fn native_call(
        &mut self,
        item: &Item,
        native: &Native,
        call: &ToolCall,
    ) -> (Option<Json>, Fate) {
        let drops = self.drops_ids(item);
        let mut element = match native.side {
            Side::Request if drops => without(&native.json, &["id", "status"]),
            Side::Request => native.json.clone(),
            Side::Response => {
                let keeps = self.storage == Storage::Stored && !drops;
                let ids = if keeps { Ids::Kept } else { Ids::Dropped };
                wire::project(native.json.tree().root(), ids)
            }
        };
        if call.custom {
            self.custom.insert(call.id.clone());
        }
        let mut is_renamed = false;
        if let Some(wire_id) = &call.wire_id {
            let is_new = self.sent.insert(Arc::clone(wire_id));
            let is_refused = self.stranger(item).is_some() && !self.ids.takes(wire_id);
            is_renamed = is_refused || (!is_new && native.side == Side::Response);
            if is_renamed {
                let fresh = self.ids.call(&call.id);
                self.renamed.insert(call.id.clone());
                element = with_call_id(&element, &fresh);
            } else {
                self.ids.native(&call.id, wire_id);
            }
        }
        let fate = if drops || is_renamed {
            draft::reshaped(item, How::IdsDropped, Why::Altered)
        } else {
            draft::kept(item)
        };
        (Some(element), fate)
    }

    /// A tool's answer under the id that its call has now. One to no call that is here must at least have an id that the
    /// target takes, unless the target is whom it was written for.
    fn native_result(&self, draft: &Draft<'_>, native: &Native, result: &ToolResult) -> Json {
        let is_at_home = draft.source().is_some() && !draft.has_moved();
        let is_refused = |id: &Name| !is_at_home && !self.ids.takes(id);
        let is_other =
            self.renamed.contains(&result.call) || result.wire_id.as_ref().is_some_and(is_refused);
        if is_other {
            return with_call_id(&native.json, &self.ids.result(&result.call));
        }
        native.json.clone()
    }
}

fn with_call_id(element: &Json, id: &str) -> Json {
    draft::edited(Some(element), &[(Cow::Borrowed("call_id"), Some(json::string(id)))])
}
