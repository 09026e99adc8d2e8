//! An open store: where it is, with which keys it is opened, and what its failures mean to who sits at a terminal.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use throughline_core::{LogHead, LogId, LogKind, Name, Store as _, StoreError, Tenant};
pub(crate) use throughline_store::without_password;
use throughline_store::{Journal, MasterKey, Options, open};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use zeroize::Zeroizing;

use crate::config::{self, StoreSettings};
use crate::environment::{folder, variable};
use crate::failure::Failure;
use crate::options::At;
use crate::progress::Progress;
use crate::text;

/// How long a thread may take to end after its work.
const PATIENCE: Duration = Duration::from_secs(10);

/// What happens where there is no store yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// That is an error.
    Fails,
    /// One is made.
    IsMade,
    /// That is an error, and nothing is written: the store may be a read-only copy.
    FailsReadOnly,
}

/// A store that is open.
pub(crate) struct Opened {
    runtime: Runtime,
    pub(crate) journal: Journal,
    pub(crate) tenant: Tenant,
}

/// Opens the store, works with it, and closes it whatever came of it.
pub(crate) fn with<T>(
    at: &At,
    missing: Missing,
    work: impl FnOnce(&Opened) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let opened = Opened::open(at, missing)?;
    let worked = work(&opened);
    let closed = opened.run(opened.journal.close());
    // A thread that still works for somebody who was interrupted takes back what it did.
    opened.runtime.shutdown_timeout(PATIENCE);
    worked.and_then(|done| closed.map(|()| done))
}

impl Opened {
    fn open(at: &At, missing: Missing) -> Result<Self, Failure> {
        let (url, options) = how_to_open(at, missing)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("the store's threads cannot be started")?;
        let opened = runtime.block_on(open(&url, &options));
        let journal = opened.map_err(|error| not_opened(error, &url))?;
        Ok(Self { runtime, journal, tenant: Tenant::from(at.tenant.as_str()) })
    }

