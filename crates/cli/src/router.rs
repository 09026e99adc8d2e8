//! Resolves model names and builds the provider endpoints, according to the configuration.

use std::sync::Arc;

use throughline_codec::Catalog;
use throughline_core::{Provider, Wire};
use throughline_json::Name;
use throughline_provider::{
    CredentialSource, Endpoint as ProviderEndpoint, EndpointOptions, InvalidEndpoint,
};
use throughline_server::{ModelRouter, RouteTarget};

use crate::config::{Config, Credential, Endpoint, Routes, shown_variable};

/// The simulated models that model lists and error messages mention.
const SIMULATED: &[&str] =
    &["sim/claude-sonnet-5-5", "sim/gpt-5.6-sol", "sim/gemini-3.8-flash", "sim/deepseek-v4-pro"];

/// Resolves model names with the configured routes.
pub(crate) struct ConfigRouter {
    pub(crate) routes: Routes,
    pub(crate) catalog: Arc<Catalog>,
}

impl ConfigRouter {
    fn route_target(&self, provider: &str, model: &str) -> Option<RouteTarget> {
        let settings = self.routes.provider(provider)?;
        let row = settings.row_for(model, &self.catalog)?;
        let (endpoint, is_callers) = match settings.endpoint {
            Endpoint::Simulators => (simulated(&row), false),
            Endpoint::Remote(_) => {
                (Arc::clone(&settings.name), settings.credential.may_be_callers())
            }
        };
        let account = Arc::clone(&settings.name);
        Some(RouteTarget { endpoint, account, is_callers, provider: row, model: Name::from(model) })
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

    fn of_wire(&self, wire: &Wire) -> Option<RouteTarget> {
        // OpenAI serves both of its wires under the same paths.
        let wires: &[Wire] = match wire.as_str() {
            "openai-chat" | "openai-responses" => &[Wire::OPENAI_RESPONSES, Wire::OPENAI_CHAT],
            _ => std::slice::from_ref(wire),
        };
        let rows = wires.iter().filter_map(|wire| self.catalog.default_provider(wire));
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
) -> Result<Vec<ProviderEndpoint>, InvalidEndpoint> {
    let timeouts = &config.gateway.timeouts;
    let options = EndpointOptions {
        connect: timeouts.connect,
        first_byte: timeouts.first_byte,
        between_bytes: timeouts.idle,
        ..EndpointOptions::default()
    };
    let mut endpoints = Vec::new();
    let mut add = |name: Name, row: &Arc<Provider>, address: &str, source| {
        let endpoint = ProviderEndpoint::new(name, Arc::clone(row), address, source)?;
        endpoints.push(endpoint.with_options(options));
        Ok(())
    };
    for settings in config.routes.providers() {
        match &settings.endpoint {
            Endpoint::Remote(row) => {
                let (name, source) = (Arc::clone(&settings.name), source(&settings.credential));
                add(name, row, &row.base_url, source)?;
            }
            Endpoint::Simulators => {
                for row in Catalog::builtin().providers() {
                    let address = format!("{simulators}/at/{}", row.name);
                    let key = throughline_core::Credential::new("throughline");
                    add(simulated(row), row, &address, CredentialSource::Key(key))?;
                }
            }
        }
    }
    Ok(endpoints)
}

/// Converts a configured credential to the form that the HTTP client uses.
fn source(credential: &Credential) -> CredentialSource {
    match credential {
        Credential::Callers => CredentialSource::Caller,
        Credential::Open => CredentialSource::Open,
        Credential::Own { key, .. } => CredentialSource::Key(key.clone()),
        Credential::Aws(keys) => CredentialSource::Aws(keys.clone()),
        Credential::Missing { variable } => {
            let variable = shown_variable(variable);
            CredentialSource::Missing(format!("no API key: {variable} is not set").into())
        }
    }
}
