//! The writer: a queue, and one connection that sends whatever queued up during the last round trip.
//!
//! A group has a number. Where the connection is lost before the answer came, the group is sent again under the same
//! number: the database then answers what it answered, or writes it if it never did. So nothing is written twice, and
//! nothing is acknowledged that is not there.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use throughline_core::{Name, Receipt, StoreError, Tenant};
use tokio::sync::{mpsc, oneshot};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_postgres::{Client, Statement};

use crate::chain::Head;
use crate::manifest::{Manifest, Series};
use crate::options::Durability;
use crate::postgres::Shared;
use crate::postgres::commit::{Columns, Prepared, moved, statement, verdict};
use crate::postgres::connect::{DURABLE, is_contended, is_lost};
use crate::postgres::read::{damaged, digest, field, number, text};
use crate::row_mac::RowState;

/// How many batches go out at once.
const MOST_BATCHES: usize = 256;
/// And how many bytes, unless a single batch has more.
const MOST_BYTES: usize = 8 << 20;
/// How often others are let go first, who may have more to write, before a group is sent.
const IDLE: u32 = 8;
/// How long a server that answered before may be away before writers hear of it.
const AWAY: Duration = Duration::from_secs(3);
/// The same, where it is not known whether a group was written.
const UNKNOWN: Duration = Duration::from_secs(20);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(100);
/// How often the heads are signed while there is something to sign.
const SIGN: Duration = Duration::from_millis(900);
/// When what was acknowledged early must be durable.
const FLUSH: Duration = Duration::from_millis(40);
/// How often a group that stood in another's way is tried again.
const TRIES: u32 = 8;

/// What the writer is asked to do.
pub(super) enum Job {
    Commit(Box<Prepared>, oneshot::Sender<Result<Receipt, StoreError>>),
    Close(oneshot::Sender<Result<(), StoreError>>),
}

type Waiting = (Box<Prepared>, oneshot::Sender<Result<Receipt, StoreError>>);

/// Writes until the store is closed, or nobody can ask any more.
pub(super) async fn run(shared: Arc<Shared>, mut jobs: mpsc::Receiver<Job>) {
    let mut writer = Writer {
        shared,
        connection: None,
        was_there: true,
        number: 0,
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
                Job::Commit(prepared, answer) => {
                    bytes += prepared.bytes;
                    group.push((prepared, answer));
                }
                Job::Close(answer) => {
                    over = Some(answer);
                    break;
                }
            }
            if group.len() >= MOST_BATCHES || bytes >= MOST_BYTES {
                break;
            }
            next = jobs.try_recv().ok();
            // Those who are about to ask come along: whoever was answered just now may have more to write.
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
            // What could not be signed now is signed later.
            writer.sign_at = Some(now + SIGN);
        }
        if writer.flush_at.is_some_and(|due| due <= now) && writer.flush().await.is_err() {
            writer.flush_at = Some(now + FLUSH);
        }
    }
    let end = writer.end().await;
    if let Some(answer) = over {
        // Whoever no longer listens needs no answer.
        drop(answer.send(end));
    }
}

struct Writer {
    shared: Arc<Shared>,
    connection: Option<(Client, Statement)>,
    /// Whether the server answered when it was last asked.
    was_there: bool,
    /// Of the last group.
    number: i64,
    /// The tenants whose heads moved, or may have moved, since they were last signed.
    moved: BTreeSet<Tenant>,
    series: Option<Series>,
    /// A manifest of which it is not known whether it was kept.
    unkept: Option<Manifest>,
    sign_at: Option<Instant>,
    flush_at: Option<Instant>,
}

impl Writer {
    /// Writes a group and answers everybody in it.
    async fn write(&mut self, group: Vec<Waiting>) {
        match self.send(&group).await {
            Ok(answers) => self.answer(group, &answers),
            // The database did not take the statement, perhaps because of one batch: the others must not suffer for it.
            Err(StoreError::Database(_)) if group.len() > 1 => {
                for waiting in group {
                    let alone = vec![waiting];
                    match self.send(&alone).await {
                        Ok(answers) => self.answer(alone, &answers),
                        Err(error) => refuse(alone, &error),
                    }
                }
            }
            Err(error) => {
                // It may have been written all the same.
                self.have_moved(group.iter().map(|(prepared, _)| prepared.batch.tenant.clone()));
                refuse(group, &error);
            }
        }
    }

