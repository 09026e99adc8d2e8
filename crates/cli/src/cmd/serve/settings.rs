//! Describes the configuration of a running gateway for the console.
//!
//! Every tenant may read the description, so it contains no secrets, file paths or addresses.

use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};
use throughline_json::Json;
use throughline_server::SettingsReport;

use crate::cmd::config_show::{ConfigValue, address, is_own, route_targets, values};
use crate::config::Config;
use crate::config::retention::shown_age;
use crate::config::routes::{AccountSettings, Credential, Endpoint, ProviderSettings, Route};
use crate::print::failure::Result;

/// The sections and keys whose values contain no secrets, file paths or addresses.
const PUBLIC: [&str; 4] = ["agents.", "gateway.", "server.allow_open", "server.log"];

/// The description of the configuration in effect, which a reload replaces.
pub(super) struct ServedSettings(Mutex<Value>);

impl ServedSettings {
    pub(super) fn new(config: &Config) -> Result<Self> {
        Ok(Self(Mutex::new(describe(config)?)))
    }

    /// Replaces the description after a reload.
    pub(super) fn replace(&self, config: &Config) -> Result<()> {
        let description = describe(config)?;
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = description;
        Ok(())
    }
}

impl SettingsReport for ServedSettings {
    fn settings(&self) -> Json {
        Json::from(&*self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn describe(config: &Config) -> Result<Value> {
    let mut values = values(config)?;
    let is_public = |value: &ConfigValue| {
        PUBLIC.iter().any(|prefix| value.key.starts_with(prefix))
            // Patterns of paths may name objects of the operator's account.
            && value.key != "gateway.passthrough"
    };
    values.retain(is_public);
    let providers = config.routes.providers().iter().filter(|provider| is_own(provider));
    let providers: Vec<Value> = providers.map(provider).collect();
    let route = |route: &Route| json!({ "model": route.model, "targets": route_targets(route) });
    let routes: Vec<Value> = config.routes.routes().iter().map(route).collect();
    let ages = config.retention.by_name().into_iter();
    let ages: Vec<Value> =
        ages.map(|(name, age)| json!({ "class": name, "age": age.map(shown_age) })).collect();
    let tracing = &config.tracing;
    let sinks = tracing.sinks.iter().filter(|_| tracing.enabled);
    let sinks: Vec<Value> =
        sinks.map(|sink| json!({ "name": sink.name, "kind": sink.kind.as_str() })).collect();
    Ok(json!({
        "values": values,
        "providers": providers,
        "routes": routes,
        "catalog": catalog(config),
        "retention": { "classes": ages, "interval": shown_age(config.retention.interval) },
        "sinks": sinks,
    }))
}

fn provider(provider: &ProviderSettings) -> Value {
    let account = |account: &AccountSettings| {
        let AccountSettings { name, credential, weight } = account;
        json!({ "name": name, "weight": weight, "key": key_state(credential) })
    };
    let accounts = provider.pool.as_ref().map(|pool| pool.accounts.iter().map(account));
    let is_simulated = provider.endpoint == Endpoint::Simulators;
    json!({
        "name": provider.name,
        "wire": address(provider).0,
        "key": if is_simulated { "none" } else { key_state(&provider.credential) },
        "models": provider.models,
        "accounts": accounts.map(Iterator::collect::<Vec<Value>>).unwrap_or_default(),
        "is_configured": provider.is_configured(),
    })
}

/// Returns where the key of a provider comes from, without the key and its location.
fn key_state(credential: &Credential) -> &'static str {
    match credential {
        Credential::Callers => "caller",
        Credential::Open => "optional",
        Credential::Own { .. } | Credential::Aws(_) => "set",
        Credential::Dynamic(_) => "source",
        Credential::Missing { .. } => "missing",
    }
}

fn catalog(config: &Config) -> Value {
    let (installed, current) = (&config.catalog, config.catalog.shared.current());
    json!({
        "version": current.version().map(|version| version.to_string()),
        "is_updated": installed.file.is_some(),
        "problem": installed.problem.is_some(),
        "providers": current.providers().len(),
        "profiles": current.profiles().len(),
    })
}
