//! Reads the stored text of an Item.

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use throughline_json::{Fields, InvalidDocument, Json, Label, Name, Node};

use crate::format::ReasoningFormat;
use crate::identity::{Identifier, Identity};
use crate::item::{
    Body, Direction, HostedStep, Item, ItemPosition, Media, NativePart, Outcome, Part, ToolCall,
    ToolResult,
};
use crate::item_json::VERSION;
use crate::item_json::back_refs::ReferenceResolver;
use crate::name::{CallId, Digest, ItemId, Wire, unhex};
use crate::origin::Origin;
use crate::seal::{Seal, SealBinding};
use crate::thought::{ReasoningSource, Thought, ThoughtKind, ThoughtRecord};

type ItemResult<T> = Result<T, InvalidDocument>;

/// Reads Items in sequence. Consecutive Items with an equal origin or author share one allocation.
#[derive(Default)]
pub(super) struct StoredItemReader {
    last: Option<Arc<Origin>>,
    last_author: Option<Arc<Identity>>,
}

impl StoredItemReader {
    pub(super) fn item(&mut self, fields: &Fields<'_>) -> ItemResult<Item> {
        match fields.count("v")? {
            Some(VERSION) => {}
            Some(other) => {
                let problem = format!("is {other}, but only version {VERSION} is supported");
                return Err(fields.error("v", problem));
            }
            None => return Err(fields.error("v", "is missing; set it to the format version")),
        }
        let [message, part] = numbers(fields, "at")?;
        let narrow = |number| u32::try_from(number).map_err(|_| fields.error("at", "is too large"));
        let place = ItemPosition { message: narrow(message)?, part: narrow(part)? };
        let mut native = native(fields)?;
        let wire = native.as_ref().map(|native| native.wire.clone());
        let origin = fields.present("origin");
        let origin = origin.map(|node| self.origin(fields, "origin", node, wire.as_ref()));
        let origin = origin.transpose()?;
        let source = ReferenceResolver::new(native.as_ref().and_then(|_| fields.get("json")));
        let mut context =
            ReadContext { source, origin: origin.as_ref(), wire: wire.as_ref(), reader: self };
        let body = context.body(fields)?;
        let seals = fields.list("seals")?;
        let seals = seals.iter().map(|seal| context.seal(seal)).collect::<ItemResult<_>>()?;
        if let Some(native) = &mut native {
            native.id = context.maybe_text(fields, "native_id")?;
        }
        let id = fields.text("id")?.map_or_else(|| ItemId::from_position("", place), ItemId);
        let role = required(fields, "role", fields.string_enum("role")?)?;
        let ephemeral = fields.bool("ephemeral")?.unwrap_or(false);
        let author = identity(fields, "author")?;
        let author = author.map(|author| share_with_last(&mut self.last_author, author));
        Ok(Item { id, place, role, body, seals, native, origin, author, ephemeral })
    }

    fn origin(
        &mut self,
        fields: &Fields<'_>,
        key: &str,
        node: Node<'_>,
        native: Option<&Wire>,
    ) -> ItemResult<Arc<Origin>> {
        let mut names = node.elements();
        let invalid = || fields.error(key, "must be a list of names");
        let mut next = || match names.next().filter(|name| !name.is_null()) {
            Some(name) => name.name().map(Some).ok_or_else(invalid),
            None => Ok(None),
        };
        let missing =
            || fields.error(key, "must list the provider, endpoint, account, model and family");
        let mut demand = || next()?.ok_or_else(missing);
        let (provider, endpoint, account) = (demand()?, demand()?, demand()?);
        let (asked, family) = (demand()?, demand()?);
        let answered = next()?.unwrap_or_else(|| Name::clone(&asked));
        let wire = next()?.map(|wire| Wire::new(wire.to_string())).or_else(|| native.cloned());
        let wire = wire.ok_or_else(|| {
            fields.error(key, "contains no wire, and the Item has no native part")
        })?;
        let routed = next()?;
        let origin = Origin { provider, endpoint, account, wire, asked, answered, family, routed };
        Ok(share_with_last(&mut self.last, origin))
    }
}

