//! Computes digests of the visible conversation, one after each model turn.
//!
//! A digest covers only content that is the same in every dialect:
//!
//! - Consecutive messages from one speaker form one group. Empty texts and white space are ignored.
//! - Arguments are digested as JSON with sorted members, and media by their own digest.
//! - Tool results are digested in the order of their calls.
//! - Thoughts, ids, provider-run steps and cache markers are omitted.
//! - Dialects order a model's texts and calls differently, so a turn's texts are digested before
//!   its calls.
//!
//! The tenant and the end user are digested first, then the system prompt. Equal conversations of
//! different users therefore have different chains. One pass over a request computes the digests of
//! all turns. [`Chain::after`] computes the digest after the reply.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::LazyLock;

use throughline_core::{
    Body, Call, CallId, Digest, Item, NativePart, Origin, Part, Role, Tenant, ToolCall, ToolResult,
};
use throughline_json::{Json, work};

/// The visible conversation of a request.
#[derive(Clone)]
pub struct Chain {
    /// Boxed because the hasher is large and chains are moved often.
    hasher: Box<blake3::Hasher>,
    /// The last non-empty group, which later Items may extend.
    group: Option<SpeakerGroup>,
    /// The current run of consecutive model Items.
    run: Option<Range<usize>>,
    /// Whether the chain contains a message after the system prompt.
    has_begun: bool,
    /// The ids of the model's last tool calls, in order.
    calls: Vec<CallId>,
    turns: Vec<ChainTurn>,
}

/// Returns a digest of a chain digest and the provider of the last turn. Turns from several
/// providers can have the same chain, but a provider can read only its own Seals.
pub(super) fn provider_digest(digest: &Digest, origin: &Origin) -> Digest {
    static CONTEXT: LazyLock<blake3::Hasher> =
        LazyLock::new(|| blake3::Hasher::new_derive_key("throughline 2026-11 chain and maker v1"));
    let mut hasher = CONTEXT.clone();
    hasher.update(digest);
    hash_field(&mut hasher, b'p', origin.provider.as_bytes());
    hash_field(&mut hasher, b'e', origin.endpoint.as_bytes());
    *hasher.finalize().as_bytes()
}

/// Returns the digest that [`Chain::input_digest`] returns before a model turn. `previous` contains
/// the Items of the model turn before it, and `input` the Items in between.
pub(super) fn input_between(previous: &[Item], input: &[Item]) -> Option<Digest> {
    let mut chain = Chain::starting_with(Box::default());
    for (at, item) in previous.iter().chain(input).enumerate() {
        chain.push(at, item);
    }
    chain.input_digest()
}

/// One model turn in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainTurn {
    /// The digest of everything visible up to and including this turn; `None` if the turn has no
    /// visible content.
    pub digest: Option<Digest>,
    /// The index range of the turn's Items in the Call.
    pub items: Range<usize>,
    /// Digests of the turn's own visible content.
    pub visible: VisibleDigests,
}

/// Digests of one turn's visible content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VisibleDigests {
    /// The digest of all text without white space; `None` if there is no text.
    pub text: Option<Digest>,
    /// The digest of all media and of all calls with their arguments; `None` if there are none.
    pub acts: Option<Digest>,
}

impl VisibleDigests {
    /// Computes the digests for the Items of one model turn.
    pub fn of(items: &[Item]) -> Self {
        let mut group = SpeakerGroup::new(Speaker::Model, 0);
        for item in items {
            group.add(item);
        }
        group.visible()
    }

    /// Returns the chain digest after a model turn with this content.
    fn digest_after(&self, hasher: &blake3::Hasher) -> Digest {
        let mut hasher = hasher.clone();
        self.absorb(&mut hasher);
        *hasher.finalize().as_bytes()
    }

    pub(super) fn absorb(&self, hasher: &mut blake3::Hasher) {
        debug_assert!(self.text.is_some() || self.acts.is_some(), "a group has visible content");
        hash_field(hasher, b'M', &self.text.unwrap_or_default());
        hash_field(hasher, b'A', &self.acts.unwrap_or_default());
    }
}

