//! Errors for rejected batches, with the same text for SQLite and PostgreSQL, and the checks that
//! need no database.

use throughline_core::{Batch, LogId, LogKind, StoreError, TurnId};
use throughline_json::Name;

pub(crate) type Result<T, E = StoreError> = std::result::Result<T, E>;

/// Builds a [`StoreError::invalid`] from a format string.
macro_rules! invalid {
    ($($text:tt)*) => {
        throughline_core::StoreError::invalid(std::fmt::format(format_args!($($text)*)))
    };
}
pub(crate) use invalid;

/// Builds a [`StoreError::Corrupt`] from a format string.
macro_rules! corrupt {
    ($($text:tt)*) => {
        throughline_core::StoreError::Corrupt(std::fmt::format(format_args!($($text)*)).into())
    };
}
pub(crate) use corrupt;

/// Checks that a name can be part of a record header: 1 to 200 bytes without control characters.
pub(crate) fn check_name(name: &str) -> Result<()> {
    if !name.is_empty() && name.len() <= 200 && !name.chars().any(char::is_control) {
        return Ok(());
    }
    Err(invalid!(
        "{:?} is not a valid name; use 1 to 200 bytes without control characters",
        name.chars().take(40).collect::<String>()
    ))
}

/// Checks the rules that a batch must satisfy regardless of the stored data.
pub(crate) fn check(batch: &Batch) -> Result<()> {
    check_names(batch)?;
    check_unique(batch)?;
    check_openings(batch)?;
    let request = batch.asks.iter().map(|request| &request.log);
    for log in request.chain(batch.vault.iter().map(|node| &node.log)) {
        if !batch.appends.iter().any(|append| append.log == *log) {
            return Err(no_append(log));
        }
    }
    Ok(())
}

fn check_names(batch: &Batch) -> Result<()> {
    check_name(&batch.tenant.0)?;
    for append in &batch.appends {
        check_name(&append.log.0)?;
        append.status.iter().try_for_each(|status| check_name(status))?;
        append.records.iter().try_for_each(|record| check_name(&record.kind))?;
    }
    for request in &batch.asks {
        check_name(&request.id)?;
        check_name(&request.kind)?;
    }
    for node in &batch.vault {
        check_name(&node.id.0)?;
        node.parent.iter().try_for_each(|parent| check_name(&parent.0))?;
    }
    Ok(())
}

/// Checks that only runs belong to a Thread and only Threads are forks.
fn check_openings(batch: &Batch) -> Result<()> {
    for append in &batch.appends {
        let Some(opening) = &append.opening else { continue };
        let problem = match opening.kind {
            LogKind::Thread if opening.of.is_some() => {
                "is a thread; only a run can belong to a thread"
            }
            LogKind::Run if opening.fork.is_some() => "is a run; only threads can be forked",
            LogKind::Thread | LogKind::Run => continue,
        };
        return Err(invalid!("{} {problem}", append.log));
    }
    Ok(())
}

/// Checks that each log, turn, pending request and idempotency name occurs only once in a batch.
fn check_unique(batch: &Batch) -> Result<()> {
    fn twice<T: Ord>(names: impl Iterator<Item = T>) -> bool {
        let mut names: Vec<T> = names.collect();
        names.sort();
        names.windows(2).any(|pair| pair.first() == pair.last())
    }
    let duplicates = [
        (twice(batch.appends.iter().map(|append| &append.log)), "append to each log"),
        (twice(batch.once.iter()), "list each idempotency key"),
        (twice(batch.asks.iter().map(|request| &request.id)), "add each pending request"),
        (twice(batch.takes.iter()), "resolve each pending request"),
        (twice(batch.vault.iter().map(|node| &node.id)), "capture each turn"),
    ];
    match duplicates.into_iter().find(|(is_twice, _)| *is_twice) {
        Some((_, what)) => Err(invalid!("a batch may {what} only once")),
        None => Ok(()),
    }
}

pub(crate) fn no_append(log: &LogId) -> StoreError {
    invalid!("the batch contains no append to {log}")
}

pub(crate) fn no_log(log: &LogId) -> StoreError {
    StoreError::NotFound { what: "log", name: log.0.clone() }
}

pub(crate) fn no_thread(log: &LogId) -> StoreError {
    StoreError::NotFound { what: "thread", name: log.0.clone() }
}

pub(crate) fn not_pending(id: &Name) -> StoreError {
    StoreError::NotFound { what: "pending entry", name: id.clone() }
}

pub(crate) fn log_erased(log: &LogId) -> StoreError {
    invalid!("{log} was forgotten and accepts no more records")
}

pub(crate) fn parent_erased(log: &LogId) -> StoreError {
    invalid!("{log} was forgotten and accepts no new runs or forks")
}

pub(crate) fn fork_beyond(parent: &LogId, last: u64) -> StoreError {
    invalid!("{parent} ends at record {last}; fork at that record or an earlier one")
}

pub(crate) fn rewind_beyond(log: &LogId, last: u64) -> StoreError {
    invalid!("{log} ends at record {last}; rewind to that record or an earlier one")
}

pub(crate) fn pending_exists(id: &Name) -> StoreError {
    invalid!("pending request id {id} is already in use; choose another id")
}

pub(crate) fn turn_exists(id: &TurnId) -> StoreError {
    invalid!("turn id {id} is already in use; choose another id")
}

pub(crate) fn key_exists(id: &Name) -> StoreError {
    invalid!("API key {id} already exists")
}

pub(crate) fn no_key(id: &Name) -> StoreError {
    StoreError::NotFound { what: "API key", name: id.clone() }
}

pub(crate) fn no_keys() -> StoreError {
    StoreError::invalid("the store's keys are not loaded yet")
}

pub(crate) fn backup_exists(path: &std::path::Path) -> StoreError {
    let path = path.display();
    invalid!("{path} already exists; choose another name for the backup")
}

pub(crate) fn target_has_store(target: &str) -> StoreError {
    invalid!("{target} already contains a store; a migration needs an empty database or a new file")
}
