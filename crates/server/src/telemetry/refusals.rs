//! Remembers what an account was refused, so that the gateway does not request it in every call.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use throughline_core::Origin;
use throughline_json::Name;
use tokio::time::Instant;

/// How long a refusal is remembered. Later the request is tried again, because the provider may
/// have changed the account's rights.
const MEMORY: Duration = Duration::from_mins(10);

/// Maximum number of refusals that are remembered.
const MAX_REFUSALS: usize = 1024;

/// The account of an endpoint, and the model that was called.
type RefusedCaller = (Name, Name, Name);

/// The accounts whose requests for one feature were refused, with the time of the refusal.
#[derive(Debug, Default)]
pub(crate) struct RecentRefusals(Mutex<HashMap<RefusedCaller, Instant>>);

impl RecentRefusals {
    /// Returns whether this account was refused recently.
    pub(crate) fn contains(&self, origin: &Origin) -> bool {
        let refusals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        refusals.get(&key(origin)).is_some_and(|time| time.elapsed() < MEMORY)
    }

    /// Remembers a refusal. If too many are known, the oldest one is forgotten.
    pub(crate) fn add(&self, origin: &Origin) {
        let mut refusals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        refusals.insert(key(origin), Instant::now());
        if refusals.len() > MAX_REFUSALS {
            refusals.retain(|_, time| time.elapsed() < MEMORY);
        }
        if refusals.len() > MAX_REFUSALS
            && let Some((oldest, _)) = refusals.iter().min_by_key(|(_, time)| **time)
        {
            let oldest = oldest.clone();
            refusals.remove(&oldest);
        }
    }
}

fn key(origin: &Origin) -> RefusedCaller {
    (origin.endpoint.clone(), origin.account.clone(), origin.asked.clone())
}

#[cfg(test)]
mod tests {
    use throughline_core::Wire;

    use super::*;

    fn origin(account: &str, model: &str) -> Origin {
        Origin {
            provider: "openai".into(),
            endpoint: "https://api.openai.com".into(),
            account: account.into(),
            wire: Wire::OPENAI_RESPONSES,
            asked: model.into(),
            answered: model.into(),
            family: "gpt-5".into(),
            routed: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn refusals_expire() {
        let refusals = RecentRefusals::default();
        refusals.add(&origin("one", "gpt-5.2"));
        assert!(refusals.contains(&origin("one", "gpt-5.2")));
        assert!(!refusals.contains(&origin("two", "gpt-5.2")));
        assert!(!refusals.contains(&origin("one", "gpt-5.4")));
        tokio::time::advance(MEMORY).await;
        assert!(!refusals.contains(&origin("one", "gpt-5.2")));
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_refusal_is_forgotten_first() {
        let refusals = RecentRefusals::default();
        for account in 0..=MAX_REFUSALS {
            refusals.add(&origin(&account.to_string(), "gpt-5.2"));
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert!(!refusals.contains(&origin("0", "gpt-5.2")));
        assert!(refusals.contains(&origin("1", "gpt-5.2")));
        assert!(refusals.contains(&origin(&MAX_REFUSALS.to_string(), "gpt-5.2")));
    }
}