impl Chain {
    /// Computes the chain of a Call from scratch, in time linear in its visible content.
    pub fn of(call: &Call, tenant: &Tenant, end_user: Option<&str>) -> Self {
        let hasher = blake3::Hasher::new_derive_key("throughline 2026-11 visible chain v1");
        let mut hasher = Box::new(hasher);
        hash_field(&mut hasher, b'T', tenant.0.as_bytes());
        match end_user {
            Some(user) => hash_field(&mut hasher, b'U', user.as_bytes()),
            None => hash_field(&mut hasher, b'-', b""),
        }
        let mut chain = Self::starting_with(hasher);
        for item in &call.system {
            chain.add_item(Speaker::System, 0, item);
        }
        chain.extend(&call.items, 0);
        chain
    }

    fn starting_with(hasher: Box<blake3::Hasher>) -> Self {
        let (group, run, calls, turns) = (None, None, Vec::new(), Vec::new());
        Self { hasher, group, run, has_begun: false, calls, turns }
    }

    /// Extends a chain that covers the first `seen` Items to all Items. The first `seen` Items must
    /// be [settled](is_settled): they must not end with a model turn, which later Items could
    /// continue.
    pub(super) fn extend(&mut self, items: &[Item], seen: usize) {
        for (at, item) in items.iter().enumerate().skip(seen) {
            self.push(at, item);
        }
        self.end_run();
        self.close_turn();
    }

    /// Returns the approximate memory size in bytes.
    pub(super) fn size(&self) -> usize {
        let turns = self.turns.len() * size_of::<ChainTurn>();
        let calls = self.calls.iter().map(|id| id.0.len() + size_of::<CallId>()).sum::<usize>();
        let group = self.group.as_ref().map_or(0, SpeakerGroup::size);
        size_of::<Self>() + size_of::<blake3::Hasher>() + turns + calls + group
    }

    /// Returns the model turns, oldest first. A reply may continue the last turn.
    pub fn turns(&self) -> &[ChainTurn] {
        &self.turns
    }

    /// Returns the number of turns with visible content.
    pub fn visible_turns(&self) -> usize {
        self.turns.iter().filter(|turn| turn.digest.is_some()).count()
    }

    /// Whether the conversation ends with a visible model turn, which a reply then continues.
    pub(super) fn ends_with_model_turn(&self) -> bool {
        self.group.as_ref().is_some_and(|group| group.speaker == Speaker::Model)
    }

    /// Returns the digest after a reply; `None` if nothing in the reply is visible. A reply to a
    /// conversation that ends with a model turn continues that turn.
    pub fn after(&self, reply: &[Item]) -> Option<Digest> {
        self.turn_after(reply).map(|(digest, _)| digest)
    }

    /// Returns the digest after a reply, and the visible content of the turn that the reply starts
    /// or continues.
    pub(super) fn turn_after(&self, reply: &[Item]) -> Option<(Digest, VisibleDigests)> {
        let (hasher, group, calls) = (self.hasher.clone(), self.group.clone(), self.calls.clone());
        let (run, has_begun, turns) = (self.run.clone(), self.has_begun, Vec::new());
        let mut chain = Self { hasher, group, run, has_begun, calls, turns };
        for item in reply.iter().filter(|item| speaks(item) == Speaker::Model) {
            chain.add_item(Speaker::Model, 0, item);
        }
        let group = chain.group.filter(|group| group.speaker == Speaker::Model)?;
        let visible = group.visible();
        Some((visible.digest_after(&chain.hasher), visible))
    }

    /// Returns the digest of the last model turn's visible content and of the caller's Items after
    /// it, without the system prompt; `None` if the conversation ends with a model turn.
    pub(super) fn input_digest(&self) -> Option<Digest> {
        static CONTEXT: LazyLock<blake3::Hasher> =
            LazyLock::new(|| blake3::Hasher::new_derive_key("throughline 2026-11 input v1"));
        let group = self.group.as_ref().filter(|group| group.speaker == Speaker::Caller)?;
        let mut hasher = CONTEXT.clone();
        if let Some(turn) = self.turns.iter().rfind(|turn| turn.digest.is_some()) {
            turn.visible.absorb(&mut hasher);
        }
        group.absorb(&mut hasher, &self.calls);
        Some(*hasher.finalize().as_bytes())
    }

