//! What the doctor looks at: a request, whom it goes to, and what came before it.

use std::path::Path;

use bytes::Bytes;
use jiff::Timestamp;
use throughline_codec::{Asked, Codec, CodecError, Document, Prior, Transcript};
use throughline_core::{Name, Request, Target, Wire};

use crate::failure::Failure;
use crate::input::{self, Input, Kind};
use crate::options::About;
use crate::past::Past;
use crate::recording::{self, Recorded};
use crate::rows::Rows;
use crate::{headers, session, text};

/// A request with everything that is known of it.
pub(crate) struct Subject {
    /// What to call it in messages.
    pub(crate) name: String,
    pub(crate) codec: &'static dyn Codec,
    pub(crate) target: Target,
    pub(crate) request: Request,
    pub(crate) prior: Prior,
    knows_headers: bool,
    account_created: Option<Timestamp>,
}

/// A request of which it is not yet known whom it goes to.
struct Found {
    input: Input,
    codec: &'static dyn Codec,
    path: Option<Name>,
    /// Who was asked when it was recorded.
    recorded: Option<Recorded>,
    /// What was recorded before it.
    earlier: Vec<Recorded>,
}

impl Subject {
    /// Reads a request, or a recording's last one.
    pub(crate) fn read(about: &About, file: &Path) -> Result<Self, Failure> {
        let rows = Rows::read(about.profiles.as_deref())?;
        let headers = headers::parse(&about.header)?;
        let input = Input::read(file)?;
        let found = match recording::read(&input)? {
            Some(exchanges) => in_recording(about, &input, exchanges)?,
            None => in_document(about, &rows, input)?,
        };
        Self::new(about, &rows, headers, found)
    }

    /// Reads a conversation that is kept as one message or item on each line, and the lines themselves.
    pub(crate) fn session(about: &About, file: &Path) -> Result<(Self, Input), Failure> {
        let rows = Rows::read(about.profiles.as_deref())?;
        let headers = headers::parse(&about.header)?;
        let lines = Input::read(file)?;
        let named = about.provider.as_deref().and_then(|name| rows.catalog().provider(name));
        let wire = about.wire.clone().or_else(|| named.map(|row| row.wire.clone()));
        let codec = session::speaker(&lines, wire.as_ref())?;
        // Whether a model thinks is said in the request and not in its messages, so the last request is asked.
        let mut earlier = None;
        for file in &about.prior {
            let input = Input::read(file)?;
            let is_request = |kind: Kind| {
                kind.document == Document::Request && kind.codec.wire() == codec.wire()
            };
            if input.kind_on(&codec.wire()).is_ok_and(is_request) {
                earlier = Some(input.bytes);
            }
        }
        let bytes = session::wrap(&lines, codec, about.model.as_deref(), earlier.as_ref())?;
        let input = Input { name: lines.name.clone(), bytes };
        let found = Found { input, codec, path: None, recorded: None, earlier: Vec::new() };
        Ok((Self::new(about, &rows, headers, found)?, lines))
    }

