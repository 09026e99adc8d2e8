//! A secret that cannot be printed by mistake.

use std::fmt;

use zeroize::Zeroizing;

/// Placeholder that is printed instead of a secret.
pub(crate) const MASK: &str = "…";

/// A key that is zeroed on drop and whose `Debug` output is masked.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(Zeroizing<String>);

impl Secret {
    /// Wraps a secret.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(Zeroizing::new(text.into()))
    }

    /// Returns the secret for use in a header.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}
