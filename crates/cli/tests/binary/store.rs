//! Tests of the store commands: listing, verification, export, import, forgetting and backup.

use std::path::Path;

use serde_json::{Value, json};
use throughline_core::{
    Append, Batch, Body, Item, ItemPosition, LogOpening, NewRecord, ReasoningFormat, Role,
    Store as _, Thought, ThoughtKind, ToolCall, store_items,
};
use throughline_json::Json;
use throughline_store::Options;

use crate::support::kept::{SEAL, SECRET, TestStore};

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

fn snapshot(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name.to_owned(), text.trim_end()));
}

#[test]
fn store_session_matches_its_snapshot() {
    let store = TestStore::small("session");
    let session = store.transcript(&[
        &["threads"],
        &["threads", "--limit", "1"],
        &["threads", "--limit", "1", "--after", "trip-2"],
        &["threads", "--tenant", "unknown"],
        &["runs"],
        &["runs", "--thread", "notes"],
        &["items", "trip"],
        &["items", "trip", "--limit", "2", "--after", "1"],
        &["items", "trip", "--after", "4"],
        &["items", "notes"],
        &["items", "run-1"],
        &["items", "again", "--tenant", "acme"],
        &["stats"],
        &["verify", "--write-manifest", "manifest.json"],
        &["export", "--full", "--output", "all.jsonl"],
        &["export", "--thread", "notes", "--redact", "--output", "notes.jsonl"],
        &["verify", "all.jsonl"],
        &["verify", "notes.jsonl"],
        &["import", "all.jsonl", "--tenant", "copy"],
        &["import", "notes.jsonl", "--tenant", "redacted"],
        &["import", "all.jsonl"],
        &["fork", "trip"],
        &["fork", "trip", "--at", "1", "--as", "other-way"],
        &["fork", "trip", "--as", "notes"],
        &["fork", "trip", "--at", "99"],
        &["fork", "run-1"],
        &["backup", "copy.db"],
        &["backup", "copy.db"],
        &["forget", "--thread", "trip", "--item", "t1"],
        &["forget", "--thread", "trip", "--item", "t1", "--yes"],
        &["items", "trip-2"],
        &["prune", "--days", "30", "--yes"],
        &["prune", "--bytes", "100", "--dry-run"],
        &["prune", "--bytes", "100"],
        &["prune", "--bytes", "100", "--yes"],
        &["verify", "--manifest", "manifest.json"],
    ]);
    for secret in [SEAL, SECRET, "\u{1b}", "\u{202e}"] {
        assert!(!session.contains(secret), "{secret:?} was shown");
    }
    snapshot("store", &session);
    // `prune` erases one thread after another, so the order by last write varies.
    let listed = store.json(&["threads"]);
    let mut threads: Vec<[&str; 2]> = listed["threads"]
        .as_array()
        .unwrap()
        .iter()
        .map(|thread| ["id", "gone"].map(|member| thread[member].as_str().unwrap()))
        .collect();
    threads.sort_unstable();
    let expired = ["notes", "other-way", "trip", "trip-2", "trip-fork-1"];
    assert_eq!(threads, expired.map(|thread| [thread, "expired"]), "{listed}");
    let table = store.run(&["threads"]).out;
    assert_eq!(table.matches(" expired ").count(), expired.len(), "{table}");
}

