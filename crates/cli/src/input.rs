//! Reading a document and finding out what it is.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use bytes::Bytes;
use throughline_codec::{Asked, Catalog, Codec, CodecError, Document, Framing, codec, guess};
use throughline_core::json::{Measure, SizeLimits};
use throughline_core::{Name, Node, Request, SyntaxError, Tree, Wire};

use crate::failure::Failure;
use crate::text;

/// What a document may hold: ten times what the gateway takes.
const LIMITS: SizeLimits = SizeLimits { entries: 4_000_000, items: 200_000, tools: 40_960 };

/// A document, read and recognised.
pub(crate) struct Input {
    /// What to call it in messages.
    pub(crate) name: String,
    pub(crate) bytes: Bytes,
}

/// What a document is.
pub(crate) struct Kind {
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
                "{name} is empty: a request, response or stream was expected"
            )));
        }
        if let Err(error) = Measure::of(&bytes, &LIMITS) {
            return Err(Failure::BadData(format!("{name} is too large to be read: {error}")));
        }
        Ok(Self { name, bytes: Bytes::from(bytes) })
    }

    /// What the document is, on the given wire or on the one that it looks like.
    pub(crate) fn kind(&self, wire: Option<&Wire>) -> Result<Kind, Failure> {
        let guessed = guess(&self.bytes);
        let tree = Tree::parse(self.bytes.clone());
        if let (Some(codec), Ok(tree)) = (wire.and_then(codec), &tree)
            && let Some(document) = codec.recognise(tree.root())
        {
            return Ok(Kind { codec, document, framing: None });
        }
        let fits = guessed.clone().filter(|guess| wire.is_none_or(|wire| *wire == guess.wire));
        if let Some(guess) = fits
            && let Some(codec) = codec(&guess.wire)
        {
            return Ok(Kind { codec, document: guess.document, framing: guess.framing });
        }
        // Text that begins like JSON was probably meant to be: say where it breaks.
        let starts_like_json = self.bytes.trim_ascii_start().starts_with(b"{");
        if let Err(error) = tree
            && (starts_like_json || wire.is_some() && guessed.is_none())
        {
            return Err(self.bad_json(&error));
        }
        let name = &self.name;
        Err(Failure::BadData(match (wire, guessed) {
            (Some(wire), Some(guess)) => {
                let what = what(guess.document, guess.framing);
                format!("{name} does not speak {wire}: it looks like {} ({what})", guess.wire)
            }
            (Some(wire), None) => {
                format!("{name} does not look like a request, response or stream of {wire}")
            }
            (None, _) => format!(
                "{name} does not look like a request, response or stream of any wire: name one with --wire"
            ),
        }))
    }

    /// What the document is on a wire that somebody named. A request that has nothing of any wire in particular is
    /// believed to be of that one.
    pub(crate) fn kind_on(&self, wire: &Wire) -> Result<Kind, Failure> {
        self.kind(Some(wire)).or_else(|failure| {
            let named = codec(wire).filter(|codec| self.is_plain_request_of(*codec));
            let kind =
                named.map(|codec| Kind { codec, document: Document::Request, framing: None });
            kind.ok_or(failure)
        })
    }

    fn is_plain_request_of(&self, codec: &dyn Codec) -> bool {
        let Ok(tree) = Tree::parse(self.bytes.clone()) else { return false };
        let conversation = tree.root().get(conversation_of(codec));
        let Some(messages) = conversation.filter(|list| list.is_array()) else { return false };
        // Chat is what is guessed when nothing tells. These do, and no other wire has them.
        let is_chats = |message: Node<'_>| {
            let role = message.text_of("role");
            matches!(role.as_deref(), Some("tool" | "system" | "developer"))
                || message.get("tool_calls").is_some()
        };
        let guessed = guess(&self.bytes);
        guessed.is_none_or(|guess| guess.wire == Wire::OPENAI_CHAT)
            && !messages.elements().any(is_chats)
    }

    /// What went wrong in a codec, as bad data of this document.
    pub(crate) fn bad(&self, error: CodecError) -> Failure {
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

    /// The document as a request to that target.
    pub(crate) fn request(&self, codec: &dyn Codec, asked: &Asked) -> Request {
        let path = codec.path(&asked.target, false);
        Request { path: Name::from(path), headers: Vec::new(), body: self.bytes.clone() }
    }
}

/// The member of a request that holds the conversation: what a model reads last.
pub(crate) fn conversation_of(codec: &dyn Codec) -> &'static str {
    codec.prefix_members().last().copied().unwrap_or("messages")
}

/// What a document is, in a word.
pub(crate) fn what(document: Document, framing: Option<Framing>) -> &'static str {
    match (document, framing) {
        (_, Some(_)) | (Document::Event, None) => "a stream",
        (Document::Request, None) => "a request",
        (Document::Response, None) => "a response",
    }
}

/// The target at a provider's row, or at the first row of the wire.
pub(crate) fn asked(wire: &Wire, provider: Option<&str>, model: &str) -> Result<Asked, Failure> {
    let catalog = Catalog::builtin();
    let row = match provider {
        Some(name) => {
            let row = catalog.provider_on(name, wire);
            row.ok_or_else(|| unknown_provider(catalog, name, wire))?
        }
        None => catalog
            .default_provider(wire)
            .ok_or_else(|| Failure::Usage(format!("no provider speaks {wire}")))?,
    };
    Ok(Asked::of(catalog.target(&row, model, "default")))
}

pub(crate) fn unknown_provider(catalog: &Catalog, name: &str, wire: &Wire) -> Failure {
    let rows = catalog.providers().iter().filter(|row| row.wire == *wire);
    let names: Vec<Arc<str>> = rows.map(|row| Arc::clone(&row.name)).collect();
    Failure::Usage(format!(
        "no provider `{name}` speaks {wire}; those that do: {}",
        names.join(", ")
    ))
}

/// Says so when nothing is known of a model.
pub(crate) fn note_unknown_model(asked: &Asked) {
    let model = asked.target.model();
    if asked.target.profile.name == "unknown" && model != "unknown" {
        let message = format!(
            "nothing is known of the model `{model}`; it is treated as one without demands of its own"
        );
        text::note(&message);
    }
}
