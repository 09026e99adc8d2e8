//! Checks that stored Items are restored unchanged, and that their stored size is close to the
//! input.
//!
//! The tests cover every fixture and, if present, the recorded traffic. Without recordings they
//! print a note and pass.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test fails by panicking, and prints its figures"
)]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use common::recorded::{context_of, exchanges, reply_of};
use common::samples::fixtures;
use common::{codec_of, reply_in, request, stream_events, target};
use throughline_codec::{DecodeContext, Framing};
use throughline_core::{
    Envelope, Item, StoredItem, holds_siblings, restore_items, store_items, without_siblings,
};
use throughline_testkit::{captures, figure, recordings, skip};

/// Storage totals of one wire.
#[derive(Clone, Copy, Default)]
struct Sizes {
    items: usize,
    seals: usize,
    /// The total bytes of the Items' own parts (`native`), and of the messages that contained the
    /// Items (`messages`).
    native: usize,
    messages: usize,
    stored: usize,
    /// The totals of `native` and `stored`, counting only Items without large media.
    small_native: usize,
    small_stored: usize,
    holding_siblings: usize,
}

#[test]
fn fixtures_restore_unchanged() {
    let mut sizes = BTreeMap::new();
    for sample in fixtures() {
        let lists = if sample.is_request() {
            let call = sample.call();
            vec![call.system, call.items]
        } else {
            vec![sample.reply().items]
        };
        for items in lists {
            keep(&sample.name, sample.codec.wire().as_str(), &items, &mut sizes);
        }
    }
    report("fixtures", &sizes);
}

#[test]
fn recordings_restore_unchanged() {
    let Some(recordings) = recordings() else { return skip("no recordings beside the project") };
    let mut sizes = BTreeMap::new();
    for (recording, index, exchange) in exchanges(&recordings) {
        let name = format!("{} #{index}", recording.name);
        let sent = request(&exchange.path, &exchange.request);
        let call = codec_of(&exchange.wire).decode_request(&sent, &context_of(exchange)).unwrap();
        keep(&name, &exchange.wire, &call.system, &mut sizes);
        keep(&name, &exchange.wire, &call.items, &mut sizes);
        if let Ok(reply) = reply_of(exchange) {
            keep(&name, &exchange.wire, &reply.items, &mut sizes);
        }
    }
    let total = report("recordings", &sizes);
    assert!(
        total.stored * 100 <= total.native * 125,
        "the stored size exceeds 1.25 times the input"
    );
}

#[test]
fn recordings_captures_restore_unchanged() {
    let Some(captures) = captures() else { return skip("no recordings beside the project") };
    let mut sizes = BTreeMap::new();
    for capture in &captures {
        let codec = codec_of(&capture.wire);
        let context = DecodeContext::of(target(&capture.provider, &capture.wire, "unknown"));
        let bytes = Bytes::from(capture.response.clone());
        let items = if capture.framing == "json" {
            codec.decode_reply(&bytes, &context).unwrap().items
        } else {
            let events = stream_events(codec, &context, Framing::JsonLines, [&bytes[..]]).unwrap();
            reply_in(&events).unwrap().items.clone()
        };
        keep(&capture.name, &capture.wire, &items, &mut sizes);
    }
    report("captures", &sizes);
}

/// Checks that all Items are restored unchanged, then repeats the check with each Item removed in
/// turn.
fn keep(name: &str, wire: &str, items: &[Item], sizes: &mut BTreeMap<String, Sizes>) {
    let stored = store_items(items);
    let restored = restore_items(stored.iter().map(text_of).map(Some)).unwrap();
    assert_eq!(restored, items, "{name}");
    assert_opaque_values_are_equal(name, items, &restored);
    for (ours, theirs) in items.windows(2).zip(restored.windows(2)) {
        assert_eq!(share(ours), share(theirs), "{name}: the items must share the same message");
    }
    for forgotten in 0..items.len() {
        forget(name, items, &stored, forgotten);
    }
    assert_no_text_is_shared_between_items(name, items, &stored);
    let sizes = sizes.entry(wire.to_owned()).or_default();
    sizes.items += items.len();
    sizes.seals += items.iter().map(|item| item.seals.len()).sum::<usize>();
    for (item, stored) in items.iter().zip(&stored) {
        let native = item.native.as_ref().map_or(0, |native| native.json.bytes().len());
        let stored = stored.json.bytes().len();
        sizes.native += native;
        sizes.stored += stored;
        if native < 10_000 {
            sizes.small_native += native;
            sizes.small_stored += stored;
        }
    }
    sizes.messages += message_bytes(items);
    sizes.holding_siblings += stored.iter().filter(|stored| stored.holds_siblings).count();
}

fn text_of(stored: &StoredItem) -> Bytes {
    Bytes::copy_from_slice(stored.json.bytes())
}

fn envelope_of(item: &Item) -> Option<&Arc<Envelope>> {
    item.native.as_ref()?.envelope.as_ref()
}

