//! Tests of a store with a master key, and of key rotation during writes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use throughline_core::{Append, Batch, NewRecord, Store as _};
use throughline_store::{MasterKey, Options};

use crate::support::CommandOutput;
use crate::support::kept::TestStore;

#[test]
fn store_opens_only_with_its_master_key() {
    let (old, new) = ("ab".repeat(32), "cd".repeat(32));
    let options =
        Options { master_key: Some(MasterKey::parse(&old).unwrap()), ..Options::default() };
    let store = TestStore::small_store_with("keys", &options);
    for (name, key) in [("old.key", &*old), ("new.key", &*new), ("bad.key", "abc")] {
        std::fs::write(store.file(name), format!("{key}\n")).unwrap();
    }
    let assert_failure = |output: &CommandOutput, code: i32, message: &str| {
        assert_eq!((output.code, output.out.as_str()), (code, ""), "{}", output.err);
        assert!(output.err.contains(message), "{}", output.err);
        assert!(!output.err.contains(&old) && !output.err.contains(&new), "a key was shown");
    };
    assert_failure(
        &store.run(&["threads"]),
        69,
        "or in the environment variable THROUGHLINE_MASTER_KEY",
    );
    assert_failure(
        &store.run(&["threads", "--master-key-file", "new.key"]),
        69,
        "the master key does not match",
    );
    assert_failure(
        &store.run(&["threads", "--master-key-file", "bad.key"]),
        2,
        "bad.key: a master key is 64",
    );
    assert_failure(
        &store.run(&["threads", "--master-key-file", "none.key"]),
        2,
        "cannot read the key file none.key",
    );
    let bad = store.run_with(&[("THROUGHLINE_MASTER_KEY", &old[1..])], &["threads"], b"");
    assert_failure(&bad, 2, "THROUGHLINE_MASTER_KEY: a master key is 64");
    let output = store.run_with(&[("THROUGHLINE_MASTER_KEY", &old)], &["threads"], b"");
    assert_eq!(output.code, 0, "{}", output.err);
    let output =
        store.run(&["rotate", "--master-key-file", "old.key", "--new-key-file", "new.key"]);
    assert_eq!((output.code, output.err.as_str()), (0, ""));
    assert!(output.out.contains("12 contents wrapped under the new key"), "{}", output.out);
    let advice = "restart each process with the new key, and without --retired-key-file\n";
    assert!(output.out.contains(advice), "{}", output.out);
    let same = store.run(&["rotate", "--master-key-file", "new.key", "--new-key-file", "new.key"]);
    assert_eq!((same.code, same.err.as_str()), (0, ""));
    assert!(same.out.starts_with("✓ no content was changed"), "{}", same.out);
    assert_failure(
        &store.run(&["threads", "--master-key-file", "old.key"]),
        69,
        "the master key does not match",
    );
    let keys = ["--master-key-file", "new.key", "--retired-key-file", "old.key"];
    let output = store.run(&[&["verify"][..], &keys].concat());
    assert_eq!((output.code, output.err.as_str()), (0, ""), "{}", output.out);
}

#[test]
fn rotation_reports_concurrent_writes_under_the_old_key() {
    let (old, new) = ("ab".repeat(32), "cd".repeat(32));
    let options =
        Options { master_key: Some(MasterKey::parse(&old).unwrap()), ..Options::default() };
    let store = TestStore::small_store_with("behind", &options);
    for (name, key) in [("old.key", &*old), ("new.key", &*new)] {
        std::fs::write(store.file(name), format!("{key}\n")).unwrap();
    }
    let first = ["rotate", "--master-key-file", "old.key", "--new-key-file", "new.key"];
    let again = ["rotate", "--master-key-file", "new.key", "--retired-key-file", "old.key"];
    let again = [&again[..], &["--new-key-file", "new.key", "--format", "json"]].concat();
    // Another process, which has only the old key, writes during the rotation.
    let (wrote, written) = mpsc::channel();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (stop, store, options) = (&stop, &store, &options);
        scope.spawn(move || {
            store.with_journal(options, async |journal| {
                while !stop.load(Ordering::Relaxed) {
                    let append = Append::new("trip").record(NewRecord::new("note", "on"));
                    journal.commit(Batch::new("default").append(append)).await.unwrap();
                    wrote.send(()).ok();
                }
            });
        });
        written.recv().unwrap();
        let mut output = store.run(&first);
        // A concurrent write is likely in each attempt, but not certain.
        for _ in 0..100 {
            if output.code != 0 {
                break;
            }
            output = store.run(&again);
        }
        stop.store(true, Ordering::Relaxed);
        assert_eq!(output.code, 1, "{}{}", output.out, output.err);
        assert!(
            output.err.contains("incomplete: some contents are wrapped under another key"),
            "{}",
            output.err
        );
    });
    let output = store.run(&again);
    assert_eq!((output.code, output.err.as_str()), (0, ""), "{}", output.out);
    assert!(output.out.contains("\"behind\":false"), "{}", output.out);
    // The new key alone is now sufficient.
    let output = store.run(&["verify", "--master-key-file", "new.key"]);
    assert_eq!((output.code, output.err.as_str()), (0, ""), "{}", output.out);
}
