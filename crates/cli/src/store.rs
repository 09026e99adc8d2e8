//! Opens the store that a command uses: finds its location, loads its keys and reports its errors.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use owo_colors::OwoColorize as _;
use throughline_core::{LogHead, LogId, LogKind, Store as _, StoreError, Tenant};
pub(crate) use throughline_store::without_password;
use throughline_store::{Journal, MasterKey, Options, Page, open};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use zeroize::Zeroizing;

use crate::args::StoreArgs;
use crate::config::environment::{default_url, is_address, variable};
use crate::config::{self, StoreSettings};
use crate::print::failure::{Failure, Result};
use crate::print::progress::Progress;
use crate::print::text::{self, plain, push_line};

/// Grace period for blocking threads at shutdown.
pub(crate) const SHUTDOWN_LIMIT: Duration = Duration::from_secs(10);

/// What to do if the store does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IfMissing {
    Fails,
    IsMade,
    /// Fails if the store does not exist. An existing store is opened read-only, because its file
    /// may be a read-only copy.
    FailsReadOnly,
}

pub(crate) struct OpenStore {
    runtime: Runtime,
    pub(crate) journal: Journal,
    pub(crate) tenant: Tenant,
}

/// Opens the store, calls `work`, and closes the store even if `work` fails.
pub(crate) fn with<T>(
    at: &StoreArgs,
    missing: IfMissing,
    work: impl FnOnce(&OpenStore) -> Result<T>,
) -> Result<T> {
    let (url, options) = open_options(at, missing)?;
    let runtime = runtime(Builder::new_current_thread())?;
    let journal = runtime.block_on(open(&url, &options));
    let journal = journal.map_err(|error| open_failure(error, &url))?;
    let store = OpenStore { runtime, journal, tenant: Tenant::from(at.tenant.as_str()) };
    let result = work(&store);
    let closed = store.run(store.journal.close());
    // A thread that is still running after an interrupt rolls back its transaction.
    store.runtime.shutdown_timeout(SHUTDOWN_LIMIT);
    result.and_then(|value| closed.map(|()| value))
}

pub(crate) fn runtime(mut builder: Builder) -> Result<Runtime> {
    Ok(builder.enable_all().build().context("cannot start the async runtime")?)
}

impl OpenStore {
    /// Waits for a future. Ctrl-C ends the process at once, so use this only for work that can be
    /// aborted safely.
    pub(crate) fn wait_for<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// Waits for a store operation and converts its error to a failure.
    pub(crate) fn run<T>(&self, work: impl Future<Output = Result<T, StoreError>>) -> Result<T> {
        self.wait_for(work).map_err(self.to_failure())
    }

    /// Installs signal handlers, so that interrupted work can be rolled back.
    pub(crate) fn signals(&self) -> Result<Signals> {
        self.wait_for(async { Signals::new() })
    }

    /// Waits for work that must not stop half-way. The first signal only prints a note; a second
    /// signal aborts the work.
    pub(crate) fn run_uninterrupted<T>(
        &self,
        operation: &str,
        work: impl Future<Output = Result<T, StoreError>>,
        to_failure: impl FnOnce(StoreError) -> Failure,
    ) -> Result<T> {
        let mut signals = self.signals()?;
        self.wait_for(async {
            let mut work = std::pin::pin!(work);
            tokio::select! {
                result = &mut work => return result.map_err(to_failure),
                () = signals.wait_for_stop() => {}
            }
            text::note(&format!("finishing {operation}; interrupt again to abort"));
            tokio::select! {
                result = &mut work => result.map_err(to_failure),
                () = signals.wait_for_stop() => {
                    Err(Failure::Interrupted(format!("interrupted before {operation} was complete")))
                }
            }
        })
    }

