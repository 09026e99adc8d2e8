//! Writes the stored text of an Item.

use throughline_json::{self as json, Json, Object, StringEnum, Tree};

use crate::format::ReasoningFormat;
use crate::identity::{Identifier, Identity};
use crate::item::{
    Body, Direction, HostedStep, Item, Media, NativePart, Outcome, Part, ToolCall, ToolResult,
};
use crate::item_json::VERSION;
use crate::item_json::back_refs::{self, StringIndex, hex};
use crate::item_json::message_split::MessageShare;
use crate::name::{ItemId, Wire};
use crate::origin::Origin;
use crate::seal::Seal;
use crate::thought::{ReasoningSource, Thought, ThoughtKind, ThoughtRecord};

/// Returns the stored text of an Item.
pub(super) fn item(item: &Item, cut: Option<&MessageShare<'_>>) -> Json {
    let tree = item.native.as_ref().map(|native| native.json.tree());
    let root = tree.as_ref().map(Tree::root);
    let strings = back_refs::strings_in(root);
    let wire = item.native.as_ref().map(|native| &native.wire);
    let writer = StoredItemWriter {
        heard: StringIndex::new(root, &strings),
        origin: item.origin.as_deref(),
        wire,
    };
    json::object(|out| {
        out.number("v", VERSION);
        if item.id != ItemId::from_position("", item.place) {
            out.string("id", &item.id.0);
        }
        out.array("at", |place| {
            place.number(item.place.message.into()).number(item.place.part.into());
        });
        out.string("role", item.role.as_str());
        if item.ephemeral {
            out.bool("ephemeral", true);
        }
        writer.body(out, &item.body);
        if !item.seals.is_empty() {
            out.array("seals", |list| {
                for seal in &item.seals {
                    list.object(|out| writer.seal(out, seal));
                }
            });
        }
        if let Some(origin) = &item.origin {
            out.raw("origin", &writer.origin(origin));
        }
        if let Some(author) = &item.author {
            out.object("author", |out| identity(out, author));
        }
        if let Some(native) = &item.native {
            writer.native(out, native, cut);
        }
    })
}

fn identity(out: &mut Object<'_>, identity: &Identity) {
    match &identity.identifier {
        Identifier::Text(text) => out.string("identifier", text),
        Identifier::Number(number) => out.raw("number", number),
    };
    out.string("representation", &identity.representation);
}

/// The context for references in one text.
struct StoredItemWriter<'w> {
    heard: StringIndex<'w>,
    origin: Option<&'w Origin>,
    wire: Option<&'w Wire>,
}

