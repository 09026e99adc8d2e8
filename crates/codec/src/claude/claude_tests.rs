//! Test helpers for the two wires that serve Claude models.

use std::sync::Arc;

use bytes::Bytes;
use throughline_core::{Request, Target};
use throughline_json::{Name, Tree};

use crate::{
    Audit, Catalog, Codec, DecodeContext, Document, Finding, PriorExchanges, Repair, RepairLevel,
    Transcript, audit, repair,
};

/// A request to audit, with its context.
pub(crate) struct AuditFixture {
    pub(crate) codec: &'static dyn Codec,
    pub(crate) target: Target,
    pub(crate) prior: PriorExchanges,
    pub(crate) request: Request,
    pub(crate) knows_headers: bool,
    pub(crate) account_created: Option<jiff::Timestamp>,
}

impl AuditFixture {
    pub(crate) fn new(codec: &'static dyn Codec, provider: &str, model: &str, body: &str) -> Self {
        let target = target(provider, model);
        let path = Name::from(codec.path(&target, false));
        let request = Request { path, headers: Vec::new(), body: Bytes::from(body.to_owned()) };
        let (prior, knows_headers, account_created) = (PriorExchanges::new(), false, None);
        Self { codec, target, prior, request, knows_headers, account_created }
    }

    /// Adds earlier requests and responses. A request without a model goes to the fixture's model.
    pub(crate) fn after(mut self, documents: &[&str]) -> Self {
        let mut context = DecodeContext::of(self.target.clone());
        for text in documents {
            let body = Bytes::from((*text).to_owned());
            let tree = Tree::parse(body.clone()).unwrap();
            match self.codec.recognise(tree.root()).unwrap() {
                Document::Request => {
                    let path = Name::from("");
                    let request = Request { path, headers: Vec::new(), body };
                    let model = self.codec.model_of(&request);
                    let model = model.unwrap_or_else(|| Name::from(self.target.model()));
                    context = DecodeContext::of(target(&self.target.provider.name, &model));
                    self.prior.push_request(self.codec, &request, context.clone()).unwrap();
                }
                Document::Response => {
                    self.prior.push_response(self.codec, &body, context.clone()).unwrap();
                }
                Document::Event => panic!("a single event is not a document of a conversation"),
            }
        }
        self
    }

    /// Sets the `anthropic-beta` header and declares that there are no other headers.
    pub(crate) fn with_betas(mut self, betas: &str) -> Self {
        self.knows_headers = true;
        if !betas.is_empty() {
            self.request.headers.push((Name::from("anthropic-beta"), Name::from(betas)));
        }
        self
    }

    pub(crate) fn with_account_created(mut self, date: &str) -> Self {
        self.account_created = Some(date.parse().unwrap());
        self
    }

    pub(crate) fn with_account(mut self, account: &str) -> Self {
        let mut origin = throughline_core::Origin::clone(&self.target.origin);
        origin.account = Name::from(account);
        self.target.origin = Arc::new(origin);
        self
    }

    fn transcript(&self) -> Transcript<'_> {
        Transcript {
            knows_headers: self.knows_headers,
            account_created: self.account_created,
            ..Transcript::new(self.codec, &self.request).with_prior(&self.prior)
        }
    }

    pub(crate) fn audit(&self) -> Audit {
        audit(&self.transcript(), &self.target).unwrap()
    }

    pub(crate) fn repair(&self, reach: RepairLevel) -> Repair {
        repair(&self.transcript(), &self.target, reach).unwrap()
    }

    /// Returns one line per finding: severity, rule and path.
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
