//! Opens a store by its URL.

use std::path::Path;
use std::sync::Arc;

use throughline_core::StoreError;
use throughline_json::Name;

use crate::backend::Backend;
use crate::cipher;
use crate::hex::hex;
use crate::journal::Journal;
use crate::keys::Keys;
use crate::manifest::Signer;
use crate::options::Options;
use crate::postgres::Postgres;
use crate::rejection::invalid;
use crate::sqlite::{Reserve, Sqlite};

/// Opens a store: `sqlite://file.db`, `sqlite:///folder/file.db` or
/// `postgres://user@host/database`.
pub async fn open(url: &str, options: &Options) -> Result<Journal, StoreError> {
    let journal = open_without_cleanup(url, options, Reserve::Beside).await?;
    // An earlier process may have ended during an erasure. If this cleanup fails, the next process
    // tries again.
    if !options.read_only {
        drop(journal.complete_erasures().await);
    }
    Ok(journal)
}

/// Opens a store without completing erasures that an earlier process began.
pub(super) async fn open_without_cleanup(
    url: &str,
    options: &Options,
    reserve: Reserve,
) -> Result<Journal, StoreError> {
    let writer = Name::from(hex(&cipher::random::<8>()?));
    let (backend, shown): (Arc<dyn Backend>, Name) = if let Some(path) = sqlite_path(url) {
        if path.is_empty() {
            return Err(invalid!("the store URL has no file name; use sqlite://file.db"));
        }
        (Arc::new(Sqlite::open(Path::new(path), options, writer, reserve).await?), url.into())
    } else if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        (Arc::new(Postgres::open(url, options, writer).await?), without_password(url).into())
    } else {
        let scheme = url.split(':').next().unwrap_or_default();
        return Err(invalid!(
            "{scheme:?} is not a supported store type; use sqlite://file.db or \
             postgres://user@host/database"
        ));
    };
    let keys = Keys::open(&*backend, options).await?;
    let signer = Arc::new(Signer::new(&keys.signing_seed()));
    backend.sign_with(Arc::clone(&signer));
    let (keys, finishes, limits) = (Arc::new(keys), Arc::default(), Arc::default());
    Ok(Journal { backend, keys, signer, finishes, limits, url: shown })
}

/// Returns the file of an SQLite store; `None` for another database.
pub(super) fn sqlite_path(url: &str) -> Option<&str> {
    url.strip_prefix("sqlite://").or_else(|| url.strip_prefix("sqlite:"))
}

/// Returns a store URL without its password, for display. The password may precede the host or be a
/// query option.
pub fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://").filter(|_| sqlite_path(url).is_none()) else {
        return url.to_owned();
    };
    let (rest, options) = match rest.rsplit_once('?') {
        Some((rest, _)) => (rest, "?…"),
        None => (rest, ""),
    };
    let Some((user, host)) = rest.rsplit_once('@') else {
        return format!("{scheme}://{rest}{options}");
    };
    let user = user.split(':').next().unwrap_or_default();
    format!("{scheme}://{user}@{host}{options}")
}
