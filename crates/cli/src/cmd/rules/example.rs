//! Evaluates the example of a rule: the request that breaks the rule, after its earlier exchanges.

use bytes::Bytes;
use throughline_codec::{CodecError, Document, Rule, Transcript, codec};
use throughline_core::{Request, Target};
use throughline_json::{Name, Tree};

use crate::input::Input;
use crate::input::past::PriorBuilder;
use crate::input::rows::RequestCatalog;

/// Calls `check` with the failing request of a rule and its target. Returns `None` if the request
/// cannot be read or the check fails.
pub(crate) fn on_failing_example<T>(
    rule: &Rule,
    rows: &RequestCatalog,
    check: impl FnOnce(&Transcript<'_>, &Target) -> Result<T, CodecError>,
) -> Option<T> {
    let example = &rule.example;
    let codec = codec(&rule.wire)?;
    let target = rows.catalog().target_for(example.provider, example.model, "default").ok()?;
    let mut past = PriorBuilder::new(&target, rows, "default");
    for document in example.prior {
        let bytes = Bytes::from_static(document.as_bytes());
        past.add(&Input { name: rule.id.to_owned(), bytes }).ok()?;
    }
    let failing = Request {
        path: Name::from(codec.path(&target, false)),
        headers: Vec::new(),
        body: Bytes::from_static(example.failing.as_bytes()),
    };
    check(&Transcript::new(codec, &failing).with_prior(&past.prior), &target).ok()
}

/// Returns whether an earlier document of an example is a request. The others are responses.
pub(crate) fn is_request(rule: &Rule, document: &'static str) -> bool {
    let tree = Tree::parse(document).ok().zip(codec(&rule.wire));
    tree.and_then(|(tree, codec)| codec.recognise(tree.root())) == Some(Document::Request)
}
