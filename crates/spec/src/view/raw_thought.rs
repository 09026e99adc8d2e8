//! `RawThought`: the JSON object from which a caller creates a Thought, with camelCase member
//! names.
//!
//! The view omits data that only the Item contains: kind, source, format, index, the Seals and
//! their owners, and the sender's names. Unknown members are kept and written again.

use std::sync::Arc;

use jiff::Timestamp;
use throughline_core::{
    Body, Identity, Item, ItemId, ItemPosition, RawIdentity, ReasoningFormat, ReasoningSource,
    Role, Thought, ThoughtKind, ThoughtRecord, tag,
};
use throughline_json::{
    self as json, Fields, InvalidDocument, Json, Label, Name, Node, write_extras,
};

use crate::instant::RawInstant;

const KNOWN: [&str; 7] =
    ["id", "content", "identity", "payload", "replayCompatibility", "createdAt", "updatedAt"];

/// A Thought as supplied by a caller, before validation. JSON `null` always means absent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RawThought {
    /// A stable, unique id. Required and non-empty.
    pub id: Option<Name>,
    /// The readable content. May be absent or empty only if there is a payload.
    pub content: Option<Arc<str>>,
    /// The agent that produced the Thought; the default is `assistant`.
    pub identity: Option<RawIdentity>,
    /// Provider-specific JSON, verbatim. Requires `replay_compatibility`.
    pub payload: Option<Json>,
    /// The wire format into which the Thought can be replayed. Non-empty.
    pub replay_compatibility: Option<Name>,
    /// When the Thought was recorded. Required.
    pub created_at: Option<RawInstant>,
    /// When the Thought last changed. Required.
    pub updated_at: Option<RawInstant>,
    /// Members that the document does not define, verbatim.
    pub extras: Vec<(Name, Json)>,
}

impl RawThought {
    /// Creates a Thought with `content`, recorded and last changed at `at`.
    pub fn new(
        id: impl Into<Name>,
        content: impl Into<Arc<str>>,
        at: impl Into<RawInstant>,
    ) -> Self {
        let at = at.into();
        let (created_at, updated_at) = (Some(at.clone()), Some(at));
        let (id, content) = (Some(id.into()), Some(content.into()));
        Self { id, content, created_at, updated_at, ..Self::default() }
    }

    /// Sets the agent that produced the Thought, which is otherwise `assistant`.
    #[must_use]
    pub fn with_identity(mut self, identity: impl Into<RawIdentity>) -> Self {
        self.identity = Some(identity.into());
        self
    }

    /// Parses and validates a document, and converts it to an Item.
    pub fn parse(document: &Json) -> Result<Item, InvalidThought> {
        Self::read(document)?.into_item()
    }

