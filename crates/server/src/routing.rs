//! Maps model names to endpoints. The application that embeds the gateway provides the mapping.

use std::sync::Arc;

use throughline_core::{ACCOUNT_SEPARATOR, Provider, Wire};
use throughline_json::Name;

use crate::account_pool::AccountPool;

/// Resolves model names to the endpoints that serve them.
pub trait ModelRouter: Send + Sync {
    /// Returns the targets of a model name in the order they are tried. The error is a message that
    /// lists the alternatives.
    fn reach(&self, model: &str) -> Result<Vec<RouteTarget>, String>;

    /// Returns the first target of a model name; `None` if the name is unknown. Unlike
    /// [`ModelRouter::reach`], an implementation need not look for alternatives.
    fn first_target(&self, model: &str) -> Option<RouteTarget> {
        self.reach(model).ok()?.into_iter().next()
    }

    /// Returns the endpoint for requests on a wire that name no known model, such as requests for
    /// files and batches.
    fn of_wire(&self, wire: &Wire) -> Option<RouteTarget>;

    /// Lists the model names that the application defines: routes, configured models and simulated
    /// models.
    fn models(&self) -> Vec<Name>;

    /// Lists the providers whose own models clients can request. The default implementation returns
    /// none.
    fn sources(&self) -> Vec<ModelSource> {
        Vec::new()
    }

    /// Returns why no configured provider can be used, for `/readyz`; `None` if one can be used.
    /// The default implementation returns `None`.
    fn outage(&self) -> Option<&'static str> {
        None
    }

    /// Returns the accounts among which requests to a target are distributed; `None` if the target
    /// has only one account.
    fn pool(&self, _target: &RouteTarget) -> Option<Arc<AccountPool>> {
        None
    }

    /// Returns all pools of accounts. The default implementation returns none.
    fn pools(&self) -> Vec<Arc<AccountPool>> {
        Vec::new()
    }
}

/// A provider whose own models clients can request.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSource {
    /// The name that precedes the slash in `NAME/model`.
    pub name: Name,
    /// The provider's endpoint. Its model is empty.
    pub target: RouteTarget,
    /// Whether the provider accepts only the caller's own key. Its models are then listed only to
    /// callers that send a key in the provider's dialect, and its own list is not fetched.
    pub needs_callers_key: bool,
}

/// A target of a model name: a model at an endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteTarget {
    /// The name by which [`Upstream`](throughline_core::Upstream) selects the endpoint. An account
    /// of a pool has its own endpoint, such as `openai#team-b`.
    pub endpoint: Name,
    /// The provider account that owns the Seals issued by the endpoint.
    pub account: Name,
    /// Whether requests use the caller's own key, and therefore the caller's own account.
    pub is_callers: bool,
    /// The provider's entry in the catalog.
    pub provider: Arc<Provider>,
    /// The provider's name for the model.
    pub model: Name,
}

impl RouteTarget {
    /// Returns the targets for the accounts of a pool, in the order of the configuration.
    pub fn at_accounts(&self, pool: &AccountPool) -> Vec<RouteTarget> {
        pool.accounts().iter().map(|account| self.at_account(pool, &account.name)).collect()
    }

    /// Returns the target for one account of a pool. An account with the provider's name has the
    /// label that the provider's only account has without a pool, so that it can read its earlier
    /// Seals.
    fn at_account(&self, pool: &AccountPool, account: &Name) -> RouteTarget {
        let endpoint = self.endpoint_name();
        let label = if account == pool.provider() {
            Name::from(endpoint)
        } else {
            Name::from(format!("{}{ACCOUNT_SEPARATOR}{account}", pool.provider()))
        };
        let endpoint = Name::from(format!("{endpoint}{ACCOUNT_SEPARATOR}{account}"));
        RouteTarget { endpoint, account: label, is_callers: false, ..self.clone() }
    }

    /// Returns the endpoint's name without the account of a pool.
    pub fn endpoint_name(&self) -> &str {
        self.endpoint.split(ACCOUNT_SEPARATOR).next().unwrap_or(&self.endpoint)
    }

    /// Returns the name of the account in its pool; `None` if the target has only one account.
    pub fn account_name(&self) -> Option<&str> {
        self.endpoint.split_once(ACCOUNT_SEPARATOR).map(|(_, account)| account)
    }

    /// Returns the response headers that name the provider, its account and its model.
    pub(crate) fn response_headers(&self) -> Vec<(Name, Name)> {
        let mut headers =
            vec![(Name::from("x-throughline-provider"), Name::from(self.endpoint_name()))];
        let account = self.account_name().map(Name::from);
        headers.extend(account.map(|account| (Name::from("x-throughline-account"), account)));
        if !self.model.is_empty() {
            headers.push((Name::from("x-throughline-model"), self.model.clone()));
        }
        headers
    }

    /// Returns the provider that is charged for requests. Prices, usage and metrics refer to this
    /// name.
    pub fn charged_provider(&self) -> Name {
        match self.account_name() {
            Some(_) => Name::from(self.endpoint_name()),
            None => Arc::clone(&self.account),
        }
    }
}
