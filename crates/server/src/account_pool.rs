//! Pools of accounts at one provider: the order in which a request tries the accounts, and the
//! accounts that are cooling down.
//!
//! A new conversation gets an account by rendezvous hashing: its start and the weights of the
//! accounts determine a ranking. The ranking needs no state, so all gateways of a deployment agree
//! on it, also after a restart. With [`Balance::LeastBusy`], the number of open requests comes
//! first. A conversation that an account has answered stays with this account.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering as MemoryOrdering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use throughline_core::{Body, Call, Digest, Role, Tenant, UpstreamError, UpstreamResponse};
use throughline_json::Name;
use tokio::time::Instant;

use crate::sync::lock;

/// How long an account rests after the provider rejected its key, or its use of a model.
const REJECTED: Duration = Duration::from_mins(5);

/// The longest cooldown that a provider can request.
const LONGEST_COOLDOWN: Duration = Duration::from_hours(1);

/// The number of consecutive failures after which an account cools down. A single failure does not
/// show that the account is unusable, and one client must not be able to disable the account.
const FAILURES: u32 = 3;

/// Maximum number of accounts and models with a known state. Clients choose model names, so the
/// number must be bounded.
const MOST_STATES: usize = 1024;

/// How a pool chooses the account of a new conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// Each account gets a share of the conversations that is proportional to its weight.
    #[default]
    Weighted,
    /// The account with the fewest open requests in proportion to its weight.
    LeastBusy,
}

/// What happens to a conversation if its Seals are bound to an account that cannot be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BoundPolicy {
    /// Another account continues the conversation. The Seals of the first account are not sent, and
    /// their Fates state the reason.
    #[default]
    Move,
    /// The conversation stays with its account, and the client gets the account's error.
    Stay,
}

/// One account of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolAccount {
    /// The configured name of the account.
    pub name: Name,
    /// The account's share of new conversations, relative to the other weights; at least 1.
    pub weight: u32,
}

/// Settings of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolOptions {
    /// How the pool chooses the account of a new conversation.
    pub balance: Balance,
    /// What happens to a conversation whose account cannot be used.
    pub bound: BoundPolicy,
    /// How long an account rests if the provider requests no other delay.
    pub cooldown: Duration,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self {
            balance: Balance::default(),
            bound: BoundPolicy::default(),
            cooldown: Duration::from_secs(30),
        }
    }
}

/// Several accounts at one provider.
#[derive(Debug)]
pub struct AccountPool {
    /// The name of the configured provider.
    provider: Name,
    accounts: Vec<PoolAccount>,
    options: PoolOptions,
    /// The number of open requests of each account.
    open: Vec<AtomicU64>,
    states: Mutex<HashMap<StateKey, AccountState>>,
}

/// The index of an account, and a model; `None` for the state that all models share.
type StateKey = (usize, Option<Name>);

/// The recent failures of an account with one model.
#[derive(Clone, Copy, Debug, Default)]
struct AccountState {
    /// The number of consecutive failures.
    failures: u32,
    /// The end of the cooldown.
    until: Option<Instant>,
}

/// What a response shows about the account that received the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AccountOutcome {
    /// The account can use the model.
    Usable,
    /// The provider requests a pause for this model.
    Limited(Option<Duration>),
    /// The provider rejects the account, for all models.
    Rejected,
    /// The provider forbids the request or requires a payment, which may have another cause than
    /// the account.
    Forbidden,
    /// The request failed, which may have another cause than the account.
    Failed(Option<Duration>),
    /// The request was not sent, so it shows nothing about the account.
    Unknown,
}

/// What is known about a conversation when its account is chosen.
#[derive(Clone, Copy, Debug)]
pub struct AccountQuery<'q> {
    /// A digest of the start of the conversation, which is the same in all of its requests: see
    /// [`conversation_start`].
    pub start: &'q Digest,
    /// The provider's name for the model.
    pub model: &'q Name,
    /// The index of the account that answered the conversation last.
    pub current: Option<usize>,
    /// Whether the Seals of the model are bound to the account that issued them.
    pub is_bound: bool,
}

impl AccountPool {
    /// Creates a pool of the accounts of a configured provider.
    pub fn new(provider: Name, accounts: Vec<PoolAccount>, options: PoolOptions) -> Self {
        let open = accounts.iter().map(|_| AtomicU64::new(0)).collect();
        Self { provider, accounts, options, open, states: Mutex::default() }
    }

