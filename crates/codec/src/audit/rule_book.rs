//! Builds the rules of a wire from three sources:
//!
//! - the texts and the evidence in `rules/<wire>.toml`,
//! - the example in `rules/examples/<id>/`: `failing.json`, `fixed.json`, and the earlier requests
//!   and responses `prior-1.json`, `prior-2.json`, …,
//! - the id and the condition in Rust, declared with [`declare_rules!`].
//!
//! An entry with `derive` names a rule of the Messages API and inherits every field that it does
//! not set itself.

use std::sync::LazyLock;

use serde::Deserialize;
use throughline_core::{Target, Wire};

use crate::audit::rule::{Example, Rule, Severity, Source, SourceKind, ViolationKind};

#[cfg(test)]
#[path = "rule_book_tests.rs"]
mod rule_book_tests;

/// Declares the rules of a wire, in listing order. Each declaration has the name of a static, the
/// rule's id, an optional condition, and the numbers of the `prior` documents. A rule without a
/// condition applies to all targets.
macro_rules! declare_rules {
    (@condition) => { |_| true };
    (@condition $applies:expr) => { $applies };
    // Includes a file without its final line break.
    (@text $($path:literal),+) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/rules/", $($path),+)).trim_ascii_end()
    };
    (@example $id:literal, $($name:literal),+) => {
        declare_rules!(@text "examples/", $id, "/", $($name,)+ ".json")
    };
    ($wire:expr, $file:literal; $(
        $name:ident = $id:literal $(if $applies:expr)? $(, prior $($number:literal)+)?;
    )+) => {
        static FILE: std::sync::LazyLock<$crate::audit::rule_book::RuleFile> =
            std::sync::LazyLock::new(|| {
                $crate::audit::rule_book::RuleFile::parse(declare_rules!(@text $file))
            });
        $(
            pub(crate) static $name: std::sync::LazyLock<$crate::audit::Rule> =
                std::sync::LazyLock::new(|| FILE.rule(
                    $wire,
                    $id,
                    declare_rules!(@condition $($applies)?),
                    const { &[$($(declare_rules!(@example $id, "prior-", $number)),+)?] },
                    declare_rules!(@example $id, "failing"),
                    declare_rules!(@example $id, "fixed"),
                ));
        )+
        /// The rules of this wire, in declaration order.
        pub(crate) static RULES: std::sync::LazyLock<Vec<&'static $crate::audit::Rule>> =
            std::sync::LazyLock::new(|| vec![$(&*$name),+]);
    };
}

pub(crate) use declare_rules;

/// The content of a `rules/<wire>.toml` file.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct RuleFile {
    /// The prefix that the provider adds to the error texts of derived rules.
    #[serde(default)]
    error_prefix: String,
    rule: Vec<RuleRow>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RuleRow {
    id: String,
    derive: Option<String>,
    severity: Option<Severity>,
    title: Option<String>,
    effect: Option<String>,
    why: Option<String>,
    provider_error: Option<String>,
    violation: Option<ViolationKind>,
    fix: Option<String>,
    #[serde(default)]
    evidence: Vec<SourceRow>,
    example: ExampleRow,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SourceRow {
    kind: SourceKind,
    at: String,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExampleRow {
    provider: String,
    model: String,
}

impl RuleFile {
    /// Parses a built-in file. A test parses the same text, so the empty fallback is never used.
    pub(crate) fn parse(toml: &str) -> Self {
        toml::from_str(toml).unwrap_or_default()
    }

    /// Returns the entry with this id. A test checks that all entries exist, so the empty fallback
    /// is never used.
    fn row(&'static self, id: &str) -> &'static RuleRow {
        static EMPTY: LazyLock<RuleRow> = LazyLock::new(RuleRow::default);
        self.rule.iter().find(|row| row.id == id).unwrap_or(&EMPTY)
    }

    /// Builds a rule from its entry in the TOML file, its condition and its example.
    pub(crate) fn rule(
        &'static self,
        wire: Wire,
        id: &'static str,
        applies: fn(&Target) -> bool,
        prior: &'static [&'static str],
        failing: &'static str,
        fixed: &'static str,
    ) -> Rule {
        let row = self.row(id);
        let base = row.derive.as_ref().map_or(row, |base| MESSAGES_API.row(base));
        let text = |own: &'static Option<String>, inherited: &'static Option<String>| {
            own.as_deref().or(inherited.as_deref()).unwrap_or_default()
        };
        let provider_error = row.provider_error.as_deref().or_else(|| {
            let error = base.provider_error.as_ref()?;
            Some(format!("{}{error}", self.error_prefix).leak())
        });
        let evidence = if row.evidence.is_empty() { &base.evidence } else { &row.evidence };
        let evidence = evidence.iter().map(|source| Source { kind: source.kind, at: &source.at });
        Rule {
            id,
            wire,
            severity: row.severity.or(base.severity).unwrap_or(Severity::Note),
            title: text(&row.title, &base.title),
            effect: row.effect.as_deref().or(base.effect.as_deref()),
            why: text(&row.why, &base.why),
            provider_error,
            breach: row.violation.or(base.violation),
            fix: text(&row.fix, &base.fix),
            applies,
            // Rules live until the process exits, so leaking the evidence is safe.
            evidence: evidence.collect::<Vec<_>>().leak(),
            example: Example {
                provider: &row.example.provider,
                model: &row.example.model,
                prior,
                failing,
                fixed,
            },
        }
    }
}

/// The rules of the Messages API, from which other wires derive their rules.
static MESSAGES_API: LazyLock<RuleFile> =
    LazyLock::new(|| RuleFile::parse(declare_rules!(@text "anthropic.toml")));
