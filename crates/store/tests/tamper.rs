//! Tamper-evidence: any single change to a stored row is found, and the first broken record is named.
//!
//! A store with rows in every table and with a master key is copied again and again; each copy is changed once, behind the
//! store's back, and proven. What was cut off consistently, as an attacker with the file would do it, is found with a
//! manifest that was exported before.
//!
//! Not proven: leases, which end by themselves; and `created` of every table and `logs.updated`, which are times for people.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "tamper/admission.rs"]
mod admission;
#[path = "tamper/change.rs"]
mod change;
#[path = "tamper/postgres.rs"]
mod postgres;
#[path = "tamper/read_only.rs"]
mod read_only;
#[path = "tamper/store.rs"]
mod store;
#[path = "tamper/version_1.rs"]
mod version_1;

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::Connection;
use throughline_core::{
    Append, Batch, LogOpening, NewRecord, RedactionPolicy, Store, StoreError, Tenant,
};
use throughline_store::{Journal, Manifest, Options, Proof, Warning, open, verify_export};
use throughline_testkit::{Dice, Folder, cases, figure};

use crate::change::Change;

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
    let options = Options { create: false, ..store::options() };
    open(&format!("sqlite://{}", file.display()), &options).await
}

/// Whether a store is not opened because of what is wrong with it. A lock, a full disk or a conflict is no finding.
pub(crate) fn is_refusal(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Corrupt(_)
            | StoreError::Database(_)
            | StoreError::Invalid(_)
            | StoreError::KeyMissing
            | StoreError::WrongKey
    )
}

/// The same, from a copy that is only read.
async fn proof_of_read_only(file: &Path) -> Result<Proof, StoreError> {
    let options = Options { read_only: true, ..store::options() };
    let journal = open(&format!("sqlite://{}", file.display()), &options).await?;
    journal.verify(None, &|_| {}).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_single_change_to_a_stored_row_is_found() {
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
    let mut found: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    let mut named = 0;
    let mut missed = Vec::new();
    for case in 0..cases(500) {
        let mut dice = Dice::new(u64::from(case));
        // A store that was not opened may still be closing its file.
        let copy = folder.join(format!("copy-{case}.db"));
        let change = loop {
            std::fs::copy(&original, &copy).unwrap();
            let db = Connection::open(&copy).unwrap();
            db.pragma_update(None, "synchronous", "OFF").unwrap();
            if let Some(change) = Change::make(&db, &mut dice) {
                break change;
            }
        };
        let proof = match case % 4 {
            0 | 1 => proof_of_read_only(&copy).await,
            2 => proof_of(&copy, None).await,
            _ => proof_beside_a_writer(&copy).await,
        };
        let (tried, seen) = found.entry(change.table).or_default();
        *tried += 1;
        match proof {
            Err(error) => {
                assert!(is_refusal(&error), "{case}: {change}: {error:?}");
                *seen += 1;
            }
            Ok(Proof { broken: Some(broken), .. }) => {
                *seen += 1;
                if !change.places.is_empty() {
                    let right = change.places.contains(&broken.place);
                    assert!(right, "{case}: {change}: {broken}, not one of {:?}", change.places);
                    named += 1;
                }
            }
            Ok(Proof { broken: None, .. }) => missed.push(format!("{case}: {change}")),
        }
        for rest in ["", "-wal", "-shm"] {
            drop(std::fs::remove_file(folder.join(format!("copy-{case}.db{rest}"))));
        }
    }
    for (table, (tried, seen)) in &found {
        figure(&format!("changes to {table}"), format!("{seen} of {tried} found"));
    }
    assert_eq!(missed, Vec::<String>::new());
    assert!(change::TABLES.iter().all(|table| found.contains_key(table)), "{found:?}");
    let sum: u32 = found.values().map(|(_, seen)| seen).sum();
    figure(
        "single changes to the stored rows",
        format!("{sum} of {sum} found; of {named} in records the right one was named"),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleting_all_manifests_or_restoring_an_earlier_copy_is_a_change_that_is_found() {
    let folder = Folder::new("tamper-earlier");
    let original = folder.join("original.db");
    store::write(&original).await;
    let earlier = folder.join("earlier.db");
    std::fs::copy(&original, &earlier).unwrap();
    let journal = opened(&original).await.unwrap();
    let tenant = Tenant::from("one");
    let key =
        journal.api_keys(&tenant).await.unwrap().into_iter().find(|key| key.revoked.is_none());
    assert!(journal.revoke_api_key(&tenant, &key.unwrap().id).await.unwrap());
    let witness = journal.manifest(&tenant).await.unwrap();
    journal.close().await.unwrap();
    assert_eq!(proof_of(&original, Some(&witness)).await.unwrap().broken, None);
    // A whole earlier state is consistent: only the manifest tells.
    assert_eq!(proof_of(&earlier, None).await.unwrap().broken, None);
    let broken = proof_of(&earlier, Some(&witness)).await.unwrap().broken.unwrap();
    assert!(broken.problem.contains("was cut off"), "{broken}");
    let db = Connection::open(&original).unwrap();
    let deleted = db.execute("DELETE FROM manifests", []).unwrap();
    drop(db);
    let proof = proof_of_read_only(&original).await.unwrap();
    let broken = proof.broken.unwrap();
    assert_eq!(broken.place, "the rows of manifests", "{broken}");
    assert_eq!(broken.problem, format!("are {deleted} fewer than were written"));
    assert_eq!(proof.warnings, [Warning::NoManifest]);
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
            Err(error) => {
                let is_other_file =
                    matches!(error, StoreError::NewerSchema { .. } | StoreError::ReadOnly(_));
                assert!(is_refusal(&error) || is_other_file, "byte {place}: {error:?}");
                refused += 1;
            }
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
