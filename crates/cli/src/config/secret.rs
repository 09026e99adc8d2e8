//! A secret that nobody prints by mistake.

use std::fmt;

use zeroize::Zeroizing;

/// What stands wherever a secret would.
pub(crate) const MASK: &str = "…";

/// A key. It is overwritten when it is dropped, and no way of printing it shows any part of it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes the text as a secret.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(Zeroizing::new(text.into()))
    }

    /// The secret itself, for the header that it goes into.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}
