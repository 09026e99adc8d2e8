//! A handle to the catalog of a process, so that an update reaches all users of the catalog.

use std::sync::{Arc, PoisonError, RwLock};

use super::Catalog;

/// The catalog that a process uses. Clones share one catalog. A request takes the catalog once and
/// keeps it, so an update affects only later requests.
#[derive(Clone, Debug)]
pub struct SharedCatalog(Arc<RwLock<Arc<Catalog>>>);

impl SharedCatalog {
    /// Creates a handle to a catalog.
    pub fn new(catalog: impl Into<Arc<Catalog>>) -> Self {
        Self(Arc::new(RwLock::new(catalog.into())))
    }

    /// Returns the current catalog.
    pub fn current(&self) -> Arc<Catalog> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the catalog for all clones of this handle.
    pub fn replace(&self, catalog: impl Into<Arc<Catalog>>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = catalog.into();
    }
}

impl Default for SharedCatalog {
    /// Creates a handle to the built-in catalog.
    fn default() -> Self {
        Self::new(Catalog::builtin().clone())
    }
}

impl From<Catalog> for SharedCatalog {
    fn from(catalog: Catalog) -> Self {
        Self::new(catalog)
    }
}

impl From<Arc<Catalog>> for SharedCatalog {
    fn from(catalog: Arc<Catalog>) -> Self {
        Self::new(catalog)
    }
}
