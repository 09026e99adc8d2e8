//! Resolves model names and builds the provider endpoints, according to the configuration.

use std::sync::Arc;
use std::time::Duration;

use throughline_codec::{Catalog, SharedCatalog};
use throughline_core::{ACCOUNT_SEPARATOR, Provider, Wire};
use throughline_json::Name;
use throughline_provider::{
    CredentialSource, Endpoint as ProviderEndpoint, EndpointOptions, InvalidEndpoint,
};
use throughline_server::{AccountPool, ModelRouter, ModelSource, RouteTarget};

use crate::config::{Config, Credential, Endpoint, PoolSettings, ProviderSettings, Routes};
use crate::credentials::SharedCredentials;

#[cfg(test)]
#[path = "router_tests.rs"]
mod router_tests;

/// The simulated models that model lists and error messages mention.
const SIMULATED: &[&str] =
    &["sim/claude-sonnet-5-5", "sim/gpt-5.6-sol", "sim/gemini-3.8-flash", "sim/deepseek-v4-pro"];

/// Maximum total delay of the retries at one account of a pool.
const LONGEST_WAIT_IN_POOL: Duration = Duration::from_secs(2);

/// Resolves model names with the configured routes.
pub(crate) struct ConfigRouter {
    routes: Routes,
    catalog: SharedCatalog,
    /// The catalog from which the configured rows were taken.
    configured: Arc<Catalog>,
    /// The pools of accounts. A vendor's entries share one pool.
    pools: Vec<(Arc<PoolSettings>, Arc<AccountPool>)>,
}

impl ConfigRouter {
    /// Creates a router for routes that were configured with the current catalog.
    pub(crate) fn new(routes: Routes, catalog: SharedCatalog) -> Self {
        let configured = catalog.current();
        let mut pools: Vec<(Arc<PoolSettings>, Arc<AccountPool>)> = Vec::new();
        for settings in routes.providers().iter().filter_map(|provider| provider.pool.as_ref()) {
            let accounts = settings.usable();
            let is_known = pools.iter().any(|(known, _)| Arc::ptr_eq(known, settings));
            if !is_known && !accounts.is_empty() {
                let PoolSettings { provider, options, .. } = &**settings;
                let pool = AccountPool::new(Arc::clone(provider), accounts, options.clone());
                pools.push((Arc::clone(settings), Arc::new(pool)));
            }
        }
        Self { routes, catalog, configured, pools }
    }

    /// Takes over the pools of the previous router whose settings are the same. They keep their
    /// cooldowns and the numbers of their open requests.
    pub(crate) fn with_pools_of(mut self, previous: &Self) -> Self {
        for (settings, pool) in &mut self.pools {
            if let Some((_, known)) = previous.pools.iter().find(|(known, _)| known == settings) {
                *pool = Arc::clone(known);
            }
        }
        self
    }

    /// Returns the pool and the account's index in it, for the endpoint of an account; `None` for
    /// any other endpoint.
    pub(crate) fn pool_account(&self, endpoint: &str) -> Option<(Arc<AccountPool>, usize)> {
        let (provider, account) = endpoint.split_once(ACCOUNT_SEPARATOR)?;
        let pool = self.pool_of(provider)?;
        let index = pool.index_of(account)?;
        Some((pool, index))
    }

    fn pool_of(&self, provider: &str) -> Option<Arc<AccountPool>> {
        let settings = self.routes.provider(provider)?.pool.as_ref()?;
        let pool = self.pools.iter().find(|(known, _)| Arc::ptr_eq(known, settings));
        pool.map(|(_, pool)| Arc::clone(pool))
    }

