//! A codec from another crate is a peer of the built-in ones: the trait is all it takes.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

#[path = "../examples/own_codec.rs"]
#[allow(dead_code, reason = "the example has a main of its own")]
mod own_codec;

use bytes::Bytes;
use throughline::{
    Body, Call, Catalog, Codec as _, Did, Event, Item, Place, Role, StreamDecoder, StreamEncoder,
    events_of,
};

use own_codec::{ANSWER, Ledger, asked};

#[test]
fn its_seals_go_back_to_it_and_to_nobody_else() {
    let reply = Ledger.decode_reply(&Bytes::from_static(ANSWER), &asked().unwrap()).unwrap();
    let mut call = Call::new(asked().unwrap().target);
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
    let reply = Ledger.decode_reply(&Bytes::from_static(ANSWER), &asked().unwrap()).unwrap();
    let (mut encoder, mut bytes) = (StreamEncoder::new(&Ledger), Vec::new());
    for event in events_of(&reply) {
        encoder.push(&event, &mut bytes).unwrap();
    }
    encoder.finish(&mut bytes);
    let mut decoder = StreamDecoder::new(&Ledger, &asked().unwrap());
    let mut events = Vec::new();
    for byte in bytes.chunks(1) {
        events.extend(decoder.push(byte).unwrap());
    }
    events.extend(decoder.finish().unwrap());
    let Some(Event::Ended(again)) = events.last() else { unreachable!("a stream ends in a reply") };
    assert_eq!(again.items, reply.items);
}
