//! Tests that a codec from another crate works like a built-in codec.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

#[path = "../examples/own_codec.rs"]
#[allow(dead_code, reason = "the example has a main of its own")]
mod own_codec;

use bytes::Bytes;
use throughline::codec::{
    CODECS, Catalog, Codec as _, StreamDecoder, StreamEncoder, events_from_reply,
};
use throughline::{Body, Call, Disposition, Event, Item, ItemPosition, Role};

use own_codec::{ANSWER, Ledger, decode_context};

#[test]
fn custom_codec_seals_go_only_to_their_owner() {
    let reply =
        Ledger.decode_reply(&Bytes::from_static(ANSWER), &decode_context().unwrap()).unwrap();
    let mut call = Call::new(decode_context().unwrap().target);
    call.extend([Item::new("q", ItemPosition::default(), Role::User, Body::Text("So?".into()))]);
    call.extend(reply.items);
    let own = Ledger.encode(&call).unwrap().request.body;
    assert!(String::from_utf8_lossy(&own).contains("c3RhbXA="));
    for codec in CODECS {
        let row = Catalog::builtin().default_provider(&codec.wire()).unwrap();
        call.target = Catalog::builtin().target(&row, "some-model", "work");
        let encoded = codec.encode(&call).unwrap();
        let body = String::from_utf8_lossy(&encoded.request.body).into_owned();
        assert!(body.contains("Yes.") && !body.contains("c3RhbXA="), "{}: {body}", codec.wire());
        assert!(matches!(encoded.fates[1].visible, Disposition::Elided(_)));
    }
}

#[test]
fn custom_codec_streams_round_trip() {
    let reply =
        Ledger.decode_reply(&Bytes::from_static(ANSWER), &decode_context().unwrap()).unwrap();
    let (mut encoder, mut bytes) = (StreamEncoder::new(&Ledger), Vec::new());
    for event in events_from_reply(&reply) {
        encoder.push(&event, &mut bytes).unwrap();
    }
    encoder.finish(&mut bytes);
    let mut decoder = StreamDecoder::new(&Ledger, &decode_context().unwrap());
    let mut events = Vec::new();
    for byte in bytes.chunks(1) {
        events.extend(decoder.push(byte).unwrap());
    }
    events.extend(decoder.finish().unwrap());
    let Some(Event::Ended(again)) = events.last() else { unreachable!("a stream ends in a reply") };
    assert_eq!(again.items, reply.items);
}
