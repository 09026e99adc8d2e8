//! Tests of exports, imports, backups and master key rotation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use throughline_core::{
    Append, LogHead, LogKind, LogOpening, NewRecord, Record, Store, Tenant, pack_events,
};
use throughline_spec::RedactionPolicy;
use throughline_store::{
    ExportSummary, ImportSummary, Journal, Options, Page, RotationReport, about_item, open,
    verify_export,
};

use crate::harness::*;

/// Writes Threads and a run with binary and large content, rewinds, nested forks and packed events.
async fn fill(journal: &Journal) {
    let append = items("thread", &["a", "", "ü 漢"]).opening(LogOpening::thread());
    let append = append.record(NewRecord::new("item", vec![0, 159, 146, 150, 255]));
    let append = append.record(NewRecord::new("item", vec![200; 40_000]));
    journal.commit(batch(append.status("idle"))).await.unwrap();
    let mut rewind = items("thread", &["b"]);
    rewind.rewind_to = Some(3);
    journal.commit(batch(rewind)).await.unwrap();
    journal.fork(&us(), &log("thread"), Some(6), &log("fork")).await.unwrap();
    add(&journal.clone(), "fork", &["c"]).await;
    journal.fork(&us(), &log("fork"), None, &log("nested")).await.unwrap();
    let mut rewind = items("nested", &["d"]);
    rewind.rewind_to = Some(1);
    journal.commit(batch(rewind)).await.unwrap();
    journal.fork(&us(), &log("thread"), Some(0), &log("empty")).await.unwrap();
    let events = [&b"one"[..], b"", b"\xff"];
    let append = Append::new("run").opening(LogOpening::run("nested")).status("done");
    journal
        .commit(batch(append.record(pack_events(events)).record(pack_events(events))))
        .await
        .unwrap();
    // Write more records than one import page holds.
    let many: Vec<String> = (0..700).map(|number| format!("item {number}")).collect();
    thread(journal, "long", &many.iter().map(String::as_str).collect::<Vec<_>>()).await;
}

/// Returns all logs of a tenant with their records.
async fn everything(journal: &Journal, tenant: &Tenant) -> Vec<(LogHead, Vec<Record>)> {
    let page = || Page { limit: 1000, ..Page::default() };
    let mut heads = journal.threads(tenant, page()).await.unwrap();
    heads.extend(journal.runs(tenant, None, page()).await.unwrap());
    heads.sort_by(|one, other| one.log.cmp(&other.log));
    let mut all = Vec::new();
    for head in heads {
        let records = journal.read(tenant, &head.log, 0, u32::MAX).await.unwrap();
        all.push((head, records));
    }
    all
}

async fn export(
    journal: &Journal,
    redaction: Option<&RedactionPolicy>,
) -> (ExportSummary, Vec<u8>) {
    let mut out = Vec::new();
    let summary = journal.export(&us(), &[], redaction, &mut out, &|_| {}).await.unwrap();
    (summary, out)
}

/// Sets each log's times to those of its first and last records, without the records shared with a
/// parent. Logs that have no other records get a fixed time, because an import assigns them the
/// time of the import.
fn timeless(mut all: Vec<(LogHead, Vec<Record>)>) -> Vec<(LogHead, Vec<Record>)> {
    for (head, records) in &mut all {
        let shared = head.fork.as_ref().map_or(0, |fork| fork.at);
        let own = records.iter().filter(|record| record.seq > shared);
        let times: Vec<_> = own.map(|record| record.at).collect();
        head.created = times.first().copied().unwrap_or(jiff::Timestamp::UNIX_EPOCH);
        head.updated = times.last().copied().unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    }
    all
}