    fn push(&mut self, at: usize, item: &Item) {
        let speaker = match speaks(item) {
            // Most wires accept system prompts only at the start, so later ones are digested as the
            // caller's.
            Speaker::System if self.has_begun => Speaker::Caller,
            speaker => speaker,
        };
        if speaker == Speaker::Model {
            let start = self.run.as_ref().map_or(at, |run| run.start);
            self.run = Some(start..at + 1);
        } else {
            self.end_run();
        }
        self.add_item(speaker, at, item);
    }

    fn add_item(&mut self, speaker: Speaker, at: usize, item: &Item) {
        if !has_visible_content(speaker, item) {
            return;
        }
        self.has_begun |= speaker != Speaker::System;
        if self.group.as_ref().is_none_or(|group| group.speaker != speaker) {
            let start = match &self.run {
                Some(run) if speaker == Speaker::Model => run.start,
                Some(_) | None => at,
            };
            self.close_turn();
            if let Some(group) = self.group.replace(SpeakerGroup::new(speaker, start)) {
                group.absorb(&mut self.hasher, &self.calls);
                if group.speaker == Speaker::Model {
                    self.calls = group.calls.into_iter().map(|(id, _)| id).collect();
                }
            }
        }
        if let Some(group) = &mut self.group {
            group.add(item);
        }
    }

    /// Ends the current run of model Items. The run becomes a new turn or extends the last open
    /// turn. [`Chain::close_turn`] later computes the turn's digest.
    fn end_run(&mut self) {
        let Some(run) = self.run.take() else { return };
        let open = self.group.as_ref().filter(|group| group.speaker == Speaker::Model);
        let items = open.map_or(run.start, |group| group.start.min(run.start))..run.end;
        if open.is_some() {
            // Turns are in order, so the turns to be merged into this turn are the last ones.
            while self.turns.last().is_some_and(|turn| turn.items.start >= items.start) {
                work::step();
                self.turns.pop();
            }
        }
        self.turns.push(ChainTurn { digest: None, items, visible: VisibleDigests::default() });
    }

    /// Computes the digest of the last turn from the model's open group. The group is digested
    /// once, not after each of its runs.
    fn close_turn(&mut self) {
        let Some(group) = self.group.as_mut().filter(|group| group.speaker == Speaker::Model)
        else {
            return;
        };
        let Some(turn) = self.turns.last_mut().filter(|turn| turn.items.end > group.start) else {
            return;
        };
        let visible = group.visible();
        group.cached = Some(visible);
        turn.visible = visible;
        turn.digest = Some(visible.digest_after(&self.hasher));
    }
}

impl std::fmt::Debug for Chain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.turns).finish()
    }
}

/// Whether the chain of these Items can be cached and extended later: the Items must not end with a
/// model turn.
pub(super) fn is_settled(items: &[Item]) -> bool {
    items.last().is_none_or(|item| speaks(item) != Speaker::Model)
}

/// The speakers that every dialect distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speaker {
    System,
    Caller,
    Model,
}

fn speaks(item: &Item) -> Speaker {
    match (item.role, &item.body) {
        (_, Body::Result(_)) | (Role::User | Role::Tool, _) => Speaker::Caller,
        (Role::System | Role::Developer, _) => Speaker::System,
        (Role::Assistant, _) => Speaker::Model,
    }
}

/// Whether an Item has content that the chain covers.
fn has_visible_content(speaker: Speaker, item: &Item) -> bool {
    match &item.body {
        Body::Text(text) | Body::Summary { text, .. } => !text.trim().is_empty(),
        Body::Media(_) | Body::Call(_) | Body::Result(_) | Body::Compaction => true,
        // A caller's unknown content is covered, because it may be the only difference between two
        // conversations.
        Body::Unknown => speaker != Speaker::Model && item.native.as_ref().is_some_and(is_part),
        Body::Thought(_) | Body::Hosted(_) => false,
    }
}

/// Whether the native JSON is one part of a message, as opposed to a whole message without parts.
fn is_part(native: &NativePart) -> bool {
    native.envelope.as_ref().is_none_or(|envelope| envelope.json != native.json)
}

