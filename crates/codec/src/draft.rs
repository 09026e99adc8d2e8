//! Builds requests by editing the original request.
//!
//! A Call that was decoded from a request keeps the bytes of that request. Encoding the Call again
//! on the same wire edits those bytes. Unchanged members are copied with the white space around
//! them; other members are replaced, added or removed. An unedited Call is written byte for byte as
//! received. A Call built from scratch is written member by member in a fixed order.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use throughline_core::{
    Call, Digest, Direction, Disposition, ElisionReason, EncodedRequest, Envelope, Extra, Fate,
    Item, NativePart, Origin, ReceivedRequest, Request, ReshapeKind, SIDE_CHANNEL, Settings, Tool,
    ToolChoice, Warning, Wire,
};
use throughline_json::{self as json, Json, Name, Node, Tree, work};

use crate::edit::{self, Rope, range_in};
pub(crate) use crate::edit::{edit_object, merge_objects, with_member};
use crate::message_groups;

/// A request body under construction.
pub(crate) struct Draft<'c> {
    call: &'c Call,
    wire: Wire,
    source: Option<&'c ReceivedRequest>,
    changes: Vec<(Cow<'static, str>, Option<Rope>)>,
    edited: HashSet<Cow<'static, str>>,
    pub(crate) aside: Vec<Json>,
    /// The original index of each conversation Item, in the order in which the Items were written.
    order: Option<Vec<usize>>,
    pub(crate) fates: Vec<Fate>,
    pub(crate) warnings: Vec<Warning>,
}

impl<'c> Draft<'c> {
    pub(crate) fn new(call: &'c Call, wire: Wire) -> Self {
        let source = call.source_on(&wire);
        let fates = Vec::with_capacity(call.system.len() + call.items.len());
        let (changes, edited, aside, warnings) =
            (Vec::new(), HashSet::new(), Vec::new(), Vec::new());
        Self { call, wire, source, changes, edited, aside, order: None, fates, warnings }
    }

    pub(crate) fn wire(&self) -> &Wire {
        &self.wire
    }

