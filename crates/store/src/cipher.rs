//! Encrypts record content. Each record has its own salt, and the keys for its content and its
//! commitment derive from this salt. Deleting the salt makes the content unreadable in all copies
//! of the sealed bytes.

use std::sync::LazyLock;

use bytes::Bytes;
use chacha20poly1305::aead::{Aead as _, KeyInit as _};
use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::error::Unspecified;
use throughline_core::{Digest, StoreError};
use zeroize::Zeroizing;

use crate::rejection::{Result, corrupt, invalid};

/// Length of a salt in bytes.
pub(crate) const SALT: usize = 16;

/// The random secret of one record. The content key and the commitment key derive from it.
pub(crate) type SaltBytes = [u8; SALT];

/// A 32-byte key that is wiped from memory when dropped.
pub(crate) type Secret = Zeroizing<[u8; 32]>;

/// Key derivation contexts, hashed once per process.
static COMMITMENT: LazyLock<blake3::Hasher> =
    LazyLock::new(|| blake3::Hasher::new_derive_key("throughline 2026 store commitment"));
static CONTENT: LazyLock<blake3::Hasher> =
    LazyLock::new(|| blake3::Hasher::new_derive_key("throughline 2026 store content"));

/// Returns random bytes from the operating system.
pub(crate) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    fill(&mut bytes)?;
    Ok(bytes)
}

fn fill(bytes: &mut [u8]) -> Result<()> {
    getrandom::fill(bytes)
        .map_err(|error| invalid!("the system's random number generator failed: {error}"))
}

/// Returns `count` new salts, using a single request for random bytes.
pub(crate) fn salts(count: usize) -> Result<Zeroizing<Vec<SaltBytes>>> {
    let mut salts = Zeroizing::new(vec![[0; SALT]; count]);
    fill(salts.as_flattened_mut())?;
    Ok(salts)
}

/// Returns a commitment to the content. The commitment proves the content, but reveals nothing
/// about the content without the salt.
pub(crate) fn commitment(salt: &SaltBytes, content: &[u8]) -> Digest {
    let key = derived(&COMMITMENT, salt);
    *blake3::keyed_hash(&key, content).as_bytes()
}

/// Encrypts content with the key derived from its record's salt.
pub(crate) fn seal(salt: &SaltBytes, content: &[u8]) -> Result<Bytes> {
    seal_under(&content_key(salt), content)
}

/// Decrypts content with the key derived from its record's salt.
pub(crate) fn open(salt: &SaltBytes, sealed: &[u8]) -> Result<Bytes> {
    open_under(&content_key(salt), sealed)
}

/// Encrypts content with a key that is used only once, so a constant nonce is safe.
pub(crate) fn seal_under(key: &Secret, content: &[u8]) -> Result<Bytes> {
    let mut sealed = Vec::with_capacity(content.len() + CHACHA20_POLY1305.tag_len());
    sealed.extend_from_slice(content);
    let cipher = content_cipher(key).map_err(|_| too_long())?;
    let appended = cipher.seal_in_place_append_tag(only_nonce(), Aad::empty(), &mut sealed);
    appended.map(|()| Bytes::from(sealed)).map_err(|_| too_long())
}

/// Decrypts content that [`seal_under`] encrypted.
pub(crate) fn open_under(key: &Secret, sealed: &[u8]) -> Result<Bytes> {
    let mut bytes = sealed.to_vec();
    let opened = content_cipher(key).and_then(|cipher| {
        cipher.open_in_place(only_nonce(), Aad::empty(), &mut bytes).map(|content| content.len())
    });
    let length = opened.map_err(|_| corrupt!("a content cannot be decrypted with its key"))?;
    bytes.truncate(length);
    Ok(Bytes::from(bytes))
}

/// Returns ChaCha20-Poly1305, as in RFC 8439, with this key.
fn content_cipher(key: &Secret) -> Result<LessSafeKey, Unspecified> {
    UnboundKey::new(&CHACHA20_POLY1305, &**key).map(LessSafeKey::new)
}

/// Returns the nonce for keys that are used only once.
fn only_nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; NONCE_LEN])
}

/// Encrypts a small secret with a key that wraps many secrets, so each result has a random nonce.
pub(crate) fn wrap(key: &Secret, secret: &[u8]) -> Result<Bytes> {
    let nonce = random::<24>()?;
    let cipher = XChaCha20Poly1305::new(&Key::from(**key));
    let sealed = cipher.encrypt(&XNonce::from(nonce), secret).map_err(|_| too_long())?;
    Ok(Bytes::from([nonce.as_slice(), &sealed].concat()))
}

/// Decrypts a small secret. Returns `None` if the key does not match.
pub(crate) fn unwrap(key: &Secret, wrapped: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let (nonce, sealed) = wrapped.split_first_chunk::<24>()?;
    let cipher = XChaCha20Poly1305::new(&Key::from(**key));
    cipher.decrypt(&XNonce::from(*nonce), sealed).ok().map(Zeroizing::new)
}

fn content_key(salt: &SaltBytes) -> Secret {
    derived(&CONTENT, salt)
}

fn derived(purpose: &blake3::Hasher, salt: &SaltBytes) -> Secret {
    Secret::new(purpose.clone().update(salt).finalize().into())
}

fn too_long() -> StoreError {
    StoreError::invalid("content exceeds the limit of 256 GB")
}
