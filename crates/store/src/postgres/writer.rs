//! The writer, which has a queue and one connection. It sends all batches that were queued during
//! the last round trip as one group.
//!
//! Each group has a number. If the connection is lost before the result arrives, the group is sent
//! again with the same number. The database then returns the earlier result, or writes the group if
//! it was not written before. Therefore no group is written twice, and no unwritten group is
//! acknowledged.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use throughline_core::{Receipt, StoreError, Tenant};
use throughline_json::Name;
use tokio::sync::{mpsc, oneshot};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_postgres::{Client, Row, Statement};

use crate::chain::Head;
use crate::manifest::{Manifest, Series};
use crate::options::Durability;
use crate::postgres::Shared;
use crate::postgres::commit::{Columns, PreparedBatch, moved, statement, verdict};
use crate::postgres::connect::{DURABLE, Server, is_contended, is_lost};
use crate::postgres::values::{Parameter, damaged, field, sql_row};
use crate::rejection::Result;
use crate::row_mac::RowState;

/// Maximum number of batches per group.
const MOST_BATCHES: usize = 256;
/// Maximum number of bytes per group, unless a single batch is larger.
const MOST_BYTES: usize = 8 << 20;
/// Number of times to yield before a group is sent, so that other tasks can add batches.
const IDLE: u32 = 8;
/// How long the PostgreSQL server may be unavailable before waiting callers receive an error.
const OUTAGE_TIMEOUT: Duration = Duration::from_secs(3);
/// The outage timeout for a group that the server may already have written.
const UNKNOWN: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(100);
/// Interval between manifests while chain heads change.
const SIGN_INTERVAL: Duration = Duration::from_millis(900);
/// Maximum time until a relaxed commit is made durable.
const FLUSH_INTERVAL: Duration = Duration::from_millis(40);
/// Maximum number of retries after contention.
const TRIES: u32 = 8;

pub(super) enum PostgresJob {
    Commit(Box<PreparedBatch>, oneshot::Sender<Result<Receipt>>),
    Close(oneshot::Sender<Result<()>>),
}

type QueuedCommit = (Box<PreparedBatch>, oneshot::Sender<Result<Receipt>>);

/// Runs the writer task until the store is closed or all job senders are dropped.
pub(super) async fn run(shared: Arc<Shared>, mut jobs: mpsc::Receiver<PostgresJob>) {
    let mut writer = PostgresWriter {
        shared,
        connection: None,
        was_there: true,
        number: 0,
        written: 0,
        moved: BTreeSet::new(),
        series: None,
        unkept: None,
        sign_at: None,
        flush_at: None,
    };
    let mut over = None;
    while over.is_none() {
        let due = [writer.sign_at, writer.flush_at].into_iter().flatten().min();
        let job = match due {
            Some(due) => timeout_at(due, jobs.recv()).await,
            None => Ok(jobs.recv().await),
        };
        let mut group = Vec::new();
        let mut bytes = 0;
        let mut next = match job {
            Ok(None) => break,
            Ok(Some(job)) => Some(job),
            Err(_) => None,
        };
        while let Some(job) = next {
            match job {
                PostgresJob::Commit(prepared, answer) => {
                    bytes += prepared.bytes;
                    group.push((prepared, answer));
                }
                PostgresJob::Close(answer) => {
                    over = Some(answer);
                    break;
                }
            }
            if group.len() >= MOST_BATCHES || bytes >= MOST_BYTES {
                break;
            }
            next = jobs.try_recv().ok();
            // Yield to other tasks first, because a caller that just received its result may have
            // more to write.
            let mut idle = 0;
            while next.is_none() && idle < IDLE {
                yield_now().await;
                next = jobs.try_recv().ok();
                idle += 1;
            }
        }
        if !group.is_empty() {
            writer.write(group).await;
        }
        let now = Instant::now();
        if writer.sign_at.is_some_and(|due| due <= now) && writer.sign().await.is_err() {
            // Retry signing later.
            writer.sign_at = Some(now + SIGN_INTERVAL);
        }
        if writer.flush_at.is_some_and(|due| due <= now) && writer.flush().await.is_err() {
            writer.flush_at = Some(now + FLUSH_INTERVAL);
        }
    }
    let end = writer.end().await;
    if let Some(answer) = over {
        // Sending fails only if the caller was cancelled.
        drop(answer.send(end));
    }
}

