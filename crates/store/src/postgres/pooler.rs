//! Statements through a pooler such as PgBouncer in transaction mode, which may run each
//! transaction on another connection to the server. A statement must therefore not depend on
//! prepared statements or settings of earlier transactions.
//!
//! Each statement is sent unprepared, in a transaction of its own that begins with the settings.
//! All messages of the transaction are sent at once, so the statement takes one round trip. An
//! unprepared statement needs the types of its parameters. The first time that a process sends a
//! statement, it asks the server for these types.
//!
//! The process that opened the store cannot notice when the pooler connects to another server. Each
//! transaction therefore fails at its beginning if the server is not the one that was checked last.
//! The server is then checked (see `known.rs`), and the transaction is sent again.

use std::borrow::Cow;
use std::sync::Arc;

use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, Row, SimpleQueryMessage};

use crate::postgres::connect::Server;
use crate::postgres::known::{STARTED, UnusableStore};
use crate::postgres::values::Parameter;
use crate::sync::lock;

/// Begins a transaction with the settings that a direct connection has: see [`Server::at`]. The
/// last statement makes the transaction durable, even if the server's default is not durable.
const BEGIN: &str = "BEGIN; SET LOCAL enable_seqscan = off; SET LOCAL jit = off; \
    SET LOCAL plan_cache_mode = force_generic_plan; \
    SELECT set_config('synchronous_commit', 'on', true) \
    WHERE current_setting('synchronous_commit') = 'off'";

/// Number of times that a transaction is sent while the pooler connects to another server.
const ATTEMPTS: usize = 3;

impl Server {
    /// Runs a statement on a connection that is not from the pool.
    pub(super) async fn query_on(
        &self,
        client: &Client,
        sql: &str,
        params: &[Parameter<'_>],
    ) -> Result<Vec<Row>, Error> {
        if self.is_pooler {
            return self.query_in_transaction(client, sql, params).await;
        }
        client.query(sql, params).await
    }

    /// Runs a statement in a transaction of its own, without session state.
    pub(super) async fn query_in_transaction(
        &self,
        client: &Client,
        sql: &str,
        params: &[Parameter<'_>],
    ) -> Result<Vec<Row>, Error> {
        let types = self.parameter_types(client, sql).await?;
        let parameters: Vec<_> = params.iter().copied().zip(types.iter().cloned()).collect();
        let mut attempt = 1;
        loop {
            let opening = self.begin_statements();
            // The first poll sends all three messages, in this order. If this future is dropped
            // later, the transaction still ends.
            let (begun, rows, ended) = tokio::join!(
                biased;
                client.batch_execute(&opening),
                client.query_typed(sql, &parameters),
                client.batch_execute("COMMIT"),
            );
            match begun {
                Err(error)
                    if error.code() == Some(&SqlState::DIVISION_BY_ZERO) && attempt < ATTEMPTS =>
                {
                    attempt += 1;
                    match self.known.check(client).await {
                        Ok(()) => continue,
                        Err(UnusableStore::Failed(failure)) => return Err(failure),
                        // `Server::error` returns the problem that the check found.
                        Err(UnusableStore::Replaced(_)) => return Err(error),
                    }
                }
                begun => begun?,
            }
            let rows = rows?;
            // Without a response to the commit, the outcome is unknown.
            ended?;
            return Ok(rows);
        }
    }

    /// Returns the statements at the beginning of a transaction. If the server is not the one that
    /// was checked, they divide by zero, which aborts the transaction.
    fn begin_statements(&self) -> Cow<'static, str> {
        match self.known.checked() {
            Some(started) => Cow::from(format!("{BEGIN}; SELECT 1 / ({STARTED} = {started})::int")),
            None => Cow::from(BEGIN),
        }
    }

    /// Returns the types of a statement's parameters. The server infers them from a prepared
    /// statement. One message prepares and removes it, so it is removed even if this future is
    /// dropped before the response arrives.
    async fn parameter_types(&self, client: &Client, sql: &str) -> Result<Arc<[Type]>, Error> {
        if let Some(types) = lock(&self.types).get(sql) {
            return Ok(Arc::clone(types));
        }
        let inspect = format!(
            "PREPARE throughline_inspected AS {sql}\n; \
             SELECT unnest(parameter_types)::oid FROM pg_prepared_statements \
             WHERE name = 'throughline_inspected'; DEALLOCATE throughline_inspected"
        );
        let messages = client.simple_query(&inspect).await?;
        let types: Arc<[Type]> = messages.iter().filter_map(parameter_type).collect();
        lock(&self.types).insert(sql.to_owned(), Arc::clone(&types));
        Ok(types)
    }
}

/// Returns the type in a row with a type's id. The statements use only built-in types.
fn parameter_type(message: &SimpleQueryMessage) -> Option<Type> {
    let SimpleQueryMessage::Row(row) = message else { return None };
    let id = row.get(0).and_then(|id| id.parse().ok());
    Some(id.and_then(Type::from_oid).unwrap_or(Type::UNKNOWN))
}