    /// Waits for work that a signal can abort. Once `progress` is full, signals are ignored,
    /// because only the final step remains.
    pub(crate) fn run_until_interrupted<T>(
        &self,
        mut signals: Signals,
        progress: &Progress,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<Result<T, StoreError>> {
        self.wait_for(async {
            let mut work = std::pin::pin!(work);
            loop {
                tokio::select! {
                    result = &mut work => return Ok(result),
                    () = signals.wait_for_stop() => {}
                }
                if !progress.is_full() {
                    let message = "interrupted: nothing was written";
                    return Err(Failure::Interrupted(message.to_owned()));
                }
            }
        })
    }

    /// Returns the head of a log; fails if no log has this id.
    pub(crate) fn log(&self, log: &LogId) -> Result<LogHead> {
        self.existing_log(log, "log")
    }

    /// Returns the head of a thread; fails if no thread has this id.
    pub(crate) fn thread(&self, thread: &LogId) -> Result<LogHead> {
        let head = self.existing_log(thread, "thread")?;
        if head.kind == LogKind::Thread {
            return Ok(head);
        }
        let of = head.of.map(|of| format!(" of the thread {of}")).unwrap_or_default();
        Err(Failure::Usage(format!("{thread} is a run{of}, not a thread")))
    }

    fn existing_log(&self, log: &LogId, what: &'static str) -> Result<LogHead> {
        let head = self.run(self.journal.log(&self.tenant, log))?;
        let missing = || StoreError::NotFound { what, name: log.0.clone() };
        head.ok_or_else(|| store_failure(missing(), &self.tenant))
    }

    /// Returns the runs of a thread, or all runs of the tenant. Logs without a status, such as run
    /// commands and stored responses, are not runs and are skipped.
    pub(crate) fn runs(&self, thread: Option<&LogId>, mut page: Page) -> Result<Vec<LogHead>> {
        const LOOKED_AT: u32 = 256;
        let limit = usize::try_from(page.limit).unwrap_or(usize::MAX);
        page.limit = page.limit.max(LOOKED_AT);
        let mut runs = Vec::new();
        loop {
            let logs = self.run(self.journal.runs(&self.tenant, thread, page.clone()))?;
            page.after = logs.last().map(|head| head.log.clone());
            runs.extend(logs.into_iter().filter(|head| head.status.is_some()));
            if page.after.is_none() || runs.len() >= limit {
                runs.truncate(limit);
                return Ok(runs);
            }
        }
    }

    /// Returns the message that is printed instead of an empty table. It lists the store's other
    /// tenants.
    pub(crate) fn empty_message(&self, noun: &str) -> Result<String> {
        let tenant = &self.tenant;
        let mut others = self.run(self.journal.tenants())?;
        others.retain(|name| name != tenant);
        let mut message = format!("the tenant {} has no {noun}\n", plain(&tenant.0));
        if !others.is_empty() {
            let names: Vec<String> = others.iter().map(|name| plain(&name.0)).collect();
            let (label, names) = ("other tenants of this store:".dimmed(), names.join(", "));
            push_line(&mut message, &format!("{label} {names}"));
        }
        Ok(message)
    }

    /// Returns a function that converts store errors to failures.
    pub(crate) fn to_failure(&self) -> impl Fn(StoreError) -> Failure {
        move |error| store_failure(error, &self.tenant)
    }
}

/// Converts a store error to a failure with the matching exit code.
pub(crate) fn store_failure(error: StoreError, tenant: &Tenant) -> Failure {
    use StoreError::{Conflict, Corrupt, Fenced, Held, Invalid, MixedOnce, Taken};
    let message = error.to_string();
    if let StoreError::NotFound { what, name } = error {
        let (what, list) = match what {
            "log" => ("thread or run", "`throughline threads` and `throughline runs` list"),
            "item" => ("item", "`throughline items THREAD --json` lists"),
            "run" => ("run", "`throughline runs` lists"),
            what => (what, "`throughline threads` lists"),
        };
        return Failure::Usage(format!(
            "there is no {what} {name} in the tenant {tenant}; {list} what exists"
        ));
    }
    if matches!(error, Invalid(_)) {
        Failure::Usage(message)
    } else if matches!(error, Corrupt(_)) {
        Failure::BadData(format!("{message}; run `throughline verify` to locate the problem"))
    } else if matches!(
        error,
        Conflict { .. } | Fenced { .. } | Held { .. } | Taken { .. } | MixedOnce { .. }
    ) {
        Failure::Outside(anyhow::anyhow!(message))
    } else {
        // All other errors affect the store as a whole, for example if it is full, locked or
        // unreachable.
        Failure::NoStore(message)
    }
}

/// Returns the store URL and the options for opening the store.
pub(crate) fn open_options(at: &StoreArgs, missing: IfMissing) -> Result<(String, Options)> {
    let StoreSettings { url, listen_url, master_key_env } = locate_store(at)?;
    let url = url.map_or_else(default_url, Ok)?;
    let retired_keys = at.retired_key_file.iter().map(|file| key(file));
    let options = Options {
        master_key: master_key(at, master_key_env.as_deref())?,
        retired_keys: retired_keys.collect::<Result<_, _>>()?,
        listen_url,
        create: missing == IfMissing::IsMade,
        read_only: missing == IfMissing::FailsReadOnly,
        ..Options::default()
    };
    Ok((url, options))
}

/// Converts an error from opening a store to a failure.
pub(crate) fn open_failure(error: StoreError, url: &str) -> Failure {
    let location = without_password(url);
    match error {
        StoreError::NotFound { .. } => Failure::NoStore(format!(
            "there is no store at {location}; create one with `throughline run` or `throughline serve`, or name another store with --store"
        )),
        StoreError::Corrupt(problem) => Failure::BadData(format!(
            "{location} is not a store, or is damaged ({problem}); name another store with --store, or restore a backup"
        )),
        StoreError::Invalid(problem) => Failure::BadData(problem.to_string()),
        StoreError::KeyMissing => Failure::NoStore(format!(
            "{location} is encrypted; pass its master key with --master-key-file or in the \
             environment variable THROUGHLINE_MASTER_KEY"
        )),
        StoreError::WrongKey => Failure::NoStore(format!(
            "the master key does not match {location}; pass the key that encrypts the store, and \
             earlier keys with --retired-key-file"
        )),
        StoreError::NewerSchema { found, known } => Failure::NoStore(format!(
            "{location} has schema version {found}, but this program supports at most {known}; \
             install a newer version of throughline"
        )),
        StoreError::Unreachable(_, problem) if url.starts_with("postgres") => {
            let remedy = remedy_of(
                &problem,
                "; check that the PostgreSQL server is running, or name another store with --store",
            );
            Failure::NoStore(format!("cannot reach the store at {location}: {problem}{remedy}"))
        }
        StoreError::ReadOnly(_) | StoreError::Unreachable(_, _) => {
            if let Some(folder) = closed_folder(url) {
                return Failure::NoStore(format!(
                    "cannot open {location}: the file does not exist, and this user cannot create \
                     files in {}; make the folder writable for this user, or name another store \
                     with --store",
                    folder.display()
                ));
            }
            let problem = error.to_string();
            let remedy = "; check that this user can read and write the file and its folder, or \
                          name another store with --store";
            let remedy = remedy_of(&problem, remedy);
            Failure::NoStore(format!("cannot open {location}: {problem}{remedy}"))
        }
        error => Failure::NoStore(format!("cannot open {location}: {error}")),
    }
}

/// Returns the remedy, or nothing if the problem states its own remedy, as an expired certificate
/// does.
pub(crate) fn remedy_of<'r>(problem: &str, remedy: &'r str) -> &'r str {
    if problem.contains("; ") { "" } else { remedy }
}

