//! Tests that captured turns are found by their keys, and only by the tenant that owns them.

use throughline_core::{
    ElisionReason, NewRecord, NewVaultTurn, Store, TurnId, VaultKey, VaultMatch, VaultTurn,
};
use throughline_store::{Durability, Journal, Options, open};

use crate::harness::*;

fn claim(text: &str) -> VaultKey {
    VaultKey::Claim(text.into())
}

fn id(text: &str) -> VaultKey {
    VaultKey::Id(text.into())
}

fn chain(byte: u8) -> VaultKey {
    VaultKey::Chain([byte; 32])
}

/// Captures a turn of two records in the log `turns`.
async fn capture(journal: &Journal, name: &str, parent: Option<&str>, keys: &[VaultKey]) {
    let mut capturing = batch(items("turns", &["asked", name]));
    capturing.vault.push(NewVaultTurn {
        id: name.into(),
        parent: parent.map(TurnId::from),
        keys: keys.to_vec(),
        log: log("turns"),
        prefix: Some([7; 32]),
    });
    journal.commit(capturing).await.unwrap();
}

fn turn(name: &str, parent: Option<&str>, first: u64) -> VaultTurn {
    VaultTurn {
        id: name.into(),
        parent: parent.map(TurnId::from),
        log: log("turns"),
        first,
        last: first + 1,
        prefix: Some([7; 32]),
        gone: None,
    }
}

fn found(turn: VaultTurn, siblings: u32) -> Option<VaultMatch> {
    Some(VaultMatch { turn, siblings })
}

async fn find(journal: &Journal, keys: &[VaultKey]) -> Vec<Option<VaultMatch>> {
    journal.find(&us(), keys).await.unwrap().found
}

pub(crate) async fn a_turn_is_found_by_its_claim(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "turns", &[]).await;
    capture(&journal, "one", None, &[claim("a")]).await;
    capture(&journal, "two", None, &[claim("b")]).await;
    let keys = [claim("b"), claim("none"), claim("a"), id("a")];
    let expected = [found(turn("two", None, 3), 0), None, found(turn("one", None, 1), 0), None];
    assert_eq!(find(&journal, &keys).await, expected);
    assert_eq!(find(&journal, &[]).await, []);
    journal.close().await.unwrap();
    assert_eq!(find(&harness.open().await, &keys).await, expected);
}

pub(crate) async fn all_keys_of_a_turn_find_it(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "turns", &[]).await;
    let keys = [claim("a"), id("a"), id("b"), chain(1), chain(2)];
    capture(&journal, "one", None, &keys[..4]).await;
    capture(&journal, "two", None, &keys[3..]).await;
    let one = || found(turn("one", None, 1), 0);
    let two = |siblings| found(turn("two", None, 3), siblings);
    assert_eq!(find(&journal, &keys).await, [one(), one(), one(), two(1), two(0)]);
    // Each requested key has a result, even if it is requested twice.
    let twice = [id("b"), chain(2), id("none"), id("b")];
    assert_eq!(find(&journal, &twice).await, [one(), two(0), None, one()]);
}

pub(crate) async fn id_finds_a_turn_only_if_it_is_unique(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "turns", &[]).await;
    capture(&journal, "one", None, &[id("call_0"), id("msg_1"), id("msg_1")]).await;
    assert_eq!(find(&journal, &[id("call_0")]).await, [found(turn("one", None, 1), 0)]);
    capture(&journal, "two", None, &[id("call_0"), id("msg_2")]).await;
    let expected = [None, found(turn("one", None, 1), 0), found(turn("two", None, 3), 0)];
    assert_eq!(find(&journal, &[id("call_0"), id("msg_1"), id("msg_2")]).await, expected);
}

pub(crate) async fn chain_lookup_finds_the_newest_turn_and_counts_the_others(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "turns", &[]).await;
    capture(&journal, "one", None, &[chain(1)]).await;
    capture(&journal, "two", None, &[chain(1)]).await;
    capture(&journal, "three", None, &[chain(1)]).await;
    capture(&journal, "four", None, &[chain(2)]).await;
    let expected = [found(turn("three", None, 5), 2), found(turn("four", None, 7), 0), None];
    assert_eq!(find(&journal, &[chain(1), chain(2), chain(3)]).await, expected);
}