    fn route_target(&self, provider: &str, model: &str) -> Option<RouteTarget> {
        let settings = self.routes.provider(provider)?;
        let catalog = self.catalog.current();
        let row = self.with_current_dialect(settings.row_for(model, &catalog)?, &catalog);
        let (endpoint, is_callers) = match settings.endpoint {
            Endpoint::Simulators => (simulated(&row), false),
            Endpoint::Remote(_) => {
                (Arc::clone(&settings.name), settings.credential.may_be_callers())
            }
        };
        let account = Arc::clone(&settings.name);
        let target =
            RouteTarget { endpoint, account, is_callers, provider: row, model: Name::from(model) };
        // Requests that are not distributed use the first account of a pool.
        let Some(first) = settings.pool.as_ref().and_then(|pool| pool.first()) else {
            return Some(target);
        };
        let accounts = self.pool(&target).map(|pool| target.at_accounts(&pool)).unwrap_or_default();
        let unusable = || RouteTarget {
            endpoint: account_endpoint(&settings.name, &first.name),
            ..target.clone()
        };
        Some(accounts.into_iter().next().unwrap_or_else(unusable))
    }

    /// Applies an updated dialect to a configured row. The address and the credentials of an
    /// endpoint never change while the process runs, so its wire must be the same.
    fn with_current_dialect(&self, row: Arc<Provider>, catalog: &Arc<Catalog>) -> Arc<Provider> {
        if Arc::ptr_eq(catalog, &self.configured) {
            return row;
        }
        let known =
            |catalog: &Catalog| catalog.provider(&row.name).filter(|it| it.wire == row.wire);
        match (known(&self.configured), known(catalog)) {
            (Some(old), Some(new)) if old.dialect == row.dialect && new.dialect != row.dialect => {
                let dialect = new.dialect.clone();
                Arc::new(Provider { dialect, ..Provider::clone(&row) })
            }
            (_, _) => row,
        }
    }
}

impl ModelRouter for ConfigRouter {
    fn reach(&self, model: &str) -> Result<Vec<RouteTarget>, String> {
        let destinations = self.routes.resolve(model).map_err(|error| error.to_string())?;
        let targets = destinations
            .iter()
            .filter_map(|destination| self.route_target(&destination.provider, &destination.model));
        let targets: Vec<RouteTarget> = targets.collect();
        if targets.is_empty() {
            let known = SIMULATED.join(", ");
            return Err(format!("there is no model `{model}`; the simulators provide {known}"));
        }
        Ok(targets)
    }

    fn first_target(&self, model: &str) -> Option<RouteTarget> {
        let destinations = self.routes.find(model)?;
        let mut targets = destinations
            .iter()
            .filter_map(|destination| self.route_target(&destination.provider, &destination.model));
        targets.next()
    }

    fn of_wire(&self, wire: &Wire) -> Option<RouteTarget> {
        // OpenAI serves both of its wires under the same paths.
        let wires: &[Wire] = match wire.as_str() {
            "openai-chat" | "openai-responses" => &[Wire::OPENAI_RESPONSES, Wire::OPENAI_CHAT],
            _ => std::slice::from_ref(wire),
        };
        // The defaults stay the same while the process runs: with another default, callers' keys
        // would reach another address.
        let rows = wires.iter().filter_map(|wire| self.configured.default_provider(wire));
        let rows: Vec<Arc<Provider>> = rows.collect();
        let is_declared = |row: &&Arc<Provider>| {
            self.routes.provider(&row.name).is_some_and(|settings| settings.line.is_some())
        };
        let row = rows.iter().find(is_declared).or(rows.first())?;
        self.route_target(&row.name, "")
    }

    fn models(&self) -> Vec<Name> {
        let aliases = self.routes.routes().iter().map(|route| Arc::clone(&route.model));
        // Patterns are not model names, so they are not listed.
        let configured = self.routes.providers().iter().flat_map(|provider| &provider.models);
        let configured = configured.filter(|model| !model.contains('*')).cloned();
        let simulated = SIMULATED.iter().map(|model| Name::from(*model));
        aliases.chain(configured).chain(simulated).collect()
    }

