//! A temporary directory with a store, for tests.

use std::path::PathBuf;

use serde_json::{Value, json};
use throughline_core::pack_events;
use throughline_core::{Append, Batch, LogId, LogOpening, NewRecord, Store as _, Tenant};
use throughline_store::{Journal, Options, about_item, open};

use crate::support::{CommandOutput, scratch, throughline_with};

pub(crate) const SEAL: &str = "RXhhbXBsZVNlYWxUaGF0Tm9ib2R5U2hvdWxkRXZlclNlZQ==";
pub(crate) const SECRET: &str = "sk-proj-a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2";

/// A directory for one test, with a store in it.
pub(crate) struct TestStore {
    pub(crate) folder: PathBuf,
}

impl TestStore {
    pub(crate) fn without_database(name: &str) -> Self {
        let folder = scratch(&format!("store-{name}"));
        std::fs::remove_dir_all(&folder).ok();
        std::fs::create_dir_all(&folder).unwrap();
        Self { folder }
    }

    pub(crate) fn empty(name: &str) -> Self {
        let store = Self::without_database(name);
        store.with_journal(&Options::default(), async |_| {});
        store
    }

    /// Creates a store with two threads, a run and a fork.
    pub(crate) fn small(name: &str) -> Self {
        Self::small_store_with(name, &Options::default())
    }

    pub(crate) fn small_store_with(name: &str, options: &Options) -> Self {
        let store = Self::without_database(name);
        store.with_journal(options, async |journal| {
            for batch in batches() {
                journal.commit(batch).await.unwrap();
                wait_for_clock_tick(journal).await;
            }
            let tenant = Tenant::from("default");
            journal
                .fork(&tenant, &LogId::from("trip"), Some(2), &LogId::from("trip-2"))
                .await
                .unwrap();
        });
        store
    }

    pub(crate) fn with_journal(&self, options: &Options, write: impl AsyncFnOnce(&Journal)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let journal = open(&self.url(), options).await.unwrap();
            write(&journal).await;
            journal.close().await.unwrap();
        });
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(crate) fn url(&self) -> String {
        format!("sqlite://{}", self.file("a.db").display())
    }

    /// Runs a command on the store, which the command finds through an environment variable.
    pub(crate) fn run(&self, arguments: &[&str]) -> CommandOutput {
        self.run_with(&[], arguments, b"")
    }

    pub(crate) fn run_with(
        &self,
        environment: &[(&str, &str)],
        arguments: &[&str],
        input: &[u8],
    ) -> CommandOutput {
        let url = self.url();
        let all = [&[("THROUGHLINE_STORE", url.as_str())], environment].concat();
        throughline_with(&all, &self.folder, arguments, input)
    }

    /// Runs a command that must succeed, and parses its JSON output.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--format", "json"]].concat());
        assert_eq!((output.code, output.err.as_str()), (0, ""), "{arguments:?}");
        serde_json::from_str(&output.out).unwrap()
    }

    pub(crate) fn database(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.file("a.db")).unwrap()
    }

    /// Replaces values that differ between test runs with placeholders.
    pub(crate) fn normalize(&self, text: &str) -> String {
        let mut text = text.replace(&*self.folder.to_string_lossy(), "FOLDER");
        for (pattern, placeholder) in [
            (r"\d{4}-\d\d-\d\d \d\d:\d\d", "2026-01-01 00:00"),
            (r"\d{4}-\d\d-\d\d", "2026-01-01"),
            (r"[0-9a-f]{64}", "KEY"),
            // A manifest is signed at least every second, so slow machines write more manifests.
            (r"\d+ signed manifests?", "N signed manifests"),
            (r"(signed manifests +)\d+", "${1}N"),
            // The run takes longer on slow machines.
            (r"\b\d+\.\d s\b", "0.0 s"),
            (r"(on disk +)\S+ \S+", "${1}SIZE"),
            (r"(backed up to \S+), \S+ \S+", "${1}, SIZE"),
        ] {
            text = regex::Regex::new(pattern).unwrap().replace_all(&text, placeholder).into_owned();
        }
        text
    }

    /// Runs commands and returns a transcript, as in a terminal session.
    pub(crate) fn transcript(&self, commands: &[&[&str]]) -> String {
        let sections = commands.iter().map(|arguments| {
            let output = self.run(arguments);
            let code = if output.code == 0 {
                String::new()
            } else {
                format!("exit code {}\n", output.code)
            };
            let line = arguments.join(" ");
            self.normalize(&format!("$ throughline {line}\n{}{}{code}", output.err, output.out))
        });
        sections.collect::<Vec<_>>().join("\n")
    }
}

fn batches() -> Vec<Batch> {
    let item = |thread: &str, id: &str, members: Value| {
        let mut document = json!({ "id": id });
        document.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        let about = about_item(&LogId::from(thread), id);
        NewRecord::new("item", document.to_string()).about(about)
    };
    let hello = format!(
        "Remember that my key is {SECRET}.\nAnd then some words, so that the line is too long to be shown in one row of a terminal, however wide."
    );
    let trip = Append::new("trip")
        .opening(LogOpening::thread())
        .record(item("trip", "q1", json!({"role": "user", "text": "Where is it warmer on Saturday?"})))
        .record(item("trip", "t1", json!({"role": "assistant", "type": "thinking", "thinking": "Paris or Rome: I need both forecasts.", "signature": SEAL})))
        .record(item("trip", "c1", json!({"role": "assistant", "type": "tool_use", "name": "weather", "input": {"city": "Rome"}})))
        .record(NewRecord::new("state", r#"{"step":1}"#))
        .status("idle");
    let mut again = Append::new("again").opening(LogOpening::thread());
    for id in ["a1", "a2"] {
        again = again.record(item("again", id, json!({"role": "user", "text": id})));
    }
    let mut rewind =
        Append::new("again").record(item("again", "a3", json!({"role": "user", "text": "a3"})));
    rewind.rewind_to = Some(1);
    let run = Append::new("run-1")
        .opening(LogOpening::run("trip"))
        .record(pack_events([br#"{"type":"progress"}"#.as_slice(), b"a delta"]))
        .status("done");
    let notes = Append::new("notes")
        .opening(LogOpening::thread())
        .record(item("notes", "n1", json!({"role": "user", "text": hello})))
        .record(NewRecord::new("blob", vec![0xff_u8; 20_000]))
        .record(item("notes", "n2", json!({"role": "user\u{1b}[31m", "text": "\u{202e}steers"})));
    vec![
        Batch::new("default").append(trip).append(run),
        Batch::new("default").append(notes),
        Batch::new("acme").append(again),
        Batch::new("acme").append(rewind),
    ]
}

/// Waits until the database clock advances, so that logs get different timestamps and a
/// deterministic order.
async fn wait_for_clock_tick(journal: &Journal) {
    let (tenant, log) = (Tenant::from("default"), LogId::from("clock"));
    let now = async || {
        let lease = journal.lease(&tenant, &log, "test", std::time::Duration::ZERO).await;
        lease.unwrap().until
    };
    let before = now().await;
    while now().await <= before {}
}
