//! Letta's `ReasoningMessage` and `HiddenReasoningMessage`.
//!
//! One thought is one message with its own signature: thoughts are never joined, because a signature holds for
//! its own thought only. The view leaves out the identity, the format and the owner of the signature.

use std::sync::Arc;

use jiff::Timestamp;

use crate::document::{Fields, InvalidDocument, Opaque, Word, words, write_extras};
use crate::format::ReasoningFormat;
use crate::instant::RawInstant;
use crate::item::{Body, Item, Place, Role};
use crate::json::{self, Json, Object};
use crate::name::{ItemId, Name};
use crate::origin::Origin;
use crate::seal::Seal;
use crate::tag;
use crate::thought::{ReasoningSource, Thought, ThoughtKind, ThoughtRecord};

/// What every message of Letta's has.
#[derive(Clone, Debug, PartialEq)]
pub struct LettaHeader {
    /// The message's id.
    pub id: Name,
    /// When it was created.
    pub date: Timestamp,
    /// The name of the sender.
    pub name: Option<Name>,
    /// The client's own id for the message, by which retries are recognised.
    pub otid: Option<Name>,
    /// The id of the sender.
    pub sender_id: Option<Name>,
    /// The step of the run.
    pub step_id: Option<Name>,
    /// Whether it belongs to a step that failed.
    pub is_err: Option<bool>,
    /// Its number in the run's stream of events.
    pub seq_id: Option<i64>,
    /// The run.
    pub run_id: Option<Name>,
    /// Members that the document does not know, verbatim.
    pub extras: Vec<(Name, Json)>,
}

/// An agent's reasoning that can be read.
#[derive(Clone, Debug, PartialEq)]
pub struct ReasoningMessage {
    /// What every message has.
    pub header: LettaHeader,
    /// Whether a reasoning model produced it, or it was asked for by prompting.
    pub source: ReasoningSource,
    /// The reasoning.
    pub reasoning: Arc<str>,
    /// The model's signature of it, exactly as issued.
    pub signature: Option<Opaque>,
}

words! {
    /// Why reasoning is hidden.
    HiddenState {
        /// The provider sealed it.
        Redacted = "redacted",
        /// The provider did not give it.
        Omitted = "omitted",
    }
}

/// An agent's reasoning that cannot be read.
#[derive(Clone, Debug, PartialEq)]
pub struct HiddenReasoningMessage {
    /// What every message has.
    pub header: LettaHeader,
    /// Why it is hidden.
    pub state: HiddenState,
    /// The sealed data, where it is redacted.
    pub hidden_reasoning: Option<Opaque>,
}

/// Reasoning as Letta shows it.
#[derive(Clone, Debug, PartialEq)]
pub enum LettaReasoning {
    /// It can be read, or at least proven.
    Shown(ReasoningMessage),
    /// It cannot be read.
    Hidden(HiddenReasoningMessage),
}

const REASONING: &str = "reasoning_message";
const HIDDEN: &str = "hidden_reasoning_message";
const REASONING_MEMBERS: [&str; 13] = [
    "id",
    "date",
    "name",
    "message_type",
    "otid",
    "sender_id",
    "step_id",
    "is_err",
    "seq_id",
    "run_id",
    "source",
    "reasoning",
    "signature",
];
const HIDDEN_MEMBERS: [&str; 12] = [
    "id",
    "date",
    "name",
    "message_type",
    "otid",
    "sender_id",
    "step_id",
    "is_err",
    "seq_id",
    "run_id",
    "state",
    "hidden_reasoning",
];

impl ReasoningMessage {
    /// Reads the document: `id`, `date` and `reasoning` are required, `message_type` and `source` have defaults.
    pub fn parse(document: &Json) -> Result<Self, InvalidDocument> {
        let tree = document.tree();
        let fields = Fields::of(tree.root(), "ReasoningMessage")?;
        Ok(Self {
            header: LettaHeader::read(&fields, REASONING, &REASONING_MEMBERS)?,
            source: fields.word("source")?.unwrap_or_default(),
            reasoning: fields.required_text("reasoning")?,
            signature: fields.text("signature")?.map(Opaque::from),
        })
    }

    /// The document. What is absent is left out.
    pub fn json(&self) -> Json {
        json::object(|out| {
            self.header.write(out, REASONING);
            out.string("source", self.source.as_str()).string("reasoning", &self.reasoning);
            out.maybe_string("signature", self.signature.as_ref().map(Opaque::reveal_to_tenant));
            write_extras(out, &self.header.extras, &REASONING_MEMBERS);
        })
    }

