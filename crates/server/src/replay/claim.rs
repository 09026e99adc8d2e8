//! Claims: handles that a reply in another dialect carries, by which its turn is found again.
//!
//! A claim stands where the dialect keeps opaque reasoning (`signature`, `encrypted_content`, `thoughtSignature`,
//! `reasoning_details`), and tool calls get ids that say the same. Both name the turn and are authenticated for one tenant:
//!
//! | handle | is |
//! |---|---|
//! | a claim, 36 characters | `tl1c`, the turn (15), an authenticator (17) |
//! | a call's id, 40 characters | `call_tl1`, the turn (15), the number of the call (2), an authenticator (15) |
//! | a response's id, 40 characters | `resp_tl1`, the turn (15), an authenticator (17) |
//!
//! They have letters and digits only, and a claim's length is a multiple of four: so a client that takes a signature for
//! base64, in whichever alphabet, gives it back as it was.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use throughline_core::{Call, Fate, Item, Name, NodeId, Tenant, Why};

use crate::replay::splice;

const CLAIM: &str = "tl1c";
const CALL: &str = "call_tl1";
const RESPONSE: &str = "resp_tl1";
const NODE: usize = 15;
const PROCESS_LETTERS: usize = 4;
const COUNT_LETTERS: usize = 5;
const NUMBER: usize = 2;
const CLAIM_MAC: usize = 17;
const CALL_MAC: usize = 15;
const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The system gave no random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRandomness;

impl std::fmt::Display for NoRandomness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the system gives no random numbers")
    }
}

impl std::error::Error for NoRandomness {}

