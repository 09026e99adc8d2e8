//! Tamper-evidence: any single change to the stored journal is found, and the first broken link is named.
//!
//! A store with a little of everything is copied again and again; each copy is changed once, behind the store's back, and
//! proven. What was cut off consistently, as an attacker with the file would do it, is found with a manifest that was
//! exported before.
//!
//! Not of the journal, and so not proven: `logs.status`, `logs.created`, `logs.updated` and `tenants.created` (for people and
//! lists), `tenants.era` (for who remembers turns: what was destroyed is gone whatever it says), a log without records of its own and a segment without links (they say nothing yet), and the numbers by
//! which manifests are ordered as long as the order stays. Neither are once names, leases, pending questions, the vault's
//! index, API keys: they steer who may write and what is found, and hold no history.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "tamper/change.rs"]
mod change;
#[path = "tamper/store.rs"]
mod store;

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::Connection;
use throughline_core::{
    Append, Batch, LogOpening, NewRecord, RedactionPolicy, Store, StoreError, Tenant,
};
use throughline_store::{Journal, Manifest, Options, Proof, open, verify_export};
use throughline_testkit::{Dice, Folder, cases, figure};

use crate::change::{Change, Outcome};

/// A change is found: it is named, or the store does not open.
async fn proof_of(file: &Path, witness: Option<&Manifest>) -> Result<Proof, StoreError> {
    let journal = opened(file).await?;
    let proof = journal.verify(witness, &|_| {}).await;
    journal.close().await?;
    proof
}

/// The same while somebody writes, so that the store never comes to rest.
async fn proof_beside_a_writer(file: &Path) -> Result<Proof, StoreError> {
    let journal = opened(file).await?;
    let runtime = tokio::runtime::Handle::current();
    let somebody_writes = |_| {
        for (tenant, log) in [("one", "other"), ("others", "meanwhile")] {
            let append = Append::to(log).record(NewRecord::new("note", "b"));
            // A store that was changed may refuse it.
            let write = journal.commit(Batch::of(tenant).append(append));
            drop(tokio::task::block_in_place(|| runtime.block_on(write)));
        }
    };
    let append = Append::to("meanwhile").opening(LogOpening::thread());
    drop(journal.commit(Batch::of("others").append(append)).await);
    let proof = journal.verify(None, &somebody_writes).await;
    // What it wrote last need not be signed.
    drop(journal.close().await);
    proof
}