    /// The Item of the thought. With an `owner` the signature becomes its Seal. Without one, reasoning that came from
    /// a reasoning model keeps the document as payload, tagged [`tag::LETTA_REASONING`], and never becomes text
    /// for another model; reasoning by prompting is a plain thought.
    pub fn item(&self, owner: Option<&Arc<Origin>>) -> Item {
        let is_issued = self.source == ReasoningSource::ReasonerModel || self.signature.is_some();
        let mut thought = thought(&self.header, &self.reasoning, ThoughtKind::Text);
        thought.source = self.source;
        let payload = is_issued.then(|| self.json());
        item(
            &self.header,
            thought,
            owner,
            payload,
            self.signature.as_ref().map(|s| (s, "/signature")),
        )
    }
}

impl HiddenReasoningMessage {
    /// Reads the document: `id`, `date` and `state` are required, `message_type` has a default.
    pub fn parse(document: &Json) -> Result<Self, InvalidDocument> {
        let tree = document.tree();
        let fields = Fields::of(tree.root(), "HiddenReasoningMessage")?;
        let state = fields.word("state")?.ok_or_else(|| {
            fields.error("state", "is missing: it must be one of redacted, omitted")
        })?;
        Ok(Self {
            header: LettaHeader::read(&fields, HIDDEN, &HIDDEN_MEMBERS)?,
            state,
            hidden_reasoning: fields.text("hidden_reasoning")?.map(Opaque::from),
        })
    }

    /// The document. What is absent is left out.
    pub fn json(&self) -> Json {
        json::object(|out| {
            self.header.write(out, HIDDEN);
            out.string("state", self.state.as_str());
            let hidden = self.hidden_reasoning.as_ref().map(Opaque::reveal_to_tenant);
            out.maybe_string("hidden_reasoning", hidden);
            write_extras(out, &self.header.extras, &HIDDEN_MEMBERS);
        })
    }

    /// The Item of the thought. With an `owner` the hidden data becomes its Seal; without one the document is kept as
    /// payload, tagged [`tag::LETTA_REASONING`].
    pub fn item(&self, owner: Option<&Arc<Origin>>) -> Item {
        let thought = thought(&self.header, "", ThoughtKind::Encrypted);
        let sealed = self.hidden_reasoning.as_ref().map(|data| (data, "/hidden_reasoning"));
        item(&self.header, thought, owner, Some(self.json()), sealed)
    }
}

impl LettaReasoning {
    /// The view of a thought: shown with its own signature, or hidden where nothing can be read. Nothing for an
    /// Item that is no Thought or was never recorded (see [`Thought::record_at`]).
    pub fn of(item: &Item) -> Option<Self> {
        let Body::Thought(thought) = &item.body else { return None };
        let record = thought.record.as_deref()?;
        let header = LettaHeader {
            id: item.id.0.clone(),
            date: record.created_at,
            name: record.name.clone(),
            otid: record.otid.clone(),
            sender_id: record.sender_id.clone(),
            step_id: record.step_id.clone(),
            is_err: record.is_err,
            seq_id: record.seq_id,
            run_id: record.run_id.clone(),
            extras: record.extras.clone(),
        };
        if let Some(kept) = Self::kept(thought) {
            return Some(kept.with(header));
        }
        let seal = item.seals.iter().find_map(Opaque::of);
        let has_text = !thought.content.is_empty();
        let is_shown = has_text || (thought.kind != ThoughtKind::Encrypted && seal.is_some());
        Some(if is_shown {
            let (source, reasoning) = (thought.source, thought.content.clone());
            Self::Shown(ReasoningMessage { header, source, reasoning, signature: seal })
        } else {
            let state = if seal.is_some() { HiddenState::Redacted } else { HiddenState::Omitted };
            Self::Hidden(HiddenReasoningMessage { header, state, hidden_reasoning: seal })
        })
    }

    /// The document.
    pub fn json(&self) -> Json {
        match self {
            Self::Shown(message) => message.json(),
            Self::Hidden(message) => message.json(),
        }
    }

