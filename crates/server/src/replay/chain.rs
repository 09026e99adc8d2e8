//! The chain: digests of the visible conversation, one behind each of the model's turns.
//!
//! What counts is what every dialect shows alike. Messages of one speaker in a row are one group; empty texts and white
//! space do not count; arguments are JSON with sorted members; media count by their digest; a tool's answers count in the
//! order of their calls. Thoughts, ids, what a provider ran itself and cache markers are left out. Dialects differ in how
//! they order a model's texts and calls, so a turn is all of its text and then its calls.
//!
//! The tenant and the end-user come first, then the system prompt: so the same words of somebody else are another chain.
//! One pass over a request gives the digests of all its turns, and [`Chain::after`] that of the answer to it.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::LazyLock;

use throughline_core::{
    Body, Call, CallId, Digest, Item, Json, Native, Origin, Part, Role, Tenant, ToolCall,
    ToolResult, work,
};

/// The visible conversation of a request.
#[derive(Clone)]
pub struct Chain {
    /// It is large, and a chain goes from hand to hand.
    hasher: Box<blake3::Hasher>,
    /// The last group that says something. It may still grow.
    group: Option<Group>,
    /// The last Items in a row that the model said.
    run: Option<Range<usize>>,
    /// Whether somebody spoke after the system prompt.
    has_begun: bool,
    /// The model's last calls, in order.
    calls: Vec<CallId>,
    turns: Vec<ChainTurn>,
}

/// The key of a turn by its chain and by who made it: of turns that look alike, only one's maker reads what is sealed in it.
pub(super) fn made_by(digest: &Digest, origin: &Origin) -> Digest {
    static CONTEXT: LazyLock<blake3::Hasher> =
        LazyLock::new(|| blake3::Hasher::new_derive_key("throughline 2026-11 chain and maker v1"));
    let mut hasher = CONTEXT.clone();
    hasher.update(digest);
    word(&mut hasher, b'p', origin.provider.as_bytes());
    word(&mut hasher, b'e', origin.endpoint.as_bytes());
    *hasher.finalize().as_bytes()
}

/// One turn of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainTurn {
    /// The digest of everything visible up to and with this turn; nothing where nothing of it can be seen.
    pub digest: Option<Digest>,
    /// Its Items among those of the Call.
    pub items: Range<usize>,
    /// What can be seen of it.
    pub visible: Visible,
}

/// What can be seen of one turn, by digests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Visible {
    /// All of its text, without white space; nothing where there is none.
    pub text: Option<Digest>,
    /// Its calls with their arguments, and its media; nothing where there are none.
    pub acts: Option<Digest>,
}

impl Visible {
    /// What can be seen of these Items of one turn.
    pub fn of(items: &[Item]) -> Self {
        let mut group = Group::new(Speaker::Model, 0);
        for item in items {
            group.add(item);
        }
        group.visible()
    }

    /// The digest behind a turn of the model that shows this.
    fn digest_behind(&self, hasher: &blake3::Hasher) -> Digest {
        let mut hasher = hasher.clone();
        self.absorb(&mut hasher);
        *hasher.finalize().as_bytes()
    }

    fn absorb(&self, hasher: &mut blake3::Hasher) {
        debug_assert!(self.text.is_some() || self.acts.is_some(), "a group says something");
        word(hasher, b'M', &self.text.unwrap_or_default());
        word(hasher, b'A', &self.acts.unwrap_or_default());
    }
}

impl Chain {
    /// The visible conversation of a Call.
    pub fn of(call: &Call, tenant: &Tenant, end_user: Option<&str>) -> Self {
        let hasher = blake3::Hasher::new_derive_key("throughline 2026-11 visible chain v1");
        let mut hasher = Box::new(hasher);
        word(&mut hasher, b'T', tenant.0.as_bytes());
        match end_user {
            Some(user) => word(&mut hasher, b'U', user.as_bytes()),
            None => word(&mut hasher, b'-', b""),
        }
        let (group, run, calls, turns) = (None, None, Vec::new(), Vec::new());
        let mut chain = Self { hasher, group, run, has_begun: false, calls, turns };
        for item in &call.system {
            chain.say(Speaker::System, 0, item);
        }
        chain.extend(&call.items, 0);
        chain
    }