    /// Waits for something. Ctrl-C ends the program at once, so it is for what leaves nothing half done.
    pub(crate) fn wait_for<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// The same for an answer of the store.
    pub(crate) fn run<T>(
        &self,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, Failure> {
        self.wait_for(work).map_err(|error| self.failed(error))
    }

    /// Hears from now on who asks to stop, so that what is begun can be taken back.
    pub(crate) fn signals(&self) -> Result<Signals, Failure> {
        let _inside = self.runtime.enter();
        Ok(Signals::new().context("signals cannot be waited for")?)
    }

    /// Waits for an answer to something that must not stop half-way. Who asks to stop twice is heard.
    pub(crate) fn run_to_the_end<T>(
        &self,
        what: &str,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<Result<T, StoreError>, Failure> {
        let mut signals = self.signals()?;
        self.runtime.block_on(async {
            let mut work = std::pin::pin!(work);
            tokio::select! {
                done = &mut work => return Ok(done),
                () = signals.asked_to_stop() => {}
            }
            text::note(&format!(
                "{what} is being finished; interrupt again to give it up half-way"
            ));
            tokio::select! {
                done = &mut work => Ok(done),
                () = signals.asked_to_stop() => {
                    Err(Failure::Interrupted(format!("interrupted: {what} was given up half-way")))
                }
            }
        })
    }

    /// A log that must exist.
    pub(crate) fn log(&self, log: &LogId) -> Result<LogHead, Failure> {
        let head = self.run(self.journal.log(&self.tenant, log))?;
        let missing = StoreError::NotFound { what: "log", name: log.0.clone() };
        head.ok_or_else(|| self.failed(missing))
    }

    /// A thread that must exist.
    pub(crate) fn thread(&self, thread: &LogId) -> Result<LogHead, Failure> {
        let head = self.run(self.journal.log(&self.tenant, thread))?;
        match head {
            Some(head) if head.kind == LogKind::Thread => Ok(head),
            Some(head) => {
                let of = head.of.map(|of| format!(" of the thread {of}")).unwrap_or_default();
                Err(Failure::Usage(format!("{thread} is a run{of}: name a thread")))
            }
            None => {
                let name = thread.0.clone();
                Err(self.failed(StoreError::NotFound { what: "thread", name }))
            }
        }
    }

    /// What a failure of the open store means here: who is to do what.
    pub(crate) fn failed(&self, error: StoreError) -> Failure {
        failed(error, &self.tenant)
    }
}

/// What a failure of an open store means to a tenant: who is to do what.
pub(crate) fn failed(error: StoreError, tenant: &Tenant) -> Failure {
    let message = error.to_string();
    match error {
        StoreError::NotFound { what, name } => {
            let (what, list) = match what {
                "log" => ("thread or run", "threads` and `throughline runs"),
                "item" => ("item", "items THREAD --format json"),
                "run" => ("run", "runs"),
                what => (what, "threads"),
            };
            Failure::Usage(format!(
                "there is no {what} {name} of the tenant {tenant}: `throughline {list}` shows what there is"
            ))
        }
        StoreError::Invalid(_) => Failure::Usage(message),
        StoreError::Corrupt(_) => {
            Failure::BadData(format!("{message}; `throughline verify` says where"))
        }
        StoreError::Conflict { .. }
        | StoreError::Fenced { .. }
        | StoreError::Held { .. }
        | StoreError::Taken { .. }
        | StoreError::MixedOnce { .. } => Failure::Outside(anyhow::anyhow!(message)),
        StoreError::Full
        | StoreError::ReadOnly(_)
        | StoreError::Locked(_)
        | StoreError::WrongKey
        | StoreError::KeyMissing
        | StoreError::NewerSchema { .. }
        | StoreError::Unreachable(_, _)
        | StoreError::Closed
        | StoreError::Database(_) => Failure::NoStore(message),
    }
}

/// Where the store is, and how it is opened.
pub(crate) fn how_to_open(at: &At, missing: Missing) -> Result<(String, Options), Failure> {
    let Place { url, master_key_env } = place(at)?;
    let retired_keys = at.retired_key_file.iter().map(|file| key(file));
    let options = Options {
        master_key: master_key(at, master_key_env.as_deref())?,
        retired_keys: retired_keys.collect::<Result<_, _>>()?,
        create: missing == Missing::IsMade,
        read_only: missing == Missing::FailsReadOnly,
        ..Options::default()
    };
    Ok((url, options))
}

/// Why a store was not opened.
pub(crate) fn not_opened(error: StoreError, url: &str) -> Failure {
    let shown = without_password(url);
    match error {
        StoreError::NotFound { .. } => Failure::NoStore(format!(
            "there is no store at {shown} yet: `throughline run` or `throughline serve` makes one; or say with --store where it is"
        )),
        StoreError::Corrupt(problem) => Failure::BadData(format!(
            "{shown} is not a store, or is damaged ({problem}): name another with --store, or restore a backup of it"
        )),
        StoreError::Invalid(problem) => Failure::BadData(problem.to_string()),
        StoreError::KeyMissing => Failure::NoStore(format!(
            "{shown} was written with a master key: give it with --master-key-file or THROUGHLINE_MASTER_KEY"
        )),
        StoreError::WrongKey => Failure::NoStore(format!(
            "the master key does not open {shown}: give the one that it was written with, \
             and those before it with --retired-key-file"
        )),
        StoreError::NewerSchema { found, known } => Failure::NoStore(format!(
            "{shown} has schema {found}, and this program knows {known} at most: use a newer version"
        )),
        error @ (StoreError::Full
        | StoreError::ReadOnly(_)
        | StoreError::Locked(_)
        | StoreError::Unreachable(_, _)
        | StoreError::Conflict { .. }
        | StoreError::Fenced { .. }
        | StoreError::Held { .. }
        | StoreError::Taken { .. }
        | StoreError::MixedOnce { .. }
        | StoreError::Closed
        | StoreError::Database(_)) => {
            Failure::NoStore(format!("{shown} cannot be opened: {error}"))
        }
    }
}

/// Where a store is, and which variable has its master key.
struct Place {
    url: String,
    /// As the configuration says, if that is who said where the store is.
    master_key_env: Option<Name>,
}

/// Where the store is: as the option says, the environment, the configuration, or at its place in the user's data directory.
fn place(at: &At) -> Result<Place, Failure> {
    let given = at.store.clone().map_or_else(|| variable("THROUGHLINE_STORE"), |url| Ok(Some(url)));
    let place = match given? {
        Some(url) => Place { url, master_key_env: None },
        None => {
            let StoreSettings { url, master_key_env } = config::load(at.config.as_deref())?.store;
            let url = url.map_or_else(usual_url, Ok)?;
            Place { url, master_key_env }
        }
    };
    if !is_address(&place.url) {
        // What is no address may be anything, so it is not repeated.
        return Err(Failure::Usage(
            "the store's address is of no known kind: write sqlite://FILE or postgres://USER@HOST/DATABASE".to_owned(),
        ));
    }
    Ok(place)
}

/// Whether it is an address of a kind that we know.
pub(crate) fn is_address(url: &str) -> bool {
    ["sqlite:", "postgres://", "postgresql://"].iter().any(|kind| url.starts_with(kind))
}

/// Where the store is when nobody says anything.
pub(crate) fn usual_url() -> Result<String, Failure> {
    let file = data_folder()?.join("throughline").join("throughline.db");
    Ok(format!("sqlite://{}", file.display()))
}

/// The file that an SQLite store is in.
pub(crate) fn file_of(at: &At) -> Option<PathBuf> {
    let url = place(at).ok()?.url;
    url.strip_prefix("sqlite://").or_else(|| url.strip_prefix("sqlite:")).map(PathBuf::from)
}

/// Where a user's programs keep their data, by the XDG base directories.
fn data_folder() -> Result<PathBuf, Failure> {
    if let Some(folder) = folder("XDG_DATA_HOME")? {
        return Ok(folder);
    }
    let folder = folder("HOME")?.map(|home| home.join(".local").join("share"));
    folder.ok_or_else(|| {
        Failure::Usage("you have no home directory: say with --store where the store is".to_owned())
    })
}

/// The master key: as the option says, the environment, or the variable that the configuration names.
fn master_key(at: &At, named: Option<&str>) -> Result<Option<MasterKey>, Failure> {
    const USUAL: &str = "THROUGHLINE_MASTER_KEY";
    if let Some(file) = &at.master_key_file {
        return key(file).map(Some);
    }
    let read = |name: &str, text: String| {
        let read = MasterKey::parse(&Zeroizing::new(text));
        read.map(Some).map_err(|error| Failure::Usage(format!("{name}: {error}")))
    };
    if let Some(text) = variable(USUAL)? {
        return read(USUAL, text);
    }
    let Some(name) = named else { return Ok(None) };
    let shown = config::shown_variable(name);
    match variable(name)? {
        Some(text) => read(&shown, text),
        None => Err(Failure::Usage(format!(
            "{shown}, which `master_key_env` in the configuration names, is not set: set it, \
             or give the key with --master-key-file"
        ))),
    }
}

/// The master key that a file holds.
pub(crate) fn key(file: &Path) -> Result<MasterKey, Failure> {
    let name = file.display();
    let text = std::fs::read_to_string(file).map(Zeroizing::new);
    let text = text.with_context(|| format!("the key file {name} cannot be read"))?;
    MasterKey::parse(&text).map_err(|error| Failure::Usage(format!("{name}: {error}")))
}

/// Hears who asks to stop: Ctrl-C, or whoever started it.
pub(crate) struct Signals {
    interrupted: Signal,
    terminated: Signal,
}

impl Signals {
    /// Listens from now on; within a runtime.
    pub(crate) fn new() -> io::Result<Self> {
        let interrupted = signal(SignalKind::interrupt())?;
        Ok(Self { interrupted, terminated: signal(SignalKind::terminate())? })
    }

    /// Waits until somebody asks to stop, or has asked.
    pub(crate) async fn asked_to_stop(&mut self) {
        tokio::select! {
            _ = self.interrupted.recv() => {}
            _ = self.terminated.recv() => {}
        }
    }

    /// Waits for an answer, unless somebody asks to stop; then the work is dropped, if it is not as good as done.
    pub(crate) fn run_until_stopped<T>(
        mut self,
        opened: &Opened,
        progress: &Progress,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<Result<T, StoreError>, Failure> {
        opened.wait_for(async {
            let mut work = std::pin::pin!(work);
            loop {
                tokio::select! {
                    done = &mut work => return Ok(done),
                    () = self.asked_to_stop() => {}
                }
                if !progress.is_full() {
                    let message = "interrupted: nothing was written";
                    return Err(Failure::Interrupted(message.to_owned()));
                }
            }
        })
    }
}