    fn new(
        about: &About,
        rows: &Rows,
        headers: Vec<(Name, Name)>,
        found: Found,
    ) -> Result<Self, Failure> {
        let Found { input, codec, path, recorded, earlier } = found;
        let wire = codec.wire();
        let recorded_at = recorded.as_ref().and_then(|recorded| recorded.provider.as_deref());
        let row = match (&about.provider, recorded_at) {
            (Some(named), _) => Some(rows.named(&wire, named)?),
            (None, Some(recorded)) => Some(rows.like(&wire, recorded)?),
            (None, None) => None,
        };
        let said = model_in(codec, path.as_ref(), &input.bytes);
        let said = said.or_else(|| recorded.as_ref()?.model.clone());
        let Some(model) = about.model.as_deref().or(said.as_deref()) else {
            let message = "does not name its model, and what is refused depends on it: say which with --model";
            return Err(Failure::Usage(format!("{} {message}", input.name)));
        };
        let row = match row {
            Some(row) => row,
            None => rows.likely(&wire, model)?,
        };
        let target = rows.catalog().target(&row, model, &about.account);
        input::note_unknown_model(&Asked::of(target.clone()));
        let path = path.unwrap_or_else(|| Name::from(codec.path(&target, false)));
        let account = about.prior_account.as_deref().unwrap_or(&about.account);
        let mut past = Past::before(&target, rows, account);
        for file in &about.prior {
            past.add(&Input::read(file)?)?;
        }
        for exchange in &earlier {
            past.add_recorded(&input, exchange)?;
        }
        let prior = past.finish();
        Ok(Self {
            name: input.name,
            codec,
            target,
            prior,
            knows_headers: !headers.is_empty(),
            account_created: about.account_created,
            request: Request { path, headers, body: input.bytes },
        })
    }

    /// The conversation as the library takes it.
    pub(crate) fn transcript(&self) -> Transcript<'_> {
        Transcript {
            knows_headers: self.knows_headers,
            account_created: self.account_created,
            ..Transcript::of(self.codec, &self.request).after(&self.prior)
        }
    }

    /// What went wrong in the library, as bad data of this request.
    pub(crate) fn bad(&self, error: CodecError) -> Failure {
        let input = Input { name: self.name.clone(), bytes: self.request.body.clone() };
        input.bad(error)
    }
}

fn in_document(about: &About, rows: &Rows, input: Input) -> Result<Found, Failure> {
    let named = about.provider.as_deref();
    let wire = about.wire.clone().or_else(|| rows.wire_of(named?, &input));
    let kind = match &wire {
        Some(wire) => input.kind_on(wire)?,
        None => input.kind(None)?,
    };
    if kind.document != Document::Request {
        return Err(Failure::BadData(format!(
            "{} is {}, not a request: what came before a request is given with --prior",
            input.name,
            input::what(kind.document, kind.framing)
        )));
    }
    Ok(Found { input, codec: kind.codec, path: None, recorded: None, earlier: Vec::new() })
}

/// The last request of a recording, with the exchanges before it.
fn in_recording(
    about: &About,
    recording: &Input,
    mut exchanges: Vec<Recorded>,
) -> Result<Found, Failure> {
    let missing = || Failure::BadData(format!("{} has no request", recording.name));
    let count = exchanges.len();
    let last = exchanges.iter().rposition(|exchange| exchange.request.is_some());
    exchanges.truncate(last.ok_or_else(missing)? + 1);
    let (number, exchange) = (exchanges.len(), exchanges.pop().ok_or_else(missing)?);
    let taken = exchanges.iter().filter(|exchange| exchange.was_taken).count();
    text::note(&format!(
        "{} is a recording: request {number} of {count} is looked at, with {} as prior",
        recording.name,
        match taken {
            0 => "nothing".to_owned(),
            taken => text::count(taken, "earlier exchange"),
        }
    ));
    let name = format!("{}#{number}", recording.name);
    let input = Input { name, bytes: exchange.request.clone().ok_or_else(missing)? };
    let recorded_wire = exchange.wire.as_ref().map(|wire| Wire::new(wire.to_string()));
    let kind = match about.wire.clone().or(recorded_wire) {
        Some(wire) => input.kind_on(&wire)?,
        None => input.kind(None)?,
    };
    let path = exchange.path.clone();
    Ok(Found { input, codec: kind.codec, path, recorded: Some(exchange), earlier: exchanges })
}

/// The model that a request names, in its path or its body.
pub(crate) fn model_in(codec: &dyn Codec, path: Option<&Name>, body: &Bytes) -> Option<Name> {
    let path = path.cloned().unwrap_or_else(|| Name::from(""));
    codec.model_of(&Request { path, headers: Vec::new(), body: body.clone() })
}
