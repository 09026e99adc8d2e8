//! What the tests of both wires of the Claudes share.

use std::sync::Arc;

use bytes::Bytes;
use throughline_core::{Name, Request, Target, Tree};

use crate::{
    Asked, Audit, Catalog, Codec, Document, Finding, Prior, Reach, Repair, Transcript, audit,
    repair,
};

/// A request about to be sent, with all that is known of it.
pub(crate) struct Bench {
    pub(crate) codec: &'static dyn Codec,
    pub(crate) target: Target,
    pub(crate) prior: Prior,
    pub(crate) request: Request,
    pub(crate) knows_headers: bool,
    pub(crate) account_created: Option<jiff::Timestamp>,
}

impl Bench {
    pub(crate) fn new(codec: &'static dyn Codec, provider: &str, model: &str, body: &str) -> Self {
        let target = target(provider, model);
        let path = Name::from(codec.path(&target, false));
        let request = Request { path, headers: Vec::new(), body: Bytes::from(body.to_owned()) };
        let (prior, knows_headers, account_created) = (Prior::new(), false, None);
        Self { codec, target, prior, request, knows_headers, account_created }
    }

    /// The same after these requests and responses. A request that names no model is for the same one.
    pub(crate) fn after(mut self, documents: &[&str]) -> Self {
        let mut asked = Asked::of(self.target.clone());
        for text in documents {
            let body = Bytes::from((*text).to_owned());
            let tree = Tree::parse(body.clone()).unwrap();
            match self.codec.recognise(tree.root()).unwrap() {
                Document::Request => {
                    let path = Name::from("");
                    let request = Request { path, headers: Vec::new(), body };
                    let model = self.codec.model_of(&request);
                    let model = model.unwrap_or_else(|| Name::from(self.target.model()));
                    asked = Asked::of(target(&self.target.provider.name, &model));
                    self.prior.push_request(self.codec, &request, asked.clone()).unwrap();
                }
                Document::Response => {
                    self.prior.push_response(self.codec, &body, asked.clone()).unwrap();
                }
                Document::Event => panic!("a single event is no document of a conversation"),
            }
        }
        self
    }

    /// The same with these betas, and no other headers.
    pub(crate) fn with_betas(mut self, betas: &str) -> Self {
        self.knows_headers = true;
        if !betas.is_empty() {
            self.request.headers.push((Name::from("anthropic-beta"), Name::from(betas)));
        }
        self
    }

    /// The same, of an account that was made then.
    pub(crate) fn made_at(mut self, date: &str) -> Self {
        self.account_created = Some(date.parse().unwrap());
        self
    }

    /// The same, of another account.
    pub(crate) fn of_account(mut self, account: &str) -> Self {
        let mut origin = throughline_core::Origin::clone(&self.target.origin);
        origin.account = Name::from(account);
        self.target.origin = Arc::new(origin);
        self
    }

    fn transcript(&self) -> Transcript<'_> {
        Transcript {
            knows_headers: self.knows_headers,
            account_created: self.account_created,
            ..Transcript::of(self.codec, &self.request).after(&self.prior)
        }
    }

    pub(crate) fn audit(&self) -> Audit {
        audit(&self.transcript(), &self.target).unwrap()
    }

    pub(crate) fn repair(&self, reach: Reach) -> Repair {
        repair(&self.transcript(), &self.target, reach).unwrap()
    }

    /// What is found, each in a line: severity, rule and place.
    pub(crate) fn lines(&self) -> Vec<String> {
        let line = |finding: &Finding| {
            let (_, rule) = finding.rule.id.split_once('/').unwrap();
            format!("{} {rule} {}", finding.severity.as_str(), finding.path)
        };
        self.audit().findings.iter().map(line).collect()
    }
}

fn target(provider: &str, model: &str) -> Target {
    let catalog = Catalog::builtin();
    catalog.target(&catalog.provider(provider).unwrap(), model, "test")
}
