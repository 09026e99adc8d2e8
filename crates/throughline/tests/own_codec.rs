//! A codec from another crate is a peer of the built-in ones: the trait is all it takes.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::sync::Arc;

use bytes::Bytes;
use throughline::{
    Asked, Body, Call, Catalog, Codec, CodecError, Decoder, Did, Document, Encoded, Encoder, Event,
    Fate, Frame, Framing, Item, Json, Name, Native, Node, Place, ReasoningFormat, Reply, Request,
    Role, Seal, Side, Stop, StreamDecoder, StreamEncoder, Target, Thought, ThoughtKind, Tree,
    Usage, Why, Wire, events_of, json,
};

/// A protocol of our own: `{"lines": [{"by": …, "text": …, "stamp": …}]}`. What has a stamp is a thought, and the stamp is its seal.
struct Ledger;

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
        let index = u32::try_from(self.items.len()).unwrap();
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

fn asked() -> Asked {
    let rows = "[[provider]]\nname = \"ledger\"\nwire = \"ledger\"\nbase-url = \"https://ledger.example\"\n";
    let catalog = Catalog::builtin().with_providers(rows).unwrap();
    Asked::of(catalog.target_for("ledger", "scribe", "work").unwrap())
}

const ANSWER: &[u8] =
    br#"{"lines":[{"by":"model","text":"hm","stamp":"c3RhbXA="},{"by":"model","text":"Yes."}]}"#;

#[test]
fn its_seals_go_back_to_it_and_to_nobody_else() {
    let reply = Ledger.decode_reply(&Bytes::from_static(ANSWER), &asked()).unwrap();
    let mut call = Call::new(asked().target);
    call.extend([Item::new("q", Place::default(), Role::User, Body::Text("So?".into()))]);
    call.extend(reply.items);
    let own = Ledger.encode(&call).unwrap().request.body;
    assert!(String::from_utf8_lossy(&own).contains("c3RhbXA="));
    for codec in throughline::CODECS {
        let row = Catalog::builtin().default_provider(&codec.wire()).unwrap();
        call.target = Catalog::builtin().target(&row, "some-model", "work");
        let encoded = codec.encode(&call).unwrap();
        let body = String::from_utf8_lossy(&encoded.request.body).into_owned();
        assert!(body.contains("Yes.") && !body.contains("c3RhbXA="), "{}: {body}", codec.wire());
        assert!(matches!(encoded.fates[1].visible, Did::Elided(_)));
    }
}

#[test]
fn it_streams_through_the_same_machinery() {
    let reply = Ledger.decode_reply(&Bytes::from_static(ANSWER), &asked()).unwrap();
    let (mut encoder, mut bytes) = (StreamEncoder::new(&Ledger), Vec::new());
    for event in events_of(&reply) {
        encoder.push(&event, &mut bytes).unwrap();
    }
    encoder.finish(&mut bytes);
    let mut decoder = StreamDecoder::new(&Ledger, &asked());
    let mut events = Vec::new();
    for byte in bytes.chunks(1) {
        events.extend(decoder.push(byte).unwrap());
    }
    events.extend(decoder.finish().unwrap());
    let Some(Event::Ended(again)) = events.last() else { unreachable!("a stream ends in a reply") };
    assert_eq!(again.items, reply.items);
}