    /// Returns the name of the configured provider.
    pub(crate) fn provider(&self) -> &Name {
        &self.provider
    }

    /// Returns the accounts in the order of the configuration.
    pub(crate) fn accounts(&self) -> &[PoolAccount] {
        &self.accounts
    }

    /// Returns the index of the account with this name.
    pub fn index_of(&self, name: &str) -> Option<usize> {
        self.accounts.iter().position(|account| *account.name == *name)
    }

    /// Returns the accounts to try for a request, in order. Of the accounts that are cooling down,
    /// only the one that recovers first is tried, after all others.
    pub fn order(&self, query: AccountQuery<'_>, now: Instant) -> Vec<usize> {
        let AccountQuery { start, model, current, is_bound } = query;
        if let (Some(current), true, BoundPolicy::Stay) = (current, is_bound, self.options.bound) {
            return vec![current];
        }
        let mut order = self.ranking(start);
        if self.options.balance == Balance::LeastBusy {
            // The sort is stable, so the ranking decides between equally busy accounts.
            order.sort_by(|one, other| self.compare_load(*one, *other));
        }
        if let Some(current) = current {
            order.sort_by_key(|index| *index != current);
        }
        let states = lock(&self.states);
        let ends = |index: &usize| {
            let until = |model| states.get(&(*index, model)).and_then(|state| state.until);
            until(None).max(until(Some(Name::clone(model)))).filter(|end| *end > now)
        };
        let (cooling, mut usable): (Vec<usize>, Vec<usize>) =
            order.into_iter().partition(|index| ends(index).is_some());
        usable.extend(cooling.into_iter().min_by_key(ends));
        usable
    }

    /// Returns all accounts in the order in which new conversations with this start prefer them,
    /// whatever their load and state.
    pub(crate) fn ranking(&self, start: &Digest) -> Vec<usize> {
        let mut scores: Vec<(f64, usize)> = self
            .accounts
            .iter()
            .enumerate()
            .map(|(index, account)| (score(start, account), index))
            .collect();
        scores.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        scores.into_iter().map(|(_, index)| index).collect()
    }

    /// Compares the open requests of two accounts in proportion to their weights.
    fn compare_load(&self, one: usize, other: usize) -> Ordering {
        let load = |index: usize| {
            let open = self.open.get(index).map_or(0, |open| open.load(MemoryOrdering::Relaxed));
            u128::from(open) + 1
        };
        let weight = |index: usize| {
            u128::from(self.accounts.get(index).map_or(1, |account| account.weight.max(1)))
        };
        (load(one) * weight(other)).cmp(&(load(other) * weight(one)))
    }

    /// Counts a request of an account as open until the result is dropped.
    pub fn open_request(self: &Arc<Self>, index: usize) -> OpenRequest {
        if let Some(open) = self.open.get(index) {
            open.fetch_add(1, MemoryOrdering::Relaxed);
        }
        OpenRequest { pool: Arc::clone(self), index }
    }

    /// Returns the accounts that are cooling down, with the model if only requests for one model
    /// are affected, and the remaining time.
    pub(crate) fn cooling(&self, now: Instant) -> Vec<(Name, Option<Name>, Duration)> {
        let states = lock(&self.states);
        let cooling = states.iter().filter_map(|((index, model), state)| {
            let left = state.until?.checked_duration_since(now).filter(|left| !left.is_zero())?;
            let account = self.accounts.get(*index)?;
            Some((Arc::clone(&account.name), model.clone(), left))
        });
        let mut cooling: Vec<_> = cooling.collect();
        cooling.sort();
        cooling
    }

