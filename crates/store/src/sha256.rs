//! SHA-256, computed with the assembly code of `ring`. On processors without SHA instructions, it
//! is faster than portable code, and every commit hashes some kilobytes.

use ring::digest::{Context, SHA256};
use throughline_core::Digest;

/// Returns the SHA-256 hash of the concatenated parts.
pub(crate) fn sha256(parts: &[&[u8]]) -> Digest {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(part);
    }
    let mut digest = [0; 32];
    digest.copy_from_slice(context.finish().as_ref());
    digest
}
