//! Tests of windows with many Items and several authors.

use std::sync::Arc;

use throughline_core::{
    Body, Identity, Item, ItemId, ItemPosition, Origin, ReasoningFormat, Role, Seal, Thought,
    ThoughtKind, Wire,
};
use throughline_json::Name;
use throughline_testkit::assert_linear_growth;

use super::{Window, WindowItem, is_peer_item};

#[test]
fn large_messages_are_written_in_linear_time() {
    let write = |count: usize| {
        let mut window = Window::default();
        let ids: Vec<Name> = (0..count).map(|part| Name::from(format!("i{part}"))).collect();
        for (part, id) in ids.iter().enumerate() {
            let place = ItemPosition::new(0, part);
            let item = Item::new(ItemId(Arc::clone(id)), place, Role::User, Body::Text("a".into()));
            window.push(WindowItem { item, tokens: 1, seq: 0 });
        }
        window.record_positions(&ids, 7);
        let numbers = window.items.iter().map(|entry| entry.seq);
        assert!(numbers.eq((7..).take(count)));
    };
    assert_linear_growth("parts that are written", (1_000, 32_000), write).unwrap();
}

/// Builds a message that contains one sealed provider text, with an optional author.
fn answered(message: usize, author: Option<&str>) -> Item {
    let name = Name::from("gemini");
    let origin = Arc::new(Origin {
        provider: name.clone(),
        endpoint: name.clone(),
        account: name.clone(),
        wire: Wire::borrowed("gemini"),
        asked: name.clone(),
        answered: name.clone(),
        family: name,
        routed: None,
    });
    let (id, place) = (format!("i{message}"), ItemPosition::new(message, 1));
    let mut item = Item::new(id, place, Role::Assistant, Body::Text("a".into()));
    item.seals.push(Seal::new(
        "seal".into(),
        "gemini.signature",
        Arc::clone(&origin),
        "/signature",
    ));
    item.origin = Some(origin);
    item.author = author.map(|author| Arc::new(Identity::named(author.to_owned())));
    item
}

#[test]
fn author_or_else_thought_identity_determines_peer_messages() {
    let mut window = Window::default();
    let mut push = |item: Item| window.push(WindowItem { item, tokens: 1, seq: 0 });
    push(answered(0, Some("me")));
    push(answered(1, Some("peer")));
    // Messages from older stores have no authors. The first one has no Thought; the second has a
    // peer's Thought.
    push(answered(2, None));
    push(answered(3, None));
    let mut thought =
        Thought::issued("hm", ThoughtKind::Text, ReasoningFormat::new("google-gemini-v1"));
    thought.identity = Identity::named("peer");
    let place = ItemPosition::new(3, 0);
    push(Item { body: Body::Thought(thought), place, ..answered(3, None) });
    let shown = window.visible_to(&Identity::named("me"));
    let peers: Vec<u32> =
        shown.iter().filter(|item| is_peer_item(item)).map(|item| item.place.message).collect();
    assert_eq!(peers, [1, 3, 3]);
    let is_foreign = |item: &&Item| item.seals.iter().all(|seal| &*seal.owner.provider != "gemini");
    assert_eq!(shown.iter().filter(is_foreign).count(), 3);
}
