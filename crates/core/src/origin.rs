//! Who made an Item, and to whom a Call goes.

use std::sync::Arc;

use crate::name::{Name, Wire};
use crate::profile::{Profile, Provider};

/// Who made an Item. `account` is a configured label and not a hash of the key: keys rotate, accounts do not.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The provider's row, as `anthropic` or `openrouter`.
    pub provider: Name,
    /// Where it answers: the same provider may sign differently at each of its endpoints.
    pub endpoint: Name,
    /// The configured label of the account.
    pub account: Name,
    /// The protocol that was spoken.
    pub wire: Wire,
    /// The model that was asked for.
    pub asked: Name,
    /// The model that says it answered; often a dated name of the one asked for.
    pub answered: Name,
    /// The model family, which decides who may read whose seals.
    pub family: Name,
    /// The upstream that a router chose, where it told.
    pub routed: Option<Name>,
}

/// To whom a Call goes: the origin that its Reply will have, and what that endpoint and model demand.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Who would be the author of the Reply.
    pub origin: Arc<Origin>,
    /// The endpoint's row.
    pub provider: Arc<Provider>,
    /// The model family's row.
    pub profile: Arc<Profile>,
}

impl Target {
    /// The model's name, as the provider calls it.
    pub fn model(&self) -> &str {
        &self.origin.asked
    }

    /// The same target with the model that turned out to answer.
    pub fn answered_by(&self, model: Option<&str>, routed: Option<Name>) -> Arc<Origin> {
        let model = model.unwrap_or(&self.origin.answered);
        if *model == *self.origin.answered && routed == self.origin.routed {
            return Arc::clone(&self.origin);
        }
        Arc::new(Origin { answered: Name::from(model), routed, ..Origin::clone(&self.origin) })
    }
}