async fn opened(file: &Path) -> Result<Journal, StoreError> {
    let options = Options { create: false, ..Options::default() };
    open(&format!("sqlite://{}", file.display()), &options).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_single_change_to_the_journal_is_found() {
    let folder = Folder::new("tamper");
    let original = folder.join("original.db");
    store::write(&original).await;
    let whole = proof_of(&original, None).await.unwrap();
    assert_eq!(whole.broken, None);
    let used = folder.join("used.db");
    std::fs::copy(&original, &used).unwrap();
    let whole_in_use = proof_beside_a_writer(&used).await.unwrap();
    assert_eq!((whole_in_use.records, whole_in_use.broken), (whole.records, None));
    assert!(proof_of(&used, None).await.unwrap().records > whole.records, "nobody wrote");
    let before = store::read(&opened(&original).await.unwrap()).await.unwrap();
    let copy = folder.join("copy.db");
    let mut found: BTreeMap<&str, u32> = BTreeMap::new();
    let (mut named, mut harmless) = (0, 0);
    for case in 0..cases(500) {
        let mut dice = Dice::new(u64::from(case));
        let change = loop {
            for rest in ["copy.db-wal", "copy.db-shm"] {
                drop(std::fs::remove_file(folder.join(rest)));
            }
            std::fs::copy(&original, &copy).unwrap();
            let db = Connection::open(&copy).unwrap();
            db.pragma_update(None, "synchronous", "OFF").unwrap();
            let Some(change) = Change::make(&db, &mut dice) else { continue };
            drop(db);
            if change.outcome != Outcome::SaysNothing {
                break change;
            }
            let after = store::read(&opened(&copy).await.unwrap()).await.unwrap();
            assert_eq!(before, after, "{case}: {change}");
            harmless += 1;
        };
        let proof = match case % 2 {
            0 => proof_of(&copy, None).await,
            _ => proof_beside_a_writer(&copy).await,
        };
        match proof {
            Err(_) => {}
            Ok(proof) => {
                let Some(broken) = proof.broken else { panic!("{case}: nobody noticed: {change}") };
                if let Outcome::Breaks(places) = &change.outcome {
                    let place = &broken.place;
                    let right = places.iter().any(|right| right == place);
                    assert!(right, "{case}: {change}: {broken}, and not one of {places:?}");
                    named += 1;
                }
            }
        }
        *found.entry(change.kind).or_default() += 1;
    }
    let sum: u32 = found.values().sum();
    figure(
        "single changes to the stored journal",
        format!(
            "{sum} of {sum} found ({found:?}); of {named} in records the right one was named; \
             {harmless} more changed nothing that is said"
        ),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_cut_off_is_found_with_a_manifest_that_was_exported() {
    let folder = Folder::new("tamper-cut");
    let original = folder.join("original.db");
    let witness = store::write(&original).await;
    let copy = folder.join("copy.db");
    let (mut cuts, mut unseen) = (0, 0);
    for case in 0..(cases(500) / 10).max(40) {
        std::fs::copy(&original, &copy).unwrap();
        let db = Connection::open(&copy).unwrap();
        db.pragma_update(None, "synchronous", "OFF").unwrap();
        change::cut_off(&db, &mut Dice::new(u64::from(case)));
        drop(db);
        // By itself the store cannot know what it never had; unless what is gone was said to be in what was cut off.
        let alone = proof_of(&copy, None).await.unwrap();
        unseen += u32::from(alone.broken.is_none());
        let proof = proof_of(&copy, Some(&witness)).await.unwrap();
        let broken = proof.broken.unwrap_or_else(|| panic!("{case}: nobody noticed the cut"));
        let is_cut = broken.problem.contains("was cut off");
        assert!(is_cut || alone.broken.as_ref() == Some(&broken), "{case}: {broken}");
        cuts += 1;
    }
    assert_eq!(proof_of(&original, Some(&witness)).await.unwrap().broken, None);
    figure(
        "consistent cuts",
        format!("{cuts} of {cuts} found with an exported manifest, {} without", cuts - unseen),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_byte_of_the_file_is_found_or_changes_nothing() {
    let folder = Folder::new("tamper-raw");
    let original = folder.join("original.db");
    store::write(&original).await;
    let before = store::read(&opened(&original).await.unwrap()).await.unwrap();
    let bytes = std::fs::read(&original).unwrap();
    let copy = folder.join("copy.db");
    let (mut refused, mut broken, mut without_effect) = (0, 0, 0);
    let count = cases(500);
    for case in 0..count {
        let mut dice = Dice::new(u64::from(case));
        let mut changed = bytes.clone();
        let place = dice.below(changed.len());
        changed[place] ^= 1 << dice.below(8);
        std::fs::write(&copy, &changed).unwrap();
        match proof_of(&copy, None).await {
            Err(_) => refused += 1,
            Ok(proof) if proof.broken.is_some() => broken += 1,
            Ok(_) => {
                let journal = opened(&copy).await.unwrap();
                let after = store::read(&journal).await.unwrap();
                assert_eq!(before, after, "byte {place} changed what is said, and nobody noticed");
                without_effect += 1;
            }
        }
        for suffix in ["-wal", "-shm"] {
            drop(std::fs::remove_file(folder.join(format!("copy.db{suffix}"))));
        }
    }
    figure(
        "flipped bits of the file",
        format!(
            "{count}: {broken} proven broken, {refused} refused at once, {without_effect} in places that \
             say nothing (free space, names and times for people, indexes that are not the journal's)"
        ),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_single_change_to_an_export_is_found() {
    let folder = Folder::new("tamper-export");
    let original = folder.join("original.db");
    store::write(&original).await;
    let journal = opened(&original).await.unwrap();
    let policy = RedactionPolicy::default();
    let mut count = 0;
    for redaction in [None, Some(&policy)] {
        let mut export = Vec::new();
        let tenant = Tenant::from("one");
        journal.export(&tenant, &[], redaction, &mut export, &|_| {}).await.unwrap();
        verify_export(&mut &export[..]).unwrap();
        for case in 0..cases(2000) / 2 {
            let mut dice = Dice::new(u64::from(case));
            let (changed, what) = change::of_export(&export, &mut dice);
            let verdict = verify_export(&mut &changed[..]);
            assert!(verdict.is_err(), "{case}: nobody noticed: {what}");
            count += 1;
        }
    }
    figure("single changes to an export", format!("{count} of {count} found"));
}
