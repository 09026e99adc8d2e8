//! The producer of an Item, and the target of a Call.

use std::sync::Arc;

use throughline_json::Name;

use crate::name::Wire;
use crate::profile::{Profile, Provider};

/// Separates the provider's name from the account's name in the label of an account that is one of
/// several at its provider, as in `openai#team-b`. Neither name contains the separator.
pub const ACCOUNT_SEPARATOR: char = '#';

/// The provider, endpoint and model that produced an Item. `account` is a configured label instead
/// of a hash of the API key, because keys rotate and accounts do not.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The provider's name, such as `anthropic` or `openrouter`.
    pub provider: Name,
    /// The endpoint URL. A provider may sign differently at each endpoint.
    pub endpoint: Name,
    /// The configured account label.
    pub account: Name,
    /// The wire that was used to call the model.
    pub wire: Wire,
    /// The model name in the request.
    pub asked: Name,
    /// The model named in the response, often a dated version of the requested model.
    pub answered: Name,
    /// The model family. Seals can be restricted to models that read Seals of this family.
    pub family: Name,
    /// The upstream provider that a router chose, if the response reports it.
    pub routed: Option<Name>,
}

/// The target of a Call: the Origin that the Call's Reply will have, and the requirements of the
/// endpoint and model.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// The Origin that the Reply will have.
    pub origin: Arc<Origin>,
    /// The endpoint's catalog entry.
    pub provider: Arc<Provider>,
    /// The model family's catalog entry.
    pub profile: Arc<Profile>,
}

impl Target {
    /// Returns the model name to send to the provider.
    pub fn model(&self) -> &str {
        &self.origin.asked
    }

    /// Returns the Origin for a response that names this model and upstream provider. `model`
    /// defaults to the requested model.
    pub fn answered_by(&self, model: Option<&str>, routed: Option<Name>) -> Arc<Origin> {
        let model = model.unwrap_or(&self.origin.answered);
        if *model == *self.origin.answered && routed == self.origin.routed {
            return Arc::clone(&self.origin);
        }
        Arc::new(Origin { answered: Name::from(model), routed, ..Origin::clone(&self.origin) })
    }
}
