//! Tests that verification accepts an intact store and detects changes and truncation.

use std::sync::atomic::{AtomicU32, Ordering};

use throughline_core::{LogOpening, Store};
use throughline_store::{Statement, VerifyFailure, Warning, parse_manifest};

use crate::harness::*;

pub(crate) async fn intact_store_verifies(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    let nothing = proven(&journal).await;
    assert_eq!((nothing.records, nothing.segments, nothing.manifests), (0, 0, 0));
    assert!(nothing.warnings.contains(&Warning::NoManifest), "{nothing:?}");
    thread(&journal, "thread", &["a", "b"]).await;
    let mut other = batch(items("thread", &["c"]).opening(LogOpening::thread()));
    other.tenant = other_tenant();
    journal.commit(other).await.unwrap();
    journal.close().await.unwrap();
    let journal = harness.open().await;
    add(&journal, "thread", &["d"]).await;
    let proof = proven(&journal).await;
    // Each opening of the store writes its own segment of each tenant's chain.
    assert_eq!((proof.records, proof.gone, proof.segments), (4, 0, 3));
    // The manifest for the last write may follow up to a second later.
    assert!(proof.manifests >= 1, "{}", proof.manifests);
    let shares = std::sync::Mutex::new(Vec::new());
    journal.verify(None, &|share| shares.lock().unwrap().push(share)).await.unwrap();
    assert_eq!(shares.into_inner().unwrap().last(), Some(&1.0));
}

pub(crate) async fn store_is_verified_during_writes(on: Database) {
    let harness = Harness::fresh(on);
    let nodes = [harness.open().await, harness.open().await];
    thread(&nodes[0], "thread", &[]).await;
    thread(&nodes[0], "large", &[]).await;
    let writers = nodes.clone().map(|journal| {
        tokio::spawn(async move {
            for _ in 0..100 {
                add(&journal, "thread", &["a"]).await;
                add(&journal, "large", &[&"x".repeat(20_000)]).await;
            }
        })
    });
    loop {
        proven(&nodes[0]).await;
        if writers.iter().all(tokio::task::JoinHandle::is_finished) {
            break;
        }
    }
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(proven(&nodes[1]).await.records, 400);
}

pub(crate) async fn verification_ends_during_continuous_writes(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "thread", &["a"]).await;
    let looks = AtomicU32::new(0);
    let write_meanwhile = |_| {
        // Waiting for the end of new data would never finish here.
        assert!(
            looks.fetch_add(1, Ordering::Relaxed) < 10,
            "the verification follows the writer forever"
        );
        now(add(&journal, "thread", &["b"]));
    };
    let proof = journal.verify(None, &write_meanwhile).await.unwrap();
    // Only the records that existed when the verification started are counted.
    assert_eq!((proof.records, proof.broken), (1, None));
    assert_eq!(proven(&journal).await.records, 2);
}

pub(crate) async fn concurrent_erasure_is_not_damage(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    // Write more than one page, so that erasures happen between two reads.
    let item = r#"{"id":"one","text":"a"}"#;
    thread(&journal, "seen", &["a", "b", "c"]).await;
    thread(&journal, "seen in part", &[item, "b"]).await;
    thread(&journal, "many", &["a"; 600]).await;
    thread(&journal, "unseen", &["a", "b"]).await;
    thread(&journal, "unseen in part", &[item, "b"]).await;
    let looks = AtomicU32::new(0);
    let forget_meanwhile = |_| {
        if looks.fetch_add(1, Ordering::Relaxed) == 0 {
            for thread in ["seen", "unseen"] {
                now(journal.forget(&us(), &log(thread), None)).unwrap();
                let part = log(&format!("{thread} in part"));
                now(journal.forget(&us(), &part, Some("one"))).unwrap();
            }
        }
    };
    let proof = journal.verify(None, &forget_meanwhile).await.unwrap();
    assert_eq!((proof.records, proof.gone, proof.broken), (609, 3, None));
    assert_eq!(looks.into_inner(), 2);
    assert_eq!(proven(&journal).await.gone, 7);
}

pub(crate) async fn manifests_are_signed_under_load_and_at_the_end(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "thread", &[]).await;
    // Under load, manifests are signed while writes continue without a pause.
    let first = journal.stats().await.unwrap().manifests;
    until(|| async {
        add(&journal, "thread", &["a"]).await;
        journal.stats().await.unwrap().manifests >= first + 2
    })
    .await;
    // Without load, the last write is signed within a second, despite leases and releases.
    add(&journal, "thread", &["last"]).await;
    let before = journal.stats().await.unwrap().manifests;
    until(|| async {
        let time = std::time::Duration::from_secs(9);
        let lease = journal.lease(&us(), &log("held"), "we", time).await.unwrap();
        journal.release(&us(), &log("held"), lease.fence).await.unwrap();
        journal.stats().await.unwrap().manifests > before
    })
    .await;
    // On close, everything is signed.
    add(&journal, "thread", &["at the end"]).await;
    let before = journal.stats().await.unwrap().manifests;
    journal.close().await.unwrap();
    let journal = harness.open().await;
    let proof = proven(&journal).await;
    assert!(proof.manifests >= before);
    let witness = journal.manifest(&us()).await.unwrap();
    let proof = journal.verify(Some(&witness), &|_| {}).await.unwrap();
    assert_eq!(proof.broken, None);
}

pub(crate) async fn manifest_of_another_store_is_rejected_as_witness(on: Database) {
    let (harness, other_harness) = (Harness::fresh(on), Harness::fresh(on));
    let (journal, other) = (harness.open().await, other_harness.open().await);
    thread(&journal, "thread", &["a"]).await;
    thread(&other, "thread", &["a"]).await;
    let witness = journal.manifest(&us()).await.unwrap();
    assert!(witness.is_signed_by(&journal.public_key()));
    assert!(!witness.is_signed_by(&other.public_key()));
    assert_eq!(parse_manifest(witness.json().bytes()), Some(witness.clone()));
    let Statement { store, heads, covers, .. } = witness.statement().unwrap();
    assert_eq!((store, heads.len(), covers), (journal.public_key(), 1, None));
    add(&journal, "thread", &["b"]).await;
    assert_eq!(journal.verify(Some(&witness), &|_| {}).await.unwrap().broken, None);
    let (place, problem) = ("the given manifest", "was not signed by this store");
    let broken = VerifyFailure { place: place.into(), problem: problem.into() };
    let proof = other.verify(Some(&witness), &|_| {}).await.unwrap();
    assert_eq!(proof.broken, Some(broken));
}
