//! Reads conversations in the documented formats: `LLMMessage`, Letta's messages, `RawThought` and
//! `reasoning_details`.

use std::sync::Arc;

use throughline_codec::{Codec, History, HistoryFormat, HistoryOwner, codec, read_history};
use throughline_core::{Provider, Target, Vendor, Wire};
use throughline_json::Json;

use crate::input::Input;
use crate::input::rows::{RequestCatalog, UNKNOWN};
use crate::print::failure::{Failure, Result};
use crate::print::text;

/// The model that issued the reasoning of a document, with the codec of its wire.
pub(crate) struct DocumentOwner {
    pub(crate) target: Target,
    pub(crate) codec: &'static dyn Codec,
}

impl DocumentOwner {
    /// Resolves the owner from the options. `reasoning_details` belong to OpenRouter by default;
    /// the owner of all other documents is unknown unless the options name a provider or a model.
    pub(crate) fn resolve(
        rows: &RequestCatalog,
        format: HistoryFormat,
        provider: Option<&str>,
        model: Option<&str>,
        account: &str,
    ) -> Result<Option<Self>> {
        let row = match (provider, model) {
            (Some(name), _) => Some(named(rows, name)?),
            (None, _) if format == HistoryFormat::ReasoningDetails => {
                rows.catalog().provider("openrouter")
            }
            (None, Some(model)) => likely_provider(rows, model),
            (None, None) => None,
        };
        let Some(row) = row else { return Ok(None) };
        let target = rows.catalog().target(&row, model.unwrap_or(UNKNOWN), account);
        let missing = || Failure::Usage(format!("no codec registered for wire `{}`", row.wire));
        let codec = codec(&row.wire).ok_or_else(missing)?;
        Ok(Some(Self { target, codec }))
    }

    pub(crate) fn history(&self) -> HistoryOwner<'_> {
        HistoryOwner::new(&self.target, self.codec)
    }
}

/// Reads a conversation. Without an owner, a note explains that its reasoning cannot be restored,
/// and names the command-line option that specifies the owner.
pub(crate) fn read(
    input: &Input,
    format: HistoryFormat,
    owner: Option<&DocumentOwner>,
    owner_option: &str,
) -> Result<History> {
    if owner.is_none() && format != HistoryFormat::RawThought {
        text::note(&format!(
            "{} does not name the provider of its reasoning; specify it with {owner_option} to \
             restore native blocks",
            input.name
        ));
    }
    let document = Json::parse(input.bytes.clone());
    let document = document.map_err(|error| input.bad_data(error.into()))?;
    read_history(&document, format, owner.map(DocumentOwner::history))
        .map_err(|error| Failure::BadData(format!("{}: {error}", input.name)))
}

fn named(rows: &RequestCatalog, name: &str) -> Result<Arc<Provider>> {
    let unknown = || {
        let names: Vec<&str> = rows.catalog().providers().iter().map(|row| &*row.name).collect();
        Failure::Usage(format!("unknown provider `{name}`; use one of {}", names.join(", ")))
    };
    rows.catalog().provider(name).ok_or_else(unknown)
}

/// Returns the provider that most likely serves the model: its vendor, or a chat provider.
fn likely_provider(rows: &RequestCatalog, model: &str) -> Option<Arc<Provider>> {
    let catalog = rows.catalog();
    let wire = match catalog.profile(model).vendor {
        _ if model.contains('/') => Wire::OPENAI_CHAT,
        Some(Vendor::Anthropic) => Wire::ANTHROPIC_MESSAGES,
        Some(Vendor::Google) => Wire::GEMINI,
        Some(Vendor::OpenAi | Vendor::Xai) => Wire::OPENAI_RESPONSES,
        None => Wire::OPENAI_CHAT,
    };
    let row = catalog.provider_for_model(&wire, model)?;
    text::note(&format!("assuming provider {}; use --provider to change it", row.name));
    Some(row)
}
