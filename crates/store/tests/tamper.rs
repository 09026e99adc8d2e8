//! Tests of tamper evidence: verification finds any single change to a stored row and names the
//! first broken record.
//!
//! A store with rows in every table and with a master key is copied repeatedly. Each copy is
//! changed once, directly in the database, and verified. If an attacker truncates the store
//! consistently, an earlier exported manifest reveals the truncation.
//!
//! Verification does not cover leases, which expire. It also does not cover `created` in every
//! table and `logs.updated`, which are informational.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

#[path = "tamper/admission.rs"]
mod admission;
#[path = "tamper/change.rs"]
mod change;
#[path = "tamper/older_versions.rs"]
mod older_versions;
#[path = "tamper/postgres.rs"]
mod postgres;
#[path = "tamper/read_only.rs"]
mod read_only;
#[path = "tamper/store.rs"]
mod store;

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::Connection;
use throughline_core::{Append, Batch, LogOpening, NewRecord, Store, StoreError, Tenant};
use throughline_spec::RedactionPolicy;
use throughline_store::{Journal, Manifest, Options, VerifyReport, Warning, open, verify_export};
use throughline_testkit::{Folder, TestRng, cases, figure};

use crate::change::Change;

/// Opens and verifies a file. Fails if the store does not open, which callers also count as a
/// detected change.
async fn verify_file(file: &Path, witness: Option<&Manifest>) -> Result<VerifyReport, StoreError> {
    let journal = opened(file).await?;
    let proof = journal.verify(witness, &|_| {}).await;
    journal.close().await?;
    proof
}

/// Verifies a file while a writer keeps changing the store.
async fn verify_beside_writer(file: &Path) -> Result<VerifyReport, StoreError> {
    let journal = opened(file).await?;
    let runtime = tokio::runtime::Handle::current();
    let write_meanwhile = |_| {
        for (tenant, log) in [("one", "other"), ("others", "meanwhile")] {
            let append = Append::new(log).record(NewRecord::new("note", "b"));
            // Ignore errors, because a store that was tampered with may reject the batch.
            let write = journal.commit(Batch::new(tenant).append(append));
            drop(tokio::task::block_in_place(|| runtime.block_on(write)));
        }
    };
    let append = Append::new("meanwhile").opening(LogOpening::thread());
    drop(journal.commit(Batch::new("others").append(append)).await);
    let proof = journal.verify(None, &write_meanwhile).await;
    // Ignore errors, because the last write need not be signed.
    drop(journal.close().await);
    proof
}

async fn opened(file: &Path) -> Result<Journal, StoreError> {
    let options = Options { create: false, ..store::options() };
    open(&format!("sqlite://{}", file.display()), &options).await
}

/// Returns whether opening failed because of tampering. A lock, a full disk or a conflict does not
/// count.
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

