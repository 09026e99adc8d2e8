//! A wire of one's own: a codec from another crate is a peer of the built-in ones, and the trait is all it takes.
//!
//! `cargo run --example own_codec` reads an answer with a sealed thought, and says it back: to its owner with the seal, and to
//! nobody else.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::sync::Arc;

use bytes::Bytes;
use throughline::{
    Asked, Body, CODECS, Call, Catalog, CatalogError, Codec, CodecError, Decoder, Did, Document,
    Encoded, Encoder, Event, Fate, Frame, Framing, Item, Json, Name, Native, Node, Place,
    ReasoningFormat, Reply, Request, Role, Seal, Side, Stop, Target, Thought, ThoughtKind, Tree,
    Usage, Why, Wire, json,
};

/// A protocol of our own: `{"lines": [{"by": …, "text": …, "stamp": …}]}`. What has a stamp is a thought, and the stamp is its seal.
pub(crate) struct Ledger;

const WIRE: &str = "ledger";

fn item_of(line: Node<'_>, index: usize, side: Side, asked: &Asked) -> Item {
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
    let mut item = Item::new(format!("line.{index}"), Place::new(index, 0), role, body);
    let origin = &asked.target.origin;
    item.seals = stamp
        .map(|stamp| Seal::new(stamp, "ledger.stamp", Arc::clone(origin), "/stamp"))
        .into_iter()
        .collect();
    item.native = Some(Native::new(Wire::new(WIRE), side, line.json()));
    item.origin = (role == Role::Assistant).then(|| Arc::clone(origin));
    item
}

fn lines(body: &Bytes, side: Side, asked: &Asked) -> Result<Vec<Item>, CodecError> {
    let tree = Tree::parse(body.clone())?;
    let lines = tree.root().get("lines").into_iter().flat_map(Node::elements).enumerate();
    Ok(lines.map(|(index, line)| item_of(line, index, side, asked)).collect())
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

fn reply_of(items: Vec<Item>, asked: &Asked) -> Reply {
    let origin = Arc::clone(&asked.target.origin);
    Reply { id: None, items, stop: Stop::Done, usage: Usage::default(), origin, extras: Vec::new() }
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

    fn encode(&self, call: &Call) -> Result<Encoded, CodecError> {
        let mut fates = Vec::new();
        let mut said = Vec::new();
        for item in &call.items {
            let seals: Vec<Did> = item
                .seals
                .iter()
                .map(|seal| {
                    seal.open_for(&call.target, None).map_or_else(Did::Elided, |_| Did::Kept)
                })
                .collect();
            let line = line_of(item).filter(|_| seals.iter().all(|did| *did == Did::Kept));
            let visible = if line.is_some() { Did::Kept } else { Did::Elided(Why::Foreign) };
            fates.push(Fate { item: item.id.clone(), visible, seals });
            said.extend(line);
        }
        let lines = json::array_of(&said);
        let body = json::object_of([("lines", &lines)]).bytes().clone();
        let request = Request {
            path: self.path(&call.target, call.stream).into(),
            headers: Vec::new(),
            body,
        };
        Ok(Encoded { request, fates, warnings: Vec::new(), prefix: None })
    }

    fn decode_request(&self, request: &Request, asked: &Asked) -> Result<Call, CodecError> {
        let mut call = Call::new(asked.target.clone());
        call.items = lines(&request.body, Side::Request, asked)?;
        Ok(call)
    }

    fn decode_reply(&self, body: &Bytes, asked: &Asked) -> Result<Reply, CodecError> {
        Ok(reply_of(lines(body, Side::Response, asked)?, asked))
    }

    fn encode_reply(&self, reply: &Reply) -> Result<Bytes, CodecError> {
        let said: Vec<Json> = reply.items.iter().filter_map(line_of).collect();
        Ok(json::object_of([("lines", &json::array_of(&said))]).bytes().clone())
    }

    fn decoder(&self, asked: &Asked) -> Box<dyn Decoder> {
        Box::new(LedgerDecoder { asked: asked.clone(), items: Vec::new() })
    }

    fn encoder(&self) -> Box<dyn Encoder> {
        Box::new(LedgerEncoder)
    }
}

struct LedgerDecoder {
    asked: Asked,
    items: Vec<Item>,
}

impl Decoder for LedgerDecoder {
    fn push(&mut self, frame: &Frame) -> Result<Vec<Event>, CodecError> {
        let tree = Tree::parse(frame.data.clone())?;
        let index = u32::try_from(self.items.len()).unwrap_or(u32::MAX);
        let item = item_of(tree.root(), self.items.len(), Side::Response, &self.asked);
        self.items.push(item.clone());
        Ok(vec![
            Event::Opened { index, id: None, body: item.body.clone() },
            Event::Closed { index, item: Box::new(item) },
        ])
    }

    fn finish(&mut self) -> Result<Vec<Event>, CodecError> {
        Ok(vec![Event::Ended(Box::new(reply_of(std::mem::take(&mut self.items), &self.asked)))])
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

/// A model that speaks it: a row in the catalog is what says where it is.
pub(crate) fn asked() -> Result<Asked, CatalogError> {
    let rows = "[[provider]]\nname = \"ledger\"\nwire = \"ledger\"\nbase-url = \"https://ledger.example\"\n";
    let catalog = Catalog::builtin().with_providers(rows)?;
    Ok(Asked::of(catalog.target_for("ledger", "scribe", "work")?))
}

/// An answer with a thought, whose seal is the stamp.
pub(crate) const ANSWER: &[u8] =
    br#"{"lines":[{"by":"model","text":"hm","stamp":"c3RhbXA="},{"by":"model","text":"Yes."}]}"#;

fn main() -> Result<(), Box<dyn Error>> {
    let asked = asked()?;
    let reply = Ledger.decode_reply(&Bytes::from_static(ANSWER), &asked)?;
    let mut call = Call::new(asked.target);
    call.extend([Item::new("q", Place::default(), Role::User, Body::Text("So?".into()))]);
    call.extend(reply.items);
    let own = Ledger.encode(&call)?.request.body;
    println!("ledger: {}", String::from_utf8_lossy(&own));
    for codec in CODECS {
        let row = Catalog::builtin().default_provider(&codec.wire()).ok_or("it has a row")?;
        call.target = Catalog::builtin().target(&row, "some-model", "work");
        let encoded = codec.encode(&call)?;
        let goes = encoded.request.body.windows(8).any(|bytes| bytes == b"c3RhbXA=");
        println!("{}: the seal goes along: {goes}", codec.wire());
    }
    Ok(())
}