#[test]
fn items_lists_role_and_kind() {
    let store = TestStore::without_database("items");
    store.with_journal(&Options::default(), async |journal| {
        let position = |part| ItemPosition::new(0, part);
        let thought = Thought::issued("Rome first.", ThoughtKind::Text, ReasoningFormat::unknown());
        let call = ToolCall {
            id: "call".into(),
            wire_id: None,
            name: "weather".into(),
            args: Json::parse(r#"{"city":"Rome"}"#).unwrap(),
            custom: false,
        };
        let items = [
            Item::new("0.0", position(0), Role::User, Body::Text("Where is it warm?".into())),
            Item::new("0.1", position(1), Role::Assistant, Body::Thought(thought)),
            Item::new("0.2", position(2), Role::Assistant, Body::Call(call)),
        ];
        let mut append = Append::new("thread").opening(LogOpening::thread());
        for stored in store_items(&items) {
            append = append.record(NewRecord::new("item", stored.json.bytes().clone()));
        }
        journal.commit(Batch::new("default").append(append)).await.unwrap();
    });
    let output = store.run(&["items", "thread"]);
    assert_eq!(
        output.out,
        "  1  item  0.0  user  Where is it warm?\n  2  item  0.1  assistant thought  Rome first.\n  \
         3  item  0.2  assistant call  weather {\"city\":\"Rome\"}\n"
    );
}

#[test]
fn tables_in_a_pipe_do_not_wrap_ids() {
    let store = TestStore::without_database("long-ids");
    let (thread, run) = (format!("thread_{}", "a".repeat(60)), format!("run_{}", "b".repeat(60)));
    store.with_journal(&Options::default(), async |journal| {
        let opened = Append::new(thread.as_str()).opening(LogOpening::thread());
        let started = Append::new(run.as_str()).opening(LogOpening::run(thread.as_str()));
        let batch = Batch::new("default").append(opened).append(started.status("done"));
        journal.commit(batch).await.unwrap();
    });
    let output = store.run(&["runs"]);
    let lines: Vec<&str> = output.out.lines().collect();
    assert_eq!(lines.len(), 2, "{}", output.out);
    assert!(lines[1].starts_with(&format!("{run}  ")), "{}", lines[1]);
    assert!(lines[1].contains(&format!("  {thread}  ")), "{}", lines[1]);
}

#[test]
fn json_has_exactly_the_documented_members() {
    let store = TestStore::small("members");
    let threads = store.json(&["threads"]);
    assert_eq!(keys(&threads), ["threads", "next"]);
    let log = ["bytes", "status", "gone", "created", "updated"];
    let summary = ["title", "models", "cost_usd"];
    let members = [&["id", "records", "runs", "forked_from"][..], &summary, &log].concat();
    for thread in threads["threads"].as_array().unwrap() {
        assert_eq!(keys(thread), members);
    }
    let ids: Vec<&str> = threads["threads"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["trip-2", "notes", "trip"]);
    assert_eq!(threads["threads"][0]["forked_from"], json!({"thread": "trip", "at": 2}));
    assert_eq!(threads["threads"][2]["runs"], 1);
    assert_eq!(threads["threads"][2]["status"], "idle");
    assert_eq!(threads["next"], Value::Null);

    let runs = store.json(&["runs", "--thread", "trip"]);
    assert_eq!(keys(&runs), ["runs", "next"]);
    let members = [&["id", "thread", "records", "events"][..], &summary].concat();
    let members = [&members[..], &["duration_ms", "interrupted"], &log].concat();
    assert_eq!(keys(&runs["runs"][0]), members);
    assert_eq!(runs["runs"][0]["events"], 2);

    let items = store.json(&["items", "trip", "--limit", "3"]);
    assert_eq!(keys(&items), ["thread", "records", "next"]);
    assert_eq!(items["next"], 3);
    for record in items["records"].as_array().unwrap() {
        assert_eq!(keys(record), ["seq", "kind", "at", "size", "rewound", "content"]);
    }
    let content = json!({"id": "t1", "role": "assistant", "type": "thinking",
        "thinking": "Paris or Rome: I need both forecasts.", "signature": "‹seal 48 B›"});
    assert_eq!(items["records"][1]["content"], content);
    let notes = store.json(&["items", "notes"]);
    assert_eq!(notes["records"][1]["content"], Value::Null);
    assert!(notes["records"][0]["content"]["text"].as_str().unwrap().contains("[REDACTED]"));
    let open = store.json(&["items", "notes", "--no-redaction"]);
    assert!(open["records"][0]["content"]["text"].as_str().unwrap().contains(SECRET));
    let events = store.json(&["items", "run-1"]);
    assert_eq!(events["records"][0]["content"], json!([{"type": "progress"}, "a delta"]));

    std::fs::write(store.file("policy.json"), r#"{"keys":["thinking"],"builtInSecrets":false}"#)
        .unwrap();
    let veiled = store.json(&["items", "trip", "--redaction", "policy.json"]);
    assert_eq!(veiled["records"][1]["content"]["thinking"], "[REDACTED]");

    let stats = store.json(&["stats"]);
    let counted = ["tenants", "threads", "runs", "records", "content_bytes", "blobs", "blob_bytes"];
    let others = ["turns", "pending", "segments", "manifests", "disk_bytes", "retention"];
    assert_eq!(keys(&stats), [&["store", "public_key"][..], &counted, &others].concat());
    assert_eq!((&stats["threads"], &stats["blobs"]), (&json!(4), &json!(1)));

    let verdict = store.json(&["verify"]);
    let proven = ["verdict", "broken", "store", "records", "without_content"];
    let of_stores = ["segments", "manifests", "tables", "warnings"];
    assert_eq!(keys(&verdict), [&proven[..], &of_stores].concat());
    assert_eq!(verdict["warnings"][0]["code"], "key-beside-data");
    assert_eq!((&verdict["verdict"], &verdict["store"]), (&json!("intact"), &stats["public_key"]));

    let exported = store.json(&["export", "--full", "--output", "a.jsonl"]);
    assert_eq!(keys(&exported), ["output", "threads", "runs", "records", "redacted"]);
    assert_eq!(keys(&store.json(&["verify", "a.jsonl"])), proven);
    let imported = store.json(&["import", "a.jsonl", "--tenant", "copy"]);
    let members = ["threads", "runs", "records", "without_content", "from_store", "from_tenant"];
    assert_eq!(keys(&imported), members);
    assert_eq!(imported["from_tenant"], "default");
    let forked = store.json(&["fork", "trip"]);
    let expected =
        json!({"id": "trip-fork-1", "forked_from": {"thread": "trip", "at": 4}, "records": 4});
    assert_eq!(forked, expected);
    assert_eq!(keys(&store.json(&["backup", "b.db"])), ["backup", "keys", "bytes"]);
    let destroyed = store.json(&["forget", "--thread", "trip", "--item", "q1", "--yes"]);
    assert_eq!(keys(&destroyed), ["logs", "records", "bytes", "unreached"]);
    let gone = store.json(&["items", "trip", "--limit", "1"]);
    assert_eq!(keys(&gone["records"][0]), ["seq", "kind", "at", "size", "rewound", "gone"]);
    assert_eq!(gone["records"][0]["gone"], "forgotten");
    let pruned = store.json(&["prune", "--bytes", "0", "--dry-run"]);
    assert_eq!(keys(&pruned), ["dry_run", "threads", "records", "bytes", "unreached"]);
    assert_eq!((&pruned["dry_run"], &pruned["records"]), (&json!(true), &Value::Null));
    assert_eq!(keys(&pruned["threads"][0]), ["id", "bytes", "updated"]);
}

#[test]
fn export_and_import_round_trip() {
    let store = TestStore::small("round-trip");
    let first = store.run(&["export", "--full"]);
    assert_eq!(first.code, 0, "{}", first.err);
    assert!(first.err.contains("exported: 3 threads, 1 run, 10 records"), "{}", first.err);
    assert!(first.out.contains(SEAL), "the export is exact");
    // Import from standard input into a new store.
    let other = format!("sqlite://{}", store.file("new/other.db").display());
    let output = store.run_with(&[], &["import", "--store", &other, "-"], first.out.as_bytes());
    assert_eq!((output.code, output.err.as_str()), (0, ""), "{}", output.out);
    let second = store.run(&["export", "--full", "--store", &other]);
    assert_eq!(second.code, 0, "{}", second.err);
    assert_eq!(portable_lines(&first.out), portable_lines(&second.out));
    let output = store.run(&["verify", "--store", &other]);
    assert_eq!(output.code, 0, "{}", output.out);
}

#[test]
fn redacted_export_verifies_but_is_not_imported() {
    let store = TestStore::small("redacted-export");
    let redacted = store.run(&["export"]);
    assert_eq!(redacted.code, 0, "{}", redacted.err);
    assert!(redacted.err.contains("(redacted"), "{}", redacted.err);
    let header: Value = serde_json::from_str(redacted.out.lines().next().unwrap()).unwrap();
    assert_eq!((&header["redacted"], &header["full"]), (&json!(true), &json!(false)));
    let output = store.run_with(&[], &["verify", "-"], redacted.out.as_bytes());
    assert_eq!(output.code, 0, "{}{}", output.out, output.err);
    for url in [store.url(), format!("sqlite://{}", store.file("none.db").display())] {
        let import = ["import", "--tenant", "copy", "--store", &url, "-"];
        let output = store.run_with(&[], &import, redacted.out.as_bytes());
        assert_eq!((output.code, output.out.as_str()), (65, ""), "{}", output.err);
        assert!(output.err.contains("`throughline export --full`"), "{}", output.err);
    }
    assert!(!store.file("none.db").exists(), "no store is created for an invalid export");
    let full = store.run(&["export", "--full"]);
    assert!(full.err.contains("(full)"), "{}", full.err);
    let header: Value = serde_json::from_str(full.out.lines().next().unwrap()).unwrap();
    assert_eq!((&header["redacted"], &header["full"]), (&json!(false), &json!(true)));
    // An export that is cut in the middle is refused.
    let half = &full.out[..full.out.len() / 2];
    let output = store.run_with(&[], &["import", "--tenant", "copy", "-"], half.as_bytes());
    assert_eq!(output.code, 65, "{}", output.err);
}

/// Parses an export and removes the fields that depend on the exporting store or its hash chain.
fn portable_lines(export: &str) -> Vec<Value> {
    let line = |line: &str| {
        let mut line: Value = serde_json::from_str(line).unwrap();
        let members = line.as_object_mut().unwrap();
        // A fork is exported with its history, so it becomes an independent thread.
        for member in [
            "store",
            "manifest",
            "fork",
            "created",
            "about",
            "writer",
            "position",
            "commitment",
            "link",
            "salt",
        ] {
            members.remove(member);
        }
        line
    };
    let mut lines: Vec<Value> = export.lines().map(line).collect();
    // Logs created at the same time may be in a different order.
    let start = lines.iter().position(|line| line.get("log").is_some()).unwrap();
    let mut logs: Vec<Vec<Value>> = Vec::new();
    for line in lines.split_off(start) {
        if line.get("log").is_some() {
            logs.push(Vec::new());
        }
        logs.last_mut().unwrap().push(line);
    }
    logs.sort_by_key(|log| log[0]["log"].as_str().unwrap().to_owned());
    lines.extend(logs.into_iter().flatten());
    lines
}

#[test]
fn verify_locates_a_broken_record() {
    let store = TestStore::small("broken");
    let flip = "UPDATE records SET content = CAST(x'00' || substr(content, 2) AS BLOB) WHERE seq = 2 AND log = 1";
    assert_eq!(store.database().execute(flip, []).unwrap(), 1);
    let output = store.run(&["verify", "--write-manifest", "manifest.json"]);
    assert_eq!((output.code, output.err.as_str()), (1, ""), "{}", output.out);
    assert!(output.out.contains("record 2 of trip (tenant default) is damaged"), "{}", output.out);
    assert!(!store.file("manifest.json").exists(), "no manifest is signed for a broken store");
    let output = store.run(&["verify", "--format", "json"]);
    let verdict: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!((output.code, &verdict["verdict"]), (1, &json!("broken")));
    assert_eq!(keys(&verdict["broken"]), ["place", "problem"]);
    let output = store.run(&["items", "trip"]);
    assert_eq!((output.code, output.out.as_str()), (65, ""));
    assert!(
        output.err.contains("run `throughline verify` to locate the problem"),
        "{}",
        output.err
    );
    // Nothing is exported if any content is unreadable.
    let output = store.run(&["export", "--output", "all.jsonl"]);
    assert_eq!(output.code, 65, "{}", output.err);
    assert_eq!(files_in(&store.folder).iter().filter(|name| !name.starts_with("a.db")).count(), 0);
}

#[test]
fn modified_export_is_refused_with_its_line() {
    let store = TestStore::small("spoiled");
    let export = store.run(&["export", "--full"]).out;
    let spoiled = export.replacen("warmer", "colder", 1);
    let output = store.run_with(&[], &["verify", "-"], spoiled.as_bytes());
    assert_eq!(output.code, 1, "{}", output.err);
    assert!(
        output.out.contains("has content that does not match its commitment"),
        "{}",
        output.out
    );
    let output = store.run_with(&[], &["import", "--tenant", "copy", "-"], spoiled.as_bytes());
    assert_eq!((output.code, output.out.as_str()), (65, ""));
    assert!(
        output
            .err
            .contains("standard input: line 3 has content that does not match its commitment"),
        "{}",
        output.err
    );
    let output = store.run(&["threads", "--tenant", "copy"]);
    assert!(output.out.contains("has no threads"), "{}", output.out);
    let url = format!("sqlite://{}", store.file("none.db").display());
    let output = store.run_with(&[], &["import", "--store", &url, "-"], spoiled.as_bytes());
    assert_eq!((output.code, output.out.as_str()), (65, ""));
    assert!(!store.file("none.db").exists(), "no store is created for an invalid export");
    let (cut, _) = export.trim_end().rsplit_once('\n').unwrap();
    let output = store.run_with(&[], &["verify", "-"], cut.as_bytes());
    assert_eq!(output.code, 1);
    assert!(output.out.contains("truncated before its signature"), "{}", output.out);
    // A manifest that was saved elsewhere detects a truncated store.
    assert_eq!(store.run(&["verify", "--write-manifest", "kept.json"]).code, 0);
    let older = TestStore::small("older");
    std::fs::copy(store.file("kept.json"), older.file("kept.json")).unwrap();
    let output = older.run(&["verify", "--manifest", "kept.json"]);
    assert_eq!(output.code, 1, "{}", output.err);
    assert!(output.out.contains("was not signed by this store"), "{}", output.out);
}

#[test]
fn unreachable_key_file_sets_the_exit_code() {
    let store = TestStore::small("unreached");
    assert_eq!(store.run(&["backup", "b.db"]).code, 0);
    std::fs::remove_file(store.file("b.db.keys")).unwrap();
    let output = store.run(&["forget", "--thread", "trip", "--yes"]);
    assert_eq!(output.code, 1, "{}", output.out);
    assert!(output.out.contains("forgotten: "), "{}", output.out);
    assert!(
        output.err.contains("b.db.keys was unreachable and may still hold the content"),
        "{}",
        output.err
    );
    assert!(store.run(&["items", "trip"]).out.contains("forgotten"));
    assert!(output.err.contains("throughline backup --unregister"), "{}", output.err);
    // The error suggests commands for a deleted backup and for a moved key file.
    let output = store.run(&["backup", "--unregister", "b.db.keys"]);
    assert_eq!(output.code, 0, "{}", output.err);
    assert!(output.out.contains("unregistered b.db.keys"), "{}", output.out);
    assert_eq!(store.run(&["backup", "--unregister", "b.db.keys"]).code, 2);
    assert_eq!(store.run(&["backup", "c.db"]).code, 0);
    std::fs::rename(store.file("c.db.keys"), store.file("moved.keys")).unwrap();
    let json = store.json(&["backup", "--register", "moved.keys"]);
    assert_eq!(keys(&json), ["keys", "unreached"]);
    assert_eq!(store.run(&["backup"]).code, 2);
    assert_eq!(store.run(&["verify"]).code, 0);
}

/// A backup and its key file restore the store. The backup alone cannot be read, and content that
/// was forgotten after the backup is missing from the restored store.
#[test]
fn backup_and_key_file_restore_a_store() {
    let store = TestStore::small("restored");
    let output = store.run(&["backup", "b.db", "--keys", "apart.keys"]);
    assert_eq!(output.code, 0, "{}", output.err);
    assert!(output.out.contains("its keys are in apart.keys"), "{}", output.out);
    std::fs::copy(store.file("b.db"), store.file("copy.db")).unwrap();
    assert_eq!(store.run(&["forget", "--thread", "trip", "--item", "q1", "--yes"]).code, 0);
    let output = store.run(&["threads", "--store", "sqlite://copy.db"]);
    assert_eq!(output.code, 65, "{}", output.err);
    assert!(output.err.contains("apart.keys; restore the backup with"), "{}", output.err);
    let output = store.run(&["restore", "copy.db", "--to", "new.db"]);
    assert_eq!(output.code, 2, "{}", output.err);
    assert!(output.err.contains("copy.db.keys does not exist; pass the path"), "{}", output.err);
    let restored = ["restore", "copy.db", "--keys", "apart.keys", "--to", "new.db"];
    let members = ["store", "records", "gone", "without_key"];
    let report = store.json(&restored);
    assert_eq!(keys(&report), members);
    assert_eq!(report["without_key"], 0);
    assert!(report["gone"].as_u64().unwrap() > 0, "{report}");
    assert_eq!(store.run(&restored).code, 2, "the file already exists");
    let at = ["--store", "sqlite://new.db"];
    assert_eq!(store.run(&[&["verify"][..], &at].concat()).code, 0);
    let output = store.run(&[&["items", "trip"][..], &at].concat());
    assert!(output.out.contains("forgotten"), "{}", output.out);
    let mut text = std::fs::read(store.file("apart.keys")).unwrap();
    text.truncate(text.len() / 2);
    std::fs::write(store.file("apart.keys"), text).unwrap();
    let output = store.run(&["restore", "b.db", "--keys", "apart.keys", "--to", "newer.db"]);
    assert_eq!(output.code, 65, "{}", output.err);
    assert!(!store.file("newer.db").exists());
}

/// Asserts that a command fails with this exit code, and with this text on standard error only.
fn assert_failure(store: &TestStore, arguments: &[&str], code: i32, message: &str) {
    let output = store.run(arguments);
    assert_eq!((output.code, output.out.as_str()), (code, ""), "{arguments:?}: {}", output.err);
    assert!(output.err.contains(message), "{arguments:?}: {}", output.err);
    assert!(!output.err.contains("panicked"), "{}", output.err);
}

#[test]
fn open_errors_state_the_remedy() {
    let store = TestStore::without_database("absent");
    let data = store.file("data");
    let home = [("THROUGHLINE_STORE", ""), ("XDG_DATA_HOME", data.to_str().unwrap())];
    for command in [
        &["threads"][..],
        &["runs"],
        &["items", "x"],
        &["export"],
        &["fork", "x"],
        &["verify"],
        &["forget", "--thread", "x", "--yes"],
        &["prune", "--days", "1", "--yes"],
        &["backup", "b.db"],
        &["stats"],
    ] {
        let output = store.run_with(&home, command, b"");
        assert_eq!((output.code, output.out.as_str()), (69, ""), "{command:?}: {}", output.err);
        assert!(output.err.contains("there is no store at sqlite://"), "{}", output.err);
        assert!(
            output.err.contains("throughline/throughline.db; create one with `throughline run`"),
            "{}",
            output.err
        );
    }
    assert_eq!(files_in(&store.folder), [""; 0], "reading commands create nothing");

    let export = TestStore::small("for-absent").run(&["export", "--full"]).out;
    let output = store.run_with(&home, &["import", "-"], export.as_bytes());
    assert_eq!(output.code, 0, "{}", output.err);
    assert!(data.join("throughline/throughline.db").is_file());

    std::fs::write(store.file("a.db"), "these are only words, and many of them".repeat(100))
        .unwrap();
    assert_failure(
        &store,
        &["threads"],
        65,
        "is not a database; choose a different file for the store",
    );
    assert_failure(
        &store,
        &["verify"],
        65,
        "is not a database; choose a different file for the store",
    );
    std::fs::remove_file(store.file("a.db")).unwrap();
    store.database().execute_batch("CREATE TABLE theirs (a)").unwrap();
    assert_failure(&store, &["threads"], 65, "is another program's database");
    assert_failure(
        &store,
        &["threads", "--store", "mysql://me:hunter2@host/x"],
        2,
        "has an unknown scheme",
    );
    assert_failure(&store, &["threads", "--store", "sqlite://"], 65, "no file name");
    // No server listens on port 1.
    assert_failure(
        &store,
        &["threads", "--store", "postgres://me@127.0.0.1:1/x"],
        69,
        "check that the PostgreSQL server is running",
    );
    // Not even root can write to this path.
    assert_failure(
        &store,
        &["import", "--store", "sqlite:///proc/nowhere/a.db", "-"],
        65,
        "standard input is empty",
    );
    let output = store.run_with(
        &[],
        &["import", "--store", "sqlite:///proc/nowhere/a.db", "-"],
        export.as_bytes(),
    );
    assert_eq!((output.code, output.out.as_str()), (69, ""));
    assert!(output.err.contains("cannot open sqlite:///proc/nowhere/a.db"), "{}", output.err);
    assert!(output.err.contains("cannot create files in /proc; make the folder"), "{}", output.err);
}

#[test]
fn newer_and_empty_stores_are_described() {
    let newer = TestStore::small("newer");
    newer.database().pragma_update(None, "user_version", 99).unwrap();
    assert_failure(&newer, &["stats"], 69, "has schema version 99, but this program supports");

    let empty = TestStore::empty("empty");
    for (command, message) in [
        (&["threads"][..], "the tenant default has no threads"),
        (&["runs"], "the tenant default has no runs"),
        (&["verify"], "is intact"),
        (&["prune", "--days", "1", "--yes"], "nothing expires"),
    ] {
        let output = empty.run(command);
        assert_eq!((output.code, output.err.as_str()), (0, ""), "{command:?}");
        assert!(output.out.contains(message), "{command:?}: {}", output.out);
    }
    assert_eq!(empty.run(&["export"]).code, 0);
    let migrate = ["migrate", "sqlite://a.db", "postgres://me@127.0.0.1:1/x"];
    assert_failure(&empty, &migrate, 69, "; check the URL, and that the server is running");
    assert_failure(&empty, &["items", "x"], 2, "there is no thread or run x in the tenant default");
    assert_failure(
        &empty,
        &["runs", "--thread", "x"],
        2,
        "there is no thread x in the tenant default",
    );
}

#[test]
fn usage_errors_change_nothing() {
    let store = TestStore::small("usage");
    std::fs::write(store.file("policy.json"), r#"{"kees":[]}"#).unwrap();
    std::fs::write(store.file("broken.json"), "{").unwrap();
    std::fs::write(store.file("words.jsonl"), "words\n").unwrap();
    let cases: &[(&[&str], i32, &str)] = &[
        (&["items"], 2, "required arguments were not provided"),
        (&["items", "nope"], 2, "there is no thread or run nope in the tenant default"),
        (
            &["items", "trip", "--tenant", "acme"],
            2,
            "there is no thread or run trip in the tenant acme",
        ),
        (&["items", "trip", "--after", "x"], 2, "expected a whole number"),
        (&["items", "trip", "--redaction", "policy.json"], 65, "policy.json: "),
        (&["items", "trip", "--redaction", "broken.json"], 65, "broken.json:1:2: not JSON"),
        (&["items", "trip", "--redaction", "none.json"], 2, "cannot read none.json"),
        (
            &["items", "trip", "--redaction", "policy.json", "--no-redaction"],
            2,
            "cannot be used with",
        ),
        (&["threads", "--limit", "0"], 2, "expected a whole number from 1 to 100000"),
        (&["threads", "--after", "nope"], 2, "there is no thread nope"),
        (&["threads", "--tenant", ""], 2, "a value is required"),
        (&["export", "--thread", "nope"], 2, "there is no thread nope"),
        (&["export", "--thread", "run-1"], 2, "run-1 is a run of the thread trip, not a thread"),
        (&["export", "--output", "a.db"], 2, "would overwrite the store"),
        (&["export", "--output", "."], 2, "is a directory"),
        (
            &["export", "--output", "none/x.jsonl"],
            1,
            "write none/x.jsonl: there is no folder none;",
        ),
        (
            &["verify", "--write-manifest", "none/m.json"],
            2,
            "cannot write none/m.json: there is no folder none; create the folder",
        ),
        (&["import", "none.jsonl"], 2, "cannot open none.jsonl"),
        (&["import", "."], 2, "is a directory"),
        (&["import", "words.jsonl"], 65, "words.jsonl: line 1 is not JSON"),
        (&["verify", "words.jsonl"], 65, "words.jsonl: line 1 is not JSON"),
        (&["verify", "none.jsonl"], 2, "cannot open none.jsonl"),
        (&["verify", "--manifest", "words.jsonl"], 65, "words.jsonl is not a manifest"),
        (&["verify", "--manifest", "none.json"], 2, "cannot read the manifest none.json"),
        (&["forget"], 2, "--thread <THREAD>"),
        (&["forget", "--thread", "trip"], 2, "add --yes to confirm"),
        (&["forget", "--thread", "nope", "--yes"], 2, "there is no thread nope"),
        (&["forget", "--thread", "trip", "--item", "nope", "--yes"], 2, "there is no item nope"),
        (&["prune"], 2, "--days <N>|--bytes <SIZE>"),
        (&["prune", "--bytes", "much"], 2, "expected a number of bytes"),
        (&["prune", "--days", "0"], 2, "expected a whole number from 1 to 100000"),
        (&["prune", "--bytes", "0"], 2, "add --yes to confirm"),
        (&["backup", "a.db"], 2, "already exists"),
        (&["backup", "none/b.db"], 69, "cannot create none/b.db: there is no folder none;"),
        (&["rotate"], 2, "--new-key-file <FILE>"),
        (&["rotate", "--new-key-file", "words.jsonl"], 2, "words.jsonl: a master key is 64"),
    ];
    let before = store.run(&["export"]).out;
    for (arguments, code, message) in cases {
        let output = store.run(arguments);
        assert_eq!(output.code, *code, "{arguments:?}: {}{}", output.err, output.out);
        assert!(output.err.contains(message), "{arguments:?}: {}", output.err);
        assert!(
            !output.err.contains("panicked") && output.out.is_empty(),
            "{arguments:?}: {}",
            output.err
        );
    }
    assert_eq!(portable_lines(&store.run(&["export"]).out), portable_lines(&before));
}

#[test]
fn closed_output_pipe_is_not_an_error() {
    use std::process::{Command, Stdio};
    let store = TestStore::small("gone");
    for arguments in [&["export"][..], &["threads"], &["items", "trip"], &["stats"]] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_throughline"))
            .args(arguments)
            .env("THROUGHLINE_STORE", store.url())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(
            (output.status.code(), &*String::from_utf8_lossy(&output.stderr)),
            (Some(0), "")
        );
    }
}

#[test]
fn unwritable_targets_are_reported() {
    let store = TestStore::small("read-only");
    let export = store.run(&["export", "--full"]).out;
    // Not even root can write to this path.
    let output = store.run(&["export", "--output", "/proc/export.jsonl"]);
    assert_eq!((output.code, output.out.as_str()), (1, ""));
    assert!(output.err.contains("cannot write /proc/export.jsonl"), "{}", output.err);
    let output = store.run(&["backup", "/proc/b.db"]);
    assert_eq!((output.code, output.out.as_str()), (69, ""), "{}", output.err);
    assert!(output.err.contains("/proc/b.db"), "{}", output.err);
    let folder = store.file("closed");
    std::fs::create_dir(&folder).unwrap();
    let permissions = |mode| {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    permissions(0o555);
    if std::fs::write(folder.join("probe"), "").is_err() {
        let url = format!("sqlite://{}", folder.join("a.db").display());
        let output = store.run_with(&[], &["import", "--store", &url, "-"], export.as_bytes());
        assert_eq!((output.code, output.out.as_str()), (69, ""));
        assert!(output.err.contains(&format!("cannot open {url}")), "{}", output.err);
    }
    permissions(0o755);
}

#[test]
fn interrupted_commands_leave_no_partial_file() {
    use std::process::{Command, Stdio};
    let store = TestStore::without_database("interrupted");
    store.with_journal(&Options::default(), async |journal| {
        let mut long = Append::new("long").opening(LogOpening::thread());
        for number in 0..3000 {
            long =
                long.record(NewRecord::new("item", format!("{number} {}", "words ".repeat(700))));
        }
        journal.commit(Batch::new("default").append(long)).await.unwrap();
    });
    for (arguments, file) in
        [(&["export", "--output", "all.jsonl"][..], "all.jsonl"), (&["backup", "b.db"], "b.db")]
    {
        let child = Command::new(env!("CARGO_BIN_EXE_throughline"))
            .args(arguments)
            .current_dir(&store.folder)
            .env("THROUGHLINE_STORE", store.url())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let is_begun = || files_in(&store.folder).iter().any(|name| !name.starts_with("a.db"));
        while !is_begun() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let id = child.id().to_string();
        Command::new("kill").args(["-INT", &id]).status().unwrap();
        let output = child.wait_with_output().unwrap();
        let remaining: Vec<String> =
            files_in(&store.folder).into_iter().filter(|name| !name.starts_with("a.db")).collect();
        let stderr = String::from_utf8_lossy(&output.stderr);
        // If the command finished before the signal arrived, its file is complete.
        match output.status.code() {
            Some(130) => {
                assert!(stderr.contains("interrupted: nothing was written"), "{stderr}");
                assert_eq!(remaining, [""; 0]);
            }
            code => {
                let mut remaining = remaining;
                remaining.sort();
                let keys = format!("{file}.keys");
                let all: Vec<&String> = remaining.iter().filter(|name| **name != keys).collect();
                assert_eq!((code, all), (Some(0), vec![&file.to_owned()]), "{stderr}");
                for name in &remaining {
                    std::fs::remove_file(store.file(name)).unwrap();
                }
            }
        }
    }
    assert_eq!(store.run(&["verify"]).code, 0);
}

fn files_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

#[test]
fn migrate_moves_a_store_to_postgres_and_back() {
    let store = TestStore::small("migrated");
    let database = throughline_testkit::postgres_database();
    let (source, back) = (store.url(), format!("sqlite://{}", store.file("back.db").display()));
    let there = store.json(&["migrate", &source, &database]);
    let members = [
        "source",
        "target",
        "copied",
        "proof",
        "store",
        "records",
        "without_content",
        "segments",
        "manifests",
        "tenants",
        "threads",
        "runs",
        "turns",
        "blobs",
    ];
    assert_eq!(keys(&there), members);
    assert_eq!((&there["copied"], &there["tenants"]), (&json!(true), &json!(2)), "{there}");
    let again = store.json(&["migrate", &source, &database]);
    assert_eq!((&again["copied"], &again["proof"]), (&json!(false), &there["proof"]), "{again}");
    let output = store.run(&["migrate", &database, &back]);
    assert_eq!(output.code, 0, "{}", output.err);
    let proof = there["proof"].as_str().unwrap();
    let expected = format!("both stores are intact and have the proof {proof}");
    assert!(output.out.contains(&expected), "{}", output.out);
    for target in [&database, &back] {
        assert_eq!(store.run(&["verify", "--store", target]).code, 0);
        let items = store.run(&["items", "trip", "--store", target]);
        assert_eq!(items.out, store.run(&["items", "trip"]).out);
    }

    // The copy was used since, and another store is at the target.
    assert_eq!(store.run(&["fork", "trip", "--store", &database]).code, 0);
    let output = store.run(&["migrate", &source, &database]);
    assert_eq!(output.code, 2, "{}", output.err);
    assert!(output.err.contains("already contains a store"), "{}", output.err);
    for (target, code, expected) in [
        (&*source, 2, "both stores of a migration are on SQLite"),
        ("mysql://me@here/db", 2, "the target URL has an unknown scheme"),
        ("postgres://me:hunter2@127.0.0.1:1/db", 69, "cannot reach postgres://127.0.0.1:1/db"),
    ] {
        let output = store.run(&["migrate", &source, target]);
        assert_eq!(output.code, code, "{}", output.err);
        assert!(output.err.contains(expected) && !output.err.contains("hunter2"), "{}", output.err);
    }
    let absent = format!("sqlite://{}", store.file("absent.db").display());
    assert_eq!(store.run(&["migrate", &absent, &database]).code, 69);
}
