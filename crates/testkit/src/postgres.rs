//! Servers for the tests that need PostgreSQL: the one that `scripts/postgres run` started for all of them, and one of its
//! own for a test that ends it.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::workspace_root;

const URL: &str = "THROUGHLINE_POSTGRES";

/// The address of a PostgreSQL server where tests may make databases: `THROUGHLINE_POSTGRES`.
///
/// # Panics
///
/// Where it is not set: a test that needs a server and has none proves nothing, and must not pass.
#[expect(
    clippy::disallowed_methods,
    reason = "the server is started for a whole test run from outside"
)]
pub fn postgres_url() -> String {
    match std::env::var(URL) {
        Ok(url) => url,
        Err(error) => panic!(
            "this test needs a PostgreSQL server: run it as `scripts/postgres run cargo test …`, which \
             starts one for as long as the tests run, or set {URL} to the address of one ({error})"
        ),
    }
}

/// Whether there is a server at all: a bench measures what is there.
#[expect(clippy::disallowed_methods, reason = "the server is started for a whole run from outside")]
pub fn has_postgres() -> bool {
    std::env::var_os(URL).is_some()
}

/// A new, empty database on that server, for one test: its address.
///
/// # Panics
///
/// Where there is no server.
pub fn postgres_database() -> String {
    postgres_url();
    script(&["database".as_ref()]).trim().to_owned()
}

/// A PostgreSQL server for one test. It is stopped and deleted when it is dropped.
pub struct Cluster {
    /// Its address.
    pub url: String,
    folder: PathBuf,
}

impl Cluster {
    /// Starts one.
    ///
    /// # Panics
    ///
    /// Where it does not start.
    pub fn start() -> Self {
        let said = script(&["start".as_ref()]);
        let value = |name: &str| {
            let line =
                said.lines().find_map(|line| line.strip_prefix("export ")?.strip_prefix(name));
            match line.and_then(|line| line.strip_prefix('=')) {
                Some(value) => value.to_owned(),
                None => panic!("scripts/postgres start did not say {name}: {said}"),
            }
        };
        Self { url: value(URL), folder: value("THROUGHLINE_POSTGRES_FOLDER").into() }
    }

    /// Ends it at once, as a crash would.
    pub fn crash(&self) {
        script(&["crash".as_ref(), &self.folder]);
    }

    /// Starts it again.
    pub fn resume(&self) {
        script(&["resume".as_ref(), &self.folder]);
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        script(&["stop".as_ref(), &self.folder]);
    }
}

fn script(arguments: &[&Path]) -> String {
    let output = Command::new(workspace_root().join("scripts/postgres")).args(arguments).output();
    match output {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).into_owned()
        }
        Ok(output) => panic!(
            "scripts/postgres {arguments:?} failed: {}",
            String::from_utf8_lossy(&output.stderr)
        ),
        Err(error) => panic!("scripts/postgres could not be run: {error}"),
    }
}
