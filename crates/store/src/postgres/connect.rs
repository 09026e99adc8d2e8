//! Connects to the server and maps its errors. The URLs in error messages contain no passwords.

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{
    Hook, HookError, Manager, ManagerConfig, Pool, PoolError, RecyclingMethod, Runtime,
};
use throughline_core::StoreError;
use throughline_json::Name;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::NoTlsStream;
use tokio_postgres::{Client, Config, Connection, NoTls, Row, Socket};

use crate::postgres::values::{Parameter, damaged, sql_row};
use crate::rejection::{Result, invalid};
use crate::sql::SqlRow;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum time without a response before a connection is considered lost.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time to wait for a free connection in the pool.
const POOL_TIMEOUT: Duration = Duration::from_mins(1);

/// A server and its connection pool for reads.
pub(super) struct Server {
    config: Config,
    /// The URL without its password.
    name: Name,
    pool: Pool,
}

/// SQL statement that makes acknowledged writes durable, even if the server's default is not
/// durable.
pub(super) const DURABLE: &str = "SELECT set_config('synchronous_commit', 'on', false) \
                                  WHERE current_setting('synchronous_commit') = 'off'";

impl Server {
    /// Parses the URL, without connecting yet.
    pub(super) fn at(url: &str, readers: usize) -> Result<Self> {
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(invalid!("a PostgreSQL URL must start with postgres://"));
        }
        let mut config: Config = url.parse().map_err(|error: tokio_postgres::Error| {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            let cause = cause.unwrap_or_else(|| error.to_string());
            invalid!("the database URL is invalid: {cause}")
        })?;
        let name = Name::from(address(&config));
        if config.get_ssl_mode() == SslMode::Require {
            return Err(invalid!(
                "{name} requires TLS (sslmode=require), which this build does not support; connect \
                 through a tunnel or a local proxy, and omit sslmode"
            ));
        }
        // Each statement is planned once per connection, because planning takes longer than most
        // queries. A plan made while a table is small must not scan the table once it is large.
        let planner_options =
            "-c enable_seqscan=off -c jit=off -c plan_cache_mode=force_generic_plan";
        let options = config.get_options().map_or(planner_options.to_owned(), |user_options| {
            format!("{planner_options} {user_options}")
        });
        config.options(options);
        config.connect_timeout(CONNECT_TIMEOUT);
        config.keepalives_idle(KEEPALIVE_TIMEOUT);
        config.tcp_user_timeout(KEEPALIVE_TIMEOUT);
        if config.get_application_name().is_none() {
            config.application_name("throughline");
        }
        let manager = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let pool = Pool::builder(Manager::from_config(config.clone(), NoTls, manager))
            .max_size(readers.max(1))
            .post_create(Hook::async_fn(|client, _| {
                Box::pin(async { client.batch_execute(DURABLE).await.map_err(HookError::Backend) })
            }))
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(POOL_TIMEOUT))
            .create_timeout(Some(CONNECT_TIMEOUT + CONNECT_TIMEOUT))
            .build()
            .map_err(|error| StoreError::Database(Arc::new(error)))?;
        Ok(Self { config, name, pool })
    }

    /// Returns the URL without its password, for error messages.
    pub(super) fn name(&self) -> &Name {
        &self.name
    }

    /// Opens a connection. The caller must poll the returned `Connection`.
    pub(super) async fn connect(&self) -> Result<(Client, Connection<Socket, NoTlsStream>)> {
        match tokio::time::timeout(CONNECT_TIMEOUT + CONNECT_TIMEOUT, self.config.connect(NoTls))
            .await
        {
            Ok(Ok(connected)) => Ok(connected),
            Ok(Err(error)) => Err(self.unreachable(&error)),
            Err(_) => Err(StoreError::Unreachable(
                self.name.clone(),
                "the PostgreSQL server did not respond in time".into(),
            )),
        }
    }

    /// Opens a connection and polls it in a background task until the client is dropped.
    pub(super) async fn client(&self) -> Result<Client> {
        let (client, connection) = self.connect().await?;
        tokio::spawn(async move { drop(connection.await) });
        Ok(client)
    }

    pub(super) async fn pooled(&self) -> Result<deadpool_postgres::Object> {
        self.pool.get().await.map_err(|error| match error {
            PoolError::Backend(error) => self.unreachable(&error),
            PoolError::Closed => StoreError::Closed,
            PoolError::Timeout(_) => StoreError::Unreachable(
                self.name.clone(),
                "timed out while waiting for a free connection".into(),
            ),
            error @ (PoolError::NoRuntimeSpecified | PoolError::PostCreateHook(_)) => {
                StoreError::Database(Arc::new(error))
            }
        })
    }

    /// Runs a query, and retries it once on a new connection if the connection was lost. The query
    /// must therefore be idempotent.
    pub(super) async fn query(&self, sql: &str, params: &[Parameter<'_>]) -> Result<Vec<SqlRow>> {
        let rows = match self.query_once(sql, params).await? {
            Err(error) if is_lost(&error) => {
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
            _ => StoreError::Database(Arc::new(error)),
        }
    }

    fn unreachable(&self, error: &tokio_postgres::Error) -> StoreError {
        let reason = match (error.as_db_error(), std::error::Error::source(error)) {
            (Some(error), _) => error.message().to_owned(),
            (None, Some(source)) => source.to_string(),
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