    /// Becomes the chain of these Items, of which it is that of the first `seen` ones. Those must [settle](is_settled) it: a
    /// model that goes on later goes on with its last turn.
    pub(super) fn extend(&mut self, items: &[Item], seen: usize) {
        for (at, item) in items.iter().enumerate().skip(seen) {
            self.push(at, item);
        }
        self.end_run();
        self.close_turn();
    }

    /// About how many bytes it takes.
    pub(super) fn size(&self) -> usize {
        let turns = self.turns.len() * size_of::<ChainTurn>();
        let calls = self.calls.iter().map(|id| id.0.len() + size_of::<CallId>()).sum::<usize>();
        let group = self.group.as_ref().map_or(0, Group::size);
        size_of::<Self>() + size_of::<blake3::Hasher>() + turns + calls + group
    }

    /// The model's turns, oldest first. The last one may still go on.
    pub fn turns(&self) -> &[ChainTurn] {
        &self.turns
    }

    /// How many of the turns can be seen.
    pub fn visible_turns(&self) -> usize {
        self.turns.iter().filter(|turn| turn.digest.is_some()).count()
    }

    /// Whether nobody spoke since the model's last visible turn, so that an answer goes on with it.
    pub(super) fn goes_on(&self) -> bool {
        self.group.as_ref().is_some_and(|group| group.speaker == Speaker::Model)
    }

    /// The digest behind an answer to this: nothing where nothing of the answer can be seen. It goes on with the model's
    /// last turn where nobody spoke since.
    pub fn after(&self, reply: &[Item]) -> Option<Digest> {
        self.turn_after(reply).map(|(digest, _)| digest)
    }

    /// The same, with what can be seen of the turn that the answer makes or goes on with.
    pub(super) fn turn_after(&self, reply: &[Item]) -> Option<(Digest, Visible)> {
        let (hasher, group, calls) = (self.hasher.clone(), self.group.clone(), self.calls.clone());
        let (run, has_begun, turns) = (self.run.clone(), self.has_begun, Vec::new());
        let mut chain = Self { hasher, group, run, has_begun, calls, turns };
        for item in reply.iter().filter(|item| speaks(item) == Speaker::Model) {
            chain.say(Speaker::Model, 0, item);
        }
        let group = chain.group.filter(|group| group.speaker == Speaker::Model)?;
        let visible = group.visible();
        Some((visible.digest_behind(&chain.hasher), visible))
    }

    fn push(&mut self, at: usize, item: &Item) {
        let speaker = match speaks(item) {
            // Most wires have no place for a system prompt but the top.
            Speaker::System if self.has_begun => Speaker::Caller,
            speaker => speaker,
        };
        if speaker == Speaker::Model {
            let start = self.run.as_ref().map_or(at, |run| run.start);
            self.run = Some(start..at + 1);
        } else {
            self.end_run();
        }
        self.say(speaker, at, item);
    }

    fn say(&mut self, speaker: Speaker, at: usize, item: &Item) {
        if !says_something(speaker, item) {
            return;
        }
        self.has_begun |= speaker != Speaker::System;
        if self.group.as_ref().is_none_or(|group| group.speaker != speaker) {
            let start = match &self.run {
                Some(run) if speaker == Speaker::Model => run.start,
                Some(_) | None => at,
            };
            self.close_turn();
            if let Some(group) = self.group.replace(Group::new(speaker, start)) {
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

    /// The model has stopped speaking: its Items are a turn, or continue its last turn where that is still open. The turn
    /// gets its digest from [`Chain::close_turn`], once it cannot continue.
    fn end_run(&mut self) {
        let Some(run) = self.run.take() else { return };
        let open = self.group.as_ref().filter(|group| group.speaker == Speaker::Model);
        let items = open.map_or(run.start, |group| group.start.min(run.start))..run.end;
        if open.is_some() {
            // Turns are in order, so those that this one includes are the last.
            while self.turns.last().is_some_and(|turn| turn.items.start >= items.start) {
                work::step();
                self.turns.pop();
            }
        }
        self.turns.push(ChainTurn { digest: None, items, visible: Visible::default() });
    }

    /// Computes the digest of the last turn, if that is what the model's open group says. A group is digested once and not
    /// with each run that it continues.
    fn close_turn(&mut self) {
        let Some(group) = self.group.as_mut().filter(|group| group.speaker == Speaker::Model)
        else {
            return;
        };
        let Some(turn) = self.turns.last_mut().filter(|turn| turn.items.end > group.start) else {
            return;
        };
        let visible = group.visible();
        group.seen = Some(visible);
        turn.visible = visible;
        turn.digest = Some(visible.digest_behind(&self.hasher));
    }
}

impl std::fmt::Debug for Chain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.turns).finish()
    }
}

