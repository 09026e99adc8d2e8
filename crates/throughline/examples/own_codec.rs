//! A custom codec. It works like a built-in codec although it is defined in another crate.
//!
//! `cargo run --example own_codec` decodes a response with a sealed Thought and encodes requests
//! that replay the Thought. The request to the Seal's owner contains the Seal, but requests to
//! other providers do not.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::sync::Arc;

use bytes::Bytes;
use throughline::codec::{
    CODECS, Catalog, CatalogError, Codec, CodecError, DecodeContext, Decoder, Document, Encoder,
    Frame, Framing,
};
use throughline::json::{self, Json, Node, Tree};
use throughline::{
    Body, Call, Direction, Disposition, ElisionReason, EncodedRequest, Event, Fate, Item,
    ItemPosition, Name, NativePart, ReasoningFormat, Reply, Request, Role, Seal, StopReason,
    Target, Thought, ThoughtKind, Usage, Wire,
};

/// A sample protocol: `{"lines": [{"by": …, "text": …, "stamp": …}]}`. A line with a stamp is a
/// Thought, and the stamp is its Seal.
pub(crate) struct Ledger;

const WIRE: &str = "ledger";

fn item_of(line: Node<'_>, index: usize, side: Direction, context: &DecodeContext) -> Item {
    let text = line.name_of("text").unwrap_or_default();
    let role =
        if line.get("by").is_some_and(|by| by.is("model")) { Role::Assistant } else { Role::User };
    let stamp = line.get("stamp").and_then(Node::text_bytes);
    let body = match &stamp {
        Some(_) => {
            Body::Thought(Thought::issued(text, ThoughtKind::Text, ReasoningFormat::new(WIRE)))
        }
        None => Body::Text(text),
    };
    let mut item = Item::new(format!("line.{index}"), ItemPosition::new(index, 0), role, body);
    let origin = &context.target.origin;
    item.seals = stamp
        .map(|stamp| Seal::new(stamp, "ledger.stamp", Arc::clone(origin), "/stamp"))
        .into_iter()
        .collect();
    item.native = Some(NativePart::new(Wire::new(WIRE), side, line.json()));
    item.origin = (role == Role::Assistant).then(|| Arc::clone(origin));
    item
}

fn lines(body: &Bytes, side: Direction, context: &DecodeContext) -> Result<Vec<Item>, CodecError> {
    let tree = Tree::parse(body.clone())?;
    let lines = tree.root().get("lines").into_iter().flat_map(Node::elements).enumerate();
    Ok(lines.map(|(index, line)| item_of(line, index, side, context)).collect())
}

fn line_of(item: &Item) -> Option<Json> {
    if let Some(native) = item.native_on(&Wire::new(WIRE)) {
        return Some(native.json.clone());
    }
    let Body::Text(text) = &item.body else { return None };
    let by = if item.role == Role::Assistant { "model" } else { "person" };
    Some(json::object(|o| {
        o.string("by", by).string("text", text);
    }))
}

fn reply_of(items: Vec<Item>, context: &DecodeContext) -> Reply {
    let origin = Arc::clone(&context.target.origin);
    Reply {
        id: None,
        items,
        stop: StopReason::Done,
        usage: Usage::default(),
        origin,
        extras: Vec::new(),
    }
}

impl Codec for Ledger {
    fn wire(&self) -> Wire {
        Wire::new(WIRE)
    }

    fn recognise(&self, document: Node<'_>) -> Option<Document> {
        document.get("lines").map(|_| Document::Request)
    }

    fn model_of(&self, _: &Request) -> Option<Name> {
        None
    }

    fn path(&self, _: &Target, _: bool) -> String {
        "/ledger".to_owned()
    }

    fn framing(&self) -> Framing {
        Framing::JsonLines
    }

    fn encode(&self, call: &Call) -> Result<EncodedRequest, CodecError> {
        let mut fates = Vec::new();
        let mut entries = Vec::new();
        for item in &call.items {
            let seals: Vec<Disposition> = item
                .seals
                .iter()
                .map(|seal| {
                    seal.open_for(&call.target, None)
                        .map_or_else(Disposition::Elided, |_| Disposition::Kept)
                })
                .collect();
            let line = line_of(item).filter(|_| seals.iter().all(|did| *did == Disposition::Kept));
            let visible = if line.is_some() {
                Disposition::Kept
            } else {
                Disposition::Elided(ElisionReason::Foreign)
            };
            fates.push(Fate { item: item.id.clone(), visible, seals });
            entries.extend(line);
        }
        let lines = json::array_of(&entries);
        let body = json::object_of([("lines", &lines)]).bytes().clone();
        let request = Request {
            path: self.path(&call.target, call.stream).into(),
            headers: Vec::new(),
            body,
        };
        Ok(EncodedRequest { request, fates, warnings: Vec::new(), prefix: None })
    }

