//! Connects to the server and maps its errors. The URLs in error messages contain no passwords.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use deadpool_postgres::{
    Hook, HookError, Manager, ManagerConfig, Pool, PoolError, RecyclingMethod, Runtime,
};
use throughline_core::StoreError;
use throughline_json::Name;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Config, Connection, Row, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::postgres::known::{KnownStore, UnusableStore};
use crate::postgres::tls::PostgresTls;
use crate::postgres::url::PostgresUrl;
use crate::postgres::values::{Parameter, damaged, sql_row};
use crate::rejection::Result;
use crate::sql::SqlRow;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum time without a response before a connection is considered lost.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time to wait for a free connection in the pool.
const POOL_TIMEOUT: Duration = Duration::from_mins(1);

/// The encrypted part of a connection, if the connection is encrypted.
type EncryptedStream = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream;

/// A server and its connection pool for reads.
pub(super) struct Server {
    config: Config,
    tls: PostgresTls,
    connector: MakeRustlsConnect,
    /// The URL without its password.
    name: Name,
    pool: Pool,
    /// Maximum time to connect to one of the hosts.
    connect_timeout: Duration,
    /// Whether a pooler may run each transaction on another connection to the server.
    pub(super) is_pooler: bool,
    /// The parameter types of each statement. Used only with a pooler: see `pooler.rs`.
    pub(super) types: Mutex<HashMap<String, Arc<[Type]>>>,
    /// What this process knows of the store. Every new connection is checked against it.
    pub(super) known: Arc<KnownStore>,
}

/// SQL statement that makes acknowledged writes durable, even if the server's default is not
/// durable.
pub(super) const DURABLE: &str = "SELECT set_config('synchronous_commit', 'on', false) \
                                  WHERE current_setting('synchronous_commit') = 'off'";