    async fn send(&mut self, group: &[Waiting]) -> Result<Vec<String>, StoreError> {
        self.number += 1;
        let columns = Columns::of(group.iter().map(|(prepared, _)| &**prepared));
        let writer: Name = self.shared.writer.clone();
        let (writer, number, relaxed) = (&*writer, self.number, self.is_relaxed());
        let key = self.shared.key()?.clone();
        let key = key.bytes();
        let params = columns.params([&writer, &number, &relaxed, &key]);
        let began = Instant::now();
        let (mut unknown, mut tries) = (false, 0);
        loop {
            let (client, statement) = match self.connection().await {
                Ok(connection) => connection,
                Err(error) => {
                    let patience = match (unknown, self.was_there) {
                        (true, _) => UNKNOWN,
                        (false, true) => AWAY,
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
            let error = match client.query_one(statement, &params).await {
                Ok(row) => {
                    self.was_there = true;
                    return field(&row, 0);
                }
                Err(error) => error,
            };
            if is_lost(&error) {
                self.connection = None;
                unknown = true;
            } else if is_contended(&error) && tries < TRIES {
                tries += 1;
            } else {
                let error = self.shared.server.error(error);
                if !unknown {
                    return Err(error);
                }
                // A server that takes no writes any more still knows what it wrote. While that is not known, nothing
                // of the group may be sent under another number.
                return match (self.answered(number).await, error) {
                    (Ok(Some(answers)), _) => Ok(answers),
                    (Ok(None), error @ StoreError::ReadOnly(_)) => Err(error),
                    (Ok(None) | Err(_), _) => Err(self.not_known()),
                };
            }
        }
    }

    /// What was answered to the group with that number, if it was written.
    async fn answered(&mut self, number: i64) -> Result<Option<Vec<String>>, StoreError> {
        let writer = self.shared.writer.clone();
        let (client, _) = self.connection().await?;
        let sql = "SELECT answers FROM writers WHERE writer = $1 AND number = $2";
        let row = client.query_opt(sql, &[&&*writer, &number]).await;
        let row = row.map_err(|error| self.failed(error))?;
        row.map(|row| field(&row, 0)).transpose()
    }

    fn answer(&mut self, group: Vec<Waiting>, answers: &[String]) {
        let mut tenants: Vec<Tenant> = Vec::new();
        for (prepared, _) in &group {
            if !tenants.contains(&prepared.batch.tenant) {
                tenants.push(prepared.batch.tenant.clone());
            }
        }
        let tail = answers.get(group.len()..).unwrap_or_default();
        self.have_moved(moved(&tenants, tail));
        if self.is_relaxed() && self.flush_at.is_none() {
            self.flush_at = Some(Instant::now() + FLUSH);
        }
        let mut answers = answers.iter();
        for (prepared, waiting) in group {
            let done = match answers.next() {
                Some(answer) => verdict(&prepared.batch, answer),
                None => Err(damaged("an answer")),
            };
            if let Ok(done) = &done {
                let written = done.receipt.written.iter().zip(&done.logs);
                for (written, id) in written.filter(|(written, _)| written.first <= written.last) {
                    self.shared.waits.wrote(
                        &prepared.batch.tenant,
                        &written.log,
                        *id,
                        written.last,
                    );
                }
            }
            // Whoever no longer listens needs no answer.
            drop(waiting.send(done.map(|done| done.receipt)));
        }
    }

    /// Signs the heads that moved.
    async fn sign(&mut self) -> Result<(), StoreError> {
        let Some(signer) = self.shared.signer.get() else {
            // Nobody signs yet; what moved is signed once somebody does.
            self.sign_at = Some(Instant::now() + SIGN);
            return Ok(());
        };
        let fresh = || Series::new(signer.clone(), self.shared.writer.clone());
        let mut series = self.series.take().unwrap_or_else(fresh);
        let mut end = Ok(());
        // One whose fate is not known comes first, as it was.
        if let Some(manifest) = self.unkept.take() {
            end = self.keep(&mut series, manifest).await;
        }
        if end.is_ok() && !self.moved.is_empty() {
            end = match self.heads().await {
                Err(error) => Err(error),
                Ok((now, heads, rows)) => {
                    self.moved.clear();
                    if rows.is_empty() {
                        Ok(())
                    } else {
                        let manifest = series.next(now, heads, rows);
                        self.keep(&mut series, manifest).await
                    }
                }
            };
        }
        self.series = Some(series);
        if end.is_ok() {
            self.sign_at = None;
        }
        end
    }

    /// The heads of these tenants are to be signed.
    fn have_moved(&mut self, tenants: impl IntoIterator<Item = Tenant>) {
        self.moved.extend(tenants);
        if !self.moved.is_empty() && self.sign_at.is_none() {
            self.sign_at = Some(Instant::now() + SIGN);
        }
    }

    /// The database's time, the heads that moved, and the sums of their rows, as they are there: what a crash took is not signed, and what was
    /// written without an answer is.
    async fn heads(&mut self) -> Result<(i64, Vec<Head>, Vec<RowState>), StoreError> {
        let writer = self.shared.writer.clone();
        let names: Vec<String> = self.moved.iter().map(|tenant| tenant.0.to_string()).collect();
        let (client, _) = self.connection().await?;
        let sql = "SELECT throughline_now(), t.name, s.position, s.link, s.changes, s.sums, \
                   (SELECT value FROM kept WHERE name = 'tally') FROM tenants t \
                   JOIN segments s ON s.tenant = t.id \
                   WHERE t.name = ANY ($1) AND s.writer = $2 ORDER BY t.name";
        let rows = client.query(sql, &[&names, &&*writer]).await;
        let rows = rows.map_err(|error| self.failed(error))?;
        let mut now = 0;
        let mut heads = Vec::with_capacity(rows.len());
        let mut states = Vec::with_capacity(rows.len() + 1);
        for row in &rows {
            now = field(row, 0)?;
            let (tenant, position) = (Tenant(text(row, 1)?), number(row, 2)?);
            let segment = Some((tenant.clone(), writer.clone()));
            states.push(RowState::new(segment, field(row, 4)?, field(row, 5)?));
            if position > 0 {
                let link = digest(row, 3)?;
                heads.push(Head { tenant, writer: writer.clone(), position, link });
            }
        }
        let tally = rows.first().and_then(|row| field::<Option<&[u8]>>(row, 6).ok().flatten());
        states.extend(tally.and_then(RowState::of_store));
        Ok((now, heads, states))
    }

    async fn keep(&mut self, series: &mut Series, manifest: Manifest) -> Result<(), StoreError> {
        let key = self.shared.key()?.clone();
        let kept = match self.connection().await {
            Err(error) => Err(error),
            Ok((client, _)) => {
                let sql = "SELECT throughline_manifest($1, $2, $3)";
                let signature = manifest.signature.as_slice();
                let kept = client.query(sql, &[&key.bytes(), &manifest.body, &signature]).await;
                kept.map_err(|error| self.failed(error))
            }
        };
        match kept {
            Ok(_) => series.wrote(&manifest),
            Err(_) => self.unkept = Some(manifest),
        }
        kept.map(drop)
    }

    /// Makes durable what was acknowledged: whatever commits durably takes along what committed before it.
    async fn flush(&mut self) -> Result<(), StoreError> {
        let writer = self.shared.writer.clone();
        let (client, _) = self.connection().await?;
        let sql = "UPDATE writers SET touched = clock_timestamp() WHERE writer = $1";
        let flushed = client.execute(sql, &[&&*writer]).await;
        flushed.map_err(|error| self.failed(error))?;
        self.flush_at = None;
        Ok(())
    }

    /// Writes what is still to be written. Its row has served.
    async fn end(&mut self) -> Result<(), StoreError> {
        if self.shared.signer.get().is_some() {
            self.sign().await?;
        }
        if self.number > 0 {
            let writer = self.shared.writer.clone();
            let (client, _) = self.connection().await?;
            // And what writers left behind that ended without a word.
            let sql = "DELETE FROM writers WHERE writer = $1 \
                       OR touched < clock_timestamp() - interval '30 days'";
            let ended = client.execute(sql, &[&&*writer]).await;
            ended.map_err(|error| self.failed(error))?;
        }
        Ok(())
    }

    async fn connection(&mut self) -> Result<&(Client, Statement), StoreError> {
        let lost = self.connection.as_ref().is_none_or(|(client, _)| client.is_closed());
        if lost {
            self.connection = None;
            let server = &self.shared.server;
            let client = server.client().await?;
            // What the function does is planned once: its columns are long one time and short the next.
            let settings = format!("{DURABLE}; SET plan_cache_mode = force_generic_plan");
            client.batch_execute(&settings).await.map_err(|error| server.error(error))?;
            let statement =
                client.prepare(&statement()).await.map_err(|error| server.error(error))?;
            self.connection = Some((client, statement));
        }
        self.connection.as_ref().ok_or(StoreError::Closed)
    }

    fn failed(&mut self, error: tokio_postgres::Error) -> StoreError {
        if is_lost(&error) {
            self.connection = None;
        }
        self.shared.server.error(error)
    }

    fn is_relaxed(&self) -> bool {
        self.shared.durability == Durability::Relaxed
    }

    fn not_known(&self) -> StoreError {
        let reason = "the connection was lost before the answer came, so it is not known whether this \
                      was written: look, or send it again under the same once-name";
        StoreError::Unreachable(self.shared.server.name().clone(), reason.into())
    }
}

fn refuse(group: Vec<Waiting>, error: &StoreError) {
    for (_, waiting) in group {
        // Whoever no longer listens needs no answer.
        drop(waiting.send(Err(error.clone())));
    }
}