    fn decode_request(
        &self,
        request: &Request,
        context: &DecodeContext,
    ) -> Result<Call, CodecError> {
        let mut call = Call::new(context.target.clone());
        call.items = lines(&request.body, Direction::Request, context)?;
        Ok(call)
    }

    fn decode_reply(&self, body: &Bytes, context: &DecodeContext) -> Result<Reply, CodecError> {
        Ok(reply_of(lines(body, Direction::Response, context)?, context))
    }

    fn encode_reply(&self, reply: &Reply) -> Result<Bytes, CodecError> {
        let entries: Vec<Json> = reply.items.iter().filter_map(line_of).collect();
        Ok(json::object_of([("lines", &json::array_of(&entries))]).bytes().clone())
    }

    fn decoder(&self, context: &DecodeContext) -> Box<dyn Decoder> {
        Box::new(LedgerDecoder { context: context.clone(), items: Vec::new() })
    }

    fn encoder(&self) -> Box<dyn Encoder> {
        Box::new(LedgerEncoder)
    }
}

struct LedgerDecoder {
    context: DecodeContext,
    items: Vec<Item>,
}

impl Decoder for LedgerDecoder {
    fn push(&mut self, frame: &Frame) -> Result<Vec<Event>, CodecError> {
        let tree = Tree::parse(frame.data.clone())?;
        let index = u32::try_from(self.items.len()).unwrap_or(u32::MAX);
        let item = item_of(tree.root(), self.items.len(), Direction::Response, &self.context);
        self.items.push(item.clone());
        Ok(vec![
            Event::Opened { index, id: None, body: item.body.clone() },
            Event::Closed { index, item: Box::new(item) },
        ])
    }

    fn finish(&mut self) -> Result<Vec<Event>, CodecError> {
        Ok(vec![Event::Ended(Box::new(reply_of(std::mem::take(&mut self.items), &self.context)))])
    }
}

struct LedgerEncoder;

impl Encoder for LedgerEncoder {
    fn push(&mut self, event: &Event) -> Result<Vec<Frame>, CodecError> {
        let Event::Closed { item, .. } = event else { return Ok(Vec::new()) };
        let frame =
            |line: Json| Frame { event: None, data: line.bytes().clone(), exception: false };
        Ok(line_of(item).map(frame).into_iter().collect())
    }
}

/// Returns the decode context for a model on this wire. A catalog entry declares the model's
/// endpoint.
pub(crate) fn decode_context() -> Result<DecodeContext, CatalogError> {
    let rows = "[[provider]]\nname = \"ledger\"\nwire = \"ledger\"\nbase-url = \"https://ledger.example\"\n";
    let catalog = Catalog::builtin().with_providers(rows)?;
    Ok(DecodeContext::of(catalog.target_for("ledger", "scribe", "work")?))
}

/// A response with a Thought whose stamp is its Seal.
pub(crate) const ANSWER: &[u8] =
    br#"{"lines":[{"by":"model","text":"hm","stamp":"c3RhbXA="},{"by":"model","text":"Yes."}]}"#;

fn main() -> Result<(), Box<dyn Error>> {
    let context = decode_context()?;
    let reply = Ledger.decode_reply(&Bytes::from_static(ANSWER), &context)?;
    let mut call = Call::new(context.target);
    call.extend([Item::new("q", ItemPosition::default(), Role::User, Body::Text("So?".into()))]);
    call.extend(reply.items);
    let own = Ledger.encode(&call)?.request.body;
    println!("ledger: {}", String::from_utf8_lossy(&own));
    for codec in CODECS {
        let row = Catalog::builtin().default_provider(&codec.wire()).ok_or("it has a row")?;
        call.target = Catalog::builtin().target(&row, "some-model", "work");
        let encoded = codec.encode(&call)?;
        let goes = encoded.request.body.windows(8).any(|bytes| bytes == b"c3RhbXA=");
        println!("{}: Seal included: {goes}", codec.wire());
    }
    Ok(())
}
