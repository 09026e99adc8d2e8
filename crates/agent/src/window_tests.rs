//! A window of many Items.

use std::sync::Arc;

use throughline_core::{Body, Item, ItemId, Name, Place, Role};
use throughline_testkit::grows_in_proportion;

use super::{Kept, Window};

#[test]
fn large_messages_are_written_in_proportion_to_their_parts() {
    let write = |count: usize| {
        let mut window = Window::default();
        let ids: Vec<Name> = (0..count).map(|part| Name::from(format!("i{part}"))).collect();
        for (part, id) in ids.iter().enumerate() {
            let place = Place::new(0, part);
            let item = Item::new(ItemId(Arc::clone(id)), place, Role::User, Body::Text("a".into()));
            window.push(Kept { item, tokens: 1, seq: 0 });
        }
        window.written(&ids, 7);
        let numbers = window.items.iter().map(|kept| kept.seq);
        assert!(numbers.eq((7..).take(count)));
    };
    grows_in_proportion("parts that are written", (1_000, 32_000), write).unwrap();
}