/// Returns the folder in which a missing SQLite file cannot be created; `None` if the file exists
/// or its folder accepts files.
pub(crate) fn closed_folder(url: &str) -> Option<PathBuf> {
    let file = url.strip_prefix("sqlite://").or_else(|| url.strip_prefix("sqlite:"))?;
    let file = std::path::absolute(file).ok()?;
    if !matches!(file.try_exists(), Ok(false)) {
        return None;
    }
    // The folders are created, too, so the nearest existing folder decides.
    let folder = file.ancestors().skip(1).find(|folder| folder.is_dir())?;
    tempfile::tempfile_in(folder).is_err().then(|| folder.to_owned())
}

/// Returns the store URL from the option, the environment, the configuration, or the user's data
/// directory. The other settings apply only if the URL comes from the configuration.
fn locate_store(at: &StoreArgs) -> Result<StoreSettings> {
    let explicit =
        at.store.clone().map_or_else(|| variable("THROUGHLINE_STORE"), |url| Ok(Some(url)));
    let settings = match explicit? {
        Some(url) => StoreSettings { url: Some(url), ..StoreSettings::default() },
        None => {
            let settings = config::load(at.config.as_deref())?.store;
            let url = settings.url.map_or_else(default_url, Ok)?;
            StoreSettings { url: Some(url), ..settings }
        }
    };
    if !settings.url.as_deref().is_none_or(is_address) {
        // An invalid URL may contain a secret, so the message does not repeat it.
        return Err(Failure::Usage(
            "the store URL has an unknown scheme: write sqlite://FILE or postgres://USER@HOST/DATABASE".to_owned(),
        ));
    }
    Ok(settings)
}

