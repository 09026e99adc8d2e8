//! Property tests: random Items of every kind are equal after storing and restoring, even if one
//! Item is missing.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use proptest::prelude::*;
use throughline_json::{self as json, Json, Name};

use super::item_json_tests::{claude, parse, texts, without_envelopes};
use crate::*;

/// The random choices that determine a test case. When no choices are left, `below` returns 0.
struct ChoiceSource(std::vec::IntoIter<u16>);

impl ChoiceSource {
    fn below(&mut self, limit: usize) -> usize {
        self.0.next().unwrap_or_default() as usize % limit
    }

    fn coin(&mut self) -> bool {
        self.below(2) == 1
    }

    fn maybe<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.coin().then(|| make(self))
    }

    fn list<T>(&mut self, most: usize, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.below(most + 1)).map(|_| make(self)).collect()
    }

    fn text(&mut self) -> String {
        const TEXTS: [&str; 12] = [
            "",
            "a",
            "user",
            "The quick brown fox.",
            "line\nline \"quoted\" \\ tab\t",
            "é😀\u{1}",
            "/a~b",
            "{\"city\": \"Paris\"}",
            "[]",
            "null",
            "toolu_01AbCdEf",
            "\u{fffd}",
        ];
        let text = TEXTS[self.below(TEXTS.len())];
        match self.below(4) {
            0 => text.repeat(9),
            1 => format!("{text}{}", self.below(1000)),
            _ => text.to_owned(),
        }
    }

    fn name(&mut self) -> Name {
        Name::from(self.text())
    }

    fn json(&mut self) -> Json {
        const VALUES: [&str; 10] = [
            "null",
            "1e2",
            "18446744073709551616",
            r#""\u00e9\ud800""#,
            "[ ]",
            r#"{"city": "Paris"}"#,
            r#"{"a":"The quick brown fox.","a":2,"":[{"x~y/z":"toolu_01AbCdEf"}]}"#,
            "true",
            r#"[[["The quick brown fox.The quick brown fox."]],"",{}]"#,
            r#"{"v":2,"cut":{}}"#,
        ];
        match self.below(4) {
            0 => json::string(&self.text()),
            1 => {
                let (key, text, inner) = (self.text(), self.text(), self.json());
                json::object(|out| {
                    out.string(&key, &text).raw("in", &inner);
                })
            }
            _ => parse(VALUES[self.below(VALUES.len())]),
        }
    }

    fn wire(&mut self) -> Wire {
        [Wire::GEMINI, Wire::ANTHROPIC_MESSAGES, Wire::borrowed("another's")][self.below(3)].clone()
    }

    fn origin(&mut self) -> Arc<Origin> {
        if self.coin() {
            return claude();
        }
        Arc::new(Origin {
            provider: self.name(),
            endpoint: self.name(),
            account: self.name(),
            wire: self.wire(),
            asked: self.name(),
            answered: self.name(),
            family: self.name(),
            routed: self.maybe(Self::name),
        })
    }

    fn media(&mut self) -> Media {
        if self.coin() {
            let base64 = if self.coin() { Bytes::from(self.text()) } else { vec![0xff, 0].into() };
            return Media::Inline { mime: self.name(), base64 };
        }
        let (mime, uri) = (self.maybe(Self::name), self.name());
        Media::Remote { mime, uri, owner: self.maybe(Self::origin) }
    }

    fn part(&mut self) -> Part {
        match self.below(4) {
            0 => Part::Text(self.name()),
            1 => Part::Value(self.json()),
            2 => Part::Media(self.media()),
            _ => Part::Unknown(self.wire(), self.json()),
        }
    }

    fn thought(&mut self) -> Thought {
        const FORMATS: [&str; 3] = ["anthropic-claude-v1", "unknown", ""];
        const KINDS: [ThoughtKind; 3] =
            [ThoughtKind::Text, ThoughtKind::Summary, ThoughtKind::Encrypted];
        let name = FORMATS[self.below(3)];
        let format = if self.coin() {
            ReasoningFormat::new(name)
        } else {
            ReasoningFormat::Other(name.into())
        };
        let mut thought = Thought::issued(self.text(), KINDS[self.below(3)], format);
        thought.whole = self.coin();
        thought.index = self.maybe(|choices| choices.below(9) as u64);
        if self.coin() {
            thought.source = ReasoningSource::NonReasonerModel;
        }
        if self.coin() {
            thought.identity = self.identity();
        }
        thought.payload = self.maybe(Self::json);
        thought.replay_compatibility = self.maybe(Self::name);
        thought.record = self.maybe(|choices| Box::new(choices.record()));
        thought
    }

    fn record(&mut self) -> ThoughtRecord {
        let instant = |choices: &mut Self| {
            Timestamp::from_nanosecond(choices.below(60_000) as i128 * 1_000_000_007_001).unwrap()
        };
        ThoughtRecord {
            created_at: instant(self),
            updated_at: instant(self),
            name: self.maybe(Self::name),
            sender_id: self.maybe(Self::name),
            otid: self.maybe(Self::name),
            run_id: self.maybe(Self::name),
            step_id: self.maybe(Self::name),
            seq_id: self.maybe(|choices| i64::try_from(choices.below(50_000)).unwrap() - 25_000),
            is_err: self.maybe(Self::coin),
            extras: self.list(3, |choices| (choices.name(), choices.json())),
        }
    }

    fn body(&mut self) -> Body {
        match self.below(9) {
            0 => Body::Text(self.name()),
            1 => Body::Media(self.media()),
            2 => Body::Thought(self.thought()),
            3 => Body::Call(ToolCall {
                id: CallId(self.name()),
                wire_id: self.maybe(Self::name),
                name: self.name(),
                args: self.json(),
                custom: self.coin(),
            }),
            4 => Body::Result(ToolResult {
                call: CallId(self.name()),
                wire_id: self.maybe(Self::name),
                name: self.maybe(Self::name),
                outcome: [Outcome::Ok, Outcome::Error, Outcome::Unknown, Outcome::Denied]
                    [self.below(4)],
                parts: self.list(3, Self::part),
            }),
            5 => Body::Hosted(HostedStep {
                name: self.name(),
                pairs: self.maybe(Self::name),
                is_result: self.coin(),
                visible: self.name(),
            }),
            6 => Body::Compaction,
            7 => Body::Summary { text: self.name(), covers: 3..self.below(9) as u64 },
            _ => Body::Unknown,
        }
    }

    fn seal(&mut self) -> Seal {
        let bytes = if self.coin() { Bytes::from(self.text()) } else { vec![0x80, 1].into() };
        let at = ["/sealed", "", "/nowhere", "/said"][self.below(4)];
        let bound = SealBinding {
            model: self.coin(),
            account: self.coin(),
            prefix: self.maybe(|choices| [u8::try_from(choices.below(256)).unwrap(); 32]),
        };
        let mut seal = Seal::new(bytes, self.text(), self.origin(), at).bound_to(bound);
        seal.attached.leads = self.maybe(|choices| ItemId(choices.name()));
        seal
    }

    /// Native JSON that contains all of the Item's content, part of it, or unrelated content.
    fn native(&mut self, item: &Item) -> NativePart {
        let json = if self.coin() {
            self.json()
        } else {
            let text = item.visible().unwrap_or_default();
            let seal = item.seals.first().map(|seal| seal.reveal_to_tenant().to_vec());
            json::object(|out| {
                out.string("said", text).string("url", &format!("data:{text}"));
                if let Some(seal) = seal.and_then(|seal| String::from_utf8(seal).ok()) {
                    out.string("sealed", &seal);
                }
                if let Body::Call(call) = &item.body {
                    out.string("text", call.args.as_str()).raw("input", &call.args);
                }
            })
        };
        let side = if self.coin() { Direction::Request } else { Direction::Response };
        let mut native = NativePart::new(self.wire(), side, json);
        native.id = self.maybe(Self::name);
        native.assembled = self.coin();
        native.slot = self.text().into();
        native
    }

    fn identity(&mut self) -> Identity {
        let number = Identifier::Number(parse("1.50"));
        let text = Identifier::Text(self.text().into());
        let identifier = if self.coin() { number } else { text };
        Identity { identifier, representation: self.text().into() }
    }

    fn item(&mut self, place: ItemPosition) -> Item {
        const ROLES: [Role; 5] =
            [Role::System, Role::Developer, Role::User, Role::Assistant, Role::Tool];
        let mut item = Item::new("", place, ROLES[self.below(5)], self.body());
        let prefix = if self.coin() { "reply" } else { "" };
        item.id = ItemId::from_position(prefix, place);
        item.seals = self.list(2, Self::seal);
        item.origin = self.maybe(Self::origin);
        item.author = self.maybe(Self::identity).map(Arc::new);
        item.ephemeral = self.coin();
        if self.below(4) > 0 {
            item.native = Some(self.native(&item));
        }
        item
    }

    /// Returns the Items of one message, whose JSON contains their parts in order, reversed or not
    /// at all.
    fn message(&mut self, number: usize) -> Vec<Item> {
        let count = 1 + self.below(3);
        let mut items: Vec<Item> =
            (0..count).map(|part| self.item(ItemPosition::new(number, part))).collect();
        let mut parts: Vec<Json> =
            items.iter().filter_map(|item| Some(item.native.as_ref()?.json.clone())).collect();
        let count = if self.below(8) == 0 { self.below(5) } else { parts.len() };
        let echo = self.maybe(Self::text).unwrap_or_default();
        let json = match self.below(6) {
            0 => return items,
            1 => self.json(),
            2 => {
                parts.reverse();
                json::object(|out| {
                    out.raw("parts", &json::array_of(&parts));
                })
            }
            3 if parts.len() == 1 => parts.remove(0),
            _ => json::object(|out| {
                out.raw("parts", &json::array_of(&parts));
                out.string("role", "user").string("echo", &echo);
            }),
        };
        let envelope = Arc::new(Envelope { json, parts: count });
        for native in items.iter_mut().filter_map(|item| item.native.as_mut()) {
            native.envelope = Some(Arc::clone(&envelope));
        }
        items
    }
}

