//! The way to the server, and what it says when something is wrong. Addresses are told without their passwords.

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{
    Hook, HookError, Manager, ManagerConfig, Pool, PoolError, RecyclingMethod, Runtime,
};
use throughline_core::{Name, StoreError};
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::NoTlsStream;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, Connection, NoTls, Row, Socket};

/// How long a server may take to answer the door.
const CONNECT: Duration = Duration::from_secs(3);
/// How long a connection may be silent on what we sent before it counts as lost.
const SILENT: Duration = Duration::from_secs(10);
/// How long a reader waits for a connection that others use.
const POOL: Duration = Duration::from_mins(1);

/// A server, and its connections for reading.
pub(super) struct Server {
    config: Config,
    /// Its address, without a password.
    name: Name,
    pool: Pool,
}

/// Acknowledged means durable, whatever the server's own settings say.
pub(super) const DURABLE: &str = "SELECT set_config('synchronous_commit', 'on', false) \
                                  WHERE current_setting('synchronous_commit') = 'off'";

impl Server {
    /// The server at that address. Nothing is connected yet.
    pub(super) fn at(url: &str, readers: usize) -> Result<Self, StoreError> {
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(StoreError::invalid(
                "the address of a PostgreSQL database begins with postgres://",
            ));
        }
        let mut config: Config = url.parse().map_err(|error: tokio_postgres::Error| {
            let why = std::error::Error::source(&error).map(ToString::to_string);
            let why = why.unwrap_or_else(|| error.to_string());
            StoreError::invalid(format!("the address of the database cannot be read: {why}"))
        })?;
        let name = Name::from(address(&config));
        if config.get_ssl_mode() == SslMode::Require {
            return Err(StoreError::invalid(format!(
                "{name} is to be reached over TLS (sslmode=require), which this build cannot: reach \
                 it through a tunnel or a local proxy, and leave sslmode out"
            )));
        }
        // A plan that was made while a table was small must not read all of it once it is large.
        let ours = "-c enable_seqscan=off -c jit=off";
        let options = config.get_options().map_or(ours.to_owned(), |own| format!("{ours} {own}"));
        config.options(options);
        config.connect_timeout(CONNECT);
        config.keepalives_idle(SILENT);
        config.tcp_user_timeout(SILENT);
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
            .wait_timeout(Some(POOL))
            .create_timeout(Some(CONNECT + CONNECT))
            .build()
            .map_err(|error| StoreError::Database(Arc::new(error)))?;
        Ok(Self { config, name, pool })
    }

    /// Its address, without a password.
    pub(super) fn name(&self) -> &Name {
        &self.name
    }

    /// A connection, and what must be polled for it to move.
    pub(super) async fn connect(
        &self,
    ) -> Result<(Client, Connection<Socket, NoTlsStream>), StoreError> {
        match tokio::time::timeout(CONNECT + CONNECT, self.config.connect(NoTls)).await {
            Ok(Ok(connected)) => Ok(connected),
            Ok(Err(error)) => Err(self.unreachable(&error)),
            Err(_) => Err(StoreError::Unreachable(self.name.clone(), "it does not answer".into())),
        }
    }

    /// A connection that moves by itself until it is dropped.
    pub(super) async fn client(&self) -> Result<Client, StoreError> {
        let (client, connection) = self.connect().await?;
        tokio::spawn(async move { drop(connection.await) });
        Ok(client)
    }

    /// A connection that others use too.
    pub(super) async fn pooled(&self) -> Result<deadpool_postgres::Object, StoreError> {
        self.pool.get().await.map_err(|error| match error {
            PoolError::Backend(error) => self.unreachable(&error),
            PoolError::Closed => StoreError::Closed,
            PoolError::Timeout(_) => {
                StoreError::Unreachable(self.name.clone(), "no connection was free in time".into())
            }
            error @ (PoolError::NoRuntimeSpecified | PoolError::PostCreateHook(_)) => {
                StoreError::Database(Arc::new(error))
            }
        })
    }

    /// Asks for rows. Where the connection was lost it asks once more on a fresh one: so whatever it asks for must be the
    /// same if it happens twice.
    pub(super) async fn query(
        &self,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, StoreError> {
        match self.query_once(sql, params).await? {
            Ok(rows) => return Ok(rows),
            Err(error) if is_lost(&error) => {}
            Err(error) => return Err(self.error(error)),
        }
        // If one was lost, the others most likely are too.
        self.pool.retain(|_, _| false);
        self.query_once(sql, params).await?.map_err(|error| self.error(error))
    }

    async fn query_once(
        &self,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Result<Vec<Row>, tokio_postgres::Error>, StoreError> {
        let client = self.pooled().await?;
        Ok(match client.prepare_cached(sql).await {
            Ok(statement) => client.query(&statement, params).await,
            Err(error) => Err(error),
        })
    }

    /// At most one row.
    pub(super) async fn query_opt(
        &self,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Option<Row>, StoreError> {
        Ok(self.query(sql, params).await?.into_iter().next())
    }

    /// Nobody reads any more.
    pub(super) fn close(&self) {
        self.pool.close();
    }

    /// What an error of the database means to us.
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
            (Some(said), _) => said.message().to_owned(),
            (None, Some(source)) => source.to_string(),
            (None, None) => error.to_string(),
        };
        StoreError::Unreachable(self.name.clone(), reason.into())
    }
}

/// Whether the connection is gone, and with it perhaps an answer.
pub(super) fn is_lost(error: &tokio_postgres::Error) -> bool {
    if let Some(code) = error.code() {
        // The server shuts down, crashed, or starts; or the connection failed.
        return code.code().starts_with("57P") || code.code().starts_with("08");
    }
    let source = std::error::Error::source(error);
    error.is_closed() || source.is_some_and(<dyn std::error::Error>::is::<std::io::Error>)
}

/// Whether the database gave up on it for the sake of others: then it can be tried again.
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
