//! How a store is opened.

use std::time::Duration;

use crate::keys::MasterKey;

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// When a write is acknowledged.
    pub durability: Durability,
    /// Wraps the salts of all contents.
    pub master_key: Option<MasterKey>,
    /// Earlier master keys, which open what was not yet wrapped anew.
    pub retired_keys: Vec<MasterKey>,
    /// How many batches may wait to be written before writers wait too.
    pub queue: usize,
    /// How many can read at once.
    pub readers: usize,
    /// Whether the store is made where there is none.
    pub create: bool,
    /// How long to wait while another program holds the database.
    pub patience: Duration,
    /// Whether the store is only read. Nothing is written then: no file beside it, no migration, and no new key. So a
    /// read-only copy can be opened, and a store of schema version 1 stays one.
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

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When it survives a loss of power.
    #[default]
    Durable,
    /// When it survives the end of the process; within 50 milliseconds it survives a loss of power too.
    Relaxed,
}
