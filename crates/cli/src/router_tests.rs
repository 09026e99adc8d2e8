//! Tests of routing while the catalog changes.

use throughline_codec::SharedCatalog;
use throughline_core::Wire;
use throughline_server::ModelRouter as _;

use super::ConfigRouter;
use crate::config::{Routes, builtin_providers};

#[test]
fn update_does_not_change_the_default_provider_of_a_wire() {
    let catalog = SharedCatalog::default();
    let (providers, _) = builtin_providers(&catalog.current(), &|_| None);
    let router = ConfigRouter::new(Routes::new(providers, Vec::new()), catalog.clone());
    let endpoint =
        || router.of_wire(&Wire::ANTHROPIC_MESSAGES).map(|target| target.endpoint.to_string());
    assert_eq!(endpoint().as_deref(), Some("anthropic"));
    // With this row, another provider is the first one of the wire.
    let row = "[[provider]]\nname = \"anthropic\"\nwire = \"openai-chat\"\n\
               base-url = \"https://api.anthropic.com\"\n";
    catalog.replace(catalog.current().with_providers(row).unwrap());
    let first = catalog.current().default_provider(&Wire::ANTHROPIC_MESSAGES).unwrap();
    assert_ne!(&*first.name, "anthropic");
    assert_eq!(endpoint().as_deref(), Some("anthropic"));
}

/// A router with these environment variables and no configuration file.
fn router_with(variables: &'static [(&'static str, &'static str)]) -> ConfigRouter {
    let catalog = SharedCatalog::default();
    let variable = |name: &str| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    let (providers, _) = builtin_providers(&catalog.current(), &variable);
    ConfigRouter::new(Routes::new(providers, Vec::new()), catalog)
}

#[test]
fn providers_with_a_key_are_sources_of_models() {
    let sources = router_with(&[("OPENAI_API_KEY", "k"), ("GEMINI_API_KEY", "k")]).sources();
    let with_key = sources.iter().filter(|source| !source.needs_callers_key);
    let names: Vec<&str> = with_key.map(|source| &*source.name).collect();
    // `openai-chat` has the same key and the same models as `openai`.
    assert_eq!(names, ["openai", "gemini"]);
    let anthropic = sources.iter().find(|source| &*source.name == "anthropic").unwrap();
    assert!(anthropic.needs_callers_key);
    assert_eq!(&*anthropic.target.model, "");
    assert!(!sources.iter().any(|source| &*source.name == "ollama"), "no server is configured");
    assert!(!sources.iter().any(|source| &*source.name == "sim"));
}