fn share(pair: &[Item]) -> bool {
    let envelopes = envelope_of(&pair[0]).zip(envelope_of(&pair[1]));
    envelopes.is_some_and(|(one, other)| Arc::ptr_eq(one, other))
}

fn assert_opaque_values_are_equal(name: &str, items: &[Item], restored: &[Item]) {
    let values = |items: &[Item]| -> Vec<Bytes> {
        let seals = items.iter().flat_map(|item| &item.seals);
        seals.map(|seal| seal.reveal_to_tenant().clone()).collect()
    };
    assert!(values(items) == values(restored), "{name}: an opaque value differs");
}

/// Checks that removing one Item changes no other Item, except that Items of the same message are
/// restored without their envelope.
fn forget(name: &str, items: &[Item], stored: &[StoredItem], forgotten: usize) {
    let message = envelope_of(&items[forgotten]);
    let is_sibling = |item: &Item| {
        let envelopes = message.zip(envelope_of(item));
        envelopes.is_some_and(|(one, other)| Arc::ptr_eq(one, other))
    };
    let mut expected = items.to_vec();
    for item in &mut expected {
        if is_sibling(item) {
            item.native.as_mut().unwrap().envelope = None;
        }
    }
    expected.remove(forgotten);
    let texts = stored.iter().enumerate().map(|(at, stored)| (at != forgotten).then_some(stored));
    let with_gap = restore_items(texts.clone().map(|stored| stored.map(text_of))).unwrap();
    assert!(with_gap == expected, "{name}: without Item {forgotten}");
    let closed = restore_items(texts.flatten().map(text_of).map(Some)).unwrap();
    assert!(closed == expected, "{name}: without Item {forgotten}, and without a gap");
}

/// Checks that no stored Item contains a long string from another Item of the same message, unless
/// the Item's own part contains that string. Declared sibling content is ignored.
fn assert_no_text_is_shared_between_items(name: &str, items: &[Item], stored: &[StoredItem]) {
    let raw = |item: &Item| {
        item.native.as_ref().map(|native| native.json.as_str().to_owned()).unwrap_or_default()
    };
    for (own, text) in items.iter().zip(stored) {
        assert_eq!(holds_siblings(&text.json), text.holds_siblings, "{name}");
        let text = without_siblings(&text.json);
        assert!(!holds_siblings(&text));
        let (open_native_part, own_message) = (raw(own), envelope_of(own));
        let is_sibling = |item: &&Item| {
            let envelopes = own_message.zip(envelope_of(item));
            !std::ptr::eq(*item, own) && envelopes.is_some_and(|(a, b)| Arc::ptr_eq(a, b))
        };
        for other in items.iter().filter(is_sibling) {
            let fragments =
                other.visible().into_iter().flat_map(|text| text.split(['"', '\\', '\n']));
            for fragment in fragments
                .filter(|fragment| fragment.len() > 12 && !open_native_part.contains(fragment))
            {
                assert!(!text.as_str().contains(fragment), "{name}: {} holds {}", own.id, other.id);
            }
        }
    }
}

/// Returns the size of the messages that contained the Items, or of the Items' own parts, in bytes.
fn message_bytes(items: &[Item]) -> usize {
    let mut bytes = 0;
    let mut last: Option<&Arc<Envelope>> = None;
    for item in items {
        let envelope = envelope_of(item);
        bytes += match (envelope, last) {
            (Some(envelope), Some(last)) if Arc::ptr_eq(envelope, last) => 0,
            (Some(envelope), _) => envelope.json.bytes().len(),
            (None, _) => item.native.as_ref().map_or(0, |native| native.json.bytes().len()),
        };
        last = envelope;
    }
    bytes
}

fn report(label: &str, sizes: &BTreeMap<String, Sizes>) -> Sizes {
    let mut total = Sizes::default();
    for sizes in sizes.values() {
        total.items += sizes.items;
        total.seals += sizes.seals;
        total.native += sizes.native;
        total.messages += sizes.messages;
        total.stored += sizes.stored;
        total.small_native += sizes.small_native;
        total.small_stored += sizes.small_stored;
        total.holding_siblings += sizes.holding_siblings;
    }
    let all = sizes.iter().map(|(wire, sizes)| (wire.as_str(), sizes)).chain([("all", &total)]);
    for (wire, sizes) in all {
        let part = |part: usize, whole: usize| {
            let thousandths = part * 1000 / whole.max(1);
            format!("{}.{:03}", thousandths / 1000, thousandths % 1000)
        };
        figure(
            &format!("stored {label}, {wire}"),
            format!(
                "{} items, {} seals, {} B stored ÷ {} B native = {}, ÷ {} B of messages = {}; below 10 kB {}; {} hold siblings",
                sizes.items,
                sizes.seals,
                sizes.stored,
                sizes.native,
                part(sizes.stored, sizes.native),
                sizes.messages,
                part(sizes.stored, sizes.messages),
                part(sizes.small_stored, sizes.small_native),
                sizes.holding_siblings
            ),
        );
    }
    total
}