    /// The document that a thought without an owner kept as payload.
    fn kept(thought: &Thought) -> Option<Self> {
        let payload = thought.payload.as_ref()?;
        if thought.replay_compatibility.as_deref() != Some(tag::LETTA_REASONING) {
            return None;
        }
        let shown = ReasoningMessage::parse(payload).map(Self::Shown);
        shown.or_else(|_| HiddenReasoningMessage::parse(payload).map(Self::Hidden)).ok()
    }

    fn with(mut self, header: LettaHeader) -> Self {
        match &mut self {
            Self::Shown(message) => message.header = header,
            Self::Hidden(message) => message.header = header,
        }
        self
    }
}

impl LettaHeader {
    /// A message of that id and date, of which nothing else is known.
    pub fn new(id: impl Into<Name>, date: Timestamp) -> Self {
        Self {
            id: id.into(),
            date,
            name: None,
            otid: None,
            sender_id: None,
            step_id: None,
            is_err: None,
            seq_id: None,
            run_id: None,
            extras: Vec::new(),
        }
    }

    fn read(
        fields: &Fields<'_>,
        message_type: &str,
        known: &[&str],
    ) -> Result<Self, InvalidDocument> {
        if fields.present("message_type").is_some_and(|node| !node.is(message_type)) {
            return Err(fields.error("message_type", format!("must be {message_type}")));
        }
        let id = fields.required_text("id")?;
        let date = fields
            .text("date")?
            .ok_or_else(|| fields.error("date", "is missing: it must be an ISO 8601 date-time"))?;
        let date = RawInstant::Text(date).timestamp();
        Ok(Self {
            id,
            date: date.map_err(|error| fields.error("date", format!("is wrong: {error}")))?,
            name: fields.text("name")?,
            otid: fields.text("otid")?,
            sender_id: fields.text("sender_id")?,
            step_id: fields.text("step_id")?,
            is_err: fields.bool("is_err")?,
            seq_id: fields.integer("seq_id")?,
            run_id: fields.text("run_id")?,
            extras: fields.extras(known),
        })
    }

    fn write(&self, out: &mut Object<'_>, message_type: &str) {
        out.string("id", &self.id).string("date", &self.date.to_string());
        out.maybe_string("name", self.name.as_deref()).string("message_type", message_type);
        out.maybe_string("otid", self.otid.as_deref());
        out.maybe_string("sender_id", self.sender_id.as_deref());
        out.maybe_string("step_id", self.step_id.as_deref());
        if let Some(is_err) = self.is_err {
            out.bool("is_err", is_err);
        }
        if let Some(seq_id) = self.seq_id {
            out.raw("seq_id", &Json::trusted(seq_id.to_string().into()));
        }
        out.maybe_string("run_id", self.run_id.as_deref());
    }

    fn record(&self) -> ThoughtRecord {
        ThoughtRecord {
            created_at: self.date,
            updated_at: self.date,
            name: self.name.clone(),
            sender_id: self.sender_id.clone(),
            otid: self.otid.clone(),
            run_id: self.run_id.clone(),
            step_id: self.step_id.clone(),
            seq_id: self.seq_id,
            is_err: self.is_err,
            extras: self.extras.clone(),
        }
    }
}

impl Word for ReasoningSource {
    const ALL: &'static [Self] = &[Self::ReasonerModel, Self::NonReasonerModel];

    fn as_str(self) -> &'static str {
        self.as_str()
    }
}

fn thought(header: &LettaHeader, content: &str, kind: ThoughtKind) -> Thought {
    let mut thought = Thought::issued(content, kind, ReasoningFormat::unknown());
    thought.record = Some(Box::new(header.record()));
    thought
}

fn item(
    header: &LettaHeader,
    mut thought: Thought,
    owner: Option<&Arc<Origin>>,
    payload: Option<Json>,
    sealed: Option<(&Opaque, &'static str)>,
) -> Item {
    if let (None, Some(payload)) = (owner, payload) {
        thought.payload = Some(payload);
        thought.replay_compatibility = Some(Name::from(tag::LETTA_REASONING));
    }
    let body = Body::Thought(thought);
    let mut item = Item::new(ItemId(header.id.clone()), Place::default(), Role::Assistant, body);
    item.origin = owner.cloned();
    if let (Some(owner), Some((opaque, at))) = (owner, sealed.filter(|(o, _)| !o.is_empty())) {
        item.seals.push(Seal::new(opaque.bytes(), "letta.signature", Arc::clone(owner), at));
    }
    item
}
