//! The Journal, which implements the port [`Store`](throughline_core::Store) and the operator
//! commands on top of a database backend.
//!
//! | file | contents |
//! |---|---|
//! | `open` | opening a store by URL |
//! | `store`, `archive` | the ports `Store` and `Archive` |
//! | `seal`, `content` | encrypting content on write; decrypting it on read, through forks |
//! | `events` | packed events of a run |
//! | `listing` | listing Threads, runs and tenants, forking Threads, and counting rows |
//! | `forget`, `retention` | erasing content on request, and Threads by age and size |
//! | `expiry` | erasing the classes of `[retention]` by age |
//! | `erasure_note` | records and notes about erased content |
//! | `backups`, `restore` | making and registering backups, and restoring a store from one |
//! | `export`, `import` | Threads as JSON lines |
//! | `migrate` | moving a store between SQLite and PostgreSQL |
//! | `verify` | checking every link, content, manifest and index row |
//! | `api_keys`, `key_limits` | API keys of tenants, and changes of their limits |
//! | `rotation` | rotation of the master key |

mod api_keys;
mod archive;
mod backups;
mod content;
mod erasure_note;
mod events;
mod expiry;
mod export;
mod forget;
mod import;
mod key_limits;
mod listing;
mod migrate;
mod open;
mod restore;
mod retention;
mod rotation;
mod seal;
mod store;
mod verify;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use throughline_core::{Batch, Receipt, StoreError};
use throughline_json::Name;

use crate::backend::Backend;
use crate::journal::key_limits::LimitChanges;
use crate::journal::seal::seal_as_operator;
use crate::keys::Keys;
use crate::manifest::Signer;
use crate::sealed_batch::Erasure;

pub use crate::journal::api_keys::{ApiKey, KeyCheck, KeyLimits, NewApiKey};
pub use crate::journal::events::RunEvents;
pub use crate::journal::expiry::{
    ClassStats, DataCount, ExpiredData, LogClassifier, RetentionClass,
};
pub use crate::journal::export::ExportSummary;
pub use crate::journal::forget::{ErasureReport, about_item};
pub use crate::journal::import::{ImportSummary, parse_manifest, verify_export};
pub use crate::journal::listing::Page;
pub use crate::journal::migrate::{
    MigrationProgress, MigrationReport, MigrationStep, StoreProof, migrate,
};
pub use crate::journal::open::{open, without_password};
pub use crate::journal::restore::restore;
pub use crate::journal::retention::{IsPermanent, Retention};
pub use crate::journal::rotation::RotationReport;
pub use crate::journal::verify::{VerifyFailure, VerifyReport, Warning};

/// The store: implements the port [`Store`](throughline_core::Store) and the operator commands.
#[derive(Clone)]
pub struct Journal {
    backend: Arc<dyn Backend>,
    keys: Arc<Keys>,
    signer: Arc<Signer>,
    /// Whether a background task is scheduled to remove the content of deleted runs from files.
    finishes: Arc<AtomicBool>,
    /// The changed limits of API keys.
    limits: Arc<LimitChanges>,
    url: Name,
}

impl Journal {
    /// Returns the store's URL without a password.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the schema version of the store.
    pub async fn schema_version(&self) -> Result<i64, StoreError> {
        self.backend.version().await
    }

    /// Returns how many steps SQLite's virtual machine executed for reads since the store was
    /// opened; `None` on PostgreSQL. Unlike a time, the number does not depend on the machine, so
    /// tests and benchmarks can compare the work of requests.
    pub fn read_steps(&self) -> Option<u64> {
        self.backend.read_steps()
    }

    /// Returns the public key that verifies the store's manifests, in hexadecimal digits.
    pub fn public_key(&self) -> String {
        self.signer.store()
    }

    /// Derives a secret for the given purpose from the store's secret. The result is the same each
    /// time this store is opened.
    pub fn derived_key(&self, purpose: &str) -> [u8; 32] {
        self.keys.derived(purpose)
    }

    /// Writes all queued batches and closes the store. Later calls return [`StoreError::Closed`].
    pub async fn close(&self) -> Result<(), StoreError> {
        self.backend.close().await
    }

    async fn commit_as_operator(
        &self,
        batch: Batch,
        erases: Vec<Erasure>,
    ) -> Result<Receipt, StoreError> {
        let _sealing = self.keys.sealing().await;
        self.backend.commit(seal_as_operator(&self.keys, batch, erases)?).await
    }
}