/// Consecutive Items from one speaker.
#[derive(Clone)]
struct SpeakerGroup {
    speaker: Speaker,
    /// The index of the group's first Item.
    start: usize,
    /// For a model, all text. For other speakers, the text since the last non-text part.
    text: Vec<u8>,
    /// For a caller, all parts in order. For a model, only its media.
    parts: Vec<(u8, Vec<u8>)>,
    calls: Vec<(CallId, Vec<u8>)>,
    results: Vec<(CallId, Vec<u8>)>,
    /// Cached digests, cleared when the group grows.
    cached: Option<VisibleDigests>,
}

impl SpeakerGroup {
    fn new(speaker: Speaker, start: usize) -> Self {
        let (text, parts, calls, results) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { speaker, start, text, parts, calls, results, cached: None }
    }

    /// Returns the approximate memory size in bytes.
    fn size(&self) -> usize {
        let parts = self.parts.iter().map(|(_, part)| part.len());
        let acts = self.calls.iter().chain(&self.results).map(|(id, act)| id.0.len() + act.len());
        let count = self.parts.len() + self.calls.len() + self.results.len();
        let each = size_of::<(CallId, Vec<u8>)>();
        self.text.len() + parts.chain(acts).sum::<usize>() + count * each
    }

    fn add(&mut self, item: &Item) {
        self.cached = None;
        match &item.body {
            Body::Text(text) | Body::Summary { text, .. } => {
                push_without_whitespace(&mut self.text, text);
            }
            Body::Media(media) => self.part(b'm', media.digest().to_vec()),
            Body::Call(call) => {
                let mut encoded = Vec::new();
                push_with_length(&mut encoded, call.name.as_bytes());
                push_with_length(&mut encoded, arguments(call).as_bytes());
                self.calls.push((call.id.clone(), encoded));
            }
            Body::Result(result) => self.results.push((result.call.clone(), answer(result))),
            Body::Compaction => {
                let mut sealed = Vec::new();
                for seal in &item.seals {
                    push_with_length(&mut sealed, seal.reveal_to_tenant());
                }
                self.part(b'c', sealed);
            }
            Body::Unknown if self.speaker != Speaker::Model => {
                let content = item.native.as_ref().map(|native| unmarked(&native.json));
                self.part(b'u', content.unwrap_or_default().into_bytes());
            }
            Body::Thought(_) | Body::Hosted(_) | Body::Unknown => {}
        }
    }

    fn part(&mut self, kind: u8, content: Vec<u8>) {
        if self.speaker != Speaker::Model && !self.text.is_empty() {
            self.parts.push((b't', std::mem::take(&mut self.text)));
        }
        self.parts.push((kind, content));
    }

    fn visible(&self) -> VisibleDigests {
        if let Some(cached) = self.cached {
            return cached;
        }
        let text = (!self.text.is_empty()).then(|| *blake3::hash(&self.text).as_bytes());
        let has_acts = !self.calls.is_empty() || !self.parts.is_empty();
        let acts = has_acts.then(|| {
            let mut hasher = blake3::Hasher::new();
            for (_, call) in &self.calls {
                hash_field(&mut hasher, b'c', call);
            }
            for (kind, part) in &self.parts {
                hash_field(&mut hasher, *kind, part);
            }
            *hasher.finalize().as_bytes()
        });
        VisibleDigests { text, acts }
    }

