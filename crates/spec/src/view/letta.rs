//! Letta's `ReasoningMessage` and `HiddenReasoningMessage`.
//!
//! Each Thought becomes one message with its own signature. Thoughts are never merged, because a
//! signature is valid only for its own Thought. The view omits the agent's identity, the format,
//! and the signature's owner.

use std::sync::Arc;

use jiff::Timestamp;
use throughline_core::{
    Body, Item, ItemId, ItemPosition, Origin, ReasoningFormat, ReasoningSource, Role, Seal,
    Thought, ThoughtKind, ThoughtRecord, tag,
};
use throughline_json::{
    self as json, Fields, InvalidDocument, Json, Name, Object, Opaque, RecordMember, words,
    write_extras,
};

use crate::instant::RawInstant;

/// The members that all Letta messages have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LettaHeader {
    /// The message's id, which is also the Item's id.
    pub id: Name,
    /// When the message was created.
    pub date: Timestamp,
    /// The sender's name, if it was specified.
    pub name: Option<Name>,
    /// The client's id for the message, used to recognize retries.
    pub otid: Option<Name>,
    /// The sender's id, if it was specified.
    pub sender_id: Option<Name>,
    /// The id of the step within the run.
    pub step_id: Option<Name>,
    /// Whether the message belongs to a failed step.
    pub is_err: Option<bool>,
    /// The sequence number in the run's event stream.
    pub seq_id: Option<i64>,
    /// The id of the run.
    pub run_id: Option<Name>,
    /// Members that the document does not define, verbatim.
    pub extras: Vec<(Name, Json)>,
}

/// Letta's message for readable reasoning.
#[derive(Clone, Debug, PartialEq)]
pub struct ReasoningMessage {
    /// The members that all Letta messages have.
    pub header: LettaHeader,
    /// Whether the reasoning came from a reasoning model or from prompting.
    pub source: ReasoningSource,
    /// The text of the reasoning.
    pub reasoning: Arc<str>,
    /// The model's signature, exactly as issued.
    pub signature: Option<Opaque>,
}

words! {
    /// Why reasoning is hidden.
    HiddenState {
        /// The provider sealed the reasoning.
        Redacted = "redacted",
        /// The provider did not return the reasoning in any form.
        Omitted = "omitted",
    }
}

/// Letta's message for reasoning without readable text.
#[derive(Clone, Debug, PartialEq)]
pub struct HiddenReasoningMessage {
    /// The members that all Letta messages have.
    pub header: LettaHeader,
    /// Why the reasoning is hidden.
    pub state: HiddenState,
    /// The sealed data, if the provider sealed the reasoning.
    pub hidden_reasoning: Option<Opaque>,
}

/// A Thought as one of Letta's two types of reasoning messages.
#[derive(Clone, Debug, PartialEq)]
pub enum LettaReasoning {
    /// Readable reasoning, or an empty text with a signature.
    Shown(ReasoningMessage),
    /// Reasoning without readable text.
    Hidden(HiddenReasoningMessage),
}

const REASONING: &str = "reasoning_message";
const HIDDEN: &str = "hidden_reasoning_message";
const HEADER_MEMBERS: [&str; 9] =
    ["id", "date", "name", "otid", "sender_id", "step_id", "is_err", "seq_id", "run_id"];
const REASONING_MEMBERS: [&str; 4] = ["message_type", "source", "reasoning", "signature"];
const HIDDEN_MEMBERS: [&str; 3] = ["message_type", "state", "hidden_reasoning"];

impl ReasoningMessage {
    /// Parses the message. `id`, `date` and `reasoning` are required; `message_type` and `source`
    /// have defaults.
    pub fn parse(document: &Json) -> Result<Self, InvalidDocument> {
        let tree = document.tree();
        let fields = Fields::from_node(tree.root(), "ReasoningMessage")?;
        Ok(Self {
            header: LettaHeader::read(&fields, REASONING, &REASONING_MEMBERS)?,
            source: fields.string_enum("source")?.unwrap_or_default(),
            reasoning: fields.required_text("reasoning")?,
            signature: fields.text("signature")?.map(Opaque::from),
        })
    }