struct WriterConnection {
    client: Client,
    /// The prepared commit statement; `None` with a pooler.
    statement: Option<Statement>,
}

impl WriterConnection {
    async fn open(server: &Server) -> Result<Self> {
        let client = server.client().await?;
        if server.is_pooler {
            return Ok(Self { client, statement: None });
        }
        let prepare = async {
            client.batch_execute(DURABLE).await?;
            client.prepare(&statement()).await
        };
        let statement = Some(prepare.await.map_err(|error| server.error(error))?);
        Ok(Self { client, statement })
    }

    /// Sends a group and returns the result of the commit function.
    async fn commit(
        &self,
        server: &Server,
        params: &[Parameter<'_>],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        match &self.statement {
            Some(statement) => self.client.query(statement, params).await,
            None => server.query_on(&self.client, &statement(), params).await,
        }
    }
}

struct PostgresWriter {
    shared: Arc<Shared>,
    connection: Option<WriterConnection>,
    /// Whether the server was reachable at the last attempt.
    was_there: bool,
    /// Number of the last group that was sent.
    number: i64,
    /// Number of the last group that was written.
    written: i64,
    /// Tenants whose chain heads changed, or may have changed, since the last manifest.
    moved: BTreeSet<Tenant>,
    series: Option<Series>,
    /// A manifest that may or may not be stored, because its write returned an error.
    unkept: Option<Manifest>,
    sign_at: Option<Instant>,
    flush_at: Option<Instant>,
}

impl PostgresWriter {
    /// Writes a group of batches and sends each batch's result to its caller.
    async fn write(&mut self, group: Vec<QueuedCommit>) {
        match self.send(&group).await {
            Ok(answers) => self.answer(group, &answers),
            // The database rejected the statement, possibly because of a single batch. Retry each
            // batch alone.
            Err(StoreError::Database(_)) if group.len() > 1 => {
                for waiting in group {
                    Box::pin(self.write(vec![waiting])).await;
                }
            }
            Err(error) => {
                // Sign the heads anyway, because the group may have been written.
                self.have_moved(group.iter().map(|(prepared, _)| prepared.batch.tenant.clone()));
                for (_, waiting) in group {
                    // Sending fails only if the caller was cancelled.
                    drop(waiting.send(Err(error.clone())));
                }
            }
        }
    }

    async fn send(&mut self, group: &[QueuedCommit]) -> Result<Vec<String>> {
        self.number += 1;
        let columns = Columns::from_group(group.iter().map(|(prepared, _)| &**prepared));
        let writer: Name = self.shared.writer.clone();
        let (writer, number, relaxed) = (&*writer, self.number, self.is_relaxed());
        let key = self.shared.key()?.clone();
        let key = key.bytes();
        let params = columns.params([&writer, &number, &relaxed, &key]);
        let began = Instant::now();
        let (mut unknown, mut tries) = (false, 0);
        loop {
            let shared = Arc::clone(&self.shared);
            let connection = match self.connection().await {
                Ok(connection) => connection,
                Err(error) => {
                    let patience = match (unknown, self.was_there) {
                        (true, _) => UNKNOWN,
                        (false, true) => OUTAGE_TIMEOUT,
                        (false, false) => Duration::ZERO,
                    };
                    if began.elapsed() < patience {
                        sleep(PAUSE).await;
                        continue;
                    }
                    self.was_there = false;
                    return Err(if unknown { self.not_known() } else { error });
                }
            };
            let error = match connection.commit(&shared.server, &params).await {
                Ok(rows) => {
                    (self.was_there, self.written) = (true, number);
                    if !relaxed {
                        shared.server.known.add_durable(number);
                    }
                    return field(rows.first().ok_or_else(|| damaged("an answer"))?, 0);
                }
                Err(error) => error,
            };
            if is_lost(&error) {
                self.connection = None;
                unknown = true;
            } else if shared.server.is_demoted(&error) && tries < TRIES {
                // Another host of the URL may accept writes by now.
                self.connection = None;
                tries += 1;
                sleep(PAUSE).await;
            } else if is_contended(&error) && tries < TRIES {
                tries += 1;
            } else {
                let error = self.shared.server.error(error);
                if !unknown {
                    return Err(error);
                }
                // A server that no longer accepts writes can still report whether it wrote the
                // group. Until that is known, the group must not be sent under another number.
                return match (self.answered(number).await, error) {
                    (Ok(Some(answers)), _) => Ok(answers),
                    (Ok(None), error @ StoreError::ReadOnly(_)) => Err(error),
                    (Ok(None) | Err(_), _) => Err(self.not_known()),
                };
            }
        }
    }

