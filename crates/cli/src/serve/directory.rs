//! Whom a model's name reaches, as the configuration says; and the endpoints that there are.

use std::sync::Arc;

use throughline_codec::Catalog;
use throughline_core::{Name, Provider, Wire};
use throughline_provider::{Endpoint as Line, EndpointOptions, InvalidEndpoint, Source};
use throughline_server::{Directory, Reached};

use crate::config::{Credential, Endpoint, Routes, Timeouts, shown_variable};

/// The models that the simulators are asked for most.
const SIMULATED: &[&str] =
    &["sim/claude-sonnet-4-5", "sim/gpt-5.2", "sim/gemini-3-pro-preview", "sim/deepseek-v4-pro"];

/// The configuration as a directory.
pub(crate) struct Phonebook {
    routes: Routes,
    catalog: Arc<Catalog>,
}

impl Phonebook {
    pub(crate) fn new(routes: Routes, catalog: Arc<Catalog>) -> Self {
        Self { routes, catalog }
    }

    fn reached(&self, provider: &str, model: &str) -> Option<Reached> {
        let settings = self.routes.provider(provider)?;
        let row = settings.row_for(model, &self.catalog)?;
        let (endpoint, is_callers) = match settings.endpoint {
            Endpoint::Simulators => (simulated(&row), false),
            Endpoint::Remote(_) => {
                (Arc::clone(&settings.name), settings.credential.may_be_callers())
            }
        };
        let account = Arc::clone(&settings.name);
        Some(Reached { endpoint, account, is_callers, provider: row, model: Name::from(model) })
    }
}

impl Directory for Phonebook {
    fn reach(&self, model: &str) -> Result<Vec<Reached>, String> {
        let found = self.routes.resolve(model).map_err(|error| error.to_string())?;
        let reached = found.iter().filter_map(|to| self.reached(&to.provider, &to.model));
        let reached: Vec<Reached> = reached.collect();
        if reached.is_empty() {
            let known = SIMULATED.join(", ");
            return Err(format!("there is no model `{model}`: the simulators have {known}"));
        }
        Ok(reached)
    }

    fn of_wire(&self, wire: &Wire) -> Option<Reached> {
        // OpenAI has one set of paths for both of its wires.
        let wires = match wire.as_str() {
            "openai-chat" | "openai-responses" => vec![Wire::OPENAI_RESPONSES, Wire::OPENAI_CHAT],
            _ => vec![wire.clone()],
        };
        let rows = wires.iter().filter_map(|wire| self.catalog.default_provider(wire));
        let rows: Vec<Arc<Provider>> = rows.collect();
        let is_declared = |row: &&Arc<Provider>| {
            self.routes.provider(&row.name).is_some_and(|settings| settings.line.is_some())
        };
        let row = rows.iter().find(is_declared).or(rows.first())?;
        self.reached(&row.name, "")
    }

    fn models(&self) -> Vec<Name> {
        let aliases = self.routes.routes().iter().map(|route| Arc::clone(&route.model));
        // A pattern names no model.
        let own = self.routes.providers().iter().flat_map(|provider| &provider.models);
        let own = own.filter(|model| !model.contains('*')).cloned();
        let simulated = SIMULATED.iter().map(|model| Name::from(*model));
        aliases.chain(own).chain(simulated).collect()
    }
}

/// What the simulators' endpoint for a row is called.
fn simulated(row: &Provider) -> Name {
    Name::from(format!("sim {}", row.name))
}

/// The endpoints of the configuration, and the simulators at that address.
pub(crate) fn endpoints(
    routes: &Routes,
    timeouts: &Timeouts,
    catalog: &Catalog,
    simulators: &str,
) -> Result<Vec<Line>, InvalidEndpoint> {
    let options = EndpointOptions {
        connect: timeouts.connect,
        first_byte: timeouts.first_byte,
        between_bytes: timeouts.idle,
        ..EndpointOptions::default()
    };
    let mut lines = Vec::new();
    for settings in routes.providers() {
        match &settings.endpoint {
            Endpoint::Remote(row) => {
                let (name, source) = (Arc::clone(&settings.name), source(&settings.credential));
                let line = Line::new(name, Arc::clone(row), &row.base_url, source)?;
                lines.push(line.with(options));
            }
            Endpoint::Simulators => {
                for row in catalog.providers() {
                    let at = format!("{simulators}/at/{}", row.name);
                    let key = throughline_core::Credential::new("throughline");
                    let line = Line::new(simulated(row), Arc::clone(row), &at, Source::Key(key))?;
                    lines.push(line.with(options));
                }
            }
        }
    }
    Ok(lines)
}

/// Whose key goes along, as an endpoint knows it.
fn source(credential: &Credential) -> Source {
    match credential {
        Credential::Callers => Source::Caller,
        Credential::Open => Source::Open,
        Credential::Own { key, .. } => Source::Key(throughline_core::Credential::new(key.reveal())),
        Credential::Aws(keys) => Source::Aws(keys.clone()),
        Credential::Missing { variable } => {
            let variable = shown_variable(variable);
            Source::Missing(format!("its key is missing, since {variable} is not set").into())
        }
    }
}