pub(crate) async fn newest_turns_with_a_key_are_listed(on: Database) {
    let harness = Harness::fresh(on);
    // Some of the keys are in the table, and some only in the rows of their turns.
    let options = Options { index_batch: 2, ..harness.options() };
    let journal = open(&harness.url(), &options).await.unwrap();
    thread(&journal, "turns", &[]).await;
    for name in ["one", "two", "three", "four", "five"] {
        capture(&journal, name, None, &[chain(1), id("call_0")]).await;
    }
    capture(&journal, "six", None, &[chain(2)]).await;
    let (five, four) = (turn("five", None, 9), turn("four", None, 7));
    for key in [chain(1), id("call_0")] {
        let newest = journal.find_newest(&us(), &key, 2).await.unwrap();
        assert_eq!(newest, [five.clone(), four.clone()]);
        let all = journal.find_newest(&us(), &key, 8).await.unwrap();
        let all: Vec<_> = all.iter().map(|turn| &*turn.id.0).collect();
        assert_eq!(all, ["five", "four", "three", "two", "one"]);
        assert_eq!(journal.find_newest(&other_tenant(), &key, 8).await.unwrap(), []);
    }
    assert_eq!(journal.find_newest(&us(), &chain(3), 8).await.unwrap(), []);
}

pub(crate) async fn turns_reference_their_parents(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "turns", &[]).await;
    capture(&journal, "one", None, &[claim("1")]).await;
    capture(&journal, "two", Some("one"), &[claim("2")]).await;
    capture(&journal, "branch", Some("one"), &[claim("3")]).await;
    let expected =
        [found(turn("two", Some("one"), 3), 0), found(turn("branch", Some("one"), 5), 0)];
    assert_eq!(find(&journal, &[claim("2"), claim("3")]).await, expected);
    let mut duplicate = batch(items("turns", &["x"]));
    let (keys, prefix) = (Vec::new(), None);
    duplicate.vault.push(NewVaultTurn {
        id: "one".into(),
        parent: None,
        keys,
        log: log("turns"),
        prefix,
    });
    let outcome = journal.commit(duplicate).await;
    assert_eq!(error_message(outcome), "turn id one is already in use; choose another id");
}

pub(crate) async fn another_tenants_turns_are_not_found(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "turns", &[]).await;
    let keys = [claim("a"), id("a"), chain(1)];
    capture(&journal, "one", None, &keys).await;
    assert_eq!(journal.find(&other_tenant(), &keys).await.unwrap().found, [None, None, None]);
    // A turn of another tenant does not make this tenant's turn ambiguous.
    let mut other = batch(items("turns", &["x"]).opening(throughline_core::LogOpening::thread()));
    other.tenant = other_tenant();
    let (keys, prefix) = (keys.to_vec(), None);
    other.vault.push(NewVaultTurn {
        id: "one".into(),
        parent: None,
        keys,
        log: log("turns"),
        prefix,
    });
    journal.commit(other).await.unwrap();
    assert_eq!(find(&journal, &[id("a")]).await, [found(turn("one", None, 1), 0)]);
}

pub(crate) async fn forgotten_turn_is_found_as_forgotten(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "turns", &[]).await;
    capture(&journal, "one", None, &[claim("a")]).await;
    journal.forget(&us(), &log("turns"), None).await.unwrap();
    let forgotten = VaultTurn { gone: Some(ElisionReason::Forgotten), ..turn("one", None, 1) };
    assert_eq!(find(&journal, &[claim("a")]).await, [found(forgotten, 0)]);
}

pub(crate) async fn records_of_a_turn_are_read_and_forgotten_one_by_one(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "turns", &["before"]).await;
    let texts_of_turn = [r#"{"id":"a"}"#, r#"{"id":"b"}"#, r#"{"id":"c"}"#];
    let copy = NewRecord::copy(&log("turns"), "the bodies of the call");
    let mut capturing = batch(items("turns", &texts_of_turn).record(copy));
    let (keys, prefix) = (vec![claim("1")], None);
    let (id, parent, log_id) = ("one".into(), None, log("turns"));
    capturing.vault.push(NewVaultTurn { id, parent, keys, log: log_id, prefix });
    journal.commit(capturing).await.unwrap();
    add(&journal, "turns", &["after"]).await;
    let [a, b, c] = texts_of_turn;
    let bodies = "the bodies of the call";
    let all = numbered(&[(1, "before"), (2, a), (3, b), (4, c), (5, bodies), (6, "after")]);
    assert_eq!(texts(&journal, "turns").await, all);
    // Every range of records can be read, wherever it begins and ends.
    for after in 0..7 {
        for limit in 1..7 {
            let read = journal.read(&us(), &log("turns"), after, limit).await.unwrap();
            let read: Vec<u64> = read.iter().map(|record| record.seq).collect();
            let expected: Vec<u64> = (after + 1..=6).take(limit as usize).collect();
            assert_eq!(read, expected, "after {after}, {limit} records");
        }
    }
    assert_eq!(proven(&journal).await.records, 6);
    // Forgetting one Item destroys only its record and the copy.
    let outcome = journal.forget(&us(), &log("turns"), Some("b")).await.unwrap();
    assert_eq!((outcome.records, outcome.bytes), (2, (b.len() + bodies.len()) as u64));
    let gone = "forgotten";
    let left = [(1, "before"), (2, a), (3, gone), (4, c), (5, gone), (6, "after")];
    let texts_now = texts(&journal, "turns").await;
    assert_eq!(texts_now.get(..6).unwrap(), numbered(&left));
    let proof = proven(&journal).await;
    assert_eq!((proof.records, proof.gone), (7, 2));
    let found = find(&journal, &[claim("1")]).await;
    let is_gone = found[0].as_ref().map(|found| found.turn.gone);
    assert_eq!(is_gone, Some(Some(ElisionReason::Forgotten)));
    // Forgetting the Thread destroys the rest, and the store still verifies after reopening.
    let outcome = journal.forget(&us(), &log("turns"), None).await.unwrap();
    assert_eq!(outcome.records, 4);
    assert_eq!(proven(&journal).await.gone, 6);
    journal.close().await.unwrap();
    assert_eq!(proven(&harness.open().await).await.gone, 6);
}

