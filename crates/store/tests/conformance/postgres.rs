//! The suite on PostgreSQL: each test has a database of its own.

use std::sync::atomic::{AtomicU32, Ordering};

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
        let Some(server) = throughline_testkit::postgres_url() else {
            throughline_testkit::skip("no PostgreSQL: run it with scripts/postgres run cargo test");
            return None;
        };
        Some(Self { url: new_database(&server).await, folder: Folder::new() })
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
}

/// Makes an empty database; gives its address.
pub(crate) async fn new_database(server: &str) -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("conformance_{}_{number}", std::process::id());
    let (client, connection) =
        tokio_postgres::connect(server, tokio_postgres::NoTls).await.expect("the server answers");
    let connection = tokio::spawn(connection);
    client.batch_execute(&format!("DROP DATABASE IF EXISTS {name}")).await.unwrap();
    client.batch_execute(&format!("CREATE DATABASE {name}")).await.unwrap();
    drop(client);
    connection.await.unwrap().unwrap();
    let (rest, query) = match server.split_once('?') {
        Some((rest, query)) => (rest, format!("?{query}")),
        None => (server, String::new()),
    };
    let host = rest.find("://").map_or(0, |at| at + 3);
    let end = rest[host..].find('/').map_or(rest.len(), |at| host + at);
    format!("{}/{name}{query}", &rest[..end])
}