    /// Returns the request that the Call was decoded from, if that request was on this wire.
    pub(crate) fn source(&self) -> Option<&'c ReceivedRequest> {
        self.source
    }

    /// Returns the Items in an order that the wire accepts. `finish` later sorts the Fates back
    /// into the original order of the Items.
    pub(crate) fn order_items<'i>(
        &mut self,
        items: &'i [Item],
        is_aside: impl Fn(&Item) -> bool,
    ) -> Vec<&'i Item> {
        let (settled, order) = message_groups::sendable_order(items, is_aside);
        self.order = Some(order);
        settled
    }

    /// Returns whether the source request was addressed to another endpoint. If so, the encoder
    /// must omit endpoint-specific values.
    pub(crate) fn has_other_endpoint(&self) -> bool {
        let now = &self.call.target.origin;
        self.source.is_some_and(|source| !is_same_endpoint(&source.target.origin, now))
    }

    /// Returns whether the source request was addressed to another endpoint or model. If so, the
    /// encoder must check every setting again.
    pub(crate) fn is_retargeted(&self) -> bool {
        let model = self.call.target.model();
        self.has_other_endpoint()
            || self.source.is_some_and(|source| source.target.model() != model)
    }

    /// Parses the value of a member in the source.
    pub(crate) fn source_value(&self, key: &str) -> Option<Json> {
        let (body, range) = self.source_range(key)?;
        Json::parse(body.slice(range)).ok()
    }

    /// Returns the body of the source, and the range of a member's value in that body.
    pub(crate) fn source_range(&self, key: &str) -> Option<(&'c Bytes, Range<usize>)> {
        let source = self.source?;
        let (_, range) = source.members.iter().rfind(|(name, _)| **name == *key)?;
        Some((&source.request.body, range.clone()))
    }

    /// Returns the value that a member has in this draft: the changed value if it was changed,
    /// otherwise the value in the source request.
    pub(crate) fn current_value(&self, key: &str) -> Option<Json> {
        match self.changes.iter().find(|(changed, _)| **changed == *key) {
            Some((_, value)) => value.as_ref().and_then(Rope::json),
            None => self.source_value(key),
        }
    }

    pub(crate) fn put(&mut self, key: impl Into<Cow<'static, str>>, value: Json) {
        self.change(key.into(), Some(value.into()));
    }

    /// Sets a member unless the source already has this value.
    pub(crate) fn put_if_changed(&mut self, key: &'static str, value: &Json) {
        if self.source_value(key).as_ref() != Some(value) {
            self.put(key, value.clone());
        }
    }

    pub(crate) fn remove(&mut self, key: impl Into<Cow<'static, str>>) {
        self.change(key.into(), None);
    }

    /// Sets a member, or removes it if `value` is `None`.
    pub(crate) fn set(&mut self, key: impl Into<Cow<'static, str>>, value: Option<Json>) {
        self.change(key.into(), value.map(Rope::from));
    }

    fn change(&mut self, key: Cow<'static, str>, value: Option<Rope>) {
        if !self.edited.insert(key.clone()) {
            work::steps(self.changes.len());
            self.changes.retain(|(changed, _)| *changed != key);
        }
        self.changes.push((key, value));
    }

    /// Returns whether a setting must be written because it differs from the source, or from the
    /// default if there is no source.
    pub(crate) fn differs<T: PartialEq>(&self, setting: impl Fn(&Settings) -> &T) -> bool {
        let now = setting(&self.call.settings);
        let default = Settings::default();
        *setting(self.source.map_or(&default, |source| &source.settings)) != *now
    }

    /// Adds a warning that a setting was changed or omitted. Duplicates are dropped.
    pub(crate) fn warn(&mut self, setting: impl Into<Name>, message: impl Into<Name>) {
        let warning = Warning::new(setting, message);
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// Returns the tool choice if the tools to be sent allow it; otherwise warns and returns
    /// `None`. Tools hosted by another provider are not sent.
    pub(crate) fn supported_tool_choice(&mut self) -> Option<ToolChoice> {
        let choice = self.call.settings.choice.clone()?;
        let is_own = |native: &NativePart| native.wire == self.wire && !self.has_other_endpoint();
        let is_sent = |tool: &&Tool| !tool.hosted || tool.native.as_ref().is_some_and(is_own);
        let mut sent = self.call.tools.iter().filter(is_sent);
        let is_possible = match &choice {
            ToolChoice::Auto | ToolChoice::None | ToolChoice::Any => sent.next().is_some(),
            ToolChoice::Tool(name) => sent.any(|tool| tool.name == *name),
            ToolChoice::Other(_) => true,
        };
        if !is_possible {
            let message = "the tools it refers to are not sent; `tool_choice` was omitted";
            self.warn("tool_choice", message);
        }
        Some(choice).filter(|_| is_possible)
    }

    /// Warns if a part from another wire has cache markers, because they are not translated.
    pub(crate) fn warn_about_cache_markers(&mut self, native: Option<&NativePart>) {
        let Some(native) = native.filter(|native| native.wire != self.wire) else { return };
        let holds =
            |needle: &str| memchr::memmem::find(native.json.bytes(), needle.as_bytes()).is_some();
        if holds("\"cache_control\"") || holds("\"cachePoint\"") {
            let message = "cache markers cannot be translated to another wire; they were omitted";
            self.warn("cache_control", message);
        }
    }

    /// Writes the array at `key` unless the source already has these elements.
    pub(crate) fn put_elements(&mut self, key: &'static str, elements: &[Json]) {
        let changed = match self.source_range(key) {
            Some((body, range)) => Rope::rebuild_array(body, range, elements),
            None => Some(Rope::array(elements)),
        };
        if changed.is_some() {
            self.change(key.into(), changed);
        }
    }

    /// Writes the members that are not decoded into a field of the Call. Members from other wires
    /// are omitted with a warning.
    pub(crate) fn put_extras(&mut self) {
        let resumes = self.call.resumes.as_ref().filter(|_| self.wire != Wire::OPENAI_RESPONSES);
        if let Some(id) = resumes {
            let message = format!(
                "the conversation before `{id}` is stored at another provider and was not sent"
            );
            self.warn("previous_response_id", message);
        }
        for extra in &self.call.extras {
            if let Some(wire) = extra.wire.as_ref().filter(|wire| **wire != self.wire) {
                let message = format!("this setting exists only on {wire}; it was omitted");
                self.warnings.push(Warning::new(Arc::clone(&extra.key), message));
                continue;
            }
            // The source already contains a value from this wire, possibly under a repeated name.
            let is_there = extra.wire.is_some()
                && self.source.is_some_and(|source| {
                    range_in(&source.request.body, extra.value.bytes()).is_some()
                });
            if !is_there {
                self.put(extra.key.to_string(), extra.value.clone());
            }
        }
    }

    /// Merges the caller's provider extras into the request. A later change to the same member
    /// would overwrite the merged value.
    pub(crate) fn put_provider_extras(&mut self) {
        let reasoning = self.call.settings.reasoning.as_ref();
        for (key, value) in reasoning.map(|r| r.provider_extras.as_slice()).unwrap_or_default() {
            self.put(key.to_string(), edit::merge_objects(self.current_value(key).as_ref(), value));
        }
    }

    /// Writes the target's model, unless the source request already names that model.
    pub(crate) fn put_model(&mut self) {
        let model = self.call.target.model();
        if self.source_value("model").is_none_or(|was| !was.tree().root().is(model)) {
            self.put("model", json::string(model));
        }
    }

    /// Writes the stream flag if it differs from the source, or from the wire's default.
    pub(crate) fn put_stream(&mut self, default: bool) {
        let was = self.source_value("stream").and_then(|was| was.tree().root().bool());
        if was.unwrap_or(default) != self.call.stream {
            self.put("stream", self.call.stream.into());
        }
    }

    /// Writes the tools. An empty array is written only if the source had the member.
    pub(crate) fn put_tools(&mut self, tools: &[Json]) {
        if self.source_value("tools").is_some() || !tools.is_empty() {
            self.put_elements("tools", tools);
        }
    }

    pub(crate) fn body(&self) -> Bytes {
        match self.source {
            Some(source) => edit::edit_bytes(&source.request.body, &source.members, &self.changes),
            None => edit::write(&self.changes),
        }
    }

    /// Returns the finished request. If the source request was addressed to the same endpoint, its
    /// path and headers are used instead of `path` and `headers`.
    pub(crate) fn finish(
        mut self,
        path: &str,
        headers: &[(&str, &str)],
        prefix: Option<Digest>,
    ) -> EncodedRequest {
        let (path, headers) = match self.source.filter(|_| !self.has_other_endpoint()) {
            Some(source) => (Arc::clone(&source.request.path), source.request.headers.clone()),
            None => {
                let header = |(key, value): &(&str, &str)| (Name::from(*key), Name::from(*value));
                (Name::from(path), headers.iter().map(header).collect())
            }
        };
        if !self.aside.is_empty() {
            let entries = Rope::array(&self.aside);
            self.change(Cow::Borrowed(SIDE_CHANNEL), Some(entries));
        }
        // Put the Fates back into the original order of the Items.
        if let Some(order) = self.order.take() {
            let fates = self.fates.split_off(self.fates.len().saturating_sub(order.len()));
            let mut placed: Vec<_> = order.into_iter().zip(fates).collect();
            placed.sort_by_key(|(position, _)| *position);
            self.fates.extend(placed.into_iter().map(|(_, fate)| fate));
        }
        let request = Request { path, headers, body: self.body() };
        EncodedRequest { request, fates: self.fates, warnings: self.warnings, prefix }
    }
}

