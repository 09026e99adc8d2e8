//! Reads a document and detects its wire and kind.

pub(crate) mod headers;
pub(crate) mod past;
pub(crate) mod recording;
pub(crate) mod rows;
pub(crate) mod session;
pub(crate) mod subject;

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use bytes::Bytes;
use throughline_codec::{
    Catalog, Codec, CodecError, DecodeContext, Document, Framing, codec, detect,
};
use throughline_core::{Request, Wire};
use throughline_json::{Measure, Name, Node, SizeLimits, SyntaxError, Tree};

use crate::print::failure::Failure;
use crate::print::text;

/// Size limits of a document: ten times those of the gateway.
const LIMITS: SizeLimits = SizeLimits { entries: 4_000_000, items: 200_000, tools: 40_960 };

/// A document that was read and parsed.
pub(crate) struct Input {
    /// Name for messages.
    pub(crate) name: String,
    pub(crate) bytes: Bytes,
}

/// Wire and kind of a document.
pub(crate) struct DocumentKind {
    pub(crate) codec: &'static dyn Codec,
    pub(crate) document: Document,
    pub(crate) framing: Option<Framing>,
}

impl Input {
    /// Reads a file, or standard input for `-`.
    pub(crate) fn read(file: &Path) -> Result<Self, Failure> {
        let is_stdin = file.as_os_str() == "-";
        let name = if is_stdin { "standard input".to_owned() } else { file.display().to_string() };
        let mut bytes = Vec::new();
        if is_stdin {
            std::io::stdin().read_to_end(&mut bytes).context("standard input cannot be read")?;
        } else if file.is_dir() {
            return Err(anyhow::anyhow!("{name} is a directory; name a file in it").into());
        } else {
            let mut opened =
                std::fs::File::open(file).with_context(|| format!("{name} cannot be opened"))?;
            opened.read_to_end(&mut bytes).with_context(|| format!("{name} cannot be read"))?;
        }
        if bytes.starts_with(b"\xef\xbb\xbf{") {
            let message =
                "begins with a byte order mark, which providers refuse; save it without one";
            return Err(Failure::BadData(format!("{name} {message}")));
        }
        if bytes.trim_ascii().is_empty() {
            return Err(Failure::BadData(format!(
                "{name} is empty; expected a request, response or stream"
            )));
        }
        if let Err(error) = Measure::count(&bytes, &LIMITS) {
            return Err(Failure::BadData(format!("{name} is too large to be read: {error}")));
        }
        Ok(Self { name, bytes: Bytes::from(bytes) })
    }

    /// Detects the kind of the document, on the given wire or on the detected one.
    pub(crate) fn kind(&self, wire: Option<&Wire>) -> Result<DocumentKind, Failure> {
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
        // The text starts like JSON, so report the syntax error.
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

    /// Detects the kind on a wire that the user specified. A request without wire-specific members
    /// counts as a request of that wire.
    pub(crate) fn kind_on(&self, wire: &Wire) -> Result<DocumentKind, Failure> {
        self.kind(Some(wire)).or_else(|failure| {
            let named = codec(wire).filter(|codec| self.is_plain_request_of(*codec));
            let kind = named.map(|codec| DocumentKind {
                codec,
                document: Document::Request,
                framing: None,
            });
            kind.ok_or(failure)
        })
    }

    fn is_plain_request_of(&self, codec: &dyn Codec) -> bool {
        let Ok(tree) = Tree::parse(self.bytes.clone()) else { return false };
        let conversation = tree.root().get(conversation_of(codec));
        let Some(messages) = conversation.filter(|list| list.is_array()) else { return false };
        // Chat is the fallback of the detection. These members exist only in chat requests.
        let is_chats = |message: Node<'_>| {
            let role = message.text_of("role");
            matches!(role.as_deref(), Some("tool" | "system" | "developer"))
                || message.get("tool_calls").is_some()
        };
        let guessed = detect(&self.bytes);
        guessed.is_none_or(|guess| guess.wire == Wire::OPENAI_CHAT)
            && !messages.elements().any(is_chats)
    }

    /// Converts a codec error to a failure about this document.
    pub(crate) fn bad_data(&self, error: CodecError) -> Failure {
        match error {
            CodecError::Syntax(error) => self.bad_json(&error),
            other => Failure::BadData(format!("{}: {other}", self.name)),
        }
    }

    fn bad_json(&self, error: &SyntaxError) -> Failure {
        Failure::BadData(format!(
            "{}:{}:{}: not JSON: {}",
            self.name, error.line, error.column, error.what
        ))
    }

    /// Returns the document as a request to that target.
    pub(crate) fn request(&self, codec: &dyn Codec, asked: &DecodeContext) -> Request {
        let path = codec.path(&asked.target, false);
        Request { path: Name::from(path), headers: Vec::new(), body: self.bytes.clone() }
    }
}

/// Returns the member of a request that holds the conversation.
pub(crate) fn conversation_of(codec: &dyn Codec) -> &'static str {
    codec.prefix_members().last().copied().unwrap_or("messages")
}

/// Names the kind of a document.
pub(crate) fn kind_name(document: Document, framing: Option<Framing>) -> &'static str {
    match (document, framing) {
        (_, Some(_)) | (Document::Event, None) => "a stream",
        (Document::Request, None) => "a request",
        (Document::Response, None) => "a response",
    }
}

/// Returns the target at a provider's row, or at the first row of the wire.
pub(crate) fn decode_context(
    wire: &Wire,
    provider: Option<&str>,
    model: &str,
) -> Result<DecodeContext, Failure> {
    let catalog = Catalog::builtin();
    let row = match provider {
        Some(name) => {
            let row = catalog.provider_on_wire(name, wire);
            row.ok_or_else(|| unknown_provider(catalog, name, wire))?
        }
        None => catalog
            .default_provider(wire)
            .ok_or_else(|| Failure::Usage(format!("no provider supports {wire}")))?,
    };
    Ok(DecodeContext::of(catalog.target(&row, model, "default")))
}

pub(crate) fn unknown_provider(catalog: &Catalog, name: &str, wire: &Wire) -> Failure {
    let rows = catalog.providers().iter().filter(|row| row.wire == *wire);
    let names: Vec<Arc<str>> = rows.map(|row| Arc::clone(&row.name)).collect();
    Failure::Usage(format!(
        "provider `{name}` does not support {wire}; these do: {}",
        names.join(", ")
    ))
}

/// Prints a note if the catalog does not contain the model.
pub(crate) fn note_unknown_model(asked: &DecodeContext) {
    let model = asked.target.model();
    if asked.target.profile.name == "unknown" && model != "unknown" {
        let message = format!(
            "unknown model `{model}`; it is treated as a model without special requirements"
        );
        text::note(&message);
    }
}

/// Returns the model that a request names in its path or body.
pub(crate) fn model_in(codec: &dyn Codec, path: Option<&Name>, body: &Bytes) -> Option<Name> {
    let path = path.cloned().unwrap_or_else(|| Name::from(""));
    codec.model_of(&Request { path, headers: Vec::new(), body: body.clone() })
}