pub(crate) async fn export_and_import_preserve_everything(on: Database) {
    let (harness, other_harness) = (Harness::fresh(on), Harness::fresh(on));
    let (journal, other) = (harness.open().await, other_harness.open().await);
    fill(&journal).await;
    let all = timeless(everything(&journal, &us()).await);
    let (summary, file) = export(&journal, None).await;
    let records: usize = all.iter().map(|(_, records)| records.len()).sum();
    let records = records as u64;
    assert_eq!(summary, ExportSummary { threads: 5, runs: 1, records, redacted: 0 });
    let verified = verify_export(&mut &file[..]).unwrap();
    // A parent is exported before its forks.
    assert_eq!(verified.threads.iter().filter(|name| &*name.0 == "thread").count(), 1);
    let position_of = |name: &str| verified.threads.iter().position(|found| *found == log(name));
    assert!(
        position_of("thread") < position_of("fork") && position_of("fork") < position_of("nested")
    );
    let expected = ImportSummary {
        tenant: "us".into(),
        store: journal.public_key(),
        threads: verified.threads.clone(),
        runs: 1,
        records,
        without_content: 0,
        redacted: false,
    };
    assert_eq!(verified, expected);
    // Import into another store, and into another tenant of the same store.
    for (store, tenant) in [(&other, us()), (&journal, other_tenant())] {
        let imported = store.import(&tenant, || Ok(&file[..])).await.unwrap();
        assert_eq!(imported, expected);
        assert_eq!(timeless(everything(store, &tenant).await), all);
        proven(store).await;
    }
    // A fork that is imported without its parent has its whole history.
    let mut alone = Vec::new();
    journal.export(&us(), &[log("nested")], None, &mut alone, &|_| {}).await.unwrap();
    let third = Tenant::from("third");
    other.import(&third, || Ok(&alone[..])).await.unwrap();
    let original = read(&journal, "nested").await;
    assert_eq!(other.read(&third, &log("nested"), 0, 1000).await.unwrap(), original);
    let (imported_head, head) = (
        other.log(&third, &log("nested")).await.unwrap().unwrap(),
        journal.log(&us(), &log("nested")).await.unwrap().unwrap(),
    );
    assert_eq!((imported_head.fork, imported_head.rewinds), (None, head.rewinds));
    proven(&other).await;
}

pub(crate) async fn import_keeps_forgotten_content_forgotten(on: Database) {
    let (harness, other_harness) = (Harness::fresh(on), Harness::fresh(on));
    let (journal, other) = (harness.open().await, other_harness.open().await);
    let append = Append::new("thread").opening(LogOpening::thread());
    let one = item("secret").about(about_item(&log("thread"), "one"));
    journal.commit(batch(append.record(one).record(item("b")))).await.unwrap();
    thread(&journal, "whole", &["c", "d"]).await;
    journal.forget(&us(), &log("thread"), Some("one")).await.unwrap();
    journal.forget(&us(), &log("whole"), None).await.unwrap();
    let (_, file) = export(&journal, None).await;
    let imported = other.import(&us(), || Ok(&file[..])).await.unwrap();
    assert_eq!(imported.without_content, 3);
    let (original, imported) = (everything(&journal, &us()).await, everything(&other, &us()).await);
    assert_eq!(timeless(imported), timeless(original));
    assert_eq!(proven(&other).await.gone, 3);
}

