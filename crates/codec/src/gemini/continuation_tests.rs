//! Tests replies that Gemini interrupts and continues.

use bytes::Bytes;
use throughline_core::{Body, Event, Reply, StopReason, Wire};

use super::{call_of, gemini_3, request, target};
use crate::{
    Codec, DecodeContext, Gemini, StreamDecoder, continuation_seal, continuation_token,
    continued_body, join_replies,
};

fn body(text: &str, finish: &str, token: &str) -> String {
    format!(
        r#"{{"candidates":[{{"content":{{"parts":[{{"text":"{text}"}}],"role":"model"}},"finishReason":"{finish}"{token},"index":0}}],"usageMetadata":{{"promptTokenCount":5,"candidatesTokenCount":3}},"responseId":"r1"}}"#
    )
}

fn whole(body: String) -> Reply {
    Gemini.decode_reply(&Bytes::from(body), &DecodeContext::of(gemini_3())).unwrap()
}

fn streamed(body: &str) -> Reply {
    let mut decoder = StreamDecoder::new(&Gemini, &DecodeContext::of(gemini_3()));
    let mut events = decoder.push(format!("data: {body}\n\n").as_bytes()).unwrap();
    events.extend(decoder.finish().unwrap());
    let Some(Event::Ended(reply)) = events.pop() else { panic!("the stream did not end") };
    *reply
}

#[test]
fn token_of_an_interrupted_reply_is_a_seal() {
    let interrupted = body("One, ", "CONTINUATION", r#","continuationToken":"dG9rZW4=""#);
    for reply in [whole(interrupted.clone()), streamed(&interrupted)] {
        let seal = continuation_seal(&reply).unwrap();
        assert_eq!(&**seal.open_for(&gemini_3(), None).unwrap(), b"dG9rZW4=");
        assert!(seal.open_for(&target("anthropic", "claude-sonnet-4-5"), None).is_err());
        let other_account = target("gemini", "gemini-3-flash-preview");
        let mut origin = throughline_core::Origin::clone(&other_account.origin);
        origin.account = "other".into();
        let other_account = throughline_core::Target { origin: origin.into(), ..other_account };
        assert!(seal.open_for(&other_account, None).is_err(), "the token is bound to the account");
        assert!(!format!("{seal:?}").contains("dG9rZW4="));
    }
    assert!(continuation_seal(&whole(body("One.", "STOP", ""))).is_none());
    assert!(continuation_seal(&whole(body("One.", "CONTINUATION", ""))).is_none());
}

#[test]
fn token_is_added_to_the_same_request() {
    let original = Bytes::from(r#"{"contents":[{"parts":[{"text":"Hi"}]}]}"#);
    let continued = continued_body(&original, b"dG9rZW4=").unwrap();
    let expected = r#"{"contents":[{"parts":[{"text":"Hi"}]}],"continuationToken":"dG9rZW4="}"#;
    assert_eq!(std::str::from_utf8(&continued).unwrap(), expected);
    let path = "/v1beta/models/gemini-3-flash-preview:generateContent";
    let request = request(path, expected);
    let call = Gemini.decode_request(&request, &DecodeContext::of(gemini_3())).unwrap();
    assert_eq!(continuation_token(&call).as_deref(), Some(b"dG9rZW4=".as_slice()));
    assert_eq!(Gemini.encode(&call).unwrap().request.body, continued);
    assert_eq!(continuation_token(&call_of(&gemini_3(), "[]")), None);
    // A second token cannot hide behind the caller's own token, or behind an empty one.
    for (first, expected) in [("", "b2tlbg=="), ("dG9rZW4=", "dG9rZW4=b2tlbg==")] {
        let body = format!(
            r#"{{"contents":[],"continuation_token":"{first}","continuationToken":"b2tlbg=="}}"#
        );
        let request = self::request(path, &body);
        let call = Gemini.decode_request(&request, &DecodeContext::of(gemini_3())).unwrap();
        assert_eq!(continuation_token(&call).as_deref(), Some(expected.as_bytes()));
    }
}

#[test]
fn joined_reply_contains_all_parts_and_the_total_usage() {
    let first = whole(body("One, ", "CONTINUATION", r#","continuationToken":"dG9rZW4=""#));
    let joined = join_replies(first, whole(body("two.", "STOP", "")));
    let texts: Vec<&str> = joined.items.iter().filter_map(|item| item.visible()).collect();
    assert_eq!(texts, ["One, ", "two."]);
    assert_ne!(joined.items[0].id, joined.items[1].id);
    assert_eq!(joined.items[1].place.part, 1);
    assert_eq!((joined.usage.input, joined.usage.output), (10, 6));
    assert_eq!(joined.stop, StopReason::Done);
    assert!(continuation_seal(&joined).is_none());
    assert!(joined.items.iter().all(|item| matches!(item.body, Body::Text(_))));
    assert_eq!(joined.origin.wire, Wire::GEMINI);
}