/// Returns the URL of the store that a command uses.
pub(crate) fn store_url(at: &StoreArgs) -> Result<String> {
    locate_store(at)?.url.map_or_else(default_url, Ok)
}

/// Returns the path of an SQLite store; `None` for PostgreSQL or an unknown location.
pub(crate) fn sqlite_file(at: &StoreArgs) -> Option<PathBuf> {
    let url = locate_store(at).ok()?.url?;
    url.strip_prefix("sqlite://").or_else(|| url.strip_prefix("sqlite:")).map(PathBuf::from)
}

/// Returns the master key from the option, `THROUGHLINE_MASTER_KEY` or the configured environment
/// variable.
fn master_key(at: &StoreArgs, variable_name: Option<&str>) -> Result<Option<MasterKey>> {
    const DEFAULT: &str = "THROUGHLINE_MASTER_KEY";
    if let Some(file) = &at.master_key_file {
        return key(file).map(Some);
    }
    if let Some(text) = variable(DEFAULT)? {
        return parse_key(DEFAULT, text).map(Some);
    }
    let Some(name) = variable_name else { return Ok(None) };
    let shown = config::shown_variable(name);
    match variable(name)? {
        Some(text) => parse_key(&shown, text).map(Some),
        None => Err(Failure::Usage(format!(
            "{shown} is not set, but `master_key_env` in the configuration names this variable: \
             set the variable, or pass the key with --master-key-file"
        ))),
    }
}

pub(crate) fn key(file: &Path) -> Result<MasterKey> {
    let name = file.display();
    let text = std::fs::read_to_string(file).map_err(|error| {
        Failure::unreadable(&format!("cannot read the key file {name}"), &error)
    })?;
    parse_key(&name.to_string(), text)
}

fn parse_key(source: &str, text: String) -> Result<MasterKey> {
    let key = MasterKey::parse(&Zeroizing::new(text));
    key.map_err(|error| Failure::Usage(format!("{source}: {error}")))
}

pub(crate) struct Signals {
    interrupted: Signal,
    terminated: Signal,
}

impl Signals {
    /// Installs the handlers for SIGINT and SIGTERM. Must be called within a Tokio runtime.
    pub(crate) fn new() -> Result<Self> {
        let install = |kind| signal(kind).context("cannot install signal handlers");
        let interrupted = install(SignalKind::interrupt())?;
        Ok(Self { interrupted, terminated: install(SignalKind::terminate())? })
    }

    /// Waits for a signal, or returns at once if a signal was already received.
    pub(crate) async fn wait_for_stop(&mut self) {
        tokio::select! {
            _ = self.interrupted.recv() => {}
            _ = self.terminated.recv() => {}
        }
    }
}