    /// Adds this group to the digest. Tool results are sorted by the order of `calls`.
    fn absorb(&self, hasher: &mut blake3::Hasher, calls: &[CallId]) {
        if self.speaker == Speaker::Model {
            self.visible().absorb(hasher);
            return;
        }
        hash_field(hasher, if self.speaker == Speaker::System { b'S' } else { b'C' }, b"");
        let mut results: Vec<_> = self.results.iter().collect();
        let mut indexes: HashMap<&CallId, usize> = HashMap::new();
        for (index, call) in calls.iter().enumerate().filter(|_| !results.is_empty()) {
            indexes.entry(call).or_insert(index);
        }
        let turn = |id: &CallId| indexes.get(id).copied().unwrap_or(usize::MAX);
        results.sort_by_key(|(id, _)| turn(id));
        // Clients that resume a session may send tool results twice, together with their media.
        let (mut seen, mut contents, mut has_doubles) = (HashSet::new(), HashSet::new(), false);
        for (id, result) in results {
            let is_stray = turn(id) == usize::MAX;
            if !seen.insert((id, result)) || is_stray && contents.contains(result) {
                has_doubles = true;
                continue;
            }
            contents.insert(result);
            hash_field(hasher, b'r', result);
        }
        let mut media = HashSet::new();
        for (kind, part) in &self.parts {
            let is_double = has_doubles && *kind == b'm' && !media.insert(part);
            if !is_double {
                hash_field(hasher, *kind, part);
            }
        }
        if !self.text.is_empty() {
            hash_field(hasher, b't', &self.text);
        }
    }
}

/// Returns a call's arguments as JSON with sorted members. Free text becomes `{"input": text}`,
/// which is also the form sent on wires that accept only objects.
fn arguments(call: &ToolCall) -> String {
    let tree = call.args.tree();
    let root = tree.root();
    if root.is_object() {
        return root.canonical();
    }
    if root.is_null() || (!call.custom && root.is("")) {
        return "{}".to_owned();
    }
    format!("{{\"input\":{}}}", root.canonical())
}

/// Returns the content of a tool result: its text, canonical if it is JSON, then its media.
fn answer(result: &ToolResult) -> Vec<u8> {
    let mut text = String::new();
    let mut other_parts = Vec::new();
    for part in &result.parts {
        match part {
            Part::Text(part) => text.push_str(part),
            Part::Value(value) => text.push_str(value.as_str()),
            Part::Media(media) => push_with_length(&mut other_parts, &media.digest()),
            Part::Unknown(_, json) => push_with_length(&mut other_parts, unmarked(json).as_bytes()),
        }
    }
    let mut content = Vec::new();
    let is_value = text.trim_start().starts_with(['{', '[']);
    match is_value.then(|| Json::parse(text.clone()).ok()).flatten() {
        Some(value) => push_with_length(&mut content, value.canonical().as_bytes()),
        None => {
            let mut stripped = Vec::new();
            push_without_whitespace(&mut stripped, &text);
            push_with_length(&mut content, &stripped);
        }
    }
    content.extend(other_parts);
    content
}

/// Returns a part as JSON with sorted members, without the cache marker, which moves from turn to
/// turn.
fn unmarked(json: &Json) -> String {
    let tree = json.tree();
    if tree.root().get("cache_control").is_none() {
        return tree.root().canonical();
    }
    let unmarked = throughline_json::object(|out| {
        out.nodes(tree.root().members().filter(|(key, _)| !key.is("cache_control")));
    });
    unmarked.canonical()
}

/// Block size in bytes for stripping white space.
const BLOCK: usize = 64;

fn push_without_whitespace(out: &mut Vec<u8>, text: &str) {
    // Most text is ASCII, in which white space can be recognised byte by byte.
    if text.is_ascii() {
        out.reserve(text.len());
        for block in text.as_bytes().chunks(BLOCK) {
            let (mut kept, mut length) = ([0; BLOCK], 0);
            for byte in block {
                // To avoid a branch, every byte is written, and the byte after white space
                // overwrites it.
                // `length` is less than `BLOCK`, and the remainder shows that to the compiler.
                if let Some(slot) = kept.get_mut(length % BLOCK) {
                    *slot = *byte;
                }
                length += usize::from(!matches!(byte, b' ' | 0x09..=0x0d));
            }
            out.extend_from_slice(kept.get(..length).unwrap_or_default());
        }
        return;
    }
    for word in text.split_whitespace() {
        out.extend_from_slice(word.as_bytes());
    }
}

fn push_with_length(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    out.extend_from_slice(bytes);
}

pub(super) fn hash_field(hasher: &mut blake3::Hasher, kind: u8, bytes: &[u8]) {
    hasher.update(&[kind]);
    hasher.update(&(bytes.len() as u64).to_le_bytes());
    hasher.update(bytes);
}