/// Whether the model did not speak last, so that more can follow as if it had all been said at once.
pub(super) fn is_settled(items: &[Item]) -> bool {
    items.last().is_none_or(|item| speaks(item) != Speaker::Model)
}

/// Who says something, as far as all dialects can tell.
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

/// Whether an Item shows anything that counts.
fn says_something(speaker: Speaker, item: &Item) -> bool {
    match &item.body {
        Body::Text(text) | Body::Summary { text, .. } => !text.trim().is_empty(),
        Body::Media(_) | Body::Call(_) | Body::Result(_) | Body::Compaction => true,
        // What nobody knows cannot be left out of what a caller said: it may be all that makes a conversation differ.
        Body::Unknown => speaker != Speaker::Model && item.native.as_ref().is_some_and(is_part),
        Body::Thought(_) | Body::Hosted(_) => false,
    }
}

/// Whether this is a part of a message, and not a message that says nothing.
fn is_part(native: &Native) -> bool {
    native.envelope.as_ref().is_none_or(|envelope| envelope.json != native.json)
}

/// What one speaker says in a row.
#[derive(Clone)]
struct Group {
    speaker: Speaker,
    /// The first of its Items.
    start: usize,
    /// The text since the last part that is none; all text of a model.
    text: Vec<u8>,
    /// What a caller says, in order, and a model's media.
    parts: Vec<(u8, Vec<u8>)>,
    calls: Vec<(CallId, Vec<u8>)>,
    results: Vec<(CallId, Vec<u8>)>,
    /// What can be seen of it, once that was looked at and until it grows.
    seen: Option<Visible>,
}

impl Group {
    fn new(speaker: Speaker, start: usize) -> Self {
        let (text, parts, calls, results) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { speaker, start, text, parts, calls, results, seen: None }
    }

    /// About how many bytes it takes.
    fn size(&self) -> usize {
        let parts = self.parts.iter().map(|(_, part)| part.len());
        let acts = self.calls.iter().chain(&self.results).map(|(id, act)| id.0.len() + act.len());
        let count = self.parts.len() + self.calls.len() + self.results.len();
        let each = size_of::<(CallId, Vec<u8>)>();
        self.text.len() + parts.chain(acts).sum::<usize>() + count * each
    }

    fn add(&mut self, item: &Item) {
        self.seen = None;
        match &item.body {
            Body::Text(text) | Body::Summary { text, .. } => push_words(&mut self.text, text),
            Body::Media(media) => self.part(b'm', media.digest().to_vec()),
            Body::Call(call) => {
                let mut said = Vec::new();
                push_word(&mut said, call.name.as_bytes());
                push_word(&mut said, arguments(call).as_bytes());
                self.calls.push((call.id.clone(), said));
            }
            Body::Result(result) => self.results.push((result.call.clone(), answer(result))),
            Body::Compaction => {
                let mut sealed = Vec::new();
                for seal in &item.seals {
                    push_word(&mut sealed, seal.reveal_to_tenant());
                }
                self.part(b'c', sealed);
            }
            Body::Unknown if self.speaker != Speaker::Model => {
                let said = item.native.as_ref().map(|native| unmarked(&native.json));
                self.part(b'u', said.unwrap_or_default().into_bytes());
            }
            Body::Thought(_) | Body::Hosted(_) | Body::Unknown => {}
        }
    }

    fn part(&mut self, kind: u8, said: Vec<u8>) {
        if self.speaker != Speaker::Model && !self.text.is_empty() {
            self.parts.push((b't', std::mem::take(&mut self.text)));
        }
        self.parts.push((kind, said));
    }