    /// Parses a document. Only the types of its members are checked; [`RawThought::into_item`]
    /// checks the values.
    pub fn read(document: &Json) -> Result<Self, InvalidThought> {
        let tree = document.tree();
        let fields = Fields::from_node(tree.root(), "")
            .map_err(|_| InvalidThought::new("thought", "must be an object"))?;
        let instant = |key| {
            let problem = "must be an ISO 8601 string or a Unix timestamp";
            let invalid = || InvalidThought::new(key, problem);
            let node = fields.present(key);
            node.map(|node| RawInstant::from_node(node).ok_or_else(invalid)).transpose()
        };
        let identity = |node: Node<'_>| match node.text() {
            Some(name) => RawIdentity::Named(name.into_owned().into()),
            None => RawIdentity::Raw(node.json()),
        };
        Ok(Self {
            id: fields.text("id")?,
            content: fields.text("content")?,
            identity: fields.present("identity").map(identity),
            payload: fields.present("payload").map(Node::json),
            replay_compatibility: fields.text("replayCompatibility")?,
            created_at: instant("createdAt")?,
            updated_at: instant("updatedAt")?,
            extras: fields.extras(&KNOWN),
        })
    }

    /// Validates the Thought and converts it to an Item.
    pub fn into_item(self) -> Result<Item, InvalidThought> {
        let id = self.id.ok_or_else(|| missing("id", "set it to a stable, unique string"))?;
        if id.is_empty() {
            return Err(InvalidThought::new("id", "must not be empty"));
        }
        let payload = self.payload.filter(|payload| *payload != Json::null());
        let tag = self.replay_compatibility;
        if tag.as_ref().is_some_and(|tag| tag.is_empty()) {
            return Err(InvalidThought::new("replayCompatibility", "must not be empty"));
        }
        if payload.is_some() && tag.is_none() {
            let advice = "a payload requires the tag of its wire format";
            return Err(missing("replayCompatibility", advice));
        }
        let content = self.content.unwrap_or_default();
        if content.is_empty() && payload.is_none() {
            let problem = "is missing or empty; only a Thought with a payload may omit it";
            return Err(InvalidThought::new("content", problem));
        }
        let mut extras = self.extras;
        let identity = identity(self.identity, &mut extras)?;
        let record = ThoughtRecord {
            created_at: instant("createdAt", self.created_at)?,
            updated_at: instant("updatedAt", self.updated_at)?,
            extras,
            ..ThoughtRecord::default()
        };
        let thought = Thought {
            kind: if content.is_empty() { ThoughtKind::Encrypted } else { ThoughtKind::Text },
            content,
            whole: true,
            format: format_of(tag.as_deref()),
            index: None,
            source: match payload {
                Some(_) => ReasoningSource::ReasonerModel,
                None => ReasoningSource::NonReasonerModel,
            },
            identity,
            payload,
            replay_compatibility: tag,
            record: Some(Box::new(record)),
        };
        Ok(Item::new(ItemId(id), ItemPosition::default(), Role::Assistant, Body::Thought(thought)))
    }

    /// Converts an Item back to a `RawThought`; see [`raw_thought_json`].
    pub fn from_item(item: &Item) -> Option<Self> {
        let Body::Thought(thought) = &item.body else { return None };
        let record = thought.record.as_deref()?;
        let (payload, tag) = replay(item, thought);
        if thought.content.is_empty() && payload.is_none() {
            return None;
        }
        let identity_member = record.extras.iter().find(|(key, _)| **key == *"identity");
        let identity_member = identity_member.filter(|(_, raw)| {
            Identity::read(raw.tree().root(), "identity").as_ref() == Ok(&thought.identity)
        });
        let identity = match identity_member {
            Some((_, raw)) => RawIdentity::Raw(raw.clone()),
            None => RawIdentity::Ready(thought.identity.clone()),
        };
        Some(Self {
            id: Some(item.id.0.clone()),
            content: Some(thought.content.clone()),
            identity: Some(identity),
            payload,
            replay_compatibility: tag,
            created_at: Some(record.created_at.into()),
            updated_at: Some(record.updated_at.into()),
            extras: record.extras.clone(),
        })
    }

    /// Returns the Thought as JSON, without absent members.
    pub fn json(&self) -> Json {
        let instant = |value: &RawInstant| match value {
            RawInstant::Ready(ready) => json::string(&ready.to_string()),
            RawInstant::Text(text) => json::string(text),
            RawInstant::Number(number) => {
                Json::parse(number.to_string()).unwrap_or_else(|_| json::string(number))
            }
        };
        let identity = self.identity.as_ref().map(|identity| match identity {
            RawIdentity::Named(name) => json::string(name),
            RawIdentity::Raw(raw) => raw.clone(),
            RawIdentity::Ready(ready) => ready.json(),
        });
        json::object(|out| {
            out.maybe("id", self.id.as_ref()).maybe("content", self.content.as_ref());
            out.maybe("identity", identity.as_ref()).maybe("payload", self.payload.as_ref());
            out.maybe("replayCompatibility", self.replay_compatibility.as_ref());
            out.maybe("createdAt", self.created_at.as_ref().map(instant).as_ref());
            out.maybe("updatedAt", self.updated_at.as_ref().map(instant).as_ref());
            write_extras(out, &self.extras, &KNOWN);
        })
    }
}

