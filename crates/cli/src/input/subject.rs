//! Input of `audit`, `repair` and related commands: a request, its target, and the conversation
//! before it.

use std::path::Path;

use jiff::Timestamp;
use throughline_codec::{
    Codec, CodecError, DecodeContext, Document, HistoryFormat, PriorExchanges, Transcript,
};
use throughline_core::{Call, Request, Target, Wire};
use throughline_json::Name;
use throughline_spec::ReplayAudit;

use crate::args::RequestArgs;
use crate::input::documents::{self, DocumentOwner};
use crate::input::headers;
use crate::input::past::PriorBuilder;
use crate::input::recording::{self, RecordedExchange};
use crate::input::rows::RequestCatalog;
use crate::input::session;
use crate::input::{self, DocumentKind, Input, model_in};
use crate::print::failure::{Failure, Result};
use crate::print::text;

/// A request with its target and the exchanges that preceded it.
pub(crate) struct Subject {
    pub(crate) name: String,
    pub(crate) codec: &'static dyn Codec,
    pub(crate) target: Target,
    pub(crate) request: Request,
    pub(crate) prior: PriorExchanges,
    knows_headers: bool,
    account_created: Option<Timestamp>,
}

/// A request whose target is not determined yet.
struct UnresolvedRequest {
    input: Input,
    codec: &'static dyn Codec,
    /// The recorded exchange that contains the request; `None` if the input is not a recording.
    recorded: Option<RecordedExchange>,
    /// Exchanges that were recorded before the request.
    earlier: Vec<RecordedExchange>,
}

impl UnresolvedRequest {
    fn new(input: Input, codec: &'static dyn Codec) -> Self {
        Self { input, codec, recorded: None, earlier: Vec::new() }
    }
}

impl Subject {
    /// Reads a request, or the last request of a recording.
    pub(crate) fn read(args: &RequestArgs, file: &Path) -> Result<Self> {
        let rows = RequestCatalog::read(&args.catalog, args.profiles.as_deref())?;
        let headers = headers::parse(&args.header)?;
        let input = Input::read(file)?;
        let unresolved = match recording::read(&input)? {
            Some(exchanges) => find_in_recording(args, &input, exchanges)?,
            None => find_in_document(args, &rows, input)?,
        };
        Self::new(args, &rows, headers, unresolved)
    }

    /// Reads a conversation in a documented format and builds the request that replays the
    /// conversation. Also returns the audits of its assistant turns, each with the index of the
    /// turn's message.
    pub(crate) fn history(
        args: &RequestArgs,
        file: &Path,
        format: HistoryFormat,
    ) -> Result<(Self, Vec<(u32, ReplayAudit)>)> {
        let rows = RequestCatalog::read(&args.catalog, args.profiles.as_deref())?;
        let input = Input::read(file)?;
        let (provider, model) = (args.provider.as_deref(), args.model.as_deref());
        let owner = DocumentOwner::resolve(&rows, format, provider, model, &args.account)?;
        let Some(owner) = owner.filter(|_| model.is_some()) else {
            let message = "does not name its model, which the rules depend on; specify it with \
                           --model and its provider with --provider";
            return Err(Failure::Usage(format!("{} {message}", input.name)));
        };
        let history = documents::read(&input, format, Some(&owner), "--provider")?;
        let audits = history
            .turns
            .iter()
            .map(|turn| (turn.message, turn.audit(owner.codec.reasoning(), &owner.target)));
        let audits = audits.collect();
        let DocumentOwner { target, codec } = owner;
        input::note_unknown_model(&DecodeContext::of(target.clone()));
        let mut call = Call::new(target.clone());
        call.items = history.items;
        let encoded = codec.encode(&call).map_err(|error| input.bad_data(error))?;
        let subject = Self {
            name: input.name,
            codec,
            target,
            request: encoded.request,
            prior: PriorExchanges::default(),
            knows_headers: false,
            account_created: args.account_created,
        };
        Ok((subject, audits))
    }

    /// Reads a conversation with one message or item per line. Also returns the original lines.
    pub(crate) fn session(args: &RequestArgs, file: &Path) -> Result<(Self, Input)> {
        let rows = RequestCatalog::read(&args.catalog, args.profiles.as_deref())?;
        let headers = headers::parse(&args.header)?;
        let lines = Input::read(file)?;
        let provider = args.provider.as_deref().and_then(|name| rows.catalog().provider(name));
        let wire = args.wire.clone().or_else(|| provider.map(|row| row.wire.clone()));
        let codec = session::detect_codec(&lines, wire.as_ref())?;
        // Reasoning settings are part of a request and not of its messages, so take them from the
        // last earlier request.
        let mut earlier = None;
        for file in &args.prior {
            let input = Input::read(file)?;
            let is_request = |kind: DocumentKind| {
                kind.document == Document::Request && kind.codec.wire() == codec.wire()
            };
            if input.kind_or_request(Some(&codec.wire())).is_ok_and(is_request) {
                earlier = Some(input.bytes);
            }
        }
        let bytes = session::wrap(&lines, codec, args.model.as_deref(), earlier.as_ref())?;
        let input = Input { name: lines.name.clone(), bytes };
        let unresolved = UnresolvedRequest::new(input, codec);
        Ok((Self::new(args, &rows, headers, unresolved)?, lines))
    }

