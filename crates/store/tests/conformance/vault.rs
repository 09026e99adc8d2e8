//! Tests that captured turns are found by their keys, and only by the tenant that owns them.

use throughline_core::{
    ElisionReason, NewVaultTurn, Store, TurnId, VaultKey, VaultMatch, VaultTurn,
};
use throughline_store::Journal;

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
