//! The data that `[retention]` deletes: selects expired data, for the job of the gateway and for
//! `throughline stats`.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use jiff::{SignedDuration, Timestamp};
use throughline_core::{LogId, StoreError, Tenant};
use throughline_json::StringEnum as _;
use throughline_replay::{OBJECT_LOG, is_conversation};
use throughline_server::agent_threads;
use throughline_store::{
    ClassStats, DataCount, ExpiredData, Journal, LogClassifier, RetentionClass,
};
use throughline_trace::{SinkKind, StoredSession};

use crate::config::{RetentionSettings, TracingSettings};

/// Name prefix of the tenants for the gateway's own data, such as usage and budgets.
pub(crate) const OWN_TENANT_PREFIX: &str = "throughline-";

/// Classifies the logs of one tenant.
pub(crate) struct TenantLogs {
    /// The list of agents and the Threads of the agents that exist.
    permanent: HashSet<LogId>,
}

impl TenantLogs {
    pub(crate) async fn load(journal: &Journal, tenant: &Tenant) -> Result<Self, StoreError> {
        let permanent = agent_threads(journal, tenant).await?.into_iter().collect();
        Ok(Self { permanent })
    }
}

impl LogClassifier for TenantLogs {
    fn is_call(&self, log: &LogId) -> bool {
        is_conversation(&log.0)
    }

    fn is_permanent(&self, log: &LogId) -> bool {
        // The owners of objects at providers are permissions, not content.
        self.permanent.contains(log) || log.0.starts_with(OBJECT_LOG)
    }
}

/// Returns the tenants whose data can expire.
pub(crate) async fn tenants(journal: &Journal) -> Result<Vec<Tenant>, StoreError> {
    let mut tenants = journal.tenants().await?;
    tenants.retain(|tenant| !tenant.0.starts_with(OWN_TENANT_PREFIX));
    Ok(tenants)
}

/// Returns the time of the last use until which data of this age has expired.
pub(crate) fn expired_until(now: Timestamp, age: Duration) -> Timestamp {
    let age = SignedDuration::try_from(age).unwrap_or(SignedDuration::MAX);
    now.checked_sub(age).unwrap_or(Timestamp::MIN)
}

/// Deletes the expired data of all tenants. Returns what was deleted from each class.
pub(crate) async fn expire(
    journal: &Journal,
    settings: &RetentionSettings,
    now: Timestamp,
    deleted: &mut Vec<(RetentionClass, DataCount)>,
) -> Result<(), StoreError> {
    let classes = RetentionClass::ALL.iter();
    let limited = classes.filter_map(|class| Some((*class, settings.age(*class)?)));
    let limited: Vec<_> = limited.collect();
    *deleted = limited.iter().map(|(class, _)| (*class, DataCount::default())).collect();
    if limited.is_empty() {
        return Ok(());
    }
    for tenant in tenants(journal).await? {
        let classifier = TenantLogs::load(journal, &tenant).await?;
        for ((class, age), (_, count)) in limited.iter().zip(deleted.iter_mut()) {
            let until = expired_until(now, *age);
            let data = ExpiredData { class: *class, until, classifier: &classifier };
            count.add(journal.expire(&tenant, &data).await?);
        }
    }
    Ok(())
}

/// Counts the stored and the expired data of a class in all tenants.
pub(crate) async fn class_stats(
    journal: &Journal,
    class: RetentionClass,
    age: Option<Duration>,
    now: Timestamp,
) -> Result<ClassStats, StoreError> {
    let mut all = ClassStats::default();
    let until = age.map(|age| expired_until(now, age));
    for tenant in tenants(journal).await? {
        let classifier = TenantLogs::load(journal, &tenant).await?;
        let stats = journal.class_stats(&tenant, class, until, &classifier).await?;
        all.logs += stats.logs;
        all.since = all.since.into_iter().chain(stats.since).min();
        all.expired.add(stats.expired);
    }
    Ok(all)
}

/// Returns the folders that sinks of kind `file` write sessions to.
pub(crate) fn trace_folders(tracing: &TracingSettings) -> Vec<PathBuf> {
    let files = tracing.sinks.iter().filter(|sink| sink.kind == SinkKind::File);
    files.map(|sink| PathBuf::from(&sink.to)).collect()
}

/// Counts the sessions in trace folders, and those that have expired. If `deletes` is set, deletes
/// the expired sessions. This function blocks.
pub(crate) fn trace_stats(
    folders: &[PathBuf],
    age: Option<Duration>,
    now: Timestamp,
    deletes: bool,
) -> std::io::Result<ClassStats> {
    let until = age.map(|age| SystemTime::from(expired_until(now, age)));
    let mut stats = ClassStats::default();
    let sessions = |folder: &PathBuf| StoredSession::list(Path::new(folder));
    for session in folders.iter().map(sessions).collect::<Result<Vec<_>, _>>()?.iter().flatten() {
        let written = Timestamp::try_from(session.written).ok();
        stats.logs += 1;
        stats.since = stats.since.into_iter().chain(written).min();
        if until.is_some_and(|until| session.written <= until) {
            if deletes {
                session.delete()?;
            }
            stats.expired.add(DataCount { logs: 1, records: 0, bytes: session.bytes });
        }
    }
    Ok(stats)
}