impl Server {
    /// Parses the URL and reads the certificate files, without connecting yet. Blocks the thread.
    /// `is_pooler` is true if the URL must be that of a pooler, even without `pgbouncer=true`.
    pub(super) fn at(url: &str, readers: usize, is_pooler: bool) -> Result<Self> {
        let PostgresUrl { mut config, tls, pgbouncer } = PostgresUrl::parse(url)?;
        let is_pooler = is_pooler || pgbouncer;
        let name = Name::from(address(&config));
        let (mode, _) = tls.mode()?;
        let connector = tls.connector()?;
        // As in libpq, connections through a Unix socket are never encrypted.
        let is_tcp = config.get_hosts().iter().any(|host| matches!(host, Host::Tcp(_)));
        config.ssl_mode(if is_tcp { mode } else { SslMode::Disable });
        // Each statement is planned once per connection, because planning takes longer than most
        // queries. A plan made while a table is small must not scan the table once it is large.
        // Poolers reject such options: see `pooler.rs`.
        if !is_pooler {
            let planner_options =
                "-c enable_seqscan=off -c jit=off -c plan_cache_mode=force_generic_plan";
            let options = config.get_options().map_or(planner_options.to_owned(), |user_options| {
                format!("{planner_options} {user_options}")
            });
            config.options(options);
        }
        let of_host = config.get_connect_timeout().copied().unwrap_or(CONNECT_TIMEOUT);
        config.connect_timeout(of_host);
        let hosts = u32::try_from(config.get_hosts().len()).unwrap_or(u32::MAX);
        let connect_timeout = of_host.saturating_mul(hosts.saturating_add(1));
        config.keepalives_idle(KEEPALIVE_TIMEOUT);
        config.tcp_user_timeout(KEEPALIVE_TIMEOUT);
        if config.get_application_name().is_none() {
            config.application_name("throughline");
        }
        let known = Arc::new(KnownStore::default());
        let of_pool = Arc::clone(&known);
        let manager = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let pool = Pool::builder(Manager::from_config(config.clone(), connector.clone(), manager))
            .max_size(readers.max(1))
            .post_create(Hook::async_fn(move |client, _| {
                let known = Arc::clone(&of_pool);
                Box::pin(async move {
                    if is_pooler {
                        return Ok(());
                    }
                    client.batch_execute(DURABLE).await.map_err(HookError::Backend)?;
                    known.check(client).await.map_err(|unusable| match unusable {
                        UnusableStore::Failed(error) => HookError::Backend(error),
                        UnusableStore::Replaced(problem) => HookError::message(problem.to_string()),
                    })
                })
            }))
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(POOL_TIMEOUT))
            .create_timeout(Some(connect_timeout))
            .build()
            .map_err(|error| StoreError::Database(Arc::new(error)))?;
        let types = Mutex::default();
        Ok(Self { config, tls, connector, name, pool, connect_timeout, is_pooler, types, known })
    }

    /// Returns the URL without its password, for error messages.
    pub(super) fn name(&self) -> &Name {
        &self.name
    }

    /// Opens a connection. The caller must poll the returned `Connection`.
    pub(super) async fn connect(&self) -> Result<(Client, Connection<Socket, EncryptedStream>)> {
        let connecting = self.config.connect(self.connector.clone());
        match tokio::time::timeout(self.connect_timeout, connecting).await {
            Ok(Ok(connected)) => Ok(connected),
            Ok(Err(error)) => Err(self.unreachable(&error)),
            Err(_) => Err(StoreError::Unreachable(
                self.name.clone(),
                "the PostgreSQL server did not respond in time".into(),
            )),
        }
    }

    /// Opens a connection, checks that it leads to the store that this process opened, and polls it
    /// in a background task until the client is dropped.
    pub(super) async fn client(&self) -> Result<Client> {
        let (client, connection) = self.connect().await?;
        tokio::spawn(async move { drop(connection.await) });
        self.check(&client).await?;
        Ok(client)
    }

    /// Checks that a connection leads to the store that this process opened.
    pub(super) async fn check(&self, client: &Client) -> Result<()> {
        self.known.check(client).await.map_err(|unusable| match unusable {
            UnusableStore::Failed(error) => self.error(error),
            UnusableStore::Replaced(problem) => StoreError::Unreachable(self.name.clone(), problem),
        })
    }

    pub(super) async fn pooled(&self) -> Result<deadpool_postgres::Object> {
        self.pool.get().await.map_err(|error| match error {
            PoolError::Backend(error) => self.unreachable(&error),
            PoolError::Closed => StoreError::Closed,
            PoolError::Timeout(_) => StoreError::Unreachable(
                self.name.clone(),
                "timed out while waiting for a free connection".into(),
            ),
            PoolError::PostCreateHook(HookError::Message(problem)) => {
                StoreError::Unreachable(self.name.clone(), problem.into())
            }
            PoolError::PostCreateHook(HookError::Backend(error)) => self.error(error),
            error @ PoolError::NoRuntimeSpecified => StoreError::Database(Arc::new(error)),
        })
    }

    /// Runs a query, and retries it once on a new connection if the connection was lost. The query
    /// must therefore be idempotent.
    pub(super) async fn query(&self, sql: &str, params: &[Parameter<'_>]) -> Result<Vec<SqlRow>> {
        let rows = match self.query_once(sql, params).await? {
            Err(error) if self.needs_new_connection(&error) => {
                // If this connection was lost, the other pooled connections probably are too.
                self.pool.retain(|_, _| false);
                self.query_once(sql, params).await?
            }
            rows => rows,
        };
        rows.map_err(|error| self.error(error))?.iter().map(sql_row).collect()
    }

    async fn query_once(
        &self,
        sql: &str,
        params: &[Parameter<'_>],
    ) -> Result<Result<Vec<Row>, tokio_postgres::Error>> {
        let client = self.pooled().await?;
        if self.is_pooler {
            return Ok(self.query_in_transaction(&client, sql, params).await);
        }
        let query = async { client.query(&client.prepare_cached(sql).await?, params).await };
        Ok(query.await)
    }

    /// Runs a query and returns its first row, if there is one.
    pub(super) async fn query_opt(
        &self,
        sql: &str,
        params: &[Parameter<'_>],
    ) -> Result<Option<SqlRow>> {
        Ok(self.query(sql, params).await?.into_iter().next())
    }

    /// Runs a query and returns its first row. Fails if there is none.
    pub(super) async fn query_one(&self, sql: &str, params: &[Parameter<'_>]) -> Result<SqlRow> {
        self.query_opt(sql, params).await?.ok_or_else(|| damaged("an answer"))
    }

    pub(super) fn close(&self) {
        self.pool.close();
    }

    /// Maps a database error to a store error.
    pub(super) fn error(&self, error: tokio_postgres::Error) -> StoreError {
        match error.code() {
            Some(code) if *code == SqlState::DISK_FULL => StoreError::Full,
            Some(code) if *code == SqlState::READ_ONLY_SQL_TRANSACTION => {
                StoreError::ReadOnly(self.name.clone())
            }
            _ if is_lost(&error) => self.unreachable(&error),
            // The transaction was refused: see `pooler.rs`.
            Some(code) if self.is_pooler && *code == SqlState::DIVISION_BY_ZERO => {
                let problem = self.known.problem().unwrap_or_else(|| {
                    "the pooler connects to several servers; use a pooler with one server".into()
                });
                StoreError::Unreachable(self.name.clone(), problem)
            }
            _ => StoreError::Database(Arc::new(error)),
        }
    }

    /// Returns whether the statement must be sent on a new connection. If the URL demands a server
    /// that accepts writes, a server that no longer does was replaced by another one.
    pub(super) fn needs_new_connection(&self, error: &tokio_postgres::Error) -> bool {
        is_lost(error) || self.is_demoted(error)
    }

    /// Returns whether the server refused a write, although the URL demands a server that accepts
    /// writes.
    pub(super) fn is_demoted(&self, error: &tokio_postgres::Error) -> bool {
        error.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION)
            && self.config.get_target_session_attrs() == TargetSessionAttrs::ReadWrite
    }

    fn unreachable(&self, error: &tokio_postgres::Error) -> StoreError {
        let reason = match (error.as_db_error(), std::error::Error::source(error)) {
            (Some(error), _) if error.message().starts_with("unsupported startup parameter") => {
                format!(
                    "{}; if this is PgBouncer, add pgbouncer=true to the database URL",
                    error.message()
                )
            }
            (Some(error), _) => error.message().to_owned(),
            (None, Some(source)) => self.tls.explain(error).unwrap_or_else(|| source.to_string()),
            (None, None) => error.to_string(),
        };
        StoreError::Unreachable(self.name.clone(), reason.into())
    }
}

/// Returns whether the connection was lost. The statement may still have been executed.
pub(super) fn is_lost(error: &tokio_postgres::Error) -> bool {
    if let Some(code) = error.code() {
        // The server is shutting down, has crashed or is starting, or the connection failed.
        return code.code().starts_with("57P") || code.code().starts_with("08");
    }
    let source = std::error::Error::source(error);
    error.is_closed() || source.is_some_and(<dyn std::error::Error>::is::<std::io::Error>)
}

/// Returns whether the database aborted the statement because of contention, so that a retry may
/// succeed.
pub(super) fn is_contended(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|code| {
        *code == SqlState::T_R_DEADLOCK_DETECTED || *code == SqlState::T_R_SERIALIZATION_FAILURE
    })
}

fn address(config: &Config) -> String {
    let ports = config.get_ports();
    let host = |(index, host): (usize, &Host)| {
        let port = ports.get(index).or(ports.first()).copied().unwrap_or(5432);
        match host {
            Host::Tcp(name) => format!("{name}:{port}"),
            Host::Unix(path) => format!("{}:{port}", path.display()),
        }
    };
    let hosts: Vec<String> = config.get_hosts().iter().enumerate().map(host).collect();
    let database = config.get_dbname().or(config.get_user()).unwrap_or_default();
    format!("postgres://{}/{database}", hosts.join(","))
}
