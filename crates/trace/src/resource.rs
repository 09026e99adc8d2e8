//! Attributes of the process that exports spans.

use throughline_json::Name;

/// Value of `service.name`, and the name of the instrumentation scope.
pub(crate) const NAME: &str = "throughline";
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Attributes of this process: the resource of OpenTelemetry. By default, the resource contains the
/// service's name and version and describes the exporter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    attributes: Vec<(Name, Name)>,
}

impl Default for Resource {
    fn default() -> Self {
        let attributes = [
            ("service.name", NAME),
            ("service.version", VERSION),
            ("telemetry.sdk.name", NAME),
            ("telemetry.sdk.language", "rust"),
            ("telemetry.sdk.version", VERSION),
        ];
        let attributes = attributes.map(|(key, value)| (Name::from(key), Name::from(value)));
        Self { attributes: attributes.into() }
    }
}

impl Resource {
    /// Sets an attribute, and replaces an attribute with the same key.
    pub fn set(&mut self, key: &str, value: &str) {
        match self.attributes.iter_mut().find(|(existing, _)| &**existing == key) {
            Some((_, existing)) => *existing = Name::from(value),
            None => self.attributes.push((Name::from(key), Name::from(value))),
        }
    }

    /// Returns the keys and values of the attributes.
    pub fn attributes(&self) -> &[(Name, Name)] {
        &self.attributes
    }
}
