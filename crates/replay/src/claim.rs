//! Claims are handles that the gateway places in a translated reply. When the client sends a Claim
//! back, the gateway finds the captured turn.
//!
//! A Claim is placed in the dialect's field for opaque reasoning (`signature`, `encrypted_content`,
//! `thoughtSignature`, `reasoning_details`). Tool calls get ids that also identify the turn. All
//! handles are authenticated, so they are valid for only one tenant:
//!
//! | handle | format |
//! |---|---|
//! | Claim, 36 characters | `tl1c`, turn (15), authenticator (17) |
//! | call id, 40 characters | `call_tl1`, turn (15), call number (2), authenticator (15) |
//! | response id, 40 characters | `resp_tl1`, turn (15), authenticator (17) |
//!
//! Claims contain only letters and digits, and their length is a multiple of four. A client that
//! decodes and re-encodes a Claim as base64, in either alphabet, therefore returns it unchanged.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, OnceLock};

use memchr::memmem::Finder;
use throughline_core::{Item, Tenant, TurnId};
use throughline_json::Name;

const CLAIM_PREFIX: &str = "tl1c";
const CALL: &str = "call_tl1";
const RESPONSE: &str = "resp_tl1";
const TURN_LETTERS: usize = 15;
const PROCESS_LETTERS: usize = 4;
const COUNT_LETTERS: usize = 5;
const NUMBER: usize = 2;
const CLAIM_MAC: usize = 17;
const CALL_MAC: usize = 15;
/// A length that no Claim or call id reaches.
const MAX_HANDLE: usize = 64;
const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

static FINDER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(Claims::HANDLE_PART));

/// The system's random number generator failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the system's random number generator failed")]
pub struct RandomnessError;

/// Issues and verifies Claims. The `Debug` output omits the key.
#[derive(Clone)]
pub struct Claims {
    key: [u8; 32],
}

impl std::fmt::Debug for Claims {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Claims")
    }
}

impl Claims {
    /// Prefix of tenant names for callers that send their own provider key.
    pub const CALLER_PREFIX: &str = "caller-";

    /// The letters that occur in every handle.
    pub const HANDLE_PART: &str = "tl1";

    /// Derives the Claim key from `key`. A holder of `key` can forge Claims, so protect it like the
    /// store's master key.
    pub fn new(key: [u8; 32]) -> Self {
        Self { key: blake3::derive_key("throughline 2026-11 claims v1", &key) }
    }

    /// Creates a random id for a new turn. Create the id before sending the first byte of the
    /// reply, because the Claims in the reply contain the id.
    ///
    /// An id consists of letters for the process, a counter and random letters. Consecutive ids
    /// from one process sort next to each other, so their entries are adjacent in the store.
    pub fn new_turn_id() -> Result<TurnId, RandomnessError> {
        /// A random key and the letters for this process.
        static PROCESS: OnceLock<([u8; 32], String)> = OnceLock::new();
        static COUNT: AtomicU64 = AtomicU64::new(0);
        // A keyed hash of the counter is as random as the key, and needs no system call.
        let number = |key: &[u8; 32], text: &[u8]| {
            let hash = blake3::keyed_hash(key, text);
            let bytes = hash.as_bytes().first_chunk().copied().unwrap_or_default();
            u128::from_le_bytes(bytes)
        };
        let (key, process) = match PROCESS.get() {
            Some(process) => process,
            None => {
                let mut key = [0; 32];
                getrandom::fill(&mut key).map_err(|_| RandomnessError)?;
                let process = letters(number(&key, b"process"), PROCESS_LETTERS);
                PROCESS.get_or_init(|| (key, process))
            }
        };
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let random = number(key, &count.to_le_bytes());
        let count = letters(count.into(), COUNT_LETTERS);
        // The highest digit comes first, so that ids sort by count.
        let count: String = count.chars().rev().collect();
        let rest = letters(random, TURN_LETTERS - PROCESS_LETTERS - COUNT_LETTERS);
        Ok(TurnId::from([process, &*count, &*rest].concat()))
    }

    /// Returns the Claim for a turn, to be placed where a dialect keeps opaque reasoning.
    pub fn claim(&self, tenant: &Tenant, node: &TurnId) -> Name {
        let mac = self.authenticator(tenant, &[CLAIM_PREFIX, &node.0], CLAIM_MAC);
        Name::from([CLAIM_PREFIX, &node.0, &mac].concat())
    }

    /// Returns the gateway's id for a tool call, given its index in the turn.
    pub fn call_id(&self, tenant: &Tenant, node: &TurnId, number: usize) -> Name {
        let number = letters(number as u128, NUMBER);
        let mac = self.authenticator(tenant, &[CALL, &node.0, &number], CALL_MAC);
        Name::from([CALL, &node.0, &number, &mac].concat())
    }

    /// Returns the turn that a Claim or call id identifies; `None` if it is forged, truncated, or
    /// was issued to another tenant.
    pub fn read(&self, tenant: &Tenant, text: &str) -> Option<TurnId> {
        let is_call = text.starts_with(CALL);
        let prefix = if is_call { CALL } else { CLAIM_PREFIX };
        let rest = text.strip_prefix(prefix)?;
        let (node, rest) = rest.split_at_checked(TURN_LETTERS)?;
        let (number, mac) = rest.split_at_checked(if is_call { NUMBER } else { 0 })?;
        let expected = if is_call {
            self.authenticator(tenant, &[CALL, node, number], CALL_MAC)
        } else {
            self.authenticator(tenant, &[CLAIM_PREFIX, node], CLAIM_MAC)
        };
        constant_time_eq(expected.as_bytes(), mac.as_bytes()).then(|| TurnId::from(node))
    }

