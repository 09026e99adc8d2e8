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
    let kept = TestStore::small_store_with("keys", &options);
    for (name, key) in [("old.key", &*old), ("new.key", &*new), ("bad.key", "abc")] {
        std::fs::write(kept.file(name), format!("{key}\n")).unwrap();
    }
    let told = |ran: &CommandOutput, code: i32, message: &str| {
        assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{}", ran.err);
        assert!(ran.err.contains(message), "{}", ran.err);
        assert!(!ran.err.contains(&old) && !ran.err.contains(&new), "a key was shown");
    };
    told(&kept.run(&["threads"]), 69, "--master-key-file or THROUGHLINE_MASTER_KEY");
    told(
        &kept.run(&["threads", "--master-key-file", "new.key"]),
        69,
        "the master key does not match",
    );
    told(&kept.run(&["threads", "--master-key-file", "bad.key"]), 2, "bad.key: a master key is 64");
    told(
        &kept.run(&["threads", "--master-key-file", "none.key"]),
        1,
        "cannot read the key file none.key",
    );
    let bad = kept.run_with(&[("THROUGHLINE_MASTER_KEY", &old[1..])], &["threads"], b"");
    told(&bad, 2, "THROUGHLINE_MASTER_KEY: a master key is 64");
    let ran = kept.run_with(&[("THROUGHLINE_MASTER_KEY", &old)], &["threads"], b"");
    assert_eq!(ran.code, 0, "{}", ran.err);
    let ran = kept.run(&["rotate", "--master-key-file", "old.key", "--new-key-file", "new.key"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert!(ran.out.contains("12 contents wrapped under the new key"), "{}", ran.out);
    told(
        &kept.run(&["threads", "--master-key-file", "old.key"]),
        69,
        "the master key does not match",
    );
    let both = ["--master-key-file", "new.key", "--retired-key-file", "old.key"];
    let ran = kept.run(&[&["verify"][..], &both].concat());
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
}

#[test]
fn rotation_reports_concurrent_writes_under_the_old_key() {
    let (old, new) = ("ab".repeat(32), "cd".repeat(32));
    let options =
        Options { master_key: Some(MasterKey::parse(&old).unwrap()), ..Options::default() };
    let kept = TestStore::small_store_with("behind", &options);
    for (name, key) in [("old.key", &*old), ("new.key", &*new)] {
        std::fs::write(kept.file(name), format!("{key}\n")).unwrap();
    }
    let first = ["rotate", "--master-key-file", "old.key", "--new-key-file", "new.key"];
    let again = ["rotate", "--master-key-file", "new.key", "--retired-key-file", "old.key"];
    let again = [&again[..], &["--new-key-file", "new.key", "--format", "json"]].concat();
    // Another process, which has only the old key, writes during the rotation.
    let (wrote, written) = mpsc::channel();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (stop, kept, options) = (&stop, &kept, &options);
        scope.spawn(move || {
            kept.written(options, async |journal| {
                while !stop.load(Ordering::Relaxed) {
                    let append = Append::new("trip").record(NewRecord::new("note", "on"));
                    journal.commit(Batch::new("default").append(append)).await.unwrap();
                    wrote.send(()).ok();
                }
            });
        });
        written.recv().unwrap();
        let mut ran = kept.run(&first);
        // A concurrent write is likely in each attempt, but not certain.
        for _ in 0..100 {
            if ran.code != 0 {
                break;
            }
            ran = kept.run(&again);
        }
        stop.store(true, Ordering::Relaxed);
        assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
        assert!(
            ran.err.contains("incomplete: some contents are wrapped under another key"),
            "{}",
            ran.err
        );
    });
    let ran = kept.run(&again);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    assert!(ran.out.contains("\"behind\":false"), "{}", ran.out);
    // The new key alone is now sufficient.
    let ran = kept.run(&["verify", "--master-key-file", "new.key"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
}
