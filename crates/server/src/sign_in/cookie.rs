//! Signed cookies, and values that are derived from a secret key.

use axum::http::HeaderMap;
use axum::http::header::COOKIE;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::Serialize;
use serde::de::DeserializeOwned;
use throughline_json::Name;

/// Signs cookies with a secret key.
pub(super) struct CookieSigner {
    key: [u8; 32],
}

impl CookieSigner {
    pub(super) fn new(key: [u8; 32]) -> Self {
        Self { key }
    }

    /// Encodes and signs a value for one purpose.
    pub(super) fn seal(&self, purpose: &str, value: &impl Serialize) -> String {
        let text = serde_json::to_vec(value).unwrap_or_default();
        let signature = self.sign(purpose, &text);
        let encode = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
        format!("{}.{}", encode(&text), encode(signature.as_bytes()))
    }

    /// Returns the value in a text; `None` unless [`CookieSigner::seal`] created the text for the
    /// same purpose.
    pub(super) fn open<T: DeserializeOwned>(&self, purpose: &str, sealed: &str) -> Option<T> {
        let (text, signature) = sealed.split_once('.')?;
        let decode = |part: &str| BASE64_URL_SAFE_NO_PAD.decode(part).ok();
        let (text, signature) = (decode(text)?, decode(signature)?);
        // The comparison of hashes takes the same time for all values.
        let is_own = self.sign(purpose, &text) == <[u8; 32]>::try_from(signature).ok()?;
        if is_own { serde_json::from_slice(&text).ok() } else { None }
    }

    /// Derives a value for one purpose, as 64 hexadecimal digits. Only holders of the key can
    /// compute it.
    pub(super) fn derive(&self, purpose: &str, from: &str) -> Name {
        Name::from(&*self.sign(purpose, from.as_bytes()).to_hex())
    }

    fn sign(&self, purpose: &str, text: &[u8]) -> blake3::Hash {
        let key = blake3::keyed_hash(&self.key, purpose.as_bytes());
        blake3::keyed_hash(key.as_bytes(), text)
    }
}

/// Returns the value of a cookie in a request.
pub(super) fn find_cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let lines = headers.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.split_once('='));
    pairs.find(|(known, _)| known.trim() == name).map(|(_, value)| value.trim())
}

/// Formats a cookie that scripts cannot read and that pages of other sites do not send, except with
/// a link. An age of zero deletes the cookie.
pub(super) fn set_cookie(
    (name, value): (&str, &str),
    path: &str,
    max_age: u64,
    is_https: bool,
) -> String {
    let secure = if is_https { "; Secure" } else { "" };
    format!("{name}={value}; Path={path}; Max-Age={max_age}; HttpOnly; SameSite=Lax{secure}")
}