/// Opens a copy read-only and verifies it.
async fn proof_of_read_only(file: &Path) -> Result<VerifyReport, StoreError> {
    let options = Options { read_only: true, ..store::options() };
    let journal = open(&format!("sqlite://{}", file.display()), &options).await?;
    journal.verify(None, &|_| {}).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_single_change_to_a_stored_row_is_found() {
    let folder = Folder::new("tamper");
    let original = folder.join("original.db");
    store::write(&original).await;
    let intact = verify_file(&original, None).await.unwrap();
    assert_eq!(intact.broken, None);
    let used = folder.join("used.db");
    std::fs::copy(&original, &used).unwrap();
    let intact_in_use = verify_beside_writer(&used).await.unwrap();
    assert_eq!((intact_in_use.records, intact_in_use.broken), (intact.records, None));
    assert!(
        verify_file(&used, None).await.unwrap().records > intact.records,
        "the writer was inactive"
    );
    let mut found: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    let mut named = 0;
    let mut missed = Vec::new();
    for case in 0..cases(500) {
        let mut dice = TestRng::new(u64::from(case));
        // Retry, because a store that failed to open may still be closing its file.
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
            2 => verify_file(&copy, None).await,
            _ => verify_beside_writer(&copy).await,
        };
        let (tried, detected) = found.entry(change.table).or_default();
        *tried += 1;
        match proof {
            Err(error) => {
                assert!(is_refusal(&error), "{case}: {change}: {error:?}");
                *detected += 1;
            }
            Ok(VerifyReport { broken: Some(broken), .. }) => {
                *detected += 1;
                if !change.places.is_empty() {
                    let right = change.places.contains(&broken.place);
                    assert!(right, "{case}: {change}: {broken}, not one of {:?}", change.places);
                    named += 1;
                }
            }
            Ok(VerifyReport { broken: None, .. }) => missed.push(format!("{case}: {change}")),
        }
        for suffix in ["", "-wal", "-shm"] {
            drop(std::fs::remove_file(folder.join(format!("copy-{case}.db{suffix}"))));
        }
    }
    for (table, (tried, detected)) in &found {
        figure(&format!("changes to {table}"), format!("{detected} of {tried} found"));
    }
    assert_eq!(missed, Vec::<String>::new());
    assert!(change::TABLES.iter().all(|table| found.contains_key(table)), "{found:?}");
    let sum: u32 = found.values().map(|(_, detected)| detected).sum();
    figure(
        "single changes to the stored rows",
        format!("{sum} of {sum} found; of {named} in records the right one was named"),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_manifests_and_restored_copies_are_found() {
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
    assert_eq!(verify_file(&original, Some(&witness)).await.unwrap().broken, None);
    // A complete earlier state is consistent, so only the manifest shows the difference.
    assert_eq!(verify_file(&earlier, None).await.unwrap().broken, None);
    let broken = verify_file(&earlier, Some(&witness)).await.unwrap().broken.unwrap();
    assert!(broken.problem.contains("was truncated"), "{broken}");
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
async fn truncation_is_found_with_an_exported_manifest() {
    let folder = Folder::new("tamper-cut");
    let original = folder.join("original.db");
    let witness = store::write(&original).await;
    let copy = folder.join("copy.db");
    let (mut cuts, mut unseen) = (0, 0);
    for case in 0..(cases(500) / 10).max(40) {
        std::fs::copy(&original, &copy).unwrap();
        let db = Connection::open(&copy).unwrap();
        db.pragma_update(None, "synchronous", "OFF").unwrap();
        change::cut_off(&db, &mut TestRng::new(u64::from(case)));
        drop(db);
        // Without a manifest the store cannot detect missing records, unless they were erasure
        // records.
        let alone = verify_file(&copy, None).await.unwrap();
        unseen += u32::from(alone.broken.is_none());
        let proof = verify_file(&copy, Some(&witness)).await.unwrap();
        let broken =
            proof.broken.unwrap_or_else(|| panic!("{case}: the truncation was not detected"));
        let is_cut = broken.problem.contains("was truncated");
        assert!(is_cut || alone.broken.as_ref() == Some(&broken), "{case}: {broken}");
        cuts += 1;
    }
    assert_eq!(verify_file(&original, Some(&witness)).await.unwrap().broken, None);
    figure(
        "consistent cuts",
        format!("{cuts} of {cuts} found with an exported manifest, {} without", cuts - unseen),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_file_byte_is_found_or_has_no_effect() {
    let folder = Folder::new("tamper-raw");
    let original = folder.join("original.db");
    store::write(&original).await;
    let before = store::read(&opened(&original).await.unwrap()).await.unwrap();
    let bytes = std::fs::read(&original).unwrap();
    let copy = folder.join("copy.db");
    let (mut refused, mut broken, mut without_effect) = (0, 0, 0);
    let count = cases(500);
    for case in 0..count {
        let mut dice = TestRng::new(u64::from(case));
        let mut changed = bytes.clone();
        let position = dice.below(changed.len());
        changed[position] ^= 1 << dice.below(8);
        std::fs::write(&copy, &changed).unwrap();
        match verify_file(&copy, None).await {
            Err(error) => {
                let is_other_file =
                    matches!(error, StoreError::NewerSchema { .. } | StoreError::ReadOnly(_));
                assert!(is_refusal(&error) || is_other_file, "byte {position}: {error:?}");
                refused += 1;
            }
            Ok(proof) if proof.broken.is_some() => broken += 1,
            Ok(_) => {
                let journal = opened(&copy).await.unwrap();
                let after = store::read(&journal).await.unwrap();
                assert_eq!(before, after, "byte {position} changed a content undetected");
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
            "{count}: {broken} detected, {refused} rejected on open, {without_effect} in places without \
             effect (free space, informational names and times, indexes outside the Journal)"
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
        for case in 0..cases(500) {
            let mut dice = TestRng::new(u64::from(case));
            let (changed, description) = change::change_export(&export, &mut dice);
            let verdict = verify_export(&mut &changed[..]);
            assert!(verdict.is_err(), "{case}: not detected: {description}");
            count += 1;
        }
    }
    figure("single changes to an export", format!("{count} of {count} found"));
}
