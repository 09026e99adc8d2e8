//! What every wire's rules must do, for the tests of each: find their own example, and be content with it mended.

use std::collections::BTreeSet;

use bytes::Bytes;
use throughline_core::{Name, Request, Target, Tree};

use crate::audit::{Example, Prior, Rule, Severity, Transcript, Verdict, audit};
use crate::repair::{Reach, repair};
use crate::{Asked, Audit, Catalog, Codec, Document};

/// The target of an example.
pub(crate) fn target(provider: &str, model: &str) -> Target {
    Catalog::builtin().target_for(provider, model, "work").unwrap()
}

/// A request to that target.
pub(crate) fn request(codec: &dyn Codec, target: &Target, body: &str) -> Request {
    let path = Name::from(codec.path(target, false));
    Request { path, headers: Vec::new(), body: Bytes::from(body.to_owned()) }
}

/// Requests and responses that were exchanged with that target.
pub(crate) fn prior(codec: &dyn Codec, target: &Target, documents: &[&str]) -> Prior {
    let mut prior = Prior::new();
    let mut asked = Asked::of(target.clone());
    for document in documents {
        let tree = Tree::parse((*document).to_owned()).unwrap();
        match codec.recognise(tree.root()) {
            Some(Document::Request) => {
                let bare = Request { path: Name::from(""), ..request(codec, target, document) };
                // It may have gone to another model than the one that is asked now.
                asked = match codec.model_of(&bare) {
                    Some(model) => Asked::of(self::target(&target.provider.name, &model)),
                    None => Asked::of(target.clone()),
                };
                prior
                    .push_request(codec, &request(codec, target, document), asked.clone())
                    .unwrap();
            }
            Some(Document::Response | Document::Event) | None => {
                let body = Bytes::from((*document).to_owned());
                prior.push_response(codec, &body, asked.clone()).unwrap();
            }
        }
    }
    prior
}

/// What is found in a request, with what came before.
pub(crate) fn audited(codec: &dyn Codec, to: &Target, before: &Prior, body: &str) -> Audit {
    let request = request(codec, to, body);
    audit(&Transcript::of(codec, &request).after(before), to).unwrap()
}

/// Rules about headers, which an example does not have: without them they only note.
const RESTS_ON_HEADERS: &[&str] = &["anthropic/binding-needs-beta"];

/// The rules that were broken, with how gravely, in the order of the findings.
pub(crate) fn broken(audit: &Audit) -> Vec<(&'static str, Severity)> {
    audit.findings.iter().map(|finding| (finding.rule.id, finding.severity)).collect()
}

/// Every rule finds its own example and nothing else in it; its mended form is taken; repair finds a way.
pub(crate) fn check_examples(codec: &dyn Codec) {
    let mut ids = BTreeSet::new();
    for rule in codec.rules() {
        assert!(ids.insert(rule.id), "two rules are called {}", rule.id);
        assert_eq!(rule.wire, codec.wire(), "{}", rule.id);
        check_texts(rule);
        let Example { provider, model, prior: documents, failing, mended } = rule.example;
        let to = target(provider, model);
        assert!((rule.applies)(&to), "{} does not apply to its own example", rule.id);
        let before = prior(codec, &to, documents);
        let found = audited(codec, &to, &before, failing);
        let rests_on_headers = |id: &str| RESTS_ON_HEADERS.contains(&id);
        let severity = if rests_on_headers(rule.id) { Severity::Note } else { rule.severity };
        let told = broken(&found).into_iter();
        let told: Vec<_> = told.filter(|(id, _)| *id == rule.id || !rests_on_headers(id)).collect();
        assert_eq!(told, [(rule.id, severity)], "{}: {:#?}", rule.id, found.findings);
        for finding in &found.findings {
            assert!(!finding.path.is_empty(), "{} names no place", rule.id);
        }
        let after = audited(codec, &to, &before, mended);
        let still: Vec<_> = broken(&after).into_iter().filter(|(id, _)| *id == rule.id).collect();
        assert_eq!(still, [], "{}: the mended example breaks it still", rule.id);
        assert_ne!(after.verdict(), Verdict::Refuse, "{}: {:#?}", rule.id, after.findings);
        if severity == Severity::Refuse {
            check_repair(codec, &to, &before, rule);
        }
    }
}

/// Repair makes what the example calls mended, white space aside.
fn check_repair(codec: &dyn Codec, to: &Target, before: &Prior, rule: &Rule) {
    let request = request(codec, to, rule.example.failing);
    let transcript = Transcript::of(codec, &request).after(before);
    let repaired = repair(&transcript, to, Reach::Refused).unwrap();
    assert_ne!(repaired.audit.verdict(), Verdict::Refuse, "{}: {:#?}", rule.id, repaired);
    let canonical = |text: &Bytes| Tree::parse(text.clone()).unwrap().root().canonical();
    let wanted = Bytes::from_static(rule.example.mended.as_bytes());
    assert_eq!(canonical(&repaired.request.body), canonical(&wanted), "{}", rule.id);
}

fn check_texts(rule: &Rule) {
    assert!(rule.title.ends_with('.') && rule.fix.ends_with('.'), "{}", rule.id);
    assert!(rule.why.len() > 120 && !rule.why.contains("  "), "{}", rule.id);
    assert!(!rule.evidence.is_empty(), "{} rests on nothing", rule.id);
    // What is only dimly known is left unsaid; what is taken is not answered with an error.
    if let Some(error) = rule.provider_error {
        assert_eq!(rule.severity, Severity::Refuse, "{}", rule.id);
        assert!(error.split('…').any(|words| words.len() > 12), "{} invents words", rule.id);
    }
}
