//! Creates and verifies the Seals of simulated providers.
//!
//! A Seal is an encrypted and authenticated set of claims, and only the simulator has the key. The
//! claims contain everything that the real provider binds its Seals to. A wire can therefore report
//! *why* a returned Seal is invalid: another account, another model, an edited text or a changed
//! system prompt. The key is derived from the seed and the signer. A simulator that restarts with
//! the same seed therefore accepts its earlier Seals.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::{Deserialize, Serialize};

use crate::digest::Digest;

#[cfg(test)]
#[path = "keys_tests.rs"]
mod keys_tests;

/// The encoding of a provider's Seals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SealFormat {
    /// Anthropic's signatures and redacted data: standard base64 that starts with `E`.
    Claude,
    /// OpenAI's encrypted content: a Fernet token in URL-safe base64 that starts with `gAAAA`.
    Fernet,
    /// Gemini's signatures: standard base64 when issued, and either alphabet when returned.
    Gemini,
}

/// The values that a Seal is bound to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SealClaims {
    /// Type of the sealed part in the wire's terminology, such as `thinking`, `redacted_thinking`,
    /// `reasoning` or `functionCall`.
    pub(crate) kind: String,
    /// Name of the provider that issued the Seal.
    pub(crate) row: String,
    /// Model family that issued the Seal.
    pub(crate) family: String,
    /// Account that received the Seal.
    pub(crate) account: Digest,
    /// Digest that identifies the reply that contained the Seal.
    pub(crate) reply: Digest,
    /// Position of the Seal among all Seals of its reply, starting at 0.
    pub(crate) ordinal: u32,
    /// Number of Seals in the reply.
    pub(crate) count: u32,
    /// Digest of the signed thought text, or of an empty string if the reply hid the text.
    pub(crate) text: Digest,
    /// Whether the reply hid the thought's text. A client then returns an empty text.
    pub(crate) hidden: bool,
    /// Digest of the block that the thought is bound to: the first call or text in the reply.
    pub(crate) beside: Option<Digest>,
    /// Digest of the id of that block, if the block is a call whose arguments a client may extend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) beside_call: Option<Digest>,
    /// Whether the Seal came after the block identified by `beside`.
    pub(crate) is_behind: bool,
    /// Number of `fallback` blocks before the Seal in its reply.
    pub(crate) fallbacks: u32,
    /// Digests of the preceding conversation, for model families that bind Seals to the
    /// conversation.
    pub(crate) prefix: Option<PrefixBinding>,
}

/// Digests of the conversation that precedes a Seal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PrefixBinding {
    pub(crate) system: Digest,
    pub(crate) tools: Digest,
    /// Digest of all preceding messages, without thoughts.
    pub(crate) messages: Digest,
    /// Digest of the previous thought's Seal. Each Seal is chained to the Seal before it.
    pub(crate) previous: Option<Digest>,
}

/// The reason why a Seal could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SealError {
    Empty,
    NotBase64,
    /// Authentication failed: the Seal was altered, truncated, invented or issued by another
    /// signer.
    Unknown,
}

/// Derives each signer's key from the seed.
#[derive(Clone)]
pub(crate) struct SealKeys {
    seed: u64,
}

/// Omits the seed, so that logs contain no key material.
impl std::fmt::Debug for SealKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").finish_non_exhaustive()
    }
}

/// Accepts base64 with or without padding, because Gemini's own client removes the padding.
const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const LENIENT_STANDARD: GeneralPurpose = GeneralPurpose::new(&base64::alphabet::STANDARD, LENIENT);
const LENIENT_URL_SAFE: GeneralPurpose = GeneralPurpose::new(&base64::alphabet::URL_SAFE, LENIENT);

/// Length of the authentication code in bytes. The code also seeds the key stream.
const CODE: usize = 16;

