//! The interface that each database implements. A backend sees sealed bytes and digests, never
//! contents.
//!
//! Both backends have the same files and tables. Work that needs no database access is implemented
//! once, above these traits: sealing and opening, reading through forks, forgetting, exporting,
//! verifying.
//!
//! [`Backend`] combines one trait per task. A caller of a `dyn Backend` needs to import only
//! [`Backend`].

mod admin;
mod key;
mod lease;
mod log;
mod proof;
mod value;
mod vault;

pub(crate) use crate::backend::admin::AdminBackend;
pub(crate) use crate::backend::key::KeyBackend;
pub(crate) use crate::backend::lease::LeaseBackend;
pub(crate) use crate::backend::log::LogBackend;
pub(crate) use crate::backend::proof::ProofBackend;
pub(crate) use crate::backend::value::ValueBackend;
pub(crate) use crate::backend::vault::VaultBackend;

/// A database that stores sealed records. Every type that implements the parts implements it.
pub(crate) trait Backend:
    LogBackend + VaultBackend + LeaseBackend + ProofBackend + ValueBackend + KeyBackend + AdminBackend
{
}

impl<T> Backend for T where
    T: LogBackend
        + VaultBackend
        + LeaseBackend
        + ProofBackend
        + ValueBackend
        + KeyBackend
        + AdminBackend
{
}
