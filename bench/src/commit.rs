//! Measures a bare SQLite commit of a row as large as a reply, on the disk that the gateway uses.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use rusqlite::Connection;

use crate::process;

const COMMITS: usize = 200;

pub(crate) fn median_commit() -> anyhow::Result<Duration> {
    let folder = process::temporary_folder()?;
    let database = Connection::open(folder.path().join("bare.db"))?;
    database.pragma_update(None, "journal_mode", "WAL")?;
    database.pragma_update(None, "synchronous", "FULL")?;
    database.execute("CREATE TABLE rows (content BLOB)", [])?;
    let content = vec![7_u8; 2 << 10];
    let mut times = Vec::with_capacity(COMMITS);
    for _ in 0..COMMITS {
        let began = Instant::now();
        database.execute("INSERT INTO rows VALUES (?1)", [&content])?;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    times.get(COMMITS / 2).copied().context("no commit was measured")
}
