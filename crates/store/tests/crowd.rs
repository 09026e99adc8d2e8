//! Many processes at once: what happens once happens once, and nobody writes behind another's fence.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test fails by panicking, and a child tells its parent what it did"
)]

#[path = "crowd/leases.rs"]
mod leases;
#[path = "crowd/requests.rs"]
mod requests;

use throughline_store::{Journal, Options, open};
use throughline_testkit::{Folder, child_task};
use tokio::runtime::Runtime;

/// Runs the test on each database.
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
    requests_happen_once => super::requests::happen_once;
    nobody_writes_behind_anothers_fence => super::leases::hold;
}

/// The child: it finds in its task what it is to do.
#[test]
fn child() {
    let Some(task) = child_task() else { return };
    // What the test runner printed so far has no end of line.
    println!();
    let (work, task) = task.split_once('\t').unwrap();
    match work {
        "requests" => requests::send(task),
        "leases" => leases::work(task),
        _ => panic!("{work} is no work"),
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
