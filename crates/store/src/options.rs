//! Options for opening a store.

use std::time::Duration;

use crate::master_key::MasterKey;

/// Options for opening a store.
#[derive(Clone, Debug)]
pub struct Options {
    /// The point at which a write is acknowledged.
    pub durability: Durability,
    /// The key that wraps the salts of all contents.
    pub master_key: Option<MasterKey>,
    /// Earlier master keys, needed for salts that are not yet wrapped under the current one.
    pub retired_keys: Vec<MasterKey>,
    /// Maximum number of queued batches; further writers wait.
    pub queue: usize,
    /// Maximum number of concurrent readers.
    pub readers: usize,
    /// Creates the store if it does not exist.
    pub create: bool,
    /// Maximum time to wait while another process locks the database.
    pub patience: Duration,
    /// Opens the store for reading only: no files are created beside it, and there is no migration
    /// and no new key. A read-only copy can therefore be opened, and a store of schema version 1
    /// keeps its version.
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
            create: true,
            patience: Duration::from_secs(30),
            read_only: false,
        }
    }
}

/// The point at which a write is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// After the write would survive a power loss.
    #[default]
    Durable,
    /// After the write would survive a process crash; it survives a power loss within 50
    /// milliseconds.
    Relaxed,
}
