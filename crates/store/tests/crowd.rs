//! Tests with many processes: idempotent batches are written once, and writes under expired leases
//! are rejected.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "tests fail by panicking, and a child prints its results for its parent"
)]

#[path = "crowd/leases.rs"]
mod leases;
#[path = "crowd/requests.rs"]
mod requests;

use throughline_store::{Journal, Options, open};
use throughline_testkit::{Folder, child_task};
use tokio::runtime::Runtime;

/// Declares each test for SQLite and for PostgreSQL.
macro_rules! on_both {
    ($($(#[$about:meta])* $name:ident => $test:path;)+) => {
        mod sqlite { $($(#[$about])* #[test] fn $name() {
            let folder = throughline_testkit::Folder::new("crowd");
            $test(&super::file_in(&folder));
        })+ }
        mod postgres { $($(#[$about])* #[test] fn $name() {
            $test(&throughline_testkit::postgres_database());
        })+ }
    };
}

on_both! {
    requests_happen_once => super::requests::assert_one_effect_per_request;
    fenced_writers_cannot_write => super::leases::hold;
}

/// Entry point of the child processes, which perform the work named in their task.
#[test]
fn child() {
    let Some(task) = child_task() else { return };
    // Start a new line, because the test runner's output so far has no line break.
    println!();
    let (work, task) = task.split_once('\t').unwrap();
    match work {
        "requests" => requests::send(task),
        "leases" => leases::work(task),
        _ => panic!("unknown work {work}"),
    }
}

fn file_in(folder: &Folder) -> String {
    format!("sqlite://{}", folder.join("store.db").display())
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

async fn opened(url: &str) -> Journal {
    open(url, &Options::default()).await.unwrap()
}