pub(crate) async fn import_of_a_fork_keeps_forgotten_content_forgotten(on: Database) {
    let (harness, other_harness) = (Harness::fresh(on), Harness::fresh(on));
    let (journal, other) = (harness.open().await, other_harness.open().await);
    let append = Append::new("thread").opening(LogOpening::thread());
    let one = item("secret").about(about_item(&log("thread"), "one"));
    journal.commit(batch(append.record(one).record(item("b")))).await.unwrap();
    journal.fork(&us(), &log("thread"), None, &log("fork")).await.unwrap();
    add(&journal, "fork", &["c"]).await;
    journal.forget(&us(), &log("thread"), Some("one")).await.unwrap();
    let mut file = Vec::new();
    journal.export(&us(), &[log("fork")], None, &mut file, &|_| {}).await.unwrap();
    other.import(&us(), || Ok(&file[..])).await.unwrap();
    let erasure = r#"{"seqs":[],"checkpoints":true}"#;
    let expected = [(1, "forgotten"), (2, "b"), (3, "c"), (4, erasure), (5, r#"{"seqs":[1]}"#)];
    assert_eq!(texts(&other, "fork").await, numbered(&expected));
    assert_eq!(proven(&other).await.gone, 1);
}

pub(crate) async fn run_without_a_thread_is_exported_and_imported(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    let opening = LogOpening { kind: LogKind::Run, of: None, fork: None };
    let lone = items("lone", &["a"]).opening(opening.clone()).status("done");
    // A log without a status is not a run.
    let internal = items("internal", &["b"]).opening(opening);
    journal.commit(batch(lone).append(internal)).await.unwrap();
    let (summary, file) = export(&journal, None).await;
    assert_eq!(summary, ExportSummary { threads: 0, runs: 1, records: 2, redacted: 0 });
    let imported = journal.import(&other_tenant(), || Ok(&file[..])).await.unwrap();
    assert_eq!((imported.runs, imported.records), (1, 2));
    let found = journal.read(&other_tenant(), &log("lone"), 0, 10).await.unwrap();
    assert_eq!(summaries(&found), expected(&[(1, "a")]));
}

/// A reader that returns the bytes in `left`, and then fails if `fails` is set.
struct TruncatedReader<'f> {
    left: &'f [u8],
    fails: bool,
}

impl std::io::Read for TruncatedReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        match self.left.read(into)? {
            0 if self.fails => Err(std::io::Error::other("cut off")),
            read => Ok(read),
        }
    }
}

/// Interrupts an import after `end` bytes. The first pass, which verifies the file, reads all of
/// it. The second pass fails after `end` bytes.
async fn interrupt_import(journal: &Journal, file: &[u8], end: usize) {
    let (tenant, mut times) = (us(), 0);
    let open = || {
        times += 1;
        let complete = TruncatedReader { left: file, fails: false };
        let part = TruncatedReader { left: &file[..end], fails: true };
        Ok(std::io::BufReader::new(if times == 1 { complete } else { part }))
    };
    let problem = error_message(journal.import(&tenant, open).await);
    assert!(problem.ends_with("cannot be read: cut off"), "{problem}");
}

pub(crate) async fn interrupted_import_continues(on: Database) {
    let (harness, other_harness) = (Harness::fresh(on), Harness::fresh(on));
    let (journal, other) = (harness.open().await, other_harness.open().await);
    fill(&journal).await;
    let all = timeless(everything(&journal, &us()).await);
    let (_, file) = export(&journal, None).await;
    // Each attempt gets further than the last, but never to the end.
    for tenths in [2, 5, 9] {
        interrupt_import(&other, &file, file.len() / 10 * tenths).await;
    }
    other.import(&us(), || Ok(&file[..])).await.unwrap();
    assert_eq!(timeless(everything(&other, &us()).await), all);
    proven(&other).await;
    // Repeating a completed import conflicts with the existing logs.
    let problem = error_message(other.import(&us(), || Ok(&file[..])).await);
    assert!(problem.ends_with("not 0; read the new records and retry"), "{problem}");
}

pub(crate) async fn two_nodes_can_import_concurrently(on: Database) {
    let (harness, other_harness) = (Harness::fresh(on), Harness::fresh(on));
    let journal = harness.open().await;
    let nodes = [other_harness.open().await, other_harness.open().await];
    fill(&journal).await;
    let all = timeless(everything(&journal, &us()).await);
    let (_, file) = export(&journal, None).await;
    // One node starts the import, and then both nodes continue it.
    interrupt_import(&nodes[0], &file, file.len() / 10).await;
    let tenant = us();
    let (one, two) = tokio::join!(
        nodes[0].import(&tenant, || Ok(&file[..])),
        nodes[1].import(&tenant, || Ok(&file[..]))
    );
    assert_eq!(one.unwrap(), two.unwrap());
    assert_eq!(timeless(everything(&nodes[0], &us()).await), all);
    proven(&nodes[0]).await;
}

