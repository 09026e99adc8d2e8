//! Shared checks of a wire's rules: each rule reports its own failing example and accepts the fixed
//! example.

use std::collections::BTreeSet;

use bytes::Bytes;
use throughline_core::{Request, Target};
use throughline_json::{Name, Tree};

use crate::audit::{Example, PriorExchanges, Rule, Severity, Transcript, Verdict, audit};
use crate::repair::{RepairLevel, repair};
use crate::{Audit, Catalog, Codec, DecodeContext, Document};

pub(crate) fn target(provider: &str, model: &str) -> Target {
    Catalog::builtin().target_for(provider, model, "work").unwrap()
}

pub(crate) fn request(codec: &dyn Codec, target: &Target, body: &str) -> Request {
    let path = Name::from(codec.path(target, false));
    Request { path, headers: Vec::new(), body: Bytes::from(body.to_owned()) }
}

/// Decodes alternating requests and responses as earlier exchanges with `target`.
pub(crate) fn prior(codec: &dyn Codec, target: &Target, documents: &[&str]) -> PriorExchanges {
    let mut prior = PriorExchanges::new();
    let mut context = DecodeContext::of(target.clone());
    for document in documents {
        let tree = Tree::parse((*document).to_owned()).unwrap();
        match codec.recognise(tree.root()) {
            Some(Document::Request) => {
                let unrouted = Request { path: Name::from(""), ..request(codec, target, document) };
                // An earlier request may have used another model.
                context = match codec.model_of(&unrouted) {
                    Some(model) => DecodeContext::of(self::target(&target.provider.name, &model)),
                    None => DecodeContext::of(target.clone()),
                };
                prior
                    .push_request(codec, &request(codec, target, document), context.clone())
                    .unwrap();
            }
            Some(Document::Response | Document::Event) | None => {
                let body = Bytes::from((*document).to_owned());
                prior.push_response(codec, &body, context.clone()).unwrap();
            }
        }
    }
    prior
}

/// Audits a request body together with its earlier exchanges.
pub(crate) fn audit_body(
    codec: &dyn Codec,
    to: &Target,
    before: &PriorExchanges,
    body: &str,
) -> Audit {
    let request = request(codec, to, body);
    audit(&Transcript::new(codec, &request).with_prior(before), to).unwrap()
}

/// Rules that check headers. The examples have no headers, so header rules report only notes for
/// the examples.
const HEADER_RULES: &[&str] = &["anthropic/binding-needs-beta"];

/// Returns the violated rules and their severity, in the order of the findings.
pub(crate) fn violated_rules(audit: &Audit) -> Vec<(&'static str, Severity)> {
    audit.findings.iter().map(|finding| (finding.rule.id, finding.severity)).collect()
}

/// Checks that each rule's failing example violates only that rule, that the fixed example passes,
/// and that repair fixes the failing example.
pub(crate) fn check_examples(codec: &dyn Codec) {
    let mut ids = BTreeSet::new();
    for rule in codec.rules() {
        assert!(ids.insert(rule.id), "two rules have the id {}", rule.id);
        assert_eq!(rule.wire, codec.wire(), "{}", rule.id);
        check_texts(rule);
        let Example { provider, model, prior: documents, failing, fixed } = rule.example;
        let to = target(provider, model);
        assert!((rule.applies)(&to), "{} does not apply to its own example", rule.id);
        let before = prior(codec, &to, documents);
        let found = audit_body(codec, &to, &before, failing);
        let rests_on_headers = |id: &str| HEADER_RULES.contains(&id);
        let severity = if rests_on_headers(rule.id) { Severity::Note } else { rule.severity };
        let reported = violated_rules(&found).into_iter();
        let reported: Vec<_> =
            reported.filter(|(id, _)| *id == rule.id || !rests_on_headers(id)).collect();
        assert_eq!(reported, [(rule.id, severity)], "{}: {:#?}", rule.id, found.findings);
        for finding in &found.findings {
            assert!(!finding.path.is_empty(), "{} reports no path", rule.id);
        }
        let after = audit_body(codec, &to, &before, fixed);
        let still: Vec<_> =
            violated_rules(&after).into_iter().filter(|(id, _)| *id == rule.id).collect();
        assert_eq!(still, [], "{}: the repaired example still violates the rule", rule.id);
        assert_ne!(after.verdict(), Verdict::Refuse, "{}: {:#?}", rule.id, after.findings);
        if severity == Severity::Refuse {
            check_repair(codec, &to, &before, rule);
        }
    }
}

/// Checks that repair turns the failing example into the fixed example, apart from white space.
fn check_repair(codec: &dyn Codec, to: &Target, before: &PriorExchanges, rule: &Rule) {
    let request = request(codec, to, rule.example.failing);
    let transcript = Transcript::new(codec, &request).with_prior(before);
    let repaired = repair(&transcript, to, RepairLevel::Refused).unwrap();
    assert_ne!(repaired.audit.verdict(), Verdict::Refuse, "{}: {:#?}", rule.id, repaired);
    let canonical = |text: &Bytes| Tree::parse(text.clone()).unwrap().root().canonical();
    let expected = Bytes::from_static(rule.example.fixed.as_bytes());
    assert_eq!(canonical(&repaired.request.body), canonical(&expected), "{}", rule.id);
}

fn check_texts(rule: &Rule) {
    assert!(rule.title.ends_with('.') && rule.fix.ends_with('.'), "{}", rule.id);
    assert!(rule.why.len() > 120 && !rule.why.contains("  "), "{}", rule.id);
    assert!(!rule.evidence.is_empty(), "{} has no evidence", rule.id);
    // A rule has no provider error if its wording is uncertain or the provider accepts the request.
    if let Some(error) = rule.provider_error {
        assert_eq!(rule.severity, Severity::Refuse, "{}", rule.id);
        assert!(
            error.split('…').any(|fragment| fragment.len() > 12),
            "{} has a provider error that is too short to be real",
            rule.id
        );
    }
}
