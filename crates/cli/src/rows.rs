//! The rows that a request is judged by: the built-in ones, with the user's own on top.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use throughline_codec::{Catalog, CatalogError, Document};
use throughline_core::{Name, Provider, Wire};

use crate::failure::Failure;
use crate::input::{self, Input};
use crate::text;

/// What a model is called when nobody said.
pub(crate) const UNKNOWN: &str = "unknown";

/// Providers and model families.
pub(crate) struct Rows(Cow<'static, Catalog>);

impl Rows {
    /// The built-in rows, with those of a file.
    pub(crate) fn read(profiles: Option<&Path>) -> Result<Self, Failure> {
        let builtin = Catalog::builtin();
        let Some(file) = profiles else { return Ok(Self(Cow::Borrowed(builtin))) };
        let name = file.display();
        let text =
            std::fs::read_to_string(file).with_context(|| format!("{name} cannot be read"))?;
        let catalog = builtin.with_profiles(&text).map_err(|error| {
            Failure::Usage(match error {
                CatalogError::Syntax { line, message, .. } => format!("{name}:{line}: {message}"),
                CatalogError::Twice { .. }
                | CatalogError::Nameless { .. }
                | CatalogError::UnknownProvider { .. } => format!("{name}: {error}"),
            })
        })?;
        Ok(Self(Cow::Owned(catalog)))
    }

    pub(crate) fn catalog(&self) -> &Catalog {
        &self.0
    }

    /// The row of that name on that wire.
    pub(crate) fn named(&self, wire: &Wire, name: &str) -> Result<Arc<Provider>, Failure> {
        let row = self.0.provider_on(name, wire);
        row.ok_or_else(|| input::unknown_provider(&self.0, name, wire))
    }

    /// The first row of that wire.
    pub(crate) fn default(&self, wire: &Wire) -> Result<Arc<Provider>, Failure> {
        let row = self.0.default_provider(wire);
        row.ok_or_else(|| Failure::Usage(format!("no provider speaks {wire}")))
    }

    /// The row that most likely serves a model, which is said where the wire has many.
    pub(crate) fn likely(&self, wire: &Wire, model: &str) -> Result<Arc<Provider>, Failure> {
        let Some(row) = self.0.provider_of(wire, model) else { return self.default(wire) };
        if self.0.default_provider(wire).is_some_and(|first| first.name != row.name) {
            let message =
                format!("taken to go to {}; say --provider if it goes elsewhere", row.name);
            text::note(&message);
        }
        Ok(row)
    }

    /// The row of that name, or one of the wire's plainest kind under it: a recording may be from anybody.
    pub(crate) fn like(&self, wire: &Wire, name: &str) -> Result<Arc<Provider>, Failure> {
        if let Some(row) = self.0.provider_on(name, wire) {
            return Ok(row);
        }
        let plain =
            self.0.provider_on("compatible", wire).map_or_else(|| self.default(wire), Ok)?;
        Ok(Arc::new(Provider { name: Name::from(name), ..Provider::clone(&plain) }))
    }

    /// The wire that a named provider must be meant on, where the document could be on that one.
    pub(crate) fn wire_of(&self, provider: &str, input: &Input) -> Option<Wire> {
        let guessed = throughline_codec::guess(&input.bytes)?;
        if self.0.provider_on(provider, &guessed.wire).is_some() {
            return None;
        }
        let row = self.0.provider(provider)?;
        let kind = input.kind_on(&row.wire).ok()?;
        (kind.document == Document::Request).then(|| row.wire.clone())
    }
}
