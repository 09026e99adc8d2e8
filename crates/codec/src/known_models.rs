//! Known models, with the sizes and names that clients read from model lists.
//!
//! The rows are in `models.toml`. They are separate from the profiles, because no request is
//! encoded or audited with them.

use std::sync::LazyLock;

use serde::Deserialize;
use throughline_core::best_match;

/// A known model.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownModel {
    /// The vendor's name for the model.
    pub name: String,
    /// The name to show to people.
    pub title: String,
    /// Patterns for the names of the model at any provider.
    pub patterns: Vec<String>,
    /// The catalog entry of the provider whose list contains the model, if any.
    pub provider: Option<String>,
    /// The maximum number of input tokens in one request, if known.
    pub context: Option<u64>,
    /// The maximum number of output tokens in one response, if known.
    pub output: Option<u64>,
    /// The release date, such as `2026-07-24`, if known.
    pub released: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelFile {
    model: Vec<KnownModel>,
}

const MODELS: &str = include_str!("models.toml");

impl KnownModel {
    /// Returns all known models, newest first for each vendor.
    pub fn all() -> &'static [KnownModel] {
        // A test parses the same text, so the empty fallback is never used.
        static ALL: LazyLock<Vec<KnownModel>> = LazyLock::new(|| {
            toml::from_str(MODELS).map(|file: ModelFile| file.model).unwrap_or_default()
        });
        &ALL
    }

    /// Returns the row that describes a model best; `None` if no pattern matches its name.
    pub fn find(model: &str) -> Option<&'static KnownModel> {
        let patterns = Self::all()
            .iter()
            .flat_map(|row| row.patterns.iter().map(move |pattern| (pattern.as_str(), row)));
        best_match(patterns, model)
    }

    /// Returns whether `model` is this model or a dated version of it, and not another model of its
    /// series.
    pub fn is_named(&self, model: &str) -> bool {
        let bare = model.rsplit('/').next().unwrap_or(model);
        let bare = bare.rsplit_once("anthropic.").map_or(bare, |(_, bare)| bare);
        let rest = bare.to_ascii_lowercase();
        let rest = rest.strip_prefix(&*self.name.to_ascii_lowercase()).map(str::to_owned);
        rest.is_some_and(|rest| {
            let rest = rest.trim_start_matches(['-', '@']);
            let digits = rest.chars().take_while(char::is_ascii_digit).count();
            rest.is_empty() || digits == 8 || rest.starts_with("v1")
        })
    }
}

#[cfg(test)]
mod tests {
    use throughline_core::is_valid_pattern;

    use super::*;
    use crate::Catalog;

    #[test]
    fn file_is_valid() {
        let file = toml::from_str::<ModelFile>(MODELS).unwrap();
        assert_eq!(file.model.len(), KnownModel::all().len());
        for row in &file.model {
            assert!(row.patterns.iter().all(|pattern| is_valid_pattern(pattern)), "{row:?}");
            let provider = row.provider.as_ref();
            let is_known = |name: &String| Catalog::builtin().provider(name).is_some();
            assert!(provider.is_none_or(is_known), "{row:?}");
            assert!(row.context >= row.output, "{row:?}");
        }
    }

    #[test]
    fn every_row_describes_its_own_name() {
        for row in KnownModel::all() {
            let found = KnownModel::find(&row.name).map(|found| &found.name);
            assert_eq!(found, Some(&row.name));
            assert!(row.is_named(&row.name), "{row:?}");
        }
    }

    #[test]
    fn names_of_other_providers_and_later_versions_have_sizes() {
        let context = |model: &str| KnownModel::find(model).and_then(|row| row.context);
        assert_eq!(context("us.anthropic.claude-sonnet-4-5-20250929-v1:0"), Some(200_000));
        assert_eq!(context("anthropic/claude-opus-5.5"), Some(1_000_000));
        assert_eq!(context("claude-opus-4-1@20250805"), Some(200_000));
        assert_eq!(context("claude-opus-7"), Some(1_000_000));
        assert_eq!(context("my-own-model"), None);
    }

    #[test]
    fn only_the_model_itself_has_its_title() {
        let sonnet = KnownModel::find("claude-sonnet-4-5").unwrap();
        for name in [
            "claude-sonnet-4-5-20250929",
            "claude-sonnet-4-5@20250929",
            "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
            "sim/claude-sonnet-4-5",
        ] {
            assert!(sonnet.is_named(name), "{name}");
        }
        for name in ["claude-sonnet-4-6", "claude-sonnet-4-5-mini", "claude"] {
            assert!(!sonnet.is_named(name), "{name}");
        }
    }
}