impl StoredItemWriter<'_> {
    fn text(&self, out: &mut Object<'_>, key: &str, text: &str) {
        out.raw(key, &self.heard.text(text));
    }

    fn maybe_text(&self, out: &mut Object<'_>, key: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.text(out, key, text);
        }
    }

    fn body(&self, out: &mut Object<'_>, body: &Body) {
        match body {
            Body::Text(text) => self.text(out, "text", text),
            Body::Media(media) => {
                out.object("media", |out| self.media(out, media));
            }
            Body::Thought(thought) => {
                out.object("thought", |out| self.thought(out, thought));
            }
            Body::Call(call) => {
                out.object("call", |out| self.call(out, call));
            }
            Body::Result(result) => {
                out.object("result", |out| self.result(out, result));
            }
            Body::Hosted(hosted) => {
                out.object("hosted", |out| self.hosted(out, hosted));
            }
            Body::Compaction => {
                out.bool("compaction", true);
            }
            Body::Summary { text, covers } => {
                out.object("summary", |out| {
                    self.text(out, "text", text);
                    out.array("covers", |bounds| {
                        bounds.number(covers.start).number(covers.end);
                    });
                });
            }
            Body::Unknown => {
                out.bool("unknown", true);
            }
        }
    }

    fn thought(&self, out: &mut Object<'_>, thought: &Thought) {
        self.text(out, "text", &thought.content);
        if thought.kind != ThoughtKind::Text {
            out.string("kind", thought.kind.as_str());
        }
        if !thought.whole {
            out.bool("whole", false);
        }
        let name = thought.format.as_str();
        let is_read_so = ReasoningFormat::new(name) == thought.format;
        out.string(if is_read_so { "format" } else { "other_format" }, name);
        if let Some(index) = thought.index {
            out.number("index", index);
        }
        if thought.source != ReasoningSource::ReasonerModel {
            out.string("source", thought.source.as_str());
        }
        if thought.identity != Identity::default() {
            out.object("identity", |out| identity(out, &thought.identity));
        }
        if let Some(payload) = &thought.payload {
            out.raw("payload", &self.heard.value(payload));
        }
        self.maybe_text(out, "replay", thought.replay_compatibility.as_deref());
        if let Some(record) = &thought.record {
            out.object("record", |out| self.record(out, record));
        }
    }

    fn record(&self, out: &mut Object<'_>, record: &ThoughtRecord) {
        out.string("created_at", &record.created_at.to_string());
        if record.updated_at != record.created_at {
            out.string("updated_at", &record.updated_at.to_string());
        }
        self.maybe_text(out, "name", record.name.as_deref());
        self.maybe_text(out, "sender_id", record.sender_id.as_deref());
        self.maybe_text(out, "otid", record.otid.as_deref());
        self.maybe_text(out, "run_id", record.run_id.as_deref());
        self.maybe_text(out, "step_id", record.step_id.as_deref());
        if let Some(number) = record.seq_id {
            out.raw("seq_id", &Json::from_trusted(number.to_string().into()));
        }
        if let Some(is_err) = record.is_err {
            out.bool("is_err", is_err);
        }
        if !record.extras.is_empty() {
            // The extras are a list, because a name may occur twice.
            out.array("extras", |list| {
                for (key, value) in &record.extras {
                    list.array(|pair| {
                        pair.string(key).raw(&self.heard.value(value));
                    });
                }
            });
        }
    }

    fn call(&self, out: &mut Object<'_>, call: &ToolCall) {
        self.maybe_text(out, "wire_id", call.wire_id.as_deref());
        if call.wire_id.as_ref() != Some(&call.id.0) {
            self.text(out, "id", &call.id.0);
        }
        self.text(out, "name", &call.name);
        out.raw("args", &self.heard.value(&call.args));
        if call.custom {
            out.bool("custom", true);
        }
    }

    fn result(&self, out: &mut Object<'_>, result: &ToolResult) {
        self.maybe_text(out, "wire_id", result.wire_id.as_deref());
        if result.wire_id.as_ref() != Some(&result.call.0) {
            self.text(out, "call", &result.call.0);
        }
        self.maybe_text(out, "name", result.name.as_deref());
        if result.outcome != Outcome::Ok {
            out.string("outcome", result.outcome.as_str());
        }
        if !result.parts.is_empty() {
            out.array("parts", |list| {
                for part in &result.parts {
                    list.object(|out| self.part(out, part));
                }
            });
        }
    }

    fn part(&self, out: &mut Object<'_>, part: &Part) {
        match part {
            Part::Text(text) => self.text(out, "text", text),
            Part::Value(value) => {
                out.raw("value", &self.heard.value(value));
            }
            Part::Media(media) => {
                out.object("media", |out| self.media(out, media));
            }
            Part::Unknown(wire, value) => {
                out.raw("unknown", &self.heard.value(value));
                if self.wire != Some(wire) {
                    out.string("wire", wire.as_str());
                }
            }
        }
    }

    fn hosted(&self, out: &mut Object<'_>, hosted: &HostedStep) {
        self.text(out, "name", &hosted.name);
        self.maybe_text(out, "pairs", hosted.pairs.as_deref());
        if hosted.is_result {
            out.bool("is_result", true);
        }
        if !hosted.visible.is_empty() {
            self.text(out, "visible", &hosted.visible);
        }
    }

    fn media(&self, out: &mut Object<'_>, media: &Media) {
        match media {
            Media::Inline { mime, base64 } => {
                self.text(out, "mime", mime);
                out.raw("base64", &self.heard.bytes(base64));
            }
            Media::Remote { mime, uri, owner } => {
                self.maybe_text(out, "mime", mime.as_deref());
                self.text(out, "uri", uri);
                match owner.as_deref() {
                    Some(owner) if self.origin == Some(owner) => {
                        out.bool("owner", true);
                    }
                    Some(owner) => {
                        out.raw("owner", &self.origin(owner));
                    }
                    None => {}
                }
            }
        }
    }

    fn seal(&self, out: &mut Object<'_>, seal: &Seal) {
        out.string("at", &seal.attached.at);
        out.maybe_string("leads", seal.attached.leads.as_ref().map(|item| &*item.0));
        out.string("format", &seal.format);
        let bytes = seal.reveal_to_tenant();
        if !self.heard.equals_at(&seal.attached.at, bytes) {
            out.raw("bytes", &self.heard.bytes(bytes));
        }
        if self.origin != Some(&*seal.owner) {
            out.raw("owner", &self.origin(&seal.owner));
        }
        if seal.bound.model {
            out.bool("model", true);
        }
        if seal.bound.account {
            out.bool("account", true);
        }
        out.maybe_string("prefix", seal.bound.prefix.map(|digest| hex(&digest)).as_deref());
    }

    /// Writes an origin as a list, which is compact: almost every Item has one, and it is longer
    /// than many Items.
    fn origin(&self, origin: &Origin) -> Json {
        let Origin { provider, endpoint, account, wire, asked, answered, family, routed } = origin;
        let answered = (answered != asked).then_some(&**answered);
        let wire = (self.wire != Some(wire)).then_some(wire.as_str());
        let rest = [answered, wire, routed.as_deref()];
        let length = rest.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        json::array(|out| {
            for name in [provider, endpoint, account, asked, family] {
                out.string(name);
            }
            for name in rest.into_iter().take(length) {
                match name {
                    Some(name) => out.string(name),
                    None => out.raw(&Json::null()),
                };
            }
        })
    }

    fn native(&self, out: &mut Object<'_>, native: &NativePart, cut: Option<&MessageShare<'_>>) {
        let side = match native.side {
            Direction::Request => "to",
            Direction::Response => "by",
        };
        out.string(side, native.wire.as_str());
        self.maybe_text(out, "native_id", native.id.as_deref());
        if !native.slot.is_empty() {
            out.string("slot", &native.slot);
        }
        if native.assembled {
            out.bool("assembled", true);
        }
        if let Some(cut) = cut {
            cut.write(out);
        }
        out.raw("json", &native.json);
    }
}
