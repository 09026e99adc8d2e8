//! Options for opening a store.

use std::time::Duration;

use crate::master_key::MasterKey;

/// Options for opening a store.
#[derive(Clone, Debug)]
pub struct Options {
    /// Specifies when a write is acknowledged.
    pub durability: Durability,
    /// The key that wraps all salts; `None` stores the salts unwrapped.
    pub master_key: Option<MasterKey>,
    /// Earlier master keys, needed for salts that are not yet wrapped with the current master key.
    pub retired_keys: Vec<MasterKey>,
    /// Maximum number of queued batches. If the queue is full, writers wait.
    pub queue: usize,
    /// Maximum number of concurrent reads.
    pub readers: usize,
    /// Number of captured turns whose lookup keys an SQLite store indexes at once. The keys of the
    /// turns that are not indexed yet are kept in memory, about 500 bytes per turn.
    pub index_batch: usize,
    /// Whether to create the store if it does not exist.
    pub create: bool,
    /// URL of a PostgreSQL server for a direct connection that receives notifications, if the store
    /// URL is that of a pooler such as PgBouncer. Without it, a pooled store polls for new records.
    pub listen_url: Option<String>,
    /// Maximum time to wait for a lock that another process holds on the database.
    pub patience: Duration,
    /// Whether to open the store for reading only: no files are created beside it, no migration
    /// runs, and no key is created. A read-only copy can therefore be opened, and a store of schema
    /// version 1 keeps its version.
    pub read_only: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            durability: Durability::Durable,
            master_key: None,
            retired_keys: Vec::new(),
            queue: 1024,
            readers: 4,
            index_batch: 4096,
            create: true,
            listen_url: None,
            patience: Duration::from_secs(30),
            read_only: false,
        }
    }
}

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Acknowledges a write once it would survive a power loss.
    #[default]
    Durable,
    /// Acknowledges a write once it would survive a process crash. At most 50 milliseconds later,
    /// it would also survive a power loss.
    Relaxed,
}