fn conversation() -> impl Strategy<Value = Vec<Item>> {
    proptest::collection::vec(any::<u16>(), 0..300).prop_map(|choices| {
        let mut choices = ChoiceSource(choices.into_iter());
        (0..4).flat_map(|number| choices.message(number)).collect()
    })
}

/// The index ranges of Items that share a message.
fn runs(items: &[Item]) -> Vec<Range<usize>> {
    let envelope = |item: &Item| item.native.as_ref()?.envelope.clone();
    let same =
        |a: &Item, b: &Item| envelope(a).zip(envelope(b)).is_some_and(|(a, b)| Arc::ptr_eq(&a, &b));
    let mut start = 0;
    let run = |run: &[Item]| {
        start += run.len();
        start - run.len()..start
    };
    items.chunk_by(same).map(run).collect()
}

proptest! {
    #[test]
    fn any_items_round_trip(items in conversation()) {
        let stored = store_items(&items);
        prop_assert_eq!(&restore_items(texts(&stored)).unwrap(), &items);
        for stored in &stored {
            prop_assert_eq!(holds_siblings(&stored.json), stored.holds_siblings);
        }
    }

    #[test]
    fn erasing_an_item_drops_only_its_envelope(items in conversation(), choice in any::<usize>()) {
        let forgotten = choice % items.len();
        let run = runs(&items).into_iter().find(|run| run.contains(&forgotten)).unwrap();
        let mut expected = items.clone();
        expected.splice(run.clone(), without_envelopes(&items[run]));
        expected.remove(forgotten);
        let mut stored = texts(&store_items(&items));
        stored[forgotten] = None;
        prop_assert_eq!(&restore_items(stored.clone()).unwrap(), &expected);
        stored.remove(forgotten);
        prop_assert_eq!(&restore_items(stored).unwrap(), &expected);
    }

    #[test]
    fn corrupted_texts_never_panic(items in conversation(), at in any::<usize>(), byte in any::<u8>()) {
        let stored = store_items(&items).into_iter().map(|stored| {
            let mut text = stored.json.bytes().to_vec();
            let at = at % text.len();
            text[at] = byte;
            Some(Bytes::from(text))
        });
        drop(restore_items(stored));
    }
}
