//! Reads the conversation before a request: earlier requests, responses, streams and recordings.

use std::sync::Arc;

use bytes::Bytes;
use throughline_codec::{Codec, CodecError, DecodeContext, Document, Framing, PriorExchanges};
use throughline_core::{Provider, Request, Target, Wire};
use throughline_json::Name;

use crate::input::model_in;
use crate::input::recording::{self, RecordedExchange};
use crate::input::rows::{RequestCatalog, UNKNOWN};
use crate::input::{DocumentKind, Input};
use crate::print::failure::Result;
use crate::print::text;

/// Collects the exchanges that precede a request.
pub(crate) struct PriorBuilder<'o> {
    /// Target of the audited request, and the default for documents that do not name a target.
    present: &'o Target,
    rows: &'o RequestCatalog,
    account: &'o str,
    pub(crate) prior: PriorExchanges,
}

/// A complete or streamed response, with its provider and model.
struct PriorResponse<'a> {
    input: &'a Input,
    codec: &'static dyn Codec,
    framing: Option<Framing>,
    row: Arc<Provider>,
    model: Option<Name>,
}

impl<'o> PriorBuilder<'o> {
    /// Creates an empty history for a request to the target `present`. `account` is the account
    /// label for all targets.
    pub(crate) fn new(present: &'o Target, rows: &'o RequestCatalog, account: &'o str) -> Self {
        Self { present, rows, account, prior: PriorExchanges::new() }
    }

    /// Adds a request, response, stream or recording.
    pub(crate) fn add(&mut self, input: &Input) -> Result<()> {
        if let Some(exchanges) = recording::read(input)? {
            return exchanges.iter().try_for_each(|exchange| self.add_recorded(input, exchange));
        }
        let DocumentKind { codec, document, framing } = self.kind(input, None)?;
        let row = self.row(&codec.wire(), None)?;
        match (document, framing) {
            (Document::Request, None) => {
                let model = model_in(codec, None, &input.bytes);
                self.add_request(input, codec, &row, None, model.as_deref())
            }
            (Document::Request | Document::Response | Document::Event, framing) => {
                self.add_answer(&PriorResponse { input, codec, framing, row, model: None })
            }
        }
    }

    /// Adds a recorded exchange. Refused exchanges are skipped, because the provider issued no
    /// Seals in them.
    pub(crate) fn add_recorded(&mut self, from: &Input, exchange: &RecordedExchange) -> Result<()> {
        if !exchange.was_taken {
            return Ok(());
        }
        let part = |kind: &str, bytes: &Bytes| Input {
            name: format!("{}, a recorded {kind}", from.name),
            bytes: bytes.clone(),
        };
        let wire = exchange.wire.as_ref().map(|wire| Wire::new(wire.to_string()));
        if let Some(bytes) = &exchange.request {
            let input = part("request", bytes);
            let codec = self.kind(&input, wire.as_ref())?.codec;
            let row = self.row(&codec.wire(), exchange.provider.as_deref())?;
            let model_in_request = model_in(codec, exchange.path.as_ref(), bytes);
            let model = model_in_request.or_else(|| exchange.model.clone());
            self.add_request(&input, codec, &row, exchange.path.clone(), model.as_deref())?;
        }
        if let Some(bytes) = &exchange.response {
            let input = part("response", bytes);
            let DocumentKind { codec, framing, .. } = self.kind(&input, wire.as_ref())?;
            let row = self.row(&codec.wire(), exchange.provider.as_deref())?;
            let model = exchange.model.clone();
            self.add_answer(&PriorResponse { input: &input, codec, framing, row, model })?;
        }
        Ok(())
    }

    fn add_request(
        &mut self,
        input: &Input,
        codec: &'static dyn Codec,
        row: &Arc<Provider>,
        path: Option<Name>,
        model: Option<&str>,
    ) -> Result<()> {
        let target = self.target(row, model);
        let path = path.unwrap_or_else(|| Name::from(codec.path(&target, false)));
        let request = Request { path, headers: Vec::new(), body: input.bytes.clone() };
        let added = self.prior.push_request(codec, &request, DecodeContext::of(target));
        added.map_err(|error| input.bad_data(error))
    }

    /// Adds a response to the last request. A response that does not match that request becomes a
    /// separate exchange.
    fn add_answer(&mut self, answer: &PriorResponse<'_>) -> Result<()> {
        let open = self.prior.exchanges().last().filter(|exchange| exchange.reply.is_none());
        let wire = answer.codec.wire();
        let context = match open.filter(|exchange| exchange.asked.target.origin.wire == wire) {
            Some(exchange) => exchange.asked.clone(),
            None => self.infer_context(answer),
        };
        match push(&mut self.prior, answer, context) {
            Err(CodecError::Provider(_)) => {
                let name = &answer.input.name;
                text::note(&format!("{name} is a provider error; it contains no reply"));
                Ok(())
            }
            pushed => pushed.map_err(|error| answer.input.bad_data(error)),
        }
    }

    /// Infers the provider and model of a response from its content.
    fn infer_context(&self, answer: &PriorResponse<'_>) -> DecodeContext {
        let context = |model: Option<&str>| DecodeContext::of(self.target(&answer.row, model));
        let model = answer.model.as_deref();
        let mut alone = PriorExchanges::new();
        // Errors are reported later, when the response is decoded in full.
        let read = push(&mut alone, answer, context(model.or(Some(UNKNOWN)))).ok();
        let reply = read.and_then(|()| alone.exchanges().last()?.reply.as_ref());
        let answered = reply.map(|reply| &*reply.origin.answered);
        context(answered.filter(|model| *model != UNKNOWN).or(model))
    }

    /// Detects the type of a document. Tries `wire` first, or the audited request's wire if `wire`
    /// is `None`. Then tries the wire that the document's content suggests.
    fn kind(&self, input: &Input, wire: Option<&Wire>) -> Result<DocumentKind> {
        let here = wire.unwrap_or(&self.present.origin.wire);
        input.kind_or_request(Some(here)).or_else(|_| input.kind(None))
    }

    fn row(&self, wire: &Wire, provider: Option<&str>) -> Result<Arc<Provider>> {
        match provider {
            Some(name) => self.rows.row_or_generic(wire, name),
            None if *wire == self.present.origin.wire => Ok(Arc::clone(&self.present.provider)),
            None => self.rows.default(wire),
        }
    }

    /// Returns the target for a model at provider `row`. If `model` is `None`, uses the audited
    /// request's model, provided that the audited request goes to the same provider.
    fn target(&self, row: &Arc<Provider>, model: Option<&str>) -> Target {
        let is_same = row.name == self.present.provider.name;
        let fallback = if is_same { self.present.model() } else { UNKNOWN };
        self.rows.catalog().target(row, model.unwrap_or(fallback), self.account)
    }
}

fn push(
    prior: &mut PriorExchanges,
    answer: &PriorResponse<'_>,
    context: DecodeContext,
) -> Result<(), CodecError> {
    let PriorResponse { input, codec, framing, .. } = answer;
    match framing {
        Some(framing) => prior.push_stream(*codec, &input.bytes, *framing, context),
        None => prior.push_response(*codec, &input.bytes, context),
    }
}
