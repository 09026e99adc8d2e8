//! PostgreSQL servers for tests: the shared server that `scripts/postgres run` starts, and separate
//! servers for tests that stop their server.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::workspace_root;

const URL: &str = "THROUGHLINE_POSTGRES";

/// Returns the URL in `THROUGHLINE_POSTGRES`, a PostgreSQL server where tests may create databases.
///
/// # Panics
///
/// If the variable is not set. A test that needs a server and has none must not pass.
#[expect(clippy::disallowed_methods, reason = "the server is configured for the whole test run")]
pub fn postgres_url() -> String {
    match std::env::var(URL) {
        Ok(url) => url,
        Err(error) => panic!(
            "this test needs a PostgreSQL server: run it as `scripts/postgres run cargo test …`, which \
             starts a server for the test run, or set {URL} to the URL of a server ({error})"
        ),
    }
}

/// Returns whether a server is configured. Benches skip PostgreSQL otherwise.
#[expect(clippy::disallowed_methods, reason = "the server is configured for the whole run")]
pub fn has_postgres() -> bool {
    std::env::var_os(URL).is_some()
}

/// Creates an empty database on the configured server for one test, and returns its URL.
///
/// # Panics
///
/// If no server is configured.
pub fn postgres_database() -> String {
    postgres_url();
    script(&["database".as_ref()]).trim().to_owned()
}

/// A PostgreSQL server for one test. It is stopped and deleted on drop.
pub struct Cluster {
    /// URL for connecting to the server.
    pub url: String,
    folder: PathBuf,
}

impl Cluster {
    /// Starts a new server with an empty data folder.
    ///
    /// # Panics
    ///
    /// If the server does not start.
    pub fn start() -> Self {
        Self::parse(&script(&["start".as_ref()]))
    }

    fn parse(output: &str) -> Self {
        let value = |name: &str| {
            let line =
                output.lines().find_map(|line| line.strip_prefix("export ")?.strip_prefix(name));
            match line.and_then(|line| line.strip_prefix('=')) {
                Some(value) => value.to_owned(),
                None => panic!("scripts/postgres did not print {name}: {output}"),
            }
        };
        Self { url: value(URL), folder: value("THROUGHLINE_POSTGRES_FOLDER").into() }
    }

    /// Restarts the server with a certificate, its key, and the CA of client certificates. The user
    /// `certified` can connect only with a client certificate of that name.
    pub fn enable_tls(&self, certificate: &Path, key: &Path, ca: &Path) {
        script(&["tls".as_ref(), &self.folder, certificate, key, ca]);
    }

    /// Starts PgBouncer for this server, in transaction mode, and returns its URL. PgBouncer is
    /// stopped with the server.
    pub fn start_pgbouncer(&self) -> String {
        script(&["pgbouncer".as_ref(), &self.folder]).trim().to_owned()
    }

    /// Starts a synchronous replica of this server.
    #[must_use]
    pub fn start_replica(&self) -> Self {
        Self::parse(&script(&["replica".as_ref(), &self.folder]))
    }

    /// Makes a replica accept writes.
    pub fn promote(&self) {
        script(&["promote".as_ref(), &self.folder]);
    }

    /// Returns the folder that contains the tables of all databases.
    pub fn table_folder(&self) -> PathBuf {
        self.folder.join("data/base")
    }

    /// Stops the server at once, without a clean shutdown.
    pub fn crash(&self) {
        script(&["crash".as_ref(), &self.folder]);
    }

    /// Restarts the server and keeps a copy of its data.
    pub fn save(&self) {
        script(&["save".as_ref(), &self.folder]);
    }

    /// Restarts the server with the data that [`Cluster::save`] kept. All later writes are lost, as
    /// after a failover to a replica that has not received them.
    pub fn restore(&self) {
        script(&["restore".as_ref(), &self.folder]);
    }

    /// Starts the server again after [`Cluster::crash`].
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
        Err(error) => panic!("cannot run scripts/postgres: {error}"),
    }
}