    fn sources(&self) -> Vec<ModelSource> {
        let mut sources: Vec<ModelSource> = Vec::new();
        let mut keys: Vec<Option<Name>> = Vec::new();
        for settings in self.routes.providers() {
            let Endpoint::Remote(row) = &settings.endpoint else { continue };
            let needs_callers_key = match &settings.credential {
                Credential::Own { .. } | Credential::Aws(_) | Credential::Dynamic(_) => false,
                Credential::Callers => true,
                // A server that needs no key may not exist unless it is configured.
                Credential::Open if settings.is_configured() => false,
                Credential::Open | Credential::Missing { .. } => continue,
            };
            // Further built-in entries of a vendor serve the same models on another wire.
            let is_repeated =
                settings.line.is_none() && row.key_env.is_some() && keys.contains(&row.key_env);
            let target = self.route_target(&settings.name, "").filter(|_| !is_repeated);
            let Some(target) = target else { continue };
            keys.push(row.key_env.clone());
            let name = Arc::clone(&settings.name);
            sources.push(ModelSource { name, target, needs_callers_key });
        }
        sources
    }

    fn outage(&self) -> Option<&'static str> {
        let mut configured = self.routes.providers().iter().filter(|it| it.line.is_some());
        let first = configured.next()?;
        let lacks_key =
            |settings: &ProviderSettings| matches!(settings.credential, Credential::Missing { .. });
        let is_out = lacks_key(first) && configured.all(lacks_key);
        is_out.then_some("no configured provider has a key")
    }

    fn pool(&self, target: &RouteTarget) -> Option<Arc<AccountPool>> {
        self.pool_of(target.endpoint_name())
    }

    fn pools(&self) -> Vec<Arc<AccountPool>> {
        self.pools.iter().map(|(_, pool)| Arc::clone(pool)).collect()
    }
}

/// Returns the name of the endpoint of one account of a pool.
pub(crate) fn account_endpoint(provider: &str, account: &str) -> Name {
    Name::from(format!("{provider}{ACCOUNT_SEPARATOR}{account}"))
}

/// Returns the name of the endpoint that simulates a provider.
fn simulated(row: &Provider) -> Name {
    Name::from(format!("sim {}", row.name))
}

/// Builds the configured endpoints and the simulated endpoints; `simulators` is the simulators'
/// base URL.
pub(crate) fn endpoints(
    config: &Config,
    simulators: &str,
    credentials: &SharedCredentials,
) -> Result<Vec<ProviderEndpoint>, InvalidEndpoint> {
    let timeouts = &config.gateway.timeouts;
    let options = EndpointOptions {
        connect: timeouts.connect,
        first_byte: timeouts.first_byte,
        between_bytes: timeouts.idle,
        ..EndpointOptions::default()
    };
    let mut endpoints = Vec::new();
    let mut add = |name: Name, row: &Arc<Provider>, address: &str, source, options| {
        let endpoint = ProviderEndpoint::new(name, Arc::clone(row), address, source)?;
        endpoints.push(endpoint.with_options(options));
        Ok(())
    };
    for settings in config.routes.providers() {
        match &settings.endpoint {
            Endpoint::Remote(row) => {
                let Some(pool) = &settings.pool else {
                    let (name, source) =
                        (Arc::clone(&settings.name), credentials.source(&settings.credential));
                    add(name, row, &row.base_url, source, options)?;
                    continue;
                };
                let mut options = options;
                if pool.usable().len() > 1 {
                    // Another account may respond sooner than this account after a long delay.
                    options.retry.total_wait = LONGEST_WAIT_IN_POOL;
                }
                for account in &pool.accounts {
                    let name = account_endpoint(&settings.name, &account.name);
                    let source = credentials.source(&account.credential);
                    add(name, row, &row.base_url, source, options)?;
                }
            }
            Endpoint::Simulators => {
                for row in config.catalog.shared.current().providers() {
                    let address = format!("{simulators}/at/{}", row.name);
                    let key = throughline_core::Credential::new("throughline");
                    add(simulated(row), row, &address, CredentialSource::Key(key), options)?;
                }
            }
        }
    }
    Ok(endpoints)
}
