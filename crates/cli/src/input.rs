//! Reads a document and detects its wire and type.

pub(crate) mod documents;
pub(crate) mod headers;
pub(crate) mod past;
pub(crate) mod recording;
pub(crate) mod rows;
pub(crate) mod session;
pub(crate) mod subject;

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use bytes::Bytes;
use throughline_codec::{Codec, CodecError, DecodeContext, Document, Framing, codec, detect};
use throughline_core::{Request, Wire};
use throughline_json::{Measure, Name, Node, SizeLimits, SyntaxError, Tree};

use crate::input::rows::{RequestCatalog, UNKNOWN};
use crate::print::failure::{Failure, Result};
use crate::print::text;

/// Size limits for input documents: ten times the gateway's limits.
const LIMITS: SizeLimits = SizeLimits { entries: 4_000_000, items: 200_000, tools: 40_960 };

/// An input document: its bytes, and the name that error messages use for it.
pub(crate) struct Input {
    pub(crate) name: String,
    pub(crate) bytes: Bytes,
}

/// Wire, type and framing of a document.
pub(crate) struct DocumentKind {
    pub(crate) codec: &'static dyn Codec,
    pub(crate) document: Document,
    pub(crate) framing: Option<Framing>,
}

impl Input {
    /// Reads a file, or standard input for `-`.
    pub(crate) fn read(file: &Path) -> Result<Self> {
        let is_stdin = file.as_os_str() == "-";
        let name = if is_stdin { "standard input".to_owned() } else { file.display().to_string() };
        let mut bytes = Vec::new();
        if file.is_dir() {
            return Err(Failure::Usage(format!("{name} is a directory; name a file in it")));
        }
        let (read, verb) = if is_stdin {
            (std::io::stdin().read_to_end(&mut bytes), "read")
        } else {
            (File::open(file).and_then(|mut file| file.read_to_end(&mut bytes)), "open")
        };
        read.map_err(|error| Failure::unreadable(&format!("cannot {verb} {name}"), &error))?;
        let problem = if bytes.starts_with(b"\xef\xbb\xbf{") {
            "begins with a byte order mark, which providers refuse; save it without one".to_owned()
        } else if bytes.trim_ascii().is_empty() {
            "is empty; expected a request, response or stream".to_owned()
        } else if let Err(error) = Measure::count(&bytes, &LIMITS) {
            format!("is too large to be read: {error}")
        } else {
            return Ok(Self { name, bytes: Bytes::from(bytes) });
        };
        Err(Failure::BadData(format!("{name} {problem}")))
    }

    /// Detects the type of the document. If `wire` is given, the document must be in the format of
    /// that wire.
    pub(crate) fn kind(&self, wire: Option<&Wire>) -> Result<DocumentKind> {
        let guessed = detect(&self.bytes);
        let tree = Tree::parse(self.bytes.clone());
        if let (Some(codec), Ok(tree)) = (wire.and_then(codec), &tree)
            && let Some(document) = codec.recognise(tree.root())
        {
            return Ok(DocumentKind { codec, document, framing: None });
        }
        let fits = guessed.clone().filter(|guess| wire.is_none_or(|wire| *wire == guess.wire));
        if let Some(guess) = fits
            && let Some(codec) = codec(&guess.wire)
        {
            return Ok(DocumentKind { codec, document: guess.document, framing: guess.framing });
        }
        // The text starts like JSON, so report where its syntax is wrong.
        let starts_like_json = self.bytes.trim_ascii_start().starts_with(b"{");
        if let Err(error) = tree
            && (starts_like_json || wire.is_some() && guessed.is_none())
        {
            return Err(self.bad_json(&error));
        }
        let name = &self.name;
        Err(Failure::BadData(match (wire, guessed) {
            (Some(wire), Some(guess)) => {
                let what = kind_name(guess.document, guess.framing);
                format!("{name} is not in {wire} format; it looks like {} ({what})", guess.wire)
            }
            (Some(wire), None) => {
                format!("{name} does not look like a request, response or stream of {wire}")
            }
            (None, _) => format!(
                "{name} does not look like a request, response or stream of any wire; specify one with --wire"
            ),
        }))
    }

