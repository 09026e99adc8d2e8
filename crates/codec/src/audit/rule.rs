//! What a rule says, and what is found where a request breaks it.

use std::borrow::Cow;
use std::ops::Range;

use throughline_core::{Node, Target, Wire};

use crate::audit::mend::Mend;

/// One way in which a provider refuses a request, or does less with it.
#[derive(Debug)]
pub struct Rule {
    /// Its stable name, as `anthropic/tool-loop-needs-thinking`.
    pub id: &'static str,
    /// The wire.
    pub wire: Wire,
    /// The gravest that it can be; single findings may be milder.
    pub severity: Severity,
    /// What is wrong, in a sentence.
    pub title: &'static str,
    /// Why the provider is like that, and how requests come to break it.
    pub why: &'static str,
    /// The provider's own words, with `…` where they depend on the request. Nothing where it says nothing, or where nobody
    /// knows what it says.
    pub provider_error: Option<&'static str>,
    /// What it is among the violations of a [`ReplayAudit`](throughline_core::ReplayAudit); nothing where it is not about
    /// reasoning that is replayed.
    pub breach: Option<Breach>,
    /// What to do about it.
    pub fix: &'static str,
    /// Whether it applies to that endpoint and model.
    pub applies: fn(&Target) -> bool,
    /// How it is known.
    pub evidence: &'static [Source],
    /// A request that breaks it, and the same request mended.
    pub example: Example,
}

/// How grave a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Worth knowing.
    Note,
    /// Accepted, but reasoning is lost, the model refuses to answer, or caches break.
    Degrade,
    /// Answered with an HTTP error.
    Refuse,
}

impl Severity {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Degrade => "degrade",
            Severity::Refuse => "refuse",
        }
    }
}

/// What a broken rule is among the documents' [`ReplayViolation`](throughline_core::ReplayViolation)s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breach {
    /// Reasoning that must come back does not.
    Missing,
    /// An element lacks its seal.
    Unsigned,
    /// A tool call lacks its seal.
    UnsignedCall,
    /// An element's seal does not fit it, or what stands before it.
    Invalid,
    /// An element was sealed by somebody else.
    Foreign,
    /// An element is in the pieces in which it was streamed.
    Fragmented,
}

/// Where a rule is known from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// What sort of evidence it is.
    pub kind: SourceKind,
    /// Its address, or else what it is called: a recording, a package and a name in it.
    pub at: &'static str,
}

impl Source {
    /// Its address, where it has one.
    pub fn url(&self) -> Option<&'static str> {
        self.at.starts_with("https://").then_some(self.at)
    }
}

/// What sort of evidence a rule rests on, the strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// Recorded traffic.
    Recorded,
    /// The vendor's own client types.
    Types,
    /// Vendor documentation.
    Documentation,
    /// A public issue report.
    Issue,
    /// The source of a public client.
    Client,
    /// A secondary page. Enough for a note only.
    Secondary,
}

impl SourceKind {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            SourceKind::Recorded => "recorded",
            SourceKind::Types => "types",
            SourceKind::Documentation => "documentation",
            SourceKind::Issue => "issue",
            SourceKind::Client => "client",
            SourceKind::Secondary => "secondary",
        }
    }
}

/// A request that breaks a rule, and the same request mended. The tests audit and repair them.
#[derive(Clone, Copy, Debug)]
pub struct Example {
    /// The provider's row.
    pub provider: &'static str,
    /// The model.
    pub model: &'static str,
    /// What came before: requests and responses in turn, as JSON.
    pub prior: &'static [&'static str],
    /// The request that breaks the rule, pretty-printed as people write it.
    pub failing: &'static str,
    /// The request that does not.
    pub mended: &'static str,
}

/// A place where a request breaks a rule.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The rule.
    pub rule: &'static Rule,
    /// How grave it is here.
    pub severity: Severity,
    /// The place, as the provider writes it.
    pub path: String,
    /// The place in the body's bytes.
    pub range: Range<usize>,
    /// What is wrong here, in a sentence.
    pub message: String,
    /// What the provider would answer here; nothing where it takes the request, or where its words are not known.
    pub provider_error: Option<Cow<'static, str>>,
    /// What to do here.
    pub fix: Cow<'static, str>,
    /// How the request can be mended here, if it can.
    pub mend: Option<Mend>,
}

impl Finding {
    /// `rule` is broken at `node`: `message` says how, in a sentence.
    pub fn at(rule: &'static Rule, node: Node<'_>, message: impl Into<String>) -> Self {
        Self::in_range(rule, node.range(), message)
    }

    /// `rule` is broken at that place of the body.
    pub fn in_range(rule: &'static Rule, range: Range<usize>, message: impl Into<String>) -> Self {
        Self {
            rule,
            severity: rule.severity,
            path: String::new(),
            range,
            message: message.into(),
            provider_error: rule.provider_error.map(Cow::Borrowed),
            fix: Cow::Borrowed(rule.fix),
            mend: None,
        }
    }

    /// The same at another path than that of its place: where something is missing from it.
    #[must_use]
    pub fn under(mut self, path: impl Into<String>) -> Self {
        self.path = path.into();
        self
    }

    /// The same, as grave as that.
    #[must_use]
    pub fn as_grave_as(mut self, severity: Severity) -> Self {
        self.severity = severity;
        self
    }

    /// The same with the provider's words for this place.
    #[must_use]
    pub fn answered(mut self, provider_error: impl Into<Cow<'static, str>>) -> Self {
        self.provider_error = Some(provider_error.into());
        self
    }

    /// The same where the provider's words are not known, or it has none.
    #[must_use]
    pub fn unanswered(mut self) -> Self {
        self.provider_error = None;
        self
    }

    /// The same with another advice than the rule's.
    #[must_use]
    pub fn advised(mut self, fix: impl Into<Cow<'static, str>>) -> Self {
        self.fix = fix.into();
        self
    }

    /// The same with a way to mend it.
    #[must_use]
    pub fn mended(mut self, mend: Option<Mend>) -> Self {
        self.mend = mend;
        self
    }
}