/// Returns the source request message that was decoded into exactly these Items; `None` if there is
/// no such message on `wire`.
pub(crate) fn intact_envelope<'i>(items: &[&'i Item], wire: &Wire) -> Option<&'i Envelope> {
    let native = |item: &'i Item| {
        item.native_on(wire).filter(|native| native.side == Direction::Request)?.envelope.as_ref()
    };
    let first = native(items.first()?)?;
    let all = items.iter().all(|item| native(item).is_some_and(|other| Arc::ptr_eq(first, other)));
    (all && items.len() == first.parts).then_some(&**first)
}

/// Returns whether two Origins have the same provider and endpoint.
pub(crate) fn is_same_endpoint(one: &Origin, other: &Origin) -> bool {
    one.provider == other.provider && one.endpoint == other.endpoint
}

/// Returns a Fate for an Item that was sent unchanged with all its Seals.
pub(crate) fn kept_fate(item: &Item) -> Fate {
    uniform_fate(item, Disposition::Kept, Disposition::Kept)
}

/// Returns a Fate for an Item that was omitted with all its Seals.
pub(crate) fn elided_fate(item: &Item, why: ElisionReason) -> Fate {
    uniform_fate(item, Disposition::Elided(why), Disposition::Elided(why))
}

/// Returns a Fate for an Item that was sent in another form, without its Seals.
pub(crate) fn reshaped_fate(item: &Item, how: ReshapeKind, seals: ElisionReason) -> Fate {
    uniform_fate(item, Disposition::Reshaped(how), Disposition::Elided(seals))
}

fn uniform_fate(item: &Item, visible: Disposition, seal: Disposition) -> Fate {
    Fate { item: item.id.clone(), visible, seals: vec![seal; item.seals.len()] }
}

/// Keeps the bytes of the request that `call` was decoded from, so that encoding can copy them.
pub(crate) fn record_source(call: &mut Call, wire: Wire, request: &Request, tree: &Tree) {
    let (target, settings) = (call.target.clone(), call.settings.clone());
    let (request, members) = (request.clone(), edit::member_ranges(tree));
    call.source = Some(Arc::new(ReceivedRequest { wire, target, request, members, settings }));
}

/// Converts request members that have no field in the Call to [`Extra`]s of this wire.
pub(crate) fn extras<'t>(
    members: impl IntoIterator<Item = (Name, Node<'t>)>,
    wire: &Wire,
) -> Vec<Extra> {
    let extra =
        |(key, value): (_, Node<'_>)| Extra { wire: Some(wire.clone()), key, value: value.json() };
    members.into_iter().map(extra).collect()
}

/// Returns the stop sequences as an array; `None` if there are none.
pub(crate) fn stop_list(settings: &Settings) -> Option<Json> {
    let stops: Vec<Json> = settings.stop.iter().map(|stop| json::string(stop)).collect();
    (!stops.is_empty()).then(|| json::array_of(&stops))
}

/// Returns the members by name, in document order. If a name is repeated, only its last occurrence
/// is returned.
pub(crate) fn last_member_per_name<'t>(
    members: impl Iterator<Item = (Node<'t>, Node<'t>)>,
) -> Vec<(Name, Node<'t>)> {
    let all: Vec<_> = members.map(|(key, value)| (key.name().unwrap_or_default(), value)).collect();
    let last: HashMap<Name, usize> =
        all.iter().enumerate().map(|(index, (key, _))| (Arc::clone(key), index)).collect();
    let named = all.into_iter().enumerate();
    let kept = named.filter(|(index, (key, _))| last.get(key) == Some(index));
    kept.map(|(_, member)| member).collect()
}
