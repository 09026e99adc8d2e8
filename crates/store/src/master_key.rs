//! The master key that the operator supplies.

use throughline_core::StoreError;
use zeroize::Zeroizing;

use crate::cipher::Secret;
use crate::hex::parse_digest;

/// A key that wraps the salts of all records.
#[derive(Clone)]
pub struct MasterKey(pub(crate) Secret);

impl MasterKey {
    /// Parses a 32-byte key from 64 hexadecimal digits.
    pub fn parse(text: &str) -> Result<Self, StoreError> {
        let text = text.trim().to_ascii_lowercase();
        let key = parse_digest(&text).ok_or_else(|| {
            StoreError::invalid(
                "a master key is 64 hexadecimal digits; create one with `openssl rand -hex 32`",
            )
        })?;
        Ok(Self(Zeroizing::new(key)))
    }
}

impl std::fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MasterKey(…)")
    }
}
