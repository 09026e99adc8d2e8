//! The catalog that a request is audited with: built-in, installed and user-defined entries.

use std::path::Path;
use std::sync::Arc;

use throughline_codec::{Catalog, CatalogError, Document};
use throughline_core::{Provider, Wire};
use throughline_json::Name;

use crate::args::CatalogArgs;
use crate::config::load_catalog;
use crate::input::Input;
use crate::print::failure::{Failure, Result};
use crate::print::text;

/// Model name to use if the input does not name a model.
pub(crate) const UNKNOWN: &str = "unknown";

pub(crate) struct RequestCatalog(Arc<Catalog>);

impl RequestCatalog {
    /// Loads the catalog in effect, extended by the profiles in a file.
    pub(crate) fn read(args: &CatalogArgs, profiles: Option<&Path>) -> Result<Self> {
        let installed = load_catalog(args.config.as_deref())?.shared.current();
        let Some(file) = profiles else { return Ok(Self(installed)) };
        let name = file.display();
        let catalog = installed.with_profiles(&text::read_file(file)?).map_err(|error| {
            Failure::Usage(match error {
                CatalogError::Syntax { line, message, .. } => format!("{name}:{line}: {message}"),
                error => format!("{name}: {error}"),
            })
        })?;
        Ok(Self(Arc::new(catalog)))
    }

    pub(crate) fn catalog(&self) -> &Catalog {
        &self.0
    }

    /// Returns the provider entry with this name and wire.
    pub(crate) fn named(&self, wire: &Wire, name: &str) -> Result<Arc<Provider>> {
        self.0.provider_on_wire(name, wire).ok_or_else(|| {
            let rows = self.0.providers().iter().filter(|row| row.wire == *wire);
            let names = rows.map(|row| &*row.name).collect::<Vec<_>>().join(", ");
            Failure::Usage(format!(
                "provider `{name}` does not support {wire}; use one of: {names}"
            ))
        })
    }

    /// Returns the first provider entry that uses the wire.
    pub(crate) fn default(&self, wire: &Wire) -> Result<Arc<Provider>> {
        let row = self.0.default_provider(wire);
        row.ok_or_else(|| Failure::Usage(format!("no provider in the catalog supports {wire}")))
    }

    /// Returns the provider entry most likely to serve the model, and prints a note if that entry
    /// is not the wire's default.
    pub(crate) fn likely_row(&self, wire: &Wire, model: &str) -> Result<Arc<Provider>> {
        let Some(row) = self.0.provider_for_model(wire, model) else { return self.default(wire) };
        if self.0.default_provider(wire).is_some_and(|first| first.name != row.name) {
            text::note(&format!("assuming provider {}; use --provider to change it", row.name));
        }
        Ok(row)
    }

    /// Returns the provider entry with this name. A recording may come from a provider that is not
    /// in the catalog; such a provider gets a generic entry for the wire.
    pub(crate) fn row_or_generic(&self, wire: &Wire, name: &str) -> Result<Arc<Provider>> {
        if let Some(row) = self.0.provider_on_wire(name, wire) {
            return Ok(row);
        }
        let plain =
            self.0.provider_on_wire("compatible", wire).map_or_else(|| self.default(wire), Ok)?;
        Ok(Arc::new(Provider { name: Name::from(name), ..Provider::clone(&plain) }))
    }

    /// Returns the provider's own wire if the provider does not support the detected wire and the
    /// document can be a request on the provider's wire.
    pub(crate) fn wire_of(&self, provider: &str, input: &Input) -> Option<Wire> {
        let guessed = throughline_codec::detect(&input.bytes)?;
        if self.0.provider_on_wire(provider, &guessed.wire).is_some() {
            return None;
        }
        let row = self.0.provider(provider)?;
        let kind = input.kind_or_request(Some(&row.wire)).ok()?;
        (kind.document == Document::Request).then(|| row.wire.clone())
    }
}
