//! Tests for the cache of request bodies.

use std::cell::Cell;
use std::convert::Infallible;

use super::*;

/// A request with this many messages, whose first message contains `topic`.
fn request(topic: &str, messages: usize) -> Bytes {
    let messages = (0..messages).map(|number| {
        format!(r#"{{"role":"user","content":"{topic} {number} {}"}}"#, "x".repeat(3_000))
    });
    let messages = messages.collect::<Vec<_>>().join(",");
    Bytes::from(format!(r#"{{"model":"m","messages":[{messages}],"tools":[{{"name":"t"}}]}}"#))
}

/// The number of bytes before the end of the messages.
fn end_of_messages(body: &Bytes) -> usize {
    let text = std::str::from_utf8(body).unwrap();
    text.find("],\"tools\"").unwrap()
}

/// Parses a body. Returns the parsed body, the number of bytes that it shares with the known body,
/// and the number of searched bytes.
fn parse(cache: &BodyCache, tenant: &str, body: &Bytes) -> (ParsedBody, usize, usize) {
    let (shared, searched) = (Cell::new(0), Cell::new(0));
    let parse = |known: Option<SharedBeginning<'_>>| {
        shared.set(known.map_or(0, |known| known.length()));
        Ok::<_, Infallible>(Tree::parse(body.clone()).ok())
    };
    let finds = |text: &[u8]| {
        searched.set(text.len());
        text.windows(6).any(|word| word == b"secret")
    };
    let Ok(parsed) = cache.parse(&Tenant::from(tenant), body, parse, finds);
    (parsed.unwrap(), shared.get(), searched.get())
}

#[test]
fn a_request_finds_the_request_before_it() {
    let cache = BodyCache::new(1 << 20);
    let first = request("one", 10);
    let (parsed, known, searched) = parse(&cache, "tenant", &first);
    assert!(parsed.tree.indexes(&first) && parsed.known.is_plain);
    assert_eq!((known, searched), (0, first.len()));
    for messages in 11..40 {
        let (before, body) = (request("one", messages - 1), request("one", messages));
        let (parsed, known, searched) = parse(&cache, "tenant", &body);
        assert!(parsed.tree.indexes(&body) && parsed.known.is_plain);
        assert_eq!(known, end_of_messages(&before));
        assert!(searched < 3_000 + 2 * OVERLAP, "{searched}");
        // The new body replaced the body that it continues.
        assert_eq!(cache.lock().len(), 1);
    }
}

#[test]
fn other_conversations_and_tenants_keep_their_bodies() {
    let cache = BodyCache::new(1 << 20);
    let (one, two) = (request("one", 10), request("two", 10));
    parse(&cache, "tenant", &one);
    assert_eq!(parse(&cache, "tenant", &two).1, 0);
    assert_eq!(parse(&cache, "other", &one).1, 0);
    assert_eq!(cache.lock().len(), 3);
    for (topic, before) in [("one", one), ("two", two)] {
        let (_, known, _) = parse(&cache, "tenant", &request(topic, 11));
        assert_eq!(known, end_of_messages(&before));
    }
}

#[test]
fn a_found_text_is_found_in_every_later_request() {
    let cache = BodyCache::new(1 << 20);
    assert!(!parse(&cache, "tenant", &request("secret", 10)).0.known.is_plain);
    assert!(!parse(&cache, "tenant", &request("secret", 11)).0.known.is_plain);
    // A text at the border of the known part.
    let plain = request("topic", 10);
    assert!(parse(&cache, "tenant", &plain).0.known.is_plain);
    let end = plain.windows(2).rposition(|bytes| bytes == b"x\"").unwrap() + 1;
    for length in 1..6 {
        let (known, new) = "secret".split_at(length);
        let with =
            |text: &str| Bytes::from([&plain[..end], text.as_bytes(), &plain[end..]].concat());
        assert!(parse(&cache, "tenant", &with(known)).0.known.is_plain);
        assert!(
            !parse(&cache, "tenant", &with(&[known, new].concat())).0.known.is_plain,
            "{known}"
        );
    }
}

#[test]
fn short_bodies_are_neither_searched_nor_cached() {
    let cache = BodyCache::new(1 << 20);
    let body = request("one", 2);
    let (parsed, _, searched) = parse(&cache, "tenant", &body);
    assert!(!parsed.known.is_plain && searched == 0);
    assert_eq!(cache.lock().len(), 0);
}
