//! The rules that providers enforce, and the findings that report violations.

use std::borrow::Cow;
use std::ops::Range;

use serde::Deserialize;
use throughline_core::{Target, Wire};
use throughline_json::{Node, words};

use crate::audit::fix::{Edit, Fix};

/// The address of the published documentation.
const BOOK: &str = "https://throughline.github.io/throughline";

/// A reason why a provider rejects or degrades a request.
#[derive(Debug)]
pub struct Rule {
    /// The stable id, for example `anthropic/tool-loop-needs-thinking`.
    pub id: &'static str,
    /// The wire whose requests the rule checks.
    pub wire: Wire,
    /// The highest severity of the rule's findings; individual findings may be less severe.
    pub severity: Severity,
    /// A one-sentence description of the problem.
    pub title: &'static str,
    /// What a violation causes, if the result depends on more than the severity.
    pub effect: Option<&'static str>,
    /// The reason for the provider's behaviour, and typical causes of the violation.
    pub why: &'static str,
    /// The provider's error text, with `…` for parts that depend on the request. `None` if the
    /// provider returns no error or its text is unknown.
    pub provider_error: Option<&'static str>,
    /// The corresponding violation in a [`ReplayAudit`](throughline_spec::ReplayAudit); `None` for
    /// rules that do not concern replayed reasoning.
    pub breach: Option<ViolationKind>,
    /// Advice on how to fix the request.
    pub fix: &'static str,
    /// Returns whether the rule applies to an endpoint and model.
    pub applies: fn(&Target) -> bool,
    /// The sources that document the rule.
    pub evidence: &'static [Source],
    /// A failing request and its repaired version.
    pub example: Example,
}

impl Rule {
    /// Returns the stable URL of the rule's page in the published documentation.
    pub fn url(&self) -> String {
        format!("{BOOK}/rules/{}.html", self.id)
    }
}

words! {
    /// The effect of a violation, in ascending order of severity.
    #[derive(PartialOrd, Ord, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    Severity {
        /// Informational: the finding does not affect the verdict.
        Note = "note",
        /// The request is accepted, but reasoning is lost, the model refuses to answer, or caches
        /// miss.
        Degrade = "degrade",
        /// The provider returns an HTTP error.
        Refuse = "refuse",
    }
}

/// The kind of [`ReplayViolation`](throughline_spec::ReplayViolation) that a rule reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ViolationKind {
    /// Required reasoning is missing.
    Missing,
    /// A reasoning element lacks its Seal.
    Unsigned,
    /// A tool call lacks its Seal.
    UnsignedCall,
    /// The Seal does not match its element or its prefix.
    Invalid,
    /// Another provider, account or model issued the Seal.
    Foreign,
    /// The request contains stream fragments instead of the complete element.
    Fragmented,
}

/// A source that documents a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// How strong the evidence is.
    pub kind: SourceKind,
    /// A URL, or a name: a recording, or a package and an identifier in it.
    pub at: &'static str,
}

impl Source {
    /// Returns the URL, if the source has one.
    pub fn url(&self) -> Option<&'static str> {
        self.at.starts_with("https://").then_some(self.at)
    }
}

words! {
    /// The kind of evidence, strongest first.
    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case")]
    SourceKind {
        /// Recorded traffic.
        Recorded = "recorded",
        /// The type definitions of the vendor's own client.
        Types = "types",
        /// Vendor documentation.
        Documentation = "documentation",
        /// A public issue report.
        Issue = "issue",
        /// The source of a public client.
        Client = "client",
        /// A secondary page, which justifies only a note.
        Secondary = "secondary",
    }
}

/// A request that violates a rule, and its repaired version. The tests audit and repair every
/// example.
#[derive(Clone, Copy, Debug)]
pub struct Example {
    /// The provider's name in the catalog.
    pub provider: &'static str,
    /// The model that the requests name.
    pub model: &'static str,
    /// The earlier exchanges as JSON, alternating between requests and responses.
    pub prior: &'static [&'static str],
    /// The violating request, pretty-printed.
    pub failing: &'static str,
    /// The repaired request.
    pub fixed: &'static str,
}

/// One violation of a rule by a request.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The rule that the request violates.
    pub rule: &'static Rule,
    /// The severity of this violation, which may be lower than the rule's.
    pub severity: Severity,
    /// The path of the violating value, in the provider's notation.
    pub path: String,
    /// The byte range of the violating value in the request body.
    pub range: Range<usize>,
    /// The problem at this path, in a sentence.
    pub message: String,
    /// The expected provider error; `None` if the request is accepted or the text is unknown.
    pub provider_error: Option<Cow<'static, str>>,
    /// Advice on how to fix this violation.
    pub fix: Cow<'static, str>,
    /// Edits that fix the violation; `None` if it cannot be fixed automatically.
    pub auto_fix: Option<Fix>,
}

impl Finding {
    /// Creates a finding at `node`; `message` describes the violation in a sentence.
    pub fn at(rule: &'static Rule, node: Node<'_>, message: impl Into<String>) -> Self {
        Self::in_range(rule, node.range(), message)
    }

    /// Creates a finding at a byte range of the body.
    pub fn in_range(rule: &'static Rule, range: Range<usize>, message: impl Into<String>) -> Self {
        Self {
            rule,
            severity: rule.severity,
            path: String::new(),
            range,
            message: message.into(),
            provider_error: rule.provider_error.map(Cow::Borrowed),
            fix: Cow::Borrowed(rule.fix),
            auto_fix: None,
        }
    }

    /// Overrides the path, for values that are missing from the request.
    #[must_use]
    pub fn with_path(mut self, path: impl Into<String>) -> Self {
        self.path = path.into();
        self
    }

    /// Overrides the severity, which defaults to the rule's.
    #[must_use]
    pub fn with_severity(mut self, severity: Severity) -> Self {
        self.severity = severity;
        self
    }

    /// Overrides the expected provider error, which defaults to the rule's.
    #[must_use]
    pub fn with_provider_error(mut self, provider_error: impl Into<Cow<'static, str>>) -> Self {
        self.provider_error = Some(provider_error.into());
        self
    }

    /// Removes the expected provider error, because it is unknown or does not occur.
    #[must_use]
    pub fn without_provider_error(mut self) -> Self {
        self.provider_error = None;
        self
    }

    /// Sets the expected provider error if the finding is a rejection, and removes it otherwise.
    #[must_use]
    pub fn with_rejection_error(mut self, error: impl Into<Cow<'static, str>>) -> Self {
        self.provider_error = (self.severity == Severity::Refuse).then(|| error.into());
        self
    }

    /// Overrides the advice, which defaults to the rule's.
    #[must_use]
    pub fn with_fix(mut self, fix: impl Into<Cow<'static, str>>) -> Self {
        self.fix = fix.into();
        self
    }

    /// Sets the automatic fix; `None` removes it.
    #[must_use]
    pub fn with_auto_fix(mut self, fix: impl Into<Option<Fix>>) -> Self {
        self.auto_fix = fix.into();
        self
    }

    /// Sets an automatic fix that makes these edits; `description` states their effect.
    #[must_use]
    pub fn fixed_by(self, description: impl Into<String>, edits: impl Into<Vec<Edit>>) -> Self {
        self.with_auto_fix(Fix::new(description, edits))
    }

    /// Sets an automatic fix that removes an element or a member.
    #[must_use]
    pub fn fixed_by_removing(self, node: Node<'_>, description: impl Into<String>) -> Self {
        self.with_auto_fix(Fix::removal(node, description))
    }
}
