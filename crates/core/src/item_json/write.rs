//! Writes the stored text of an Item.

use throughline_json::{self as json, Array, Json, Name, Object, Tree};

use crate::format::ReasoningFormat;
use crate::identity::{Identifier, Identity};
use crate::item::{
    Body, Direction, HostedStep, Item, Media, NativePart, Outcome, Part, ToolCall, ToolResult,
};
use crate::item_json::VERSION;
use crate::item_json::back_refs::{self, StringIndex};
use crate::item_json::message_split::MessageShare;
use crate::name::{ItemId, Wire, hex};
use crate::origin::Origin;
use crate::seal::Seal;
use crate::thought::{ReasoningSource, Thought, ThoughtKind, ThoughtRecord};

/// Returns the stored text of an Item.
pub(super) fn item(item: &Item, cut: Option<&MessageShare<'_>>) -> Json {
    let tree = item.native.as_ref().map(|native| native.json.tree());
    let root = tree.as_ref().map(Tree::root);
    let strings = back_refs::strings_in(root);
    let writer = StoredItemWriter {
        index: StringIndex::new(root, &strings),
        origin: item.origin.as_deref(),
        wire: item.native.as_ref().map(|native| &native.wire),
    };
    json::object(|out| {
        let has_default_id = item.id == ItemId::from_position("", item.place);
        out.number("v", VERSION).maybe("id", (!has_default_id).then_some(&item.id.0));
        out.list("at", [item.place.message, item.place.part].map(u64::from));
        out.string("role", item.role.as_str()).flag("ephemeral", item.ephemeral);
        writer.body(out, &item.body);
        if !item.seals.is_empty() {
            out.objects("seals", &item.seals, |out, seal| writer.seal(out, seal));
        }
        if let Some(origin) = &item.origin {
            out.array("origin", |list| writer.origin(list, origin));
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

/// Writes the stored text of one Item. Values that equal a field of this writer are written as
/// references or omitted.
struct StoredItemWriter<'w> {
    index: StringIndex<'w>,
    origin: Option<&'w Origin>,
    wire: Option<&'w Wire>,
}

impl StoredItemWriter<'_> {
    fn text<'o, 'b>(&self, out: &'o mut Object<'b>, key: &str, text: &str) -> &'o mut Object<'b> {
        out.raw(key, &self.index.text(text))
    }

    fn maybe_text(&self, out: &mut Object<'_>, key: &str, text: Option<&Name>) {
        out.maybe(key, text.map(|text| self.index.text(text)).as_ref());
    }

    fn body(&self, out: &mut Object<'_>, body: &Body) {
        match body {
            Body::Text(text) => self.text(out, "text", text),
            Body::Media(media) => out.object("media", |out| self.media(out, media)),
            Body::Thought(thought) => out.object("thought", |out| self.thought(out, thought)),
            Body::Call(call) => out.object("call", |out| self.call(out, call)),
            Body::Result(result) => out.object("result", |out| self.result(out, result)),
            Body::Hosted(hosted) => out.object("hosted", |out| self.hosted(out, hosted)),
            Body::Compaction => out.bool("compaction", true),
            Body::Summary { text, covers } => out.object("summary", |out| {
                self.text(out, "text", text).list("covers", [covers.start, covers.end]);
            }),
            Body::Unknown => out.bool("unknown", true),
        };
    }

    fn thought(&self, out: &mut Object<'_>, thought: &Thought) {
        self.text(out, "text", &thought.content);
        let kind = Some(thought.kind).filter(|kind| *kind != ThoughtKind::Text);
        out.maybe("kind", kind.map(ThoughtKind::as_str));
        out.maybe("whole", (!thought.whole).then_some(false));
        let name = thought.format.as_str();
        let is_known = ReasoningFormat::new(name) == thought.format;
        out.string(if is_known { "format" } else { "other_format" }, name);
        out.maybe("index", thought.index);
        let is_prompted = thought.source != ReasoningSource::ReasonerModel;
        out.maybe("source", is_prompted.then_some(thought.source.as_str()));
        if thought.identity != Identity::default() {
            out.object("identity", |out| identity(out, &thought.identity));
        }
        let payload = thought.payload.as_ref().map(|payload| self.index.value(payload));
        out.maybe("payload", payload.as_ref());
        self.maybe_text(out, "replay", thought.replay_compatibility.as_ref());
        if let Some(record) = &thought.record {
            out.object("record", |out| self.record(out, record));
        }
    }

    fn record(&self, out: &mut Object<'_>, record: &ThoughtRecord) {
        out.string("created_at", &record.created_at.to_string());
        if record.updated_at != record.created_at {
            out.string("updated_at", &record.updated_at.to_string());
        }
        self.maybe_text(out, "name", record.name.as_ref());
        self.maybe_text(out, "sender_id", record.sender_id.as_ref());
        self.maybe_text(out, "otid", record.otid.as_ref());
        self.maybe_text(out, "run_id", record.run_id.as_ref());
        self.maybe_text(out, "step_id", record.step_id.as_ref());
        out.maybe("seq_id", record.seq_id).maybe("is_err", record.is_err);
        if !record.extras.is_empty() {
            // The extras are written as an array of pairs, because a member name may occur twice.
            out.array("extras", |list| {
                for (key, value) in &record.extras {
                    list.array(|pair| pair.string(key).extend([&self.index.value(value)]));
                }
            });
        }
    }

    fn call(&self, out: &mut Object<'_>, call: &ToolCall) {
        self.maybe_text(out, "wire_id", call.wire_id.as_ref());
        if call.wire_id.as_ref() != Some(&call.id.0) {
            self.text(out, "id", &call.id.0);
        }
        self.text(out, "name", &call.name).raw("args", &self.index.value(&call.args));
        out.flag("custom", call.custom);
    }

    fn result(&self, out: &mut Object<'_>, result: &ToolResult) {
        self.maybe_text(out, "wire_id", result.wire_id.as_ref());
        if result.wire_id.as_ref() != Some(&result.call.0) {
            self.text(out, "call", &result.call.0);
        }
        self.maybe_text(out, "name", result.name.as_ref());
        let outcome = Some(result.outcome).filter(|outcome| *outcome != Outcome::Ok);
        out.maybe("outcome", outcome.map(Outcome::as_str));
        if !result.parts.is_empty() {
            out.objects("parts", &result.parts, |out, part| self.part(out, part));
        }
    }

    fn part(&self, out: &mut Object<'_>, part: &Part) {
        match part {
            Part::Text(text) => self.text(out, "text", text),
            Part::Value(value) => out.raw("value", &self.index.value(value)),
            Part::Media(media) => out.object("media", |out| self.media(out, media)),
            Part::Unknown(wire, value) => {
                out.raw("unknown", &self.index.value(value));
                out.maybe("wire", (self.wire != Some(wire)).then_some(wire.as_str()))
            }
        };
    }

    fn hosted(&self, out: &mut Object<'_>, hosted: &HostedStep) {
        self.text(out, "name", &hosted.name);
        self.maybe_text(out, "pairs", hosted.pairs.as_ref());
        out.flag("is_result", hosted.is_result);
        self.maybe_text(out, "visible", Some(&hosted.visible).filter(|text| !text.is_empty()));
    }

    fn media(&self, out: &mut Object<'_>, media: &Media) {
        match media {
            Media::Inline { mime, base64 } => {
                self.text(out, "mime", mime).raw("base64", &self.index.bytes(base64));
            }
            Media::Remote { mime, uri, owner } => {
                self.maybe_text(out, "mime", mime.as_ref());
                self.text(out, "uri", uri);
                match owner.as_deref() {
                    Some(owner) if self.origin == Some(owner) => out.bool("owner", true),
                    Some(owner) => out.array("owner", |list| self.origin(list, owner)),
                    None => out,
                };
            }
        }
    }

    fn seal(&self, out: &mut Object<'_>, seal: &Seal) {
        out.string("at", &seal.attached.at);
        out.maybe("leads", seal.attached.leads.as_ref().map(|item| &item.0));
        out.string("format", &seal.format);
        let bytes = seal.reveal_to_tenant();
        if !self.index.equals_at(&seal.attached.at, bytes) {
            out.raw("bytes", &self.index.bytes(bytes));
        }
        if self.origin != Some(&*seal.owner) {
            out.array("owner", |list| self.origin(list, &seal.owner));
        }
        out.flag("model", seal.bound.model).flag("account", seal.bound.account);
        out.maybe("prefix", seal.bound.prefix.map(|digest| hex(&digest)).as_deref());
    }

    /// Writes an origin as an array to save space: almost every Item has an origin, and the origin
    /// is often longer than the rest of the Item.
    fn origin(&self, out: &mut Array<'_>, origin: &Origin) {
        let Origin { provider, endpoint, account, wire, asked, answered, family, routed } = origin;
        let answered = (answered != asked).then_some(&**answered);
        let wire = (self.wire != Some(wire)).then_some(wire.as_str());
        let rest = [answered, wire, routed.as_deref()];
        let length = rest.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        out.extend([provider, endpoint, account, asked, family]);
        for name in rest.into_iter().take(length) {
            match name {
                Some(name) => out.string(name),
                None => out.raw(&Json::null()),
            };
        }
    }

    fn native(&self, out: &mut Object<'_>, native: &NativePart, cut: Option<&MessageShare<'_>>) {
        let side = match native.side {
            Direction::Request => "to",
            Direction::Response => "by",
        };
        out.string(side, native.wire.as_str());
        self.maybe_text(out, "native_id", native.id.as_ref());
        out.maybe("slot", Some(&*native.slot).filter(|slot| !slot.is_empty()));
        out.flag("assembled", native.assembled);
        if let Some(cut) = cut {
            cut.write(out);
        }
        out.raw("json", &native.json);
    }
}