    /// Returns the message as JSON, without absent members.
    pub fn json(&self) -> Json {
        json::object(|out| {
            self.header.write(out, REASONING);
            out.string("source", self.source.as_str()).string("reasoning", &self.reasoning);
            out.maybe("signature", self.signature.as_ref().map(Opaque::reveal_to_tenant));
            self.header.write_extras(out, &REASONING_MEMBERS);
        })
    }

    /// Converts the message to an Item. With an `owner`, the signature becomes a Seal issued by
    /// that owner. Without an `owner`, reasoning from a reasoning model keeps the document as its
    /// payload, tagged [`tag::LETTA_REASONING`]. This reasoning never becomes text for another
    /// model. Prompted reasoning becomes a plain Thought.
    pub fn item(&self, owner: Option<&Arc<Origin>>) -> Item {
        let is_issued = self.source == ReasoningSource::ReasonerModel || self.signature.is_some();
        let mut thought = thought(&self.header, &self.reasoning, ThoughtKind::Text);
        thought.source = self.source;
        let payload = is_issued.then(|| self.json());
        let sealed = self.signature.as_ref().map(|signature| (signature, "/signature"));
        item(&self.header, thought, owner, payload, sealed)
    }
}

impl HiddenReasoningMessage {
    /// Parses the message. `id`, `date` and `state` are required; `message_type` has a default.
    pub fn parse(document: &Json) -> Result<Self, InvalidDocument> {
        let tree = document.tree();
        let fields = Fields::from_node(tree.root(), "HiddenReasoningMessage")?;
        let state = RecordMember::required(&fields, "state")?;
        Ok(Self {
            header: LettaHeader::read(&fields, HIDDEN, &HIDDEN_MEMBERS)?,
            state,
            hidden_reasoning: fields.text("hidden_reasoning")?.map(Opaque::from),
        })
    }

    /// Returns the message as JSON, without absent members.
    pub fn json(&self) -> Json {
        json::object(|out| {
            self.header.write(out, HIDDEN);
            out.string("state", self.state.as_str());
            let hidden = self.hidden_reasoning.as_ref().map(Opaque::reveal_to_tenant);
            out.maybe("hidden_reasoning", hidden);
            self.header.write_extras(out, &HIDDEN_MEMBERS);
        })
    }

    /// Converts the message to an Item. With an `owner`, the hidden data becomes a Seal issued by
    /// that owner. Without an `owner`, the Item keeps the document as its payload, tagged
    /// [`tag::LETTA_REASONING`].
    pub fn item(&self, owner: Option<&Arc<Origin>>) -> Item {
        let thought = thought(&self.header, "", ThoughtKind::Encrypted);
        let sealed = self.hidden_reasoning.as_ref().map(|data| (data, "/hidden_reasoning"));
        item(&self.header, thought, owner, Some(self.json()), sealed)
    }
}