/// Converts a Thought to the JSON of a `RawThought`.
///
/// For a Thought that a provider issued, the payload is the native JSON, tagged with its wire
/// format. If the Thought cannot be replayed, only its text is written, tagged
/// [`tag::NOT_REPLAYABLE`]. A Thought from a provider never becomes a plain Thought.
///
/// Returns `None` for an Item that is not a Thought, was never recorded (see
/// [`Thought::set_recorded_at`]), or has neither text nor payload.
pub fn raw_thought_json(item: &Item) -> Option<Json> {
    RawThought::from_item(item).map(|raw| raw.json())
}

/// The error for an invalid Thought.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {field} {problem}", Self::CODE)]
pub struct InvalidThought {
    /// The name of the invalid member, such as `createdAt` or `identity.identifier`.
    pub field: Name,
    /// The problem and how to fix it, phrased as the predicate of a sentence whose subject is
    /// `field`.
    pub problem: Label,
}

impl InvalidThought {
    /// The error code for all invalid Thoughts.
    pub const CODE: &str = "E_INVALID_INITIAL_THOUGHT_VALUE";

    fn new(field: &str, problem: impl Into<Label>) -> Self {
        Self { field: Name::from(field), problem: problem.into() }
    }

    /// Returns [`InvalidThought::CODE`].
    pub fn code(&self) -> &'static str {
        Self::CODE
    }
}

impl From<InvalidDocument> for InvalidThought {
    fn from(InvalidDocument { field, problem }: InvalidDocument) -> Self {
        Self { field, problem }
    }
}

fn missing(field: &str, advice: &str) -> InvalidThought {
    InvalidThought::new(field, format!("is missing; {advice}"))
}

fn instant(field: &str, raw: Option<RawInstant>) -> Result<Timestamp, InvalidThought> {
    let advice = "use an ISO 8601 string, Unix seconds or Unix milliseconds";
    let raw = raw.ok_or_else(|| missing(field, advice))?;
    raw.timestamp().map_err(|error| InvalidThought::new(field, format!("is invalid: {error}")))
}

/// Validates the agent's identity. If the object has unknown members, the whole object is also kept
/// in the extras.
fn identity(
    given: Option<RawIdentity>,
    extras: &mut Vec<(Name, Json)>,
) -> Result<Identity, InvalidThought> {
    let raw = match given {
        None => return Ok(Identity::default()),
        Some(RawIdentity::Ready(ready)) => return Ok(ready),
        Some(RawIdentity::Named(name)) => json::string(&name),
        Some(RawIdentity::Raw(raw)) if raw == Json::null() => return Ok(Identity::default()),
        Some(RawIdentity::Raw(raw)) => raw,
    };
    let tree = raw.tree();
    let identity = Identity::read(tree.root(), "identity")?;
    if tree.root().members().any(|(key, _)| !key.is("identifier") && !key.is("representation")) {
        extras.push((Name::from("identity"), raw));
    }
    Ok(identity)
}

/// Returns the payload from which a Thought can be replayed, and the payload's tag.
fn replay(item: &Item, thought: &Thought) -> (Option<Json>, Option<Name>) {
    let own = || (thought.payload.clone(), thought.replay_compatibility.clone());
    if item.origin.is_none() || thought.payload.is_some() {
        return own();
    }
    match &item.native {
        Some(native) if thought.whole => {
            let tag = thought.replay_compatibility.as_deref().or(tag::tag_of(&native.wire));
            (Some(native.json.clone()), Some(Name::from(tag.unwrap_or(native.wire.as_str()))))
        }
        Some(_) | None => (None, Some(Name::from(tag::NOT_REPLAYABLE))),
    }
}

fn format_of(tag: Option<&str>) -> ReasoningFormat {
    match tag {
        Some(tag::ANTHROPIC_MESSAGES_THINKING) => ReasoningFormat::AnthropicClaudeV1,
        Some(tag::OPENAI_RESPONSES_REASONING_ITEM) => ReasoningFormat::OpenAiResponsesV1,
        Some(tag::GEMINI_THOUGHT_PART) => ReasoningFormat::GoogleGeminiV1,
        Some(_) | None => ReasoningFormat::unknown(),
    }
}