    /// Records the outcome of a request of an account. Returns whether the account starts to cool
    /// down.
    pub fn record(
        &self,
        index: usize,
        model: &Name,
        answer: &Result<UpstreamResponse, UpstreamError>,
        now: Instant,
    ) -> bool {
        let default = self.options.cooldown;
        let requested = |wait: Option<Duration>| wait.unwrap_or(default).min(LONGEST_COOLDOWN);
        let outcome = outcome_of(answer);
        if outcome == AccountOutcome::Unknown {
            return false;
        }
        let key = match outcome {
            AccountOutcome::Rejected => (index, None),
            AccountOutcome::Usable
            | AccountOutcome::Limited(_)
            | AccountOutcome::Forbidden
            | AccountOutcome::Failed(_)
            | AccountOutcome::Unknown => (index, Some(Name::clone(model))),
        };
        let mut states = lock(&self.states);
        if outcome == AccountOutcome::Usable {
            states.remove(&key);
            states.remove(&(index, None));
            return false;
        }
        if states.len() >= MOST_STATES && !states.contains_key(&key) {
            states.retain(|_, state| state.until.is_some_and(|until| until > now));
            if states.len() >= MOST_STATES {
                return false;
            }
        }
        let state = states.entry(key).or_default();
        state.failures = state.failures.saturating_add(1);
        let pause = match outcome {
            AccountOutcome::Usable | AccountOutcome::Unknown => None,
            AccountOutcome::Limited(wait) => Some(requested(wait)),
            AccountOutcome::Rejected => Some(REJECTED),
            AccountOutcome::Failed(Some(wait)) => Some(requested(Some(wait))),
            AccountOutcome::Forbidden => (state.failures >= FAILURES).then_some(REJECTED),
            AccountOutcome::Failed(None) => (state.failures >= FAILURES).then_some(default),
        };
        let Some(pause) = pause else { return false };
        state.failures = 0;
        let until = now + pause;
        state.until = Some(state.until.map_or(until, |known| known.max(until)));
        true
    }
}

/// Counts a request of an account as open until it is dropped.
#[derive(Debug)]
pub struct OpenRequest {
    pool: Arc<AccountPool>,
    index: usize,
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        if let Some(open) = self.pool.open.get(self.index) {
            open.fetch_sub(1, MemoryOrdering::Relaxed);
        }
    }
}

/// Returns a digest of the tenant, the end user and the first messages of the user. Later requests
/// of the conversation start with the same messages.
pub fn conversation_start(tenant: &Tenant, end_user: Option<&str>, call: Option<&Call>) -> Digest {
    let mut hasher = blake3::Hasher::new_derive_key("throughline 2026-11 start of a conversation");
    let mut add = |text: &str| {
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(text.as_bytes());
    };
    add(&tenant.0);
    add(end_user.unwrap_or_default());
    let items = call.into_iter().flat_map(|call| &call.items);
    for item in items.take_while(|item| item.role != Role::Assistant) {
        if let (Role::User, Body::Text(text)) = (item.role, &item.body) {
            add(text);
        }
    }
    *hasher.finalize().as_bytes()
}

/// Returns whether another account may succeed after a response with this status, although another
/// provider is not tried: the provider rejects the account.
pub(crate) fn rejects_account(status: u16) -> bool {
    matches!(status, 401..=403)
}

fn outcome_of(answer: &Result<UpstreamResponse, UpstreamError>) -> AccountOutcome {
    match answer {
        Ok(answer) => match answer.status {
            401 => AccountOutcome::Rejected,
            // A request that costs more than the remaining credit also gets the status 402.
            402 | 403 => AccountOutcome::Forbidden,
            429 => AccountOutcome::Limited(answer.retry_after(None)),
            408 | 500..=599 => AccountOutcome::Failed(answer.retry_after(None)),
            _ => AccountOutcome::Usable,
        },
        Err(UpstreamError::Resting { left, .. }) => AccountOutcome::Failed(Some(*left)),
        Err(
            UpstreamError::Unreachable { .. }
            | UpstreamError::TimedOut { .. }
            | UpstreamError::CredentialUnavailable { .. }
            | UpstreamError::Cut { .. },
        ) => AccountOutcome::Failed(None),
        Err(_) => AccountOutcome::Unknown,
    }
}

/// Returns the score of an account for a conversation: the account with the lowest score is
/// preferred. The score is exponentially distributed with the weight as its rate, so each account
/// is preferred in proportion to its weight.
fn score(start: &Digest, account: &PoolAccount) -> f64 {
    let mut hasher =
        blake3::Hasher::new_derive_key("throughline 2026-11 account of a conversation");
    hasher.update(start).update(account.name.as_bytes());
    let mut bytes = [0; 4];
    hasher.finalize_xof().fill(&mut bytes);
    // The value is greater than 0 and at most 1.
    let uniform = (f64::from(u32::from_le_bytes(bytes)) + 1.0) / (f64::from(u32::MAX) + 1.0);
    -uniform.ln() / f64::from(account.weight.max(1))
}

#[cfg(test)]
#[path = "account_pool_tests.rs"]
mod account_pool_tests;