    fn new(
        args: &RequestArgs,
        rows: &RequestCatalog,
        headers: Vec<(Name, Name)>,
        unresolved: UnresolvedRequest,
    ) -> Result<Self> {
        let UnresolvedRequest { input, codec, recorded, earlier } = unresolved;
        let wire = codec.wire();
        let recorded = recorded.as_ref();
        let path = recorded.and_then(|recorded| recorded.path.clone());
        let requested = model_in(codec, path.as_ref(), &input.bytes);
        let requested = requested.or_else(|| recorded?.model.clone());
        let Some(model) = args.model.as_deref().or(requested.as_deref()) else {
            let message =
                "does not name its model, which the rules depend on; specify it with --model";
            return Err(Failure::Usage(format!("{} {message}", input.name)));
        };
        let row = match (&args.provider, recorded.and_then(|exchange| exchange.provider.as_deref()))
        {
            (Some(name), _) => rows.named(&wire, name)?,
            (None, Some(recorded)) => rows.row_or_generic(&wire, recorded)?,
            (None, None) => rows.likely_row(&wire, model)?,
        };
        let target = rows.catalog().target(&row, model, &args.account);
        input::note_unknown_model(&DecodeContext::of(target.clone()));
        let path = path.unwrap_or_else(|| Name::from(codec.path(&target, false)));
        let account = args.prior_account.as_deref().unwrap_or(&args.account);
        let mut builder = PriorBuilder::new(&target, rows, account);
        for file in &args.prior {
            builder.add(&Input::read(file)?)?;
        }
        for exchange in &earlier {
            builder.add_recorded(&input, exchange)?;
        }
        let prior = builder.prior;
        Ok(Self {
            name: input.name,
            codec,
            target,
            prior,
            knows_headers: !headers.is_empty(),
            account_created: args.account_created,
            request: Request { path, headers, body: input.bytes },
        })
    }

    /// Returns the audit's input: the request and the exchanges that preceded it.
    pub(crate) fn transcript(&self) -> Transcript<'_> {
        Transcript {
            knows_headers: self.knows_headers,
            account_created: self.account_created,
            ..Transcript::new(self.codec, &self.request).with_prior(&self.prior)
        }
    }

    /// Converts a codec error to a failure that names this request.
    pub(crate) fn bad_data(&self, error: CodecError) -> Failure {
        let input = Input { name: self.name.clone(), bytes: self.request.body.clone() };
        input.bad_data(error)
    }
}

fn find_in_document(
    args: &RequestArgs,
    rows: &RequestCatalog,
    input: Input,
) -> Result<UnresolvedRequest> {
    let provider = args.provider.as_deref();
    let wire = args.wire.clone().or_else(|| rows.wire_of(provider?, &input));
    let kind = input.kind_or_request(wire.as_ref())?;
    if kind.document != Document::Request {
        return Err(Failure::BadData(format!(
            "{} is {}, not a request; pass earlier exchanges with --prior",
            input.name,
            input::kind_name(kind.document, kind.framing)
        )));
    }
    Ok(UnresolvedRequest::new(input, kind.codec))
}

/// Returns the last request of a recording and the exchanges before it.
fn find_in_recording(
    args: &RequestArgs,
    recording: &Input,
    mut exchanges: Vec<RecordedExchange>,
) -> Result<UnresolvedRequest> {
    let missing = || Failure::BadData(format!("{} contains no request", recording.name));
    let count = exchanges.len();
    let last = exchanges.iter().rposition(|exchange| exchange.request.is_some());
    exchanges.truncate(last.ok_or_else(missing)? + 1);
    let (number, exchange) = (exchanges.len(), exchanges.pop().ok_or_else(missing)?);
    let accepted = exchanges.iter().filter(|exchange| exchange.was_taken).count();
    let prior = match accepted {
        0 => "nothing".to_owned(),
        accepted => text::count(accepted, "earlier exchange"),
    };
    let name = &recording.name;
    text::note(&format!(
        "{name} is a recording; auditing request {number} of {count}, with {prior} as prior"
    ));
    let name = format!("{name}#{number}");
    let input = Input { name, bytes: exchange.request.clone().ok_or_else(missing)? };
    let recorded_wire = exchange.wire.as_ref().map(|wire| Wire::new(wire.to_string()));
    let kind = input.kind_or_request(args.wire.as_ref().or(recorded_wire.as_ref()))?;
    let (recorded, earlier) = (Some(exchange), exchanges);
    Ok(UnresolvedRequest { input, codec: kind.codec, recorded, earlier })
}