pub(crate) async fn turn_of_another_node_makes_an_id_ambiguous(on: Database) {
    let harness = Harness::fresh(on);
    let (journal, other) = (harness.open().await, harness.open().await);
    thread(&journal, "turns", &[]).await;
    capture(&journal, "one", None, &[id("a"), chain(1)]).await;
    let one = || found(turn("one", None, 1), 0);
    for node in [&journal, &other] {
        assert_eq!(find(node, &[id("a"), chain(1)]).await, [one(), one()]);
    }
    capture(&other, "two", None, &[id("a"), chain(1)]).await;
    let two = || found(turn("two", None, 3), 1);
    for node in [&other, &journal] {
        assert_eq!(find(node, &[id("a"), chain(1)]).await, [None, two()]);
    }
}

pub(crate) async fn turn_that_another_node_forgot_is_found_as_forgotten(on: Database) {
    let harness = Harness::fresh(on);
    let (journal, other) = (harness.open().await, harness.open().await);
    thread(&journal, "turns", &[]).await;
    capture(&journal, "one", None, &[id("a")]).await;
    assert_eq!(find(&journal, &[id("a")]).await, [found(turn("one", None, 1), 0)]);
    other.forget(&us(), &log("turns"), None).await.unwrap();
    let forgotten = VaultTurn { gone: Some(ElisionReason::Forgotten), ..turn("one", None, 1) };
    assert_eq!(find(&journal, &[id("a")]).await, [found(forgotten, 0)]);
}

/// SQLite adds the keys of several turns to its index at once.
pub(crate) async fn keys_are_found_before_and_after_they_are_indexed(on: Database) {
    let harness = Harness::fresh(on);
    let durability = Durability::Relaxed;
    let options = Options { durability, index_batch: 16, ..harness.options() };
    let journal = open(&harness.url(), &options).await.unwrap();
    thread(&journal, "turns", &[]).await;
    let count = 40;
    for number in 0..count {
        let name = format!("turn-{number}");
        capture(&journal, &name, None, &[id(&name), chain(1)]).await;
    }
    let check = async |journal: &Journal| {
        for number in [0, 1, count / 2, count - 2, count - 1] {
            let name = format!("turn-{number}");
            let expected = found(turn(&name, None, 2 * number + 1), 0);
            assert_eq!(find(journal, &[id(&name)]).await, [expected]);
        }
        let last = turn(&format!("turn-{}", count - 1), None, 2 * count - 1);
        let siblings = u32::try_from(count - 1).unwrap();
        assert_eq!(find(journal, &[chain(1)]).await, [found(last, siblings)]);
    };
    check(&journal).await;
    check(&harness.open().await).await;
    assert_eq!(proven(&journal).await.records, 2 * count);
    journal.close().await.unwrap();
    let journal = harness.open().await;
    check(&journal).await;
    proven(&journal).await;
}

pub(crate) async fn erasure_starts_a_new_epoch(on: Database) {
    let harness = Harness::fresh(on);
    let (journal, other) = (harness.open().await, harness.open().await);
    thread(&journal, "turns", &[]).await;
    let epoch = async |tenant| journal.find(&tenant, &[claim("a")]).await.unwrap().era;
    let first = epoch(us()).await;
    capture(&journal, "one", None, &[claim("a")]).await;
    thread(&journal, "doomed", &["said"]).await;
    assert_eq!(epoch(us()).await, first, "adding does not change the erasure epoch");
    let other_epoch = epoch(other_tenant()).await;
    other.forget(&us(), &log("doomed"), None).await.unwrap();
    let second = epoch(us()).await;
    assert_ne!(second, first, "an erasure by another process changes the erasure epoch");
    journal.forget(&us(), &log("turns"), None).await.unwrap();
    assert!(![first, second].contains(&epoch(us()).await), "an erasure epoch never repeats");
    assert_eq!(epoch(other_tenant()).await, other_epoch);
}
