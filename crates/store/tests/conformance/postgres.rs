//! The suite on PostgreSQL: each test has a database of its own.

use throughline_store::Options;

use crate::harness::{Folder, Harness};

suite!(tests, crate::postgres::Postgres);

/// A database of its own on the server that `scripts/postgres run` starts.
pub(crate) struct Postgres {
    url: String,
    folder: Folder,
}

impl Harness for Postgres {
    async fn fresh() -> Option<Self> {
        Some(Self { url: throughline_testkit::postgres_database(), folder: Folder::new() })
    }

    fn url(&self) -> String {
        self.url.clone()
    }

    fn options(&self) -> Options {
        Options::default()
    }

    fn folder(&self) -> &Folder {
        &self.folder
    }

    async fn reader(&self) -> Box<dyn std::any::Any + Send> {
        let connected = tokio_postgres::connect(&self.url, tokio_postgres::NoTls).await;
        let (client, connection) = connected.unwrap();
        tokio::spawn(connection);
        client.batch_execute("BEGIN; SELECT count(*) FROM salts;").await.unwrap();
        Box::new(client)
    }
}