/// Makes claims and reads them. Never printed: it holds the key.
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
    /// What the names of callers with a provider key of their own begin with.
    pub const CALLER: &str = "caller-";

    /// Claims under that key. Whoever has it can make claims, so it is as secret as the store's own.
    pub fn new(key: [u8; 32]) -> Self {
        Self { key: blake3::derive_key("throughline 2026-11 claims v1", &key) }
    }

    /// A name for a turn that is still to be captured. It is needed before the first byte of a reply goes out. The names that
    /// a process gives follow each other, so that a store keeps them side by side: letters of the process, a count, and
    /// letters that nobody foresees.
    pub fn fresh_node() -> Result<NodeId, NoRandomness> {
        static PROCESS: OnceLock<u128> = OnceLock::new();
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|_| NoRandomness)?;
        let random = u128::from_le_bytes(bytes);
        let process = letters(*PROCESS.get_or_init(|| random >> 64), PROCESS_LETTERS);
        let count = letters(COUNT.fetch_add(1, Ordering::Relaxed).into(), COUNT_LETTERS);
        // In the order of the alphabet the highest digit comes first.
        let count: String = count.chars().rev().collect();
        let rest = letters(random, NODE - PROCESS_LETTERS - COUNT_LETTERS);
        Ok(NodeId::from([process, count, rest].concat()))
    }

    /// The claim to that turn, for the place where a dialect keeps opaque reasoning.
    pub fn claim(&self, tenant: &Tenant, node: &NodeId) -> Name {
        let mac = self.authenticator(tenant, &[CLAIM, &node.0], CLAIM_MAC);
        Name::from([CLAIM, &node.0, &mac].concat())
    }

    /// The id of that turn's call of that number.
    pub fn call_id(&self, tenant: &Tenant, node: &NodeId, number: usize) -> Name {
        let number = letters(number as u128, NUMBER);
        let mac = self.authenticator(tenant, &[CALL, &node.0, &number], CALL_MAC);
        Name::from([CALL, &node.0, &number, &mac].concat())
    }

    /// The turn that a claim or a call's id names: nothing if it is forged, cut, or another tenant's.
    pub fn read(&self, tenant: &Tenant, text: &str) -> Option<NodeId> {
        let is_call = text.starts_with(CALL);
        let prefix = if is_call { CALL } else { CLAIM };
        let rest = text.strip_prefix(prefix)?;
        let (node, rest) = rest.split_at_checked(NODE)?;
        let (number, mac) = rest.split_at_checked(if is_call { NUMBER } else { 0 })?;
        let expected = if is_call {
            self.authenticator(tenant, &[CALL, node, number], CALL_MAC)
        } else {
            self.authenticator(tenant, &[CLAIM, node], CLAIM_MAC)
        };
        is_equal(expected.as_bytes(), mac.as_bytes()).then(|| NodeId::from(node))
    }

    /// Whether a text holds handles of ours: claims, ids of calls or of responses.
    pub fn are_in(text: &[u8]) -> bool {
        let words = text.split(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_');
        words.filter(|word| word.len() > NODE).any(|word| {
            Self::is_ours(word) || std::str::from_utf8(word).is_ok_and(Self::is_response)
        })
    }

    /// The id of the response that shows that turn.
    pub fn response_id(&self, tenant: &Tenant, node: &NodeId) -> Name {
        let mac = self.authenticator(tenant, &[RESPONSE, &node.0], CLAIM_MAC);
        Name::from([RESPONSE, &node.0, &mac].concat())
    }

    /// The turn that the id of a response names: nothing if it is none of ours, or another tenant's.
    pub fn read_response(&self, tenant: &Tenant, id: &str) -> Option<NodeId> {
        let (node, mac) = id.strip_prefix(RESPONSE)?.split_at_checked(NODE)?;
        let expected = self.authenticator(tenant, &[RESPONSE, node], CLAIM_MAC);
        is_equal(expected.as_bytes(), mac.as_bytes()).then(|| NodeId::from(node))
    }

    /// Whether the id of a response is one of ours by its looks: no provider knows it.
    pub fn is_response(id: &str) -> bool {
        id.starts_with(RESPONSE)
    }

    /// The response id inside the id of an output item that the gateway minted, as in `msg_resp_tl1…_0`.
    pub fn response_in_item(id: &str) -> Option<&str> {
        let (_, rest) = id.split_once('_').filter(|(_, rest)| Self::is_response(rest))?;
        Some(
            rest.split_once('_')
                .map_or(rest, |_| rest.get(..RESPONSE.len() + NODE + CLAIM_MAC).unwrap_or(rest)),
        )
    }

    /// Whether a text is one of ours by its looks, be it genuine or not. No provider must see it.
    pub fn is_ours(text: &[u8]) -> bool {
        let has = |prefix: &str, length: usize| {
            text.starts_with(prefix.as_bytes())
                && text.len() <= length
                && text.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
        };
        has(CLAIM, CLAIM.len() + NODE + CLAIM_MAC)
            || has(CALL, CALL.len() + NODE + NUMBER + CALL_MAC)
    }

    /// The handles of ours in an Item: its Seals, and a call's id.
    pub fn in_item(item: &Item) -> impl Iterator<Item = Name> {
        let seals = item.seals.iter().map(|seal| &**seal.reveal_to_tenant());
        let id = item.call().and_then(|call| call.wire_id.as_ref()).map(|id| id.as_bytes());
        let ours = seals.chain(id).filter(|text| Self::is_ours(text));
        ours.filter_map(|text| std::str::from_utf8(text).ok().map(Name::from))
    }

    /// Takes whatever is ours out of a Call, so that no provider sees it. Thoughts that only carried a claim leave, with
    /// their Fate.
    pub fn remove(call: &mut Call, why: Why) -> Vec<Fate> {
        splice::remove_claims(call, why)
    }

    /// A name for whoever has that key: the same for the same key, and it tells nothing of it.
    pub fn name_of_caller(&self, key: &str) -> Name {
        let nobody = Tenant::from("");
        Name::from(format!("{}{}", Self::CALLER, self.authenticator(&nobody, &["caller", key], 20)))
    }

    /// An authenticator over the tenant and these words.
    fn authenticator(&self, tenant: &Tenant, words: &[&str], length: usize) -> String {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        for word in [&*tenant.0].iter().chain(words) {
            hasher.update(&(word.len() as u64).to_le_bytes());
            hasher.update(word.as_bytes());
        }
        let mut bytes = [0; 16];
        hasher.finalize_xof().fill(&mut bytes);
        letters(u128::from_le_bytes(bytes), length)
    }
}

/// A number in letters and digits, the lowest first, as many as fit.
fn letters(mut number: u128, length: usize) -> String {
    let mut text = String::with_capacity(length);
    for _ in 0..length {
        let digit = usize::try_from(number % 62).unwrap_or_default();
        text.push(char::from(LETTERS.get(digit).copied().unwrap_or(b'0')));
        number /= 62;
    }
    text
}

/// Compares in a time that tells nothing of where they differ.
fn is_equal(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len()
        && left.iter().zip(right).fold(0, |all, (left, right)| all | (left ^ right)) == 0
}