pub(crate) async fn import_stops_at_logs_that_others_write(on: Database) {
    let (harness, other_harness) = (Harness::fresh(on), Harness::fresh(on));
    let (journal, other) = (harness.open().await, other_harness.open().await);
    let many: Vec<String> = (0..700).map(|number| format!("item {number}")).collect();
    thread(&journal, "long", &many.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let (_, file) = export(&journal, None).await;
    interrupt_import(&other, &file, file.len() / 2).await;
    add(&other, "long", &["another writer's"]).await;
    let outcome = other.import(&us(), || Ok(&file[..])).await;
    assert_eq!(
        error_message(outcome),
        "long is at record 257, not 256; read the new records and retry"
    );
}

pub(crate) async fn redacted_export_verifies_and_contains_no_secret(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    let key = &format!("sk-ant-api03-{}", "abcdefghijkl".repeat(6));
    let json = format!(r#"{{"text":"my key is {key}"}}"#);
    thread(&journal, "thread", &[&json, r#"{"text":"harmless"}"#, key]).await;
    run(&journal, "run", "thread").await;
    let events = pack_events([&b"{\"a\":1}"[..], json.as_bytes()]);
    journal.commit(batch(Append::new("run").record(events).status("done"))).await.unwrap();
    let policy = RedactionPolicy::default();
    let (summary, file) = export(&journal, Some(&policy)).await;
    assert_eq!(summary, ExportSummary { threads: 1, runs: 1, records: 4, redacted: 3 });
    let text = String::from_utf8(file.clone()).unwrap();
    assert!(!text.contains("abcdefghijkl"), "{text}");
    assert!(text.contains("harmless"));
    let proven_here = verify_export(&mut &file[..]).unwrap();
    assert_eq!((proven_here.records, proven_here.without_content), (4, 3));
    // Without the salt, the redacted content cannot be guessed.
    for line in text.lines().filter(|line| line.contains(r#""redacted":true,"#)) {
        assert!(!line.contains(r#""salt""#), "{line}");
    }
    assert!(proven_here.redacted);
    let refused = error_message(journal.import(&other_tenant(), || Ok(&file[..])).await);
    assert!(refused.contains("`throughline export --full`"), "{refused}");
    assert!(journal.log(&other_tenant(), &log("thread")).await.unwrap().is_none());
    // The store itself keeps the original content.
    assert_eq!(texts(&journal, "thread").await[0], (1, json));
}

pub(crate) async fn a_changed_export_is_refused(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "thread", &["first", "second", "third"]).await;
    let (_, file) = export(&journal, None).await;
    let text = String::from_utf8(file).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let salt = |line: &str| {
        let at = line.find(r#""salt":""#).unwrap();
        line[at..].split_inclusive(',').next().unwrap().to_owned()
    };
    let second = salt(lines[3]);
    let without = |number: usize| {
        let kept = lines.iter().enumerate().filter(|(at, _)| *at != number);
        kept.flat_map(|(_, line)| [*line, "\n"]).collect::<String>()
    };
    let over = "has a signature that does not match the lines before it";
    let changed = [
        (text.replace("second", "Second"), "line 4 has content that does not match its commitment"),
        (without(3), &*format!("line 5 {over}")),
        (without(1), "line 2 is a record, but no log header precedes it"),
        (without(5), "line 6 is missing: the export was truncated before its signature"),
        (text.replace(r#""log":"thread""#, r#""log":"other""#), "line 4 breaks the hash chain"),
        (text.replace(r#""tenant":"us""#, r#""tenant":"uS""#), "line 4 breaks the hash chain"),
        // The signature covers records without content.
        (
            text.replace(&second, r#""redacted":true,"#).replace("second", "forged"),
            "line 4 has neither content nor a reason why its content is missing",
        ),
        (
            text.replace(&second, r#""gone":"forgotten","#).replace(r#","text":"second""#, ""),
            &*format!("line 6 {over}"),
        ),
        (
            format!("{text}{{}}\n"),
            "line 7 comes after the signature, which must be on the last line",
        ),
        (String::new(), "line 1 is missing: the file is empty"),
        ("{}\n".to_owned(), "line 1 is not the header of a Throughline export"),
    ];
    for (changed, problem) in changed {
        assert_ne!(changed, text, "{problem}");
        let outcome = journal.import(&other_tenant(), || Ok(changed.as_bytes())).await;
        assert_eq!(error_message(outcome), problem);
    }
    assert_eq!(journal.tenants().await.unwrap(), [us()]);
}

pub(crate) async fn an_import_changes_nothing_that_exists(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "thread", &["a"]).await;
    run(&journal, "run", "thread").await;
    add(&journal, "run", &["step"]).await;
    let (_, file) = export(&journal, None).await;
    let outcome = journal.import(&us(), || Ok(&file[..])).await;
    assert_eq!(
        error_message(outcome),
        "thread is at record 1, not 0; read the new records and retry"
    );
    // A run's name may also be taken already.
    let append = items("other", &["theirs"]).opening(LogOpening::thread());
    let mut other = batch(append).append(items("run", &["x"]).opening(LogOpening::run("other")));
    other.tenant = other_tenant();
    journal.commit(other).await.unwrap();
    let before = everything(&journal, &other_tenant()).await;
    let outcome = journal.import(&other_tenant(), || Ok(&file[..])).await;
    assert_eq!(error_message(outcome), "run is at record 1, not 0; read the new records and retry");
    assert_eq!(everything(&journal, &other_tenant()).await, before);
}

/// Appends records until `stop` is set. The task returns the number of written records.
fn write_until_stopped(journal: Journal, stop: Arc<AtomicBool>) -> tokio::task::JoinHandle<u64> {
    tokio::spawn(async move {
        let mut written = 0;
        while !stop.load(Ordering::Relaxed) {
            written += 1;
            add(&journal, "busy", &[&format!("item {written}")]).await;
        }
        written
    })
}

pub(crate) async fn a_backup_is_made_while_others_write(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    fill(&journal).await;
    thread(&journal, "busy", &[]).await;
    let stop = Arc::new(AtomicBool::new(false));
    let writing = write_until_stopped(journal.clone(), stop.clone());
    until(|| async { read(&journal, "busy").await.len() > 10 }).await;
    let before = read(&journal, "busy").await.len();
    let file = harness.folder().file("backup.db");
    journal.backup(&file, &|_| {}).await.unwrap();
    let after = read(&journal, "busy").await.len();
    stop.store(true, Ordering::Relaxed);
    let written = soon(writing).await.unwrap();
    let outcome = journal.backup(&file, &|_| {}).await;
    assert_eq!(
        error_message(outcome),
        format!("{} already exists; choose another name for the backup", file.display())
    );
    journal.close().await.unwrap();
    let restored = harness.folder().file("restored.db");
    throughline_store::restore(&file, None, &restored, &harness.options()).await.unwrap();
    let url = format!("sqlite://{}", restored.display());
    let backup = open(&url, &harness.options()).await.unwrap();
    proven(&backup).await;
    let copied = texts(&backup, "busy").await;
    assert!((before..=after).contains(&copied.len()), "{before} {} {after}", copied.len());
    let expected = (1..=copied.len() as u64).map(|number| (number, format!("item {number}")));
    assert_eq!(copied, expected.collect::<Vec<_>>());
    // The restored backup accepts writes like any other store.
    add(&backup, "busy", &["goes on"]).await;
    proven(&backup).await;
    let journal = harness.open().await;
    assert_eq!(read(&journal, "busy").await.len() as u64, written);
}

pub(crate) async fn the_master_key_is_changed_while_others_write(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    fill(&journal).await;
    thread(&journal, "busy", &[]).await;
    let all = everything(&journal, &us()).await;
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> =
        (0..4).map(|_| write_until_stopped(journal.clone(), stop.clone())).collect();
    let mut last = 0;
    for digit in ['b', 'c'] {
        until(|| async { read(&journal, "busy").await.len() > last + 10 }).await;
        last = read(&journal, "busy").await.len();
        let rotated = journal.rotate(&master_key(digit), &|_| {}).await.unwrap();
        assert!(rotated.wrapped >= last as u64 && !rotated.is_behind, "{rotated:?}");
    }
    stop.store(true, Ordering::Relaxed);
    let mut written = 0;
    for writer in writers {
        written += soon(writer).await.unwrap();
    }
    proven(&journal).await;
    journal.close().await.unwrap();
    // Only the new key opens the store.
    let with =
        |key: Option<char>| Options { master_key: key.map(master_key), ..Options::default() };
    for (key, problem) in [
        (
            None,
            "this store is encrypted; provide its master key in a file or an environment variable",
        ),
        (
            Some('b'),
            "the master key does not match this store; use the key that encrypted the store",
        ),
    ] {
        let outcome = open(&harness.url(), &with(key)).await.map(|_| ());
        assert_eq!(error_message(outcome), problem);
    }
    let journal = open(&harness.url(), &with(Some('c'))).await.unwrap();
    let mut found = everything(&journal, &us()).await;
    let busy = found.iter().position(|(head, _)| head.log == log("busy")).unwrap();
    assert_eq!(found.remove(busy).1.len() as u64, written);
    let all: Vec<_> = all.into_iter().filter(|(head, _)| head.log != log("busy")).collect();
    assert_eq!(found, all);
    proven(&journal).await;
}

pub(crate) async fn rotation_adopts_a_key_that_another_node_introduced(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "busy", &["a"]).await;
    journal.rotate(&master_key('b'), &|_| {}).await.unwrap();
    let options = Options {
        master_key: Some(master_key('c')),
        retired_keys: vec![master_key('b')],
        ..Options::default()
    };
    let other = open(&harness.url(), &options).await.unwrap();
    add(&other, "busy", &["b"]).await;
    let rotated = journal.rotate(&master_key('c'), &|_| {}).await.unwrap();
    assert_eq!(rotated, RotationReport { wrapped: 1, is_behind: false });
    add(&journal, "busy", &["c"]).await;
    for node in [&journal, &other] {
        assert_eq!(texts(node, "busy").await, numbered(&[(1, "a"), (2, "b"), (3, "c")]));
    }
}

pub(crate) async fn writes_under_an_earlier_key_are_detected(on: Database) {
    let harness = Harness::fresh(on);
    let [journal, other] = [harness.open().await, harness.open().await];
    fill(&journal).await;
    thread(&journal, "busy", &[]).await;
    // This node does not have the new key, and writes whenever the rotation reports progress.
    let looks = AtomicU32::new(0);
    let other_writes = |_| {
        assert!(
            looks.fetch_add(1, Ordering::Relaxed) < 10,
            "the rotation follows the writer forever"
        );
        now(add(&other, "busy", &["under the key before"]));
    };
    let key = master_key('b');
    let rotated = journal.rotate(&key, &other_writes).await.unwrap();
    assert!(rotated.wrapped > 0 && rotated.is_behind, "{rotated:?}");
    other.close().await.unwrap();
    let written = u64::from(looks.into_inner());
    let repeated = journal.rotate(&key, &|_| {}).await.unwrap();
    assert_eq!(repeated, RotationReport { wrapped: written, is_behind: false });
    journal.close().await.unwrap();
    let options = Options { master_key: Some(key), ..Options::default() };
    let journal = open(&harness.url(), &options).await.unwrap();
    assert_eq!(read(&journal, "busy").await.len() as u64, written);
    proven(&journal).await;
}
