//! Signatures of catalog files: an ed25519 signature in the first line, which is a TOML comment.
//!
//! ```text
//! # throughline-catalog ed25519 PUBLIC-KEY SIGNATURE
//! ```
//!
//! Both values are hexadecimal. The signature covers all bytes after the first line. Because the
//! signature is part of the file, one rename installs both at once.

use std::fmt;
use std::str::FromStr;

use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};

/// The start of the first line of a signed catalog file.
const MARK: &str = "# throughline-catalog ed25519 ";

/// A public key that verifies the signatures of catalog files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatalogKey([u8; 32]);

/// A secret key that signs catalog files.
pub struct CatalogSecret(SigningKey);

/// A text that is not a public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected an ed25519 public key of 64 hexadecimal digits")]
pub struct InvalidCatalogKey;

/// A text that is not a secret key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a secret key of 64 hexadecimal digits")]
pub struct InvalidCatalogSecret;

/// A missing or invalid signature of a catalog file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// The first line contains no signature.
    #[error(
        "the file is not signed; get a signed file from its publisher (publishers sign with \
         `throughline catalog sign`)"
    )]
    Unsigned,
    /// The first line is not a complete signature.
    #[error(
        "the signature in line 1 is malformed: expected `{MARK}` with a public key of 64 \
         hexadecimal digits and a signature of 128"
    )]
    Malformed,
    /// The key that signed the file is not trusted.
    #[error(
        "the file is signed with the key {0}, which is not trusted; if you trust its owner, add \
         it to trusted_keys under [catalog] in throughline.toml"
    )]
    Untrusted(CatalogKey),
    /// The signature does not match the content.
    #[error(
        "the signature does not match the content: the file is truncated or was changed after it \
         was signed; get it again from its publisher"
    )]
    Mismatch,
}

impl CatalogSecret {
    /// Returns the public key that verifies the signatures of this key.
    pub fn public_key(&self) -> CatalogKey {
        CatalogKey(self.0.verifying_key().to_bytes())
    }
}

impl FromStr for CatalogSecret {
    type Err = InvalidCatalogSecret;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bytes = parse_hex(text.trim()).ok_or(InvalidCatalogSecret)?;
        Ok(Self(SigningKey::from_bytes(&bytes)))
    }
}

impl fmt::Debug for CatalogSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CatalogSecret").finish_non_exhaustive()
    }
}

impl FromStr for CatalogKey {
    type Err = InvalidCatalogKey;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bytes = parse_hex(text).ok_or(InvalidCatalogKey)?;
        VerifyingKey::from_bytes(&bytes).map_err(|_| InvalidCatalogKey)?;
        Ok(Self(bytes))
    }
}

impl fmt::Display for CatalogKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

/// Verifies that one of the trusted keys signed the file, and returns that key.
pub fn verify_catalog(file: &[u8], trusted: &[CatalogKey]) -> Result<CatalogKey, SignatureError> {
    let line = file.strip_prefix(MARK.as_bytes()).ok_or(SignatureError::Unsigned)?;
    let (key, signature, content) = parse_line(line).ok_or(SignatureError::Malformed)?;
    if !trusted.contains(&key) {
        return Err(SignatureError::Untrusted(key));
    }
    // The strict check also rejects keys and signatures that verify more than one content.
    let verified = VerifyingKey::from_bytes(&key.0)
        .and_then(|key| key.verify_strict(content, &Signature::from_bytes(&signature)));
    verified.map(|()| key).map_err(|_| SignatureError::Mismatch)
}

/// Signs the content of a catalog file. An existing signature is replaced. A byte order mark at the
/// start is removed, because TOML allows it only in front of the first line.
pub fn sign_catalog(file: &str, secret: &CatalogSecret) -> String {
    let file = file.strip_prefix('\u{feff}').unwrap_or(file);
    let is_signed = file.starts_with(MARK);
    let signed_content = || file.split_once('\n').map_or("", |(_, content)| content);
    let content = if is_signed { signed_content() } else { file };
    let content = content.strip_prefix('\u{feff}').unwrap_or(content);
    let signature = secret.0.sign(content.as_bytes()).to_bytes();
    format!("{MARK}{} {}\n{content}", secret.public_key(), hex(&signature))
}

/// Splits the text after the mark into the key, the signature and the signed content.
fn parse_line(line: &[u8]) -> Option<(CatalogKey, [u8; 64], &[u8])> {
    let end = line.iter().position(|byte| *byte == b'\n')?;
    let (line, content) = line.split_at_checked(end)?;
    let (key, signature) = std::str::from_utf8(line).ok()?.split_once(' ')?;
    Some((key.parse().ok()?, parse_hex(signature)?, content.get(1..)?))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        for digit in [byte >> 4, byte & 15] {
            text.extend(char::from_digit(digit.into(), 16));
        }
        text
    })
}

/// Parses exactly `N` bytes of hexadecimal digits.
fn parse_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len() == N * 2)?;
    let byte = |pair: &[u32]| match pair {
        [high, low] => u8::try_from(high << 4 | low).ok(),
        _ => None,
    };
    let bytes: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
    bytes?.try_into().ok()
}
