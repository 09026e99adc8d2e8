//! Durable threads: one append-only, tamper-evident journal on SQLite, or on PostgreSQL.
//!
//! [`open`] gives a [`Journal`], which is the port [`Store`](throughline_core::Store) and the acts of its operator:
//! listing, forking, forgetting, expiring, exporting, importing, proving, backing up.

mod api_keys;
mod archive;
mod backend;
mod backups;
mod chain;
mod cipher;
mod events;
mod export;
mod forget;
mod import;
mod journal;
mod keys;
mod listing;
mod manifest;
mod options;
mod postgres;
mod refusal;
mod retention;
mod rotation;
mod row_mac;
mod sqlite;
mod verify;

pub use crate::api_keys::{ApiKey, KeyCheck, KeyLimits, NewApiKey};
pub use crate::backend::{Order, Progress, Stats};
pub use crate::chain::Head;
pub use crate::events::RunEvents;
pub use crate::export::Exported;
pub use crate::forget::{Destroyed, about_item};
pub use crate::import::{Imported, parse_manifest, verify_export};
pub use crate::journal::{Journal, open, without_password};
pub use crate::keys::MasterKey;
pub use crate::listing::Page;
pub use crate::manifest::{Manifest, Statement};
pub use crate::options::{Durability, Options};
pub use crate::retention::Retention;
pub use crate::rotation::Rotated;
pub use crate::row_mac::RowState;
pub use crate::verify::{Broken, Proof, Warning};