    /// Whether a text contains a handle in the gateway's format: a Claim, call id or response id.
    pub fn contains_handles(text: &[u8]) -> bool {
        let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        // Every handle contains `tl1`, at its start or after five letters. With six letters before
        // it, the start of the word is unknown, and an occurrence before this one decides.
        FINDER.find_iter(text).any(|at| {
            let (before, after) = text.split_at_checked(at).unwrap_or_default();
            let letters_before = before.iter().rev().take(6).take_while(|byte| is_letter(byte));
            let letters_after = after.iter().take(MAX_HANDLE).take_while(|byte| is_letter(byte));
            let (start, end) = (letters_before.count(), letters_after.count());
            let word = text.get(at - start..at + end).unwrap_or_default();
            start < 6
                && word.len() > TURN_LETTERS
                && (Self::has_handle_format(word) || word.starts_with(RESPONSE.as_bytes()))
        })
    }

    /// Returns the gateway's response id for a turn.
    pub fn response_id(&self, tenant: &Tenant, node: &TurnId) -> Name {
        let mac = self.authenticator(tenant, &[RESPONSE, &node.0], CLAIM_MAC);
        Name::from([RESPONSE, &node.0, &mac].concat())
    }

    /// Returns the turn that a response id identifies; `None` if the id is not valid for this
    /// tenant.
    pub fn read_response(&self, tenant: &Tenant, id: &str) -> Option<TurnId> {
        let (node, mac) = id.strip_prefix(RESPONSE)?.split_at_checked(TURN_LETTERS)?;
        let expected = self.authenticator(tenant, &[RESPONSE, node], CLAIM_MAC);
        constant_time_eq(expected.as_bytes(), mac.as_bytes()).then(|| TurnId::from(node))
    }

    /// Whether a response id has the gateway's format. Providers do not know these ids.
    pub fn has_response_format(id: &str) -> bool {
        id.starts_with(RESPONSE)
    }

    /// Returns the response id contained in an output item id that the gateway assigned, as in
    /// `msg_resp_tl1…_0`.
    pub fn response_in_item(id: &str) -> Option<&str> {
        let (_, rest) = id.split_once('_').filter(|(_, rest)| Self::has_response_format(rest))?;
        Some(rest.split_once('_').map_or(rest, |_| {
            rest.get(..RESPONSE.len() + TURN_LETTERS + CLAIM_MAC).unwrap_or(rest)
        }))
    }

    /// Whether a text has the format of a Claim or call id, genuine or not. Such a text must not be
    /// sent to a provider.
    pub fn has_handle_format(text: &[u8]) -> bool {
        let has = |prefix: &str, length: usize| {
            text.starts_with(prefix.as_bytes())
                && text.len() <= length
                && text.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
        };
        has(CLAIM_PREFIX, CLAIM_PREFIX.len() + TURN_LETTERS + CLAIM_MAC)
            || has(CALL, CALL.len() + TURN_LETTERS + NUMBER + CALL_MAC)
    }

    /// Returns the Claims among an Item's Seals, and the Item's tool call id if it has the
    /// gateway's format.
    pub fn handles_in_item(item: &Item) -> impl Iterator<Item = Name> {
        let seals = item.seals.iter().map(|seal| &**seal.reveal_to_tenant());
        let id = item.call().and_then(|call| call.wire_id.as_ref()).map(|id| id.as_bytes());
        let handles = seals.chain(id).filter(|text| Self::has_handle_format(text));
        handles.filter_map(|text| std::str::from_utf8(text).ok().map(Name::from))
    }

    /// Returns a tenant name for the holder of a provider key. The name does not reveal the key.
    pub fn caller_tenant(&self, key: &str) -> Name {
        let name = self.authenticator(&Tenant::from(""), &["caller", key], 20);
        Name::from([Self::CALLER_PREFIX, &name].concat())
    }

    /// Returns a message authentication code of `length` letters for the tenant and these parts.
    fn authenticator(&self, tenant: &Tenant, parts: &[&str], length: usize) -> String {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        for part in [&*tenant.0].iter().chain(parts) {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        let mut bytes = [0; 16];
        hasher.finalize_xof().fill(&mut bytes);
        letters(u128::from_le_bytes(bytes), length)
    }
}

/// Returns a number in base 62, lowest digit first, truncated to `length` digits.
fn letters(mut number: u128, length: usize) -> String {
    let mut text = String::with_capacity(length);
    for _ in 0..length {
        let digit = usize::try_from(number % 62).unwrap_or_default();
        text.push(char::from(LETTERS.get(digit).copied().unwrap_or(b'0')));
        number /= 62;
    }
    text
}

fn constant_time_eq(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len()
        && left.iter().zip(right).fold(0, |all, (left, right)| all | (left ^ right)) == 0
}

#[cfg(test)]
#[path = "claim_tests.rs"]
mod claim_tests;
