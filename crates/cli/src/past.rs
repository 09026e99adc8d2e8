//! Reading what came before a request: earlier requests, answers, streams and recordings.

use std::sync::Arc;

use bytes::Bytes;
use throughline_codec::{Asked, Codec, CodecError, Document, Framing, Prior};
use throughline_core::{Name, Provider, Request, Target, Wire};

use crate::failure::Failure;
use crate::input::{Input, Kind};
use crate::recording::{self, Recorded};
use crate::rows::{Rows, UNKNOWN};
use crate::subject::model_in;
use crate::text;

/// What came before a request, as far as it was read.
pub(crate) struct Past<'o> {
    /// Whom the present request goes to: what says nothing of itself went there too.
    present: &'o Target,
    rows: &'o Rows,
    account: &'o str,
    prior: Prior,
}

/// One answer, whole or as a stream.
struct Answer<'a> {
    input: &'a Input,
    codec: &'static dyn Codec,
    framing: Option<Framing>,
    row: Arc<Provider>,
    model: Option<Name>,
}

impl<'o> Past<'o> {
    /// What came before a request to `present`, and belongs to that account.
    pub(crate) fn before(present: &'o Target, rows: &'o Rows, account: &'o str) -> Self {
        Self { present, rows, account, prior: Prior::new() }
    }

    pub(crate) fn finish(self) -> Prior {
        self.prior
    }

    /// Adds what a document holds.
    pub(crate) fn add(&mut self, input: &Input) -> Result<(), Failure> {
        if let Some(exchanges) = recording::read(input)? {
            return exchanges.iter().try_for_each(|exchange| self.add_recorded(input, exchange));
        }
        let Kind { codec, document, framing } = self.kind(input, None)?;
        let row = self.row(&codec.wire(), None)?;
        match (document, framing) {
            (Document::Request, None) => {
                let model = model_in(codec, None, &input.bytes);
                self.add_request(input, codec, &row, None, model.as_deref())
            }
            (Document::Request | Document::Response | Document::Event, framing) => {
                self.add_answer(&Answer { input, codec, framing, row, model: None })
            }
        }
    }

    /// Adds a recorded exchange, unless the provider refused it: then nothing was issued.
    pub(crate) fn add_recorded(
        &mut self,
        recording: &Input,
        exchange: &Recorded,
    ) -> Result<(), Failure> {
        if !exchange.was_taken {
            return Ok(());
        }
        let part = |what: &str, bytes: &Bytes| Input {
            name: format!("{}, a recorded {what}", recording.name),
            bytes: bytes.clone(),
        };
        let wire = exchange.wire.as_ref().map(|wire| Wire::new(wire.to_string()));
        if let Some(bytes) = &exchange.request {
            let input = part("request", bytes);
            let codec = self.kind(&input, wire.as_ref())?.codec;
            let row = self.row(&codec.wire(), exchange.provider.as_deref())?;
            let said = model_in(codec, exchange.path.as_ref(), bytes);
            let model = said.or_else(|| exchange.model.clone());
            self.add_request(&input, codec, &row, exchange.path.clone(), model.as_deref())?;
        }
        if let Some(bytes) = &exchange.response {
            let input = part("response", bytes);
            let Kind { codec, framing, .. } = self.kind(&input, wire.as_ref())?;
            let row = self.row(&codec.wire(), exchange.provider.as_deref())?;
            let model = exchange.model.clone();
            self.add_answer(&Answer { input: &input, codec, framing, row, model })?;
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
    ) -> Result<(), Failure> {
        let target = self.target(row, model);
        let path = path.unwrap_or_else(|| Name::from(codec.path(&target, false)));
        let request = Request { path, headers: Vec::new(), body: input.bytes.clone() };
        let added = self.prior.push_request(codec, &request, Asked::of(target));
        added.map_err(|error| input.bad(error))
    }

    /// Adds an answer to the last request, or one whose request is not known.
    fn add_answer(&mut self, answer: &Answer<'_>) -> Result<(), Failure> {
        let open = self.prior.exchanges().last().filter(|exchange| exchange.reply.is_none());
        let wire = answer.codec.wire();
        let asked = match open.filter(|exchange| exchange.asked.target.origin.wire == wire) {
            Some(exchange) => exchange.asked.clone(),
            None => self.asked_of(answer),
        };
        match push(&mut self.prior, answer, asked) {
            Err(CodecError::Provider(_)) => {
                text::note(&format!(
                    "{} is a provider's error: nothing was issued in it",
                    answer.input.name
                ));
                Ok(())
            }
            pushed => pushed.map_err(|error| answer.input.bad(error)),
        }
    }

    /// Whom an answer is from, as it says itself.
    fn asked_of(&self, answer: &Answer<'_>) -> Asked {
        let asked = Asked::of(self.target(&answer.row, answer.model.as_deref().or(Some(UNKNOWN))));
        let mut alone = Prior::new();
        // What cannot be read is reported when it is read for good.
        let read = push(&mut alone, answer, asked.clone()).ok();
        let reply = read.and_then(|()| alone.exchanges().last()?.reply.as_ref());
        let answered = reply.map(|reply| Arc::clone(&reply.origin.answered));
        let answered = answered.filter(|model| &**model != UNKNOWN);
        Asked::of(self.target(&answer.row, answered.or_else(|| answer.model.clone()).as_deref()))
    }

    /// What a document is: on the wire that was named, else on the present request's, else on the likeliest.
    fn kind(&self, input: &Input, wire: Option<&Wire>) -> Result<Kind, Failure> {
        let here = wire.unwrap_or(&self.present.origin.wire);
        input.kind_on(here).or_else(|_| input.kind(None))
    }

    fn row(&self, wire: &Wire, provider: Option<&str>) -> Result<Arc<Provider>, Failure> {
        match provider {
            Some(name) => self.rows.like(wire, name),
            None if *wire == self.present.origin.wire => Ok(Arc::clone(&self.present.provider)),
            None => self.rows.default(wire),
        }
    }

    /// A model at a row; the present request's where the document does not name one and went the same way.
    fn target(&self, row: &Arc<Provider>, model: Option<&str>) -> Target {
        let is_same = row.name == self.present.provider.name;
        let fallback = if is_same { self.present.model() } else { UNKNOWN };
        self.rows.catalog().target(row, model.unwrap_or(fallback), self.account)
    }
}

fn push(prior: &mut Prior, answer: &Answer<'_>, asked: Asked) -> Result<(), CodecError> {
    let Answer { input, codec, framing, .. } = answer;
    match framing {
        Some(framing) => prior.push_stream(*codec, &input.bytes, *framing, asked),
        None => prior.push_response(*codec, &input.bytes, asked),
    }
}