    /// Returns the result of the group with this number, or `None` if the group was not written.
    async fn answered(&mut self, number: i64) -> Result<Option<Vec<String>>> {
        let writer = self.shared.writer.clone();
        let sql = "SELECT answers FROM writers WHERE writer = $1 AND number = $2";
        let rows = self.query(sql, &[&&*writer, &number]).await?;
        rows.first().map(|row| field(row, 0)).transpose()
    }

    /// Runs a statement on the writer's connection.
    async fn query(&mut self, sql: &str, params: &[Parameter<'_>]) -> Result<Vec<Row>> {
        let shared = Arc::clone(&self.shared);
        let connection = self.connection().await?;
        let rows = shared.server.query_on(&connection.client, sql, params).await;
        rows.map_err(|error| {
            if shared.server.needs_new_connection(&error) {
                self.connection = None;
            }
            shared.server.error(error)
        })
    }

    fn answer(&mut self, group: Vec<QueuedCommit>, answers: &[String]) {
        let mut tenants: Vec<Tenant> = Vec::new();
        for (prepared, _) in &group {
            if !tenants.contains(&prepared.batch.tenant) {
                tenants.push(prepared.batch.tenant.clone());
            }
        }
        let tail = answers.get(group.len()..).unwrap_or_default();
        self.have_moved(moved(&tenants, tail));
        if self.is_relaxed() && self.flush_at.is_none() {
            self.flush_at = Some(Instant::now() + FLUSH_INTERVAL);
        }
        let mut answers = answers.iter();
        for (prepared, waiting) in group {
            let outcome = match answers.next() {
                Some(answer) => verdict(&prepared.batch, answer),
                None => Err(damaged("an answer")),
            };
            if let Ok(result) = &outcome {
                let written = result.receipt.written.iter().zip(&result.logs);
                for (written, id) in written.filter(|(written, _)| written.first <= written.last) {
                    let key = (prepared.batch.tenant.clone(), written.log.clone());
                    self.shared.wrote(&key, *id, written.last);
                }
            }
            // Sending fails only if the caller was cancelled.
            drop(waiting.send(outcome.map(|outcome| outcome.receipt)));
        }
    }

    /// Signs and stores a manifest of the chain heads that changed since the last manifest.
    async fn sign(&mut self) -> Result<()> {
        let Some(signer) = self.shared.signer.get() else {
            // No signer is set yet, so sign these changes later.
            self.sign_at = Some(Instant::now() + SIGN_INTERVAL);
            return Ok(());
        };
        let fresh = || Series::new(signer.clone(), self.shared.writer.clone());
        let mut series = self.series.take().unwrap_or_else(fresh);
        let end = self.sign_changes(&mut series).await;
        self.series = Some(series);
        if end.is_ok() {
            self.sign_at = None;
        }
        end
    }

    async fn sign_changes(&mut self, series: &mut Series) -> Result<()> {
        // First store the manifest whose outcome is unknown, unchanged.
        if let Some(manifest) = self.unkept.take() {
            self.store_manifest(series, manifest).await?;
        }
        if self.moved.is_empty() {
            return Ok(());
        }
        let (now, heads, rows) = self.heads().await?;
        self.moved.clear();
        if rows.is_empty() {
            return Ok(());
        }
        let manifest = series.next(now, heads, rows);
        self.store_manifest(series, manifest).await
    }

    /// Schedules the chain heads of these tenants for signing.
    fn have_moved(&mut self, tenants: impl IntoIterator<Item = Tenant>) {
        self.moved.extend(tenants);
        if !self.moved.is_empty() && self.sign_at.is_none() {
            self.sign_at = Some(Instant::now() + SIGN_INTERVAL);
        }
    }

    /// Returns the database's time, and the changed chain heads with their row sums. All values are
    /// read from the database. They therefore exclude changes lost in a crash, and include
    /// committed changes whose result never arrived.
    async fn heads(&mut self) -> Result<(i64, Vec<Head>, Vec<RowState>)> {
        let writer = self.shared.writer.clone();
        let names: Vec<String> = self.moved.iter().map(|tenant| tenant.0.to_string()).collect();
        let sql = "SELECT throughline_now(), t.name, s.position, s.link, s.changes, s.sums, \
                   (SELECT value FROM kept WHERE name = 'tally') FROM tenants t \
                   JOIN segments s ON s.tenant = t.id \
                   WHERE t.name = ANY ($1) AND s.writer = $2 ORDER BY t.name";
        let rows = self.query(sql, &[&names, &&*writer]).await?;
        let mut now = 0;
        let mut heads = Vec::with_capacity(rows.len());
        let mut states = Vec::with_capacity(rows.len() + 1);
        let mut tally: Option<Bytes> = None;
        for row in &rows {
            let row = sql_row(row)?;
            (now, tally) = (row.get(0)?, row.get(6)?);
            let (tenant, position): (Tenant, _) = (row.get(1)?, row.get(2)?);
            let segment = Some((tenant.clone(), writer.clone()));
            states.push(RowState::new(segment, row.get(4)?, &row.get::<Name>(5)?));
            if position > 0 {
                heads.push(Head { tenant, writer: writer.clone(), position, link: row.get(3)? });
            }
        }
        states.extend(tally.and_then(|tally| RowState::of_store(&tally)));
        Ok((now, heads, states))
    }

    async fn store_manifest(&mut self, series: &mut Series, manifest: Manifest) -> Result<()> {
        let key = self.shared.key()?.clone();
        let sql = "SELECT throughline_manifest($1, $2, $3)";
        let signature = manifest.signature.as_slice();
        let kept = self.query(sql, &[&key.bytes(), &manifest.body, &signature]).await;
        match kept {
            Ok(_) => series.wrote(&manifest),
            Err(_) => self.unkept = Some(manifest),
        }
        kept.map(drop)
    }

    /// Makes all relaxed commits durable by making one durable commit, which also flushes the
    /// earlier commits.
    async fn flush(&mut self) -> Result<()> {
        let writer = self.shared.writer.clone();
        let sql = "UPDATE writers SET touched = clock_timestamp() WHERE writer = $1";
        self.query(sql, &[&&*writer]).await?;
        if self.written > 0 {
            self.shared.server.known.add_durable(self.written);
        }
        self.flush_at = None;
        Ok(())
    }

    /// Signs the remaining changes and deletes this writer's row from `writers`.
    async fn end(&mut self) -> Result<()> {
        if self.shared.signer.get().is_some() {
            self.sign().await?;
        }
        if self.number > 0 {
            let writer = self.shared.writer.clone();
            self.shared.server.known.end_writer();
            // This also deletes the rows of writers that ended without closing.
            let sql = "DELETE FROM writers WHERE writer = $1 \
                       OR touched < clock_timestamp() - interval '30 days'";
            self.query(sql, &[&&*writer]).await?;
        }
        Ok(())
    }

    async fn connection(&mut self) -> Result<&mut WriterConnection> {
        let open = self.connection.take().filter(|connection| !connection.client.is_closed());
        let connection = match open {
            Some(connection) => connection,
            None => WriterConnection::open(&self.shared.server).await?,
        };
        Ok(self.connection.insert(connection))
    }

    fn is_relaxed(&self) -> bool {
        self.shared.durability == Durability::Relaxed
    }

    fn not_known(&self) -> StoreError {
        let reason = "the connection was lost before the response, so it is unknown whether this \
                      was written: check, or send it again under the same once-name";
        StoreError::Unreachable(self.shared.server.name().clone(), reason.into())
    }
}
