//! Stores Threads durably in one append-only, tamper-evident Journal on SQLite or PostgreSQL.
//!
//! [`open`] returns a [`Journal`]. It implements the port [`Store`](throughline_core::Store) and
//! the operator commands: list, fork, forget, prune, export, import, verify and back up.
//!
//! A module imports only modules listed below it in this table:
//!
//! | module | contents |
//! |---|---|
//! | `journal` | the Journal and all operator commands, one file each |
//! | `keys` | the store's secret, the keys that derive from it, and master key epochs |
//! | `postgres` | the PostgreSQL backend, whose backups are SQLite files |
//! | `sqlite` | the SQLite backend, and the SQLite file of a backup |
//! | `backend` | the trait that both database backends implement, and the reads they share |
//! | `backup_files` | paths and counts of a backup, and the format of its key file |
//! | `protection` | the keys for row MACs and API key MACs, and the migration that adds MACs |
//! | `sql` | values, rows and transactions, for both databases |
//! | `query`, `sealed_batch` | read parameters; batches with sealed content |
//! | `row` | stored records, salts and API keys, as read from the database |
//! | `manifest` | signed manifests of chain heads and row sums |
//! | `row_mac` | MACs of index rows and their sums |
//! | `options` | options for opening a store |
//! | `master_key` | the key that wraps all salts |
//! | `chain`, `cipher` | links of the hash chain; encryption of record content |
//! | `waits` | tasks that wait for new records |
//! | `files`, `hex`, `sync` | file operations; hexadecimal text; blocking work and locks |
//! | `rejection` | batch validation, and the errors returned for rejected batches |

mod backend;
mod backup_files;
mod chain;
mod cipher;
mod files;
mod hex;
mod journal;
mod keys;
mod manifest;
mod master_key;
mod options;
mod pack;
mod postgres;
mod protection;
mod query;
mod rejection;
mod row;
mod row_mac;
mod sealed_batch;
mod sha256;
mod sql;
mod sqlite;
mod sync;
mod turn_keys;
mod waits;

pub use crate::backup_files::{RestoreSummary, key_file_of};
pub use crate::chain::Head;
pub use crate::journal::{
    ApiKey, ClassStats, DataCount, ErasureReport, ExpiredData, ExportSummary, ImportSummary,
    IsPermanent, Journal, KeyCheck, KeyLimits, LogClassifier, MigrationProgress, MigrationReport,
    MigrationStep, NewApiKey, Page, Retention, RetentionClass, RotationReport, RunEvents,
    StoreProof, VerifyFailure, VerifyReport, Warning, about_item, migrate, open, parse_manifest,
    restore, verify_export, without_password,
};
pub use crate::manifest::{Manifest, Statement};
pub use crate::master_key::MasterKey;
pub use crate::options::{Durability, Options};
pub use crate::query::{Order, Progress, Stats};
pub use crate::row_mac::RowState;
