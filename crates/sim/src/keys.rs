//! Seals: what the simulated providers sign, and how they know it again.
//!
//! A seal is its claims, enciphered and authenticated under a key that only the simulator has. Claims say everything
//! that the real provider binds its seal to, so that a wire that gets one back can say *why* it does not fit: another
//! account, another model, an edited text, a changed system prompt. The key follows from the seed and from who signs, so
//! a simulator that is started again with the same seed knows what it sealed before.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::{Deserialize, Serialize};

use crate::digest::Mark;

#[cfg(test)]
#[path = "keys_tests.rs"]
mod keys_tests;

/// What a seal looks like from outside, by its provider's habit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Anthropic's signatures and redacted data: standard base64, beginning with `E`.
    Claude,
    /// OpenAI's encrypted content: url-safe base64 of a Fernet token, beginning with `gAAAA`.
    Fernet,
    /// Gemini's signatures: base64, standard when written and in either alphabet when read.
    Gemini,
}

/// Everything that a seal vouches for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Claims {
    /// What is sealed, in the wire's word: `thinking`, `redacted_thinking`, `reasoning`, `functionCall`.
    pub(crate) kind: String,
    /// The provider's row that issued it.
    pub(crate) row: String,
    /// The model family that issued it.
    pub(crate) family: String,
    /// The account that it was issued to.
    pub(crate) account: Mark,
    /// The reply that it was part of.
    pub(crate) reply: Mark,
    /// Its number among the seals of that reply, from 0.
    pub(crate) ordinal: u32,
    /// How many seals that reply had.
    pub(crate) count: u32,
    /// The text that it signs: what was thought, or nothing where that was not shown.
    pub(crate) text: Mark,
    /// Whether the text was left out of the reply, so that an empty one is the right one.
    pub(crate) hidden: bool,
    /// What it stood beside in its reply: the first call's id or the first text.
    pub(crate) beside: Option<Mark>,
    /// Whether it came behind that in its reply.
    pub(crate) is_behind: bool,
    /// What it stood behind, where its family binds it to that.
    pub(crate) prefix: Option<Prefix>,
}

/// What a seal stands behind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Prefix {
    /// The system prompt.
    pub(crate) system: Mark,
    /// The tools.
    pub(crate) tools: Mark,
    /// Everything said before it but thoughts.
    pub(crate) messages: Mark,
    /// The seal of the thought before it, to which it is chained.
    pub(crate) previous: Option<Mark>,
}

/// Why bytes are not a seal of this signer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forged {
    /// There is nothing.
    Empty,
    /// It is not in the provider's encoding.
    NotBase64,
    /// The key does not vouch for it: altered, truncated, somebody else's, or made up.
    Unknown,
}

/// The keys of all signers.
#[derive(Clone)]
pub(crate) struct Keys {
    seed: u64,
}

/// Shows no key.
impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").finish_non_exhaustive()
    }
}

/// Reads standard base64 with or without its padding, as Gemini's own client writes it.
const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const LENIENT_STANDARD: GeneralPurpose = GeneralPurpose::new(&base64::alphabet::STANDARD, LENIENT);
const LENIENT_URL_SAFE: GeneralPurpose = GeneralPurpose::new(&base64::alphabet::URL_SAFE, LENIENT);

/// The bytes of the authentication code, which also begins the key stream.
const CODE: usize = 16;

impl Keys {
    /// The keys that follow from a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed }
    }

    fn key(&self, signer: &str) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_derive_key("throughline-sim seal key");
        hasher.update(&self.seed.to_le_bytes());
        hasher.update(signer.as_bytes());
        *hasher.finalize().as_bytes()
    }

    /// Seals claims. Equal claims give equal seals.
    pub(crate) fn seal(&self, signer: &str, form: Form, claims: &Claims) -> String {
        let key = self.key(signer);
        // Claims are plain strings and numbers, which JSON can always hold.
        let mut body = serde_json::to_vec(claims).unwrap_or_default();
        let code = Mark::first_of(blake3::keyed_hash(&key, &body).as_bytes());
        apply_key_stream(&key, code, &mut body);
        let mut bytes = form.header(body.len());
        bytes.extend_from_slice(&code.bytes());
        bytes.extend_from_slice(&body);
        match form {
            Form::Claude | Form::Gemini => STANDARD.encode(bytes),
            Form::Fernet => URL_SAFE.encode(bytes),
        }
    }

    /// What a seal claims, if this signer sealed it.
    pub(crate) fn open(&self, signer: &str, form: Form, text: &str) -> Result<Claims, Forged> {
        if text.is_empty() {
            return Err(Forged::Empty);
        }
        let bytes = form.decode(text).ok_or(Forged::NotBase64)?;
        self.claims(signer, form, &bytes).ok_or(Forged::Unknown)
    }

    fn claims(&self, signer: &str, form: Form, bytes: &[u8]) -> Option<Claims> {
        let header = form.header(0).len();
        let length = bytes.len().checked_sub(header + CODE)?;
        let rest = bytes.strip_prefix(form.header(length).as_slice())?;
        let (code, body) = rest.split_at_checked(CODE)?;
        let (code, mut body) = (Mark::first_of(code), body.to_vec());
        let key = self.key(signer);
        apply_key_stream(&key, code, &mut body);
        let expected = Mark::first_of(blake3::keyed_hash(&key, &body).as_bytes());
        if expected != code {
            return None;
        }
        serde_json::from_slice(&body).ok()
    }
}

/// Enciphers and deciphers. The code is unique to the body, so no stretch of the stream is used twice.
fn apply_key_stream(key: &[u8; 32], code: Mark, body: &mut [u8]) {
    let mut stream = vec![0; body.len()];
    blake3::Hasher::new_keyed(key).update(&code.bytes()).finalize_xof().fill(&mut stream);
    for (byte, mask) in body.iter_mut().zip(stream) {
        *byte ^= mask;
    }
}

impl Form {
    /// The bytes that make the first letters look as the provider's do.
    fn header(self, length: usize) -> Vec<u8> {
        // The length is written as protocol buffers write it, in two bytes; a seal is never longer than that.
        let low = u8::try_from(length & 0x7f).unwrap_or_default() | 0x80;
        let high = u8::try_from((length >> 7) & 0x7f).unwrap_or_default();
        match self {
            Self::Claude => vec![0x12, low, high, 0x0a],
            Self::Gemini => vec![0x0a, low, high, 0x01],
            // A version, and a time that stands still.
            Self::Fernet => vec![0x80, 0, 0, 0, 0, 0x69, low, high, 0x5a],
        }
    }

    /// The bytes, if the text is in this provider's encoding.
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