/// Returns the last value if it equals `value`, so that consecutive equal values share memory.
fn share_with_last<T: PartialEq>(last: &mut Option<Arc<T>>, value: T) -> Arc<T> {
    match last.as_ref().filter(|last| ***last == value) {
        Some(last) => Arc::clone(last),
        None => Arc::clone(last.insert(Arc::new(value))),
    }
}

/// The context for reading the members of a stored text: its native JSON, origin and wire.
struct ReadContext<'c, 't> {
    source: ReferenceResolver<'t>,
    origin: Option<&'c Arc<Origin>>,
    wire: Option<&'c Wire>,
    reader: &'c mut StoredItemReader,
}

impl<'t> ReadContext<'_, 't> {
    fn maybe_text(&self, fields: &Fields<'t>, key: &str) -> ItemResult<Option<Name>> {
        let Some(node) = fields.present(key) else { return Ok(None) };
        self.source.text(node).map(Some).map_err(|problem| fields.error(key, problem))
    }

    fn text(&self, fields: &Fields<'t>, key: &str) -> ItemResult<Name> {
        required(fields, key, self.maybe_text(fields, key)?)
    }

    fn bytes(&self, fields: &Fields<'t>, key: &str, node: Node<'t>) -> ItemResult<Bytes> {
        self.source.bytes(node).map_err(|problem| fields.error(key, problem))
    }

    fn value(&self, fields: &Fields<'t>, key: &str, node: Node<'t>) -> ItemResult<Json> {
        self.source.value(node).map_err(|problem| fields.error(key, problem))
    }

    fn maybe_value(&self, fields: &Fields<'t>, key: &str) -> ItemResult<Option<Json>> {
        fields.present(key).map(|node| self.value(fields, key, node)).transpose()
    }

    fn required_value(&self, fields: &Fields<'t>, key: &str) -> ItemResult<Json> {
        required(fields, key, self.maybe_value(fields, key)?)
    }

    fn body(&mut self, fields: &Fields<'t>) -> ItemResult<Body> {
        const BODIES: &str =
            "text, media, thought, call, result, hosted, compaction, summary, unknown";
        let mut found = BODIES.split(", ").filter(|key| fields.present(key).is_some());
        let (Some(key), None) = (found.next(), found.next()) else {
            let problem = format!("must be the Item's only body, and one of {BODIES}");
            return Err(fields.error("body", problem));
        };
        let inner = || required(fields, key, fields.object(key)?);
        Ok(match key {
            "text" => Body::Text(self.text(fields, key)?),
            "media" => Body::Media(self.media(&inner()?)?),
            "thought" => Body::Thought(self.thought(&inner()?)?),
            "call" => Body::Call(self.call(&inner()?)?),
            "result" => Body::Result(self.result(&inner()?)?),
            "hosted" => Body::Hosted(self.hosted(&inner()?)?),
            "summary" => {
                let inner = inner()?;
                let [start, end] = numbers(&inner, "covers")?;
                Body::Summary { text: self.text(&inner, "text")?, covers: start..end }
            }
            "compaction" => Body::Compaction,
            _ => Body::Unknown,
        })
    }

    fn thought(&self, fields: &Fields<'t>) -> ItemResult<Thought> {
        let format = match fields.text("other_format")? {
            Some(name) => ReasoningFormat::Other(name),
            None => ReasoningFormat::new(&fields.required_text("format")?),
        };
        let record = fields.object("record")?.map(|record| self.record(&record).map(Box::new));
        Ok(Thought {
            content: self.text(fields, "text")?,
            kind: fields.string_enum("kind")?.unwrap_or(ThoughtKind::Text),
            whole: fields.bool("whole")?.unwrap_or(true),
            format,
            index: fields.count("index")?,
            source: fields.string_enum("source")?.unwrap_or(ReasoningSource::ReasonerModel),
            identity: identity(fields, "identity")?.unwrap_or_default(),
            payload: self.maybe_value(fields, "payload")?,
            replay_compatibility: self.maybe_text(fields, "replay")?,
            record: record.transpose()?,
        })
    }

    fn record(&self, fields: &Fields<'t>) -> ItemResult<ThoughtRecord> {
        let instant = |key: &str| -> ItemResult<Option<Timestamp>> {
            let invalid = |_| fields.error(key, "must be a timestamp");
            fields.text(key)?.map(|text| text.parse().map_err(invalid)).transpose()
        };
        let created_at = required(fields, "created_at", instant("created_at")?)?;
        let mut extras = Vec::new();
        for pair in fields.present("extras").into_iter().flat_map(Node::elements) {
            let mut pair = pair.elements();
            let (key, value) = (pair.next().and_then(Node::name), pair.next());
            let Some((key, value)) = key.zip(value) else {
                return Err(fields.error("extras", "must be a list of [name, value] pairs"));
            };
            extras.push((key, self.value(fields, "extras", value)?));
        }
        Ok(ThoughtRecord {
            created_at,
            updated_at: instant("updated_at")?.unwrap_or(created_at),
            name: self.maybe_text(fields, "name")?,
            sender_id: self.maybe_text(fields, "sender_id")?,
            otid: self.maybe_text(fields, "otid")?,
            run_id: self.maybe_text(fields, "run_id")?,
            step_id: self.maybe_text(fields, "step_id")?,
            seq_id: fields.integer("seq_id")?,
            is_err: fields.bool("is_err")?,
            extras,
        })
    }

    fn call(&self, fields: &Fields<'t>) -> ItemResult<ToolCall> {
        let wire_id = self.maybe_text(fields, "wire_id")?;
        let id = self.maybe_text(fields, "id")?.or_else(|| wire_id.clone());
        Ok(ToolCall {
            id: CallId(required(fields, "id", id)?),
            wire_id,
            name: self.text(fields, "name")?,
            args: self.required_value(fields, "args")?,
            custom: fields.bool("custom")?.unwrap_or(false),
        })
    }

    fn result(&mut self, fields: &Fields<'t>) -> ItemResult<ToolResult> {
        let wire_id = self.maybe_text(fields, "wire_id")?;
        let call = self.maybe_text(fields, "call")?.or_else(|| wire_id.clone());
        let parts = fields.list("parts")?;
        Ok(ToolResult {
            call: CallId(required(fields, "call", call)?),
            wire_id,
            name: self.maybe_text(fields, "name")?,
            outcome: fields.string_enum("outcome")?.unwrap_or(Outcome::Ok),
            parts: parts.iter().map(|part| self.part(part)).collect::<ItemResult<_>>()?,
        })
    }

    fn part(&mut self, fields: &Fields<'t>) -> ItemResult<Part> {
        if let Some(text) = self.maybe_text(fields, "text")? {
            return Ok(Part::Text(text));
        }
        if let Some(media) = fields.object("media")? {
            return Ok(Part::Media(self.media(&media)?));
        }
        if fields.present("unknown").is_none() {
            return Ok(Part::Value(self.required_value(fields, "value")?));
        }
        let wire = fields.text("wire")?.map(|wire| Wire::new(wire.to_string()));
        let wire = required(fields, "wire", wire.or_else(|| self.wire.cloned()))?;
        Ok(Part::Unknown(wire, self.required_value(fields, "unknown")?))
    }

    fn hosted(&self, fields: &Fields<'t>) -> ItemResult<HostedStep> {
        Ok(HostedStep {
            name: self.text(fields, "name")?,
            pairs: self.maybe_text(fields, "pairs")?,
            is_result: fields.bool("is_result")?.unwrap_or(false),
            visible: self.maybe_text(fields, "visible")?.unwrap_or_default(),
        })
    }

    fn media(&mut self, fields: &Fields<'t>) -> ItemResult<Media> {
        let mime = self.maybe_text(fields, "mime")?;
        if let Some(base64) = fields.present("base64") {
            let mime = required(fields, "mime", mime)?;
            return Ok(Media::Inline { mime, base64: self.bytes(fields, "base64", base64)? });
        }
        let owner = match fields.present("owner") {
            Some(node) if node.bool() == Some(true) => {
                Some(required(fields, "owner", self.origin.cloned())?)
            }
            Some(node) => Some(self.reader.origin(fields, "owner", node, self.wire)?),
            None => None,
        };
        Ok(Media::Remote { mime, uri: self.text(fields, "uri")?, owner })
    }

    fn seal(&mut self, fields: &Fields<'t>) -> ItemResult<Seal> {
        let at = fields.required_text("at")?;
        let bytes = match fields.present("bytes") {
            Some(node) => self.bytes(fields, "bytes", node)?,
            None => self.source.bytes_at(&at).map_err(|problem| fields.error("at", problem))?,
        };
        let owner = match fields.present("owner") {
            Some(node) => self.reader.origin(fields, "owner", node, self.wire)?,
            None => required(fields, "owner", self.origin.cloned())?,
        };
        let digest = |text: Name| {
            let digest = unhex(&text).and_then(|bytes| Digest::try_from(&bytes[..]).ok());
            digest.ok_or_else(|| fields.error("prefix", "must be 64 hexadecimal digits"))
        };
        let bound = SealBinding {
            model: fields.bool("model")?.unwrap_or(false),
            account: fields.bool("account")?.unwrap_or(false),
            prefix: fields.text("prefix")?.map(digest).transpose()?,
        };
        let format = fields.required_text("format")?;
        let mut seal = Seal::new(bytes, format.to_string(), owner, at.to_string()).bound_to(bound);
        seal.attached.leads = fields.text("leads")?.map(ItemId);
        Ok(seal)
    }
}