impl LettaReasoning {
    /// Converts a Thought to a readable message with its signature. A Thought without readable text
    /// becomes a hidden message. Returns `None` for Items that are not Thoughts, and for Thoughts
    /// without a record (see [`Thought::set_recorded_at`]).
    pub fn from_item(item: &Item) -> Option<Self> {
        let Body::Thought(thought) = &item.body else { return None };
        let record = thought.record.as_deref()?;
        let header = LettaHeader::from_record(item.id.0.clone(), record);
        if let Some(original) = Self::from_payload(thought) {
            return Some(original.with_header(header));
        }
        let seal = item.seals.iter().find_map(Seal::to_opaque);
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

    /// Returns the message as JSON, without absent members.
    pub fn json(&self) -> Json {
        match self {
            Self::Shown(message) => message.json(),
            Self::Hidden(message) => message.json(),
        }
    }

    /// Returns the message in a Thought's payload; `None` unless the payload is tagged
    /// [`tag::LETTA_REASONING`].
    fn from_payload(thought: &Thought) -> Option<Self> {
        let payload = thought.payload.as_ref()?;
        if thought.replay_compatibility.as_deref() != Some(tag::LETTA_REASONING) {
            return None;
        }
        let reasoning = ReasoningMessage::parse(payload).map(Self::Shown);
        reasoning.or_else(|_| HiddenReasoningMessage::parse(payload).map(Self::Hidden)).ok()
    }

    fn with_header(mut self, header: LettaHeader) -> Self {
        match &mut self {
            Self::Shown(message) => message.header = header,
            Self::Hidden(message) => message.header = header,
        }
        self
    }
}

impl LettaHeader {
    /// Creates a header with only an id and a date.
    pub fn new(id: impl Into<Name>, date: Timestamp) -> Self {
        Self { id: id.into(), date, ..Self::default() }
    }

    fn from_record(id: Name, record: &ThoughtRecord) -> Self {
        let ThoughtRecord { created_at: date, seq_id, is_err, .. } = *record;
        let ThoughtRecord { name, sender_id, otid, run_id, step_id, extras, .. } = record.clone();
        Self { id, date, name, otid, sender_id, step_id, is_err, seq_id, run_id, extras }
    }

    fn record(&self) -> ThoughtRecord {
        let Self { id: _, date, name, otid, sender_id, step_id, is_err, seq_id, run_id, extras } =
            self.clone();
        let dated =
            ThoughtRecord { created_at: date, updated_at: date, ..ThoughtRecord::default() };
        ThoughtRecord { name, sender_id, otid, run_id, step_id, seq_id, is_err, extras, ..dated }
    }

    fn read(
        fields: &Fields<'_>,
        message_type: &str,
        own: &[&str],
    ) -> Result<Self, InvalidDocument> {
        if fields.present("message_type").is_some_and(|node| !node.is(message_type)) {
            return Err(fields.error("message_type", format!("must be {message_type}")));
        }
        let id = fields.required_text("id")?;
        let missing = || fields.error("date", "is missing; expected an ISO 8601 date-time");
        let date = RawInstant::Text(fields.text("date")?.ok_or_else(missing)?).timestamp();
        let mut extras = fields.extras(&HEADER_MEMBERS);
        extras.retain(|(key, _)| !own.contains(&&**key));
        Ok(Self {
            id,
            date: date.map_err(|error| fields.error("date", format!("is invalid: {error}")))?,
            name: fields.text("name")?,
            otid: fields.text("otid")?,
            sender_id: fields.text("sender_id")?,
            step_id: fields.text("step_id")?,
            is_err: fields.bool("is_err")?,
            seq_id: fields.integer("seq_id")?,
            run_id: fields.text("run_id")?,
            extras,
        })
    }

    fn write(&self, out: &mut Object<'_>, message_type: &str) {
        out.string("id", &self.id).string("date", &self.date.to_string());
        out.maybe("name", self.name.as_ref()).string("message_type", message_type);
        out.maybe("otid", self.otid.as_ref()).maybe("sender_id", self.sender_id.as_ref());
        out.maybe("step_id", self.step_id.as_ref()).maybe("is_err", self.is_err);
        out.maybe("seq_id", self.seq_id).maybe("run_id", self.run_id.as_ref());
    }

    fn write_extras(&self, out: &mut Object<'_>, own: &[&str]) {
        write_extras(out, &self.extras, &[&HEADER_MEMBERS[..], own].concat());
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
    let mut item =
        Item::new(ItemId(header.id.clone()), ItemPosition::default(), Role::Assistant, body);
    item.origin = owner.cloned();
    if let (Some(owner), Some((opaque, at))) = (owner, sealed.filter(|(o, _)| !o.is_empty())) {
        item.seals.push(Seal::new(opaque.bytes(), "letta.signature", Arc::clone(owner), at));
    }
    item
}
