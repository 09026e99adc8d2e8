//! Why a batch is not written, in the same words on every database; and what can be refused before one is asked.

use throughline_core::{Batch, LogId, LogKind, Name, NodeId, StoreError};

/// A name must be able to stand in a header: it has no line breaks or other control characters, and is not too long.
pub(crate) fn check_name(name: &str) -> Result<(), StoreError> {
    if !name.is_empty() && name.len() <= 200 && !name.chars().any(char::is_control) {
        return Ok(());
    }
    Err(StoreError::invalid(format!(
        "{:?} cannot be a name: it must have 1 to 200 bytes and no control characters",
        name.chars().take(40).collect::<String>()
    )))
}

/// What a batch must be, whatever the database holds.
pub(crate) fn check(batch: &Batch) -> Result<(), StoreError> {
    check_names(batch)?;
    check_unique(batch)?;
    check_openings(batch)?;
    for asked in &batch.asks {
        check_added(batch, &asked.log)?;
    }
    for node in &batch.vault {
        check_added(batch, &node.log)?;
    }
    Ok(())
}

/// Everything in the batch that is kept as a name must be one.
fn check_names(batch: &Batch) -> Result<(), StoreError> {
    check_name(&batch.tenant.0)?;
    for append in &batch.appends {
        check_name(&append.log.0)?;
        append.status.iter().try_for_each(|status| check_name(status))?;
        append.records.iter().try_for_each(|record| check_name(&record.kind))?;
    }
    for asked in &batch.asks {
        check_name(&asked.id)?;
        check_name(&asked.kind)?;
    }
    for node in &batch.vault {
        check_name(&node.id.0)?;
        node.parent.iter().try_for_each(|parent| check_name(&parent.0))?;
    }
    Ok(())
}

/// A run is of a thread; a fork is a thread.
fn check_openings(batch: &Batch) -> Result<(), StoreError> {
    for append in &batch.appends {
        let Some(opening) = &append.opening else { continue };
        let problem = match opening.kind {
            LogKind::Thread if opening.of.is_some() => "is a thread, and only runs are of a thread",
            LogKind::Run if opening.fork.is_some() => "is a run, and only threads are forked",
            LogKind::Thread | LogKind::Run => continue,
        };
        return Err(StoreError::invalid(format!("{} {problem}", append.log)));
    }
    Ok(())
}

/// What a batch names must be named once.
fn check_unique(batch: &Batch) -> Result<(), StoreError> {
    fn twice<T: Ord>(names: impl Iterator<Item = T>) -> bool {
        let mut names: Vec<T> = names.collect();
        names.sort();
        names.windows(2).any(|pair| pair.first() == pair.last())
    }
    let problem = if twice(batch.appends.iter().map(|append| &append.log)) {
        "a batch names each log once"
    } else if twice(batch.once.iter()) {
        "a batch has each of its names once"
    } else if twice(batch.asks.iter().map(|asked| &asked.id)) {
        "a batch asks each question once"
    } else if twice(batch.takes.iter()) {
        "a batch decides each question once"
    } else if twice(batch.vault.iter().map(|node| &node.id)) {
        "a batch captures each turn once"
    } else {
        return Ok(());
    };
    Err(StoreError::invalid(problem))
}

fn check_added(batch: &Batch, log: &LogId) -> Result<(), StoreError> {
    if batch.appends.iter().any(|append| append.log == *log) {
        return Ok(());
    }
    Err(StoreError::invalid(format!("the batch adds nothing to {log}")))
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

pub(crate) fn gone(log: &LogId) -> StoreError {
    StoreError::invalid(format!("{log} was forgotten, and takes nothing more"))
}

pub(crate) fn begins_on_gone(log: &LogId) -> StoreError {
    StoreError::invalid(format!("{log} was forgotten: no run and no fork of it can begin any more"))
}

pub(crate) fn fork_beyond(parent: &LogId, last: u64) -> StoreError {
    StoreError::invalid(format!("{parent} ends at {last}: fork it there or before"))
}

pub(crate) fn rewind_beyond(log: &LogId, last: u64) -> StoreError {
    StoreError::invalid(format!("{log} ends at {last}: rewind it to there or before"))
}

pub(crate) fn asked_before(id: &Name) -> StoreError {
    StoreError::invalid(format!("{id} is the id of another question: choose a new one"))
}

pub(crate) fn captured_before(id: &NodeId) -> StoreError {
    StoreError::invalid(format!("{id} is the name of another turn: choose a new one"))
}

pub(crate) fn key_exists(id: &Name) -> StoreError {
    StoreError::invalid(format!("there is an API key {id} already"))
}

pub(crate) fn no_key(id: &Name) -> StoreError {
    StoreError::NotFound { what: "API key", name: id.clone() }
}

pub(crate) fn no_keys() -> StoreError {
    StoreError::invalid("the keys of the store are not open yet")
}

pub(crate) fn backup_exists(path: &std::path::Path) -> StoreError {
    let path = path.display();
    StoreError::invalid(format!("{path} exists: choose another name for the backup"))
}