/// Reads the native part without its id, which may be a reference and is read later.
fn native(fields: &Fields<'_>) -> ItemResult<Option<NativePart>> {
    let (wire, side) = match (fields.text("to")?, fields.text("by")?) {
        (Some(wire), None) => (wire, Direction::Request),
        (None, Some(wire)) => (wire, Direction::Response),
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => return Err(fields.error("to", "must not be combined with `by`")),
    };
    // `null` is a valid native JSON, although a `null` member usually counts as absent.
    let json = required(fields, "json", fields.get("json"))?.json();
    let slot = fields.text("slot")?.map_or(Label::Borrowed(""), |slot| slot.to_string().into());
    let assembled = fields.bool("assembled")?.unwrap_or(false);
    let native = NativePart::new(Wire::new(wire.to_string()), side, json);
    Ok(Some(NativePart { assembled, slot, ..native }))
}

fn identity(fields: &Fields<'_>, key: &str) -> ItemResult<Option<Identity>> {
    let Some(fields) = fields.object(key)? else { return Ok(None) };
    let identifier = match fields.get("number") {
        Some(number) => Identifier::Number(number.json()),
        None => Identifier::Text(fields.required_text("identifier")?.to_string().into()),
    };
    let representation = fields.required_text("representation")?.to_string().into();
    Ok(Some(Identity { identifier, representation }))
}

fn required<T>(fields: &Fields<'_>, key: &str, value: Option<T>) -> ItemResult<T> {
    value.ok_or_else(|| fields.error(key, "is missing"))
}

fn numbers(fields: &Fields<'_>, key: &str) -> ItemResult<[u64; 2]> {
    let elements = fields.present(key).into_iter().flat_map(Node::elements);
    let numbers: Option<Vec<u64>> = elements.map(Node::u64).collect();
    let numbers = numbers.and_then(|numbers| <[u64; 2]>::try_from(numbers).ok());
    numbers.ok_or_else(|| fields.error(key, "must be two non-negative whole numbers"))
}