    /// Detects the type of the document. A request whose fields do not identify its wire is assumed
    /// to be on `wire`.
    pub(crate) fn kind_or_request(&self, wire: Option<&Wire>) -> Result<DocumentKind> {
        self.kind(wire).or_else(|failure| {
            let codec = wire.and_then(codec).filter(|codec| self.is_plain_request_of(*codec));
            let codec = codec.ok_or(failure)?;
            Ok(DocumentKind { codec, document: Document::Request, framing: None })
        })
    }

    fn is_plain_request_of(&self, codec: &dyn Codec) -> bool {
        let Ok(tree) = Tree::parse(self.bytes.clone()) else { return false };
        let conversation = tree.root().get(conversation_of(codec));
        let Some(messages) = conversation.filter(|list| list.is_array()) else { return false };
        // Detection falls back to the chat wire, so check for members that only chat requests have.
        let is_chats = |message: Node<'_>| {
            let role = message.text_of("role");
            matches!(role.as_deref(), Some("tool" | "system" | "developer"))
                || message.get("tool_calls").is_some()
        };
        let guessed = detect(&self.bytes);
        guessed.is_none_or(|guess| guess.wire == Wire::OPENAI_CHAT)
            && !messages.elements().any(is_chats)
    }

    /// Converts a codec error to a failure that names this document.
    pub(crate) fn bad_data(&self, error: CodecError) -> Failure {
        match error {
            CodecError::Syntax(error) => self.bad_json(&error),
            other => Failure::BadData(format!("{}: {other}", self.name)),
        }
    }

    fn bad_json(&self, error: &SyntaxError) -> Failure {
        let SyntaxError { line, column, what, .. } = error;
        Failure::BadData(format!("{}:{line}:{column}: not JSON: {what}", self.name))
    }

    /// Builds a request to the target in `asked`, with the document as its body and no headers.
    pub(crate) fn request(&self, codec: &dyn Codec, context: &DecodeContext) -> Request {
        let path = codec.path(&context.target, false);
        Request { path: Name::from(path), headers: Vec::new(), body: self.bytes.clone() }
    }
}

/// Returns the name of the request field that holds the conversation on the codec's wire.
pub(crate) fn conversation_of(codec: &dyn Codec) -> &'static str {
    codec.prefix_members().last().copied().unwrap_or("messages")
}

/// Returns a noun phrase for a document type, for use in messages.
pub(crate) fn kind_name(document: Document, framing: Option<Framing>) -> &'static str {
    match (document, framing) {
        (_, Some(_)) | (Document::Event, None) => "a stream",
        (Document::Request, None) => "a request",
        (Document::Response, None) => "a response",
    }
}

/// Returns a decode context for the model at the named provider, or else at the wire's default
/// provider.
pub(crate) fn decode_context(
    rows: &RequestCatalog,
    wire: &Wire,
    provider: Option<&str>,
    model: &str,
) -> Result<DecodeContext> {
    let row = match provider {
        Some(name) => rows.named(wire, name)?,
        None => rows.default(wire)?,
    };
    Ok(DecodeContext::of(rows.catalog().target(&row, model, "default")))
}

/// Prints a note if no catalog entry matches the model.
pub(crate) fn note_unknown_model(context: &DecodeContext) {
    let model = context.target.model();
    if context.target.profile.name == UNKNOWN && model != UNKNOWN {
        let treated = "it is treated as a model without special requirements";
        text::note(&format!("unknown model `{model}`; {treated}"));
    }
}

/// Returns the model named in the path or body of a request.
pub(crate) fn model_in(codec: &dyn Codec, path: Option<&Name>, body: &Bytes) -> Option<Name> {
    let path = path.cloned().unwrap_or_else(|| Name::from(""));
    codec.model_of(&Request { path, headers: Vec::new(), body: body.clone() })
}