impl SealKeys {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed }
    }

    fn key(&self, signer: &str) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_derive_key("throughline-sim seal key");
        hasher.update(&self.seed.to_le_bytes());
        hasher.update(signer.as_bytes());
        *hasher.finalize().as_bytes()
    }

    /// Creates a Seal from claims. Equal claims give equal Seals.
    pub(crate) fn seal(&self, signer: &str, form: SealFormat, claims: &SealClaims) -> String {
        let key = self.key(signer);
        // Serialization cannot fail, because claims contain only strings, numbers and booleans.
        let mut body = serde_json::to_vec(claims).unwrap_or_default();
        let code = Digest::first_of(blake3::keyed_hash(&key, &body).as_bytes());
        apply_key_stream(&key, code, &mut body);
        let mut bytes = form.header(body.len());
        bytes.extend_from_slice(&code.bytes());
        bytes.extend_from_slice(&body);
        match form {
            SealFormat::Claude | SealFormat::Gemini => STANDARD.encode(bytes),
            SealFormat::Fernet => URL_SAFE.encode(bytes),
        }
    }

    /// Opens a Seal and returns the claims, if this signer issued the Seal.
    pub(crate) fn open(
        &self,
        signer: &str,
        form: SealFormat,
        text: &str,
    ) -> Result<SealClaims, SealError> {
        if text.is_empty() {
            return Err(SealError::Empty);
        }
        let bytes = form.decode(text).ok_or(SealError::NotBase64)?;
        self.claims(signer, form, &bytes).ok_or(SealError::Unknown)
    }

    fn claims(&self, signer: &str, form: SealFormat, bytes: &[u8]) -> Option<SealClaims> {
        let header = form.header(0).len();
        let length = bytes.len().checked_sub(header + CODE)?;
        let rest = bytes.strip_prefix(form.header(length).as_slice())?;
        let (code, body) = rest.split_at_checked(CODE)?;
        let (code, mut body) = (Digest::first_of(code), body.to_vec());
        let key = self.key(signer);
        apply_key_stream(&key, code, &mut body);
        let expected = Digest::first_of(blake3::keyed_hash(&key, &body).as_bytes());
        if expected != code {
            return None;
        }
        serde_json::from_slice(&body).ok()
    }
}

/// Encrypts or decrypts the body in place. `code` depends on the body, so no two bodies share a key
/// stream.
fn apply_key_stream(key: &[u8; 32], code: Digest, body: &mut [u8]) {
    let mut stream = vec![0; body.len()];
    blake3::Hasher::new_keyed(key).update(&code.bytes()).finalize_xof().fill(&mut stream);
    for (byte, mask) in body.iter_mut().zip(stream) {
        *byte ^= mask;
    }
}

impl SealFormat {
    /// Returns the first bytes of a Seal. They make the encoded Seal start with the same letters as
    /// the provider's Seals.
    fn header(self, length: usize) -> Vec<u8> {
        // The length is a two-byte protobuf varint, which is enough for every Seal.
        let low = u8::try_from(length & 0x7f).unwrap_or_default() | 0x80;
        let high = u8::try_from((length >> 7) & 0x7f).unwrap_or_default();
        match self {
            Self::Claude => vec![0x12, low, high, 0x0a],
            Self::Gemini => vec![0x0a, low, high, 0x01],
            // The version byte, followed by a constant timestamp.
            Self::Fernet => vec![0x80, 0, 0, 0, 0, 0x69, low, high, 0x5a],
        }
    }

    /// Decodes a Seal; `None` if the Seal does not use this encoding.
    pub(crate) fn decode(self, text: &str) -> Option<Vec<u8>> {
        match self {
            Self::Claude => STANDARD.decode(text).ok(),
            Self::Fernet => URL_SAFE.decode(text).ok(),
            Self::Gemini => {
                LENIENT_STANDARD.decode(text).or_else(|_| LENIENT_URL_SAFE.decode(text)).ok()
            }
        }
    }
}