    fn visible(&self) -> Visible {
        if let Some(seen) = self.seen {
            return seen;
        }
        let text = (!self.text.is_empty()).then(|| *blake3::hash(&self.text).as_bytes());
        let has_acts = !self.calls.is_empty() || !self.parts.is_empty();
        let acts = has_acts.then(|| {
            let mut hasher = blake3::Hasher::new();
            for (_, call) in &self.calls {
                word(&mut hasher, b'c', call);
            }
            for (kind, part) in &self.parts {
                word(&mut hasher, *kind, part);
            }
            *hasher.finalize().as_bytes()
        });
        Visible { text, acts }
    }

    /// Goes on with this group, whose results answer these calls.
    fn absorb(&self, hasher: &mut blake3::Hasher, calls: &[CallId]) {
        if self.speaker == Speaker::Model {
            self.visible().absorb(hasher);
            return;
        }
        word(hasher, if self.speaker == Speaker::System { b'S' } else { b'C' }, b"");
        let mut results: Vec<_> = self.results.iter().collect();
        let mut places: HashMap<&CallId, usize> = HashMap::new();
        for (place, call) in calls.iter().enumerate().filter(|_| !results.is_empty()) {
            places.entry(call).or_insert(place);
        }
        let turn = |id: &CallId| places.get(id).copied().unwrap_or(usize::MAX);
        results.sort_by_key(|(id, _)| turn(id));
        // Clients that resume a session send results twice, with the media beside them.
        let (mut given, mut said, mut has_doubles) = (HashSet::new(), HashSet::new(), false);
        for (id, result) in results {
            let is_stray = turn(id) == usize::MAX;
            if !given.insert((id, result)) || is_stray && said.contains(result) {
                has_doubles = true;
                continue;
            }
            said.insert(result);
            word(hasher, b'r', result);
        }
        let mut media = HashSet::new();
        for (kind, part) in &self.parts {
            let is_double = has_doubles && *kind == b'm' && !media.insert(part);
            if !is_double {
                word(hasher, *kind, part);
            }
        }
        if !self.text.is_empty() {
            word(hasher, b't', &self.text);
        }
    }
}

/// The arguments of a call as sorted JSON. Wires that take objects only say a free text as `input`.
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

/// What a tool answered: its text, or the value that the text writes, and then its media.
fn answer(result: &ToolResult) -> Vec<u8> {
    let mut text = String::new();
    let mut others = Vec::new();
    for part in &result.parts {
        match part {
            Part::Text(said) => text.push_str(said),
            Part::Value(value) => text.push_str(value.as_str()),
            Part::Media(media) => push_word(&mut others, &media.digest()),
            Part::Unknown(_, json) => push_word(&mut others, unmarked(json).as_bytes()),
        }
    }
    let mut said = Vec::new();
    let is_value = text.trim_start().starts_with(['{', '[']);
    match is_value.then(|| Json::parse(text.clone()).ok()).flatten() {
        Some(value) => push_word(&mut said, value.canonical().as_bytes()),
        None => {
            let mut words = Vec::new();
            push_words(&mut words, &text);
            push_word(&mut said, &words);
        }
    }
    said.extend(others);
    said
}

/// A part as sorted JSON, without the cache marker that moves from turn to turn.
fn unmarked(json: &Json) -> String {
    let tree = json.tree();
    if tree.root().get("cache_control").is_none() {
        return tree.root().canonical();
    }
    let unmarked = throughline_core::json::object(|o| {
        for (key, value) in tree.root().members().filter(|(key, _)| !key.is("cache_control")) {
            o.node(&key.text().unwrap_or_default(), value);
        }
    });
    unmarked.canonical()
}

/// How many bytes are looked at together.
const BLOCK: usize = 64;

/// Adds a text without its white space.
fn push_words(out: &mut Vec<u8>, text: &str) {
    // Most text is ASCII, whose white space is told byte by byte.
    if text.is_ascii() {
        out.reserve(text.len());
        for block in text.as_bytes().chunks(BLOCK) {
            let (mut kept, mut length) = ([0; BLOCK], 0);
            for byte in block {
                // Each byte is put down; the next one takes its place where it does not count.
                if let Some(place) = kept.get_mut(length) {
                    *place = *byte;
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

/// Adds bytes so that their end can be told.
fn push_word(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn word(hasher: &mut blake3::Hasher, kind: u8, bytes: &[u8]) {
    hasher.update(&[kind]);
    hasher.update(&(bytes.len() as u64).to_le_bytes());
    hasher.update(bytes);
}
