//! The formats of model lists.
//!
//! Each format has the members that the provider documents. OpenAI's format documents no sizes, so
//! it also has the members in which other servers return them: `context_length` as OpenRouter,
//! `context_window`, and `max_input_tokens` and `max_output_tokens` as `LiteLLM`.

use throughline_core::{Mode, Profile, Vendor};
use throughline_json::{Json, Name};

use super::listed::{ListedModel, ModelFormat};
use super::page::Page;
use crate::object::{join_objects, object};

/// The release date of a model whose date is unknown. Anthropic documents the epoch for this case.
const UNKNOWN_DATE: &str = "1970-01-01";

/// The instructions that Codex gives to a model that is not one of OpenAI's. Codex requires
/// instructions in the metadata of each model, and uses its own for OpenAI's models.
const CODEX_INSTRUCTIONS: &str = "You are a coding agent that works in the user's terminal. Use \
    the tools to read and change files and to run commands. Continue until the task is done, check \
    your work, and report the results accurately.";

/// The efforts that every version of Codex knows. Codex refuses a list with any other effort.
const CODEX_EFFORTS: [&str; 5] = ["minimal", "low", "medium", "high", "xhigh"];

/// Encodes one page of the list.
pub(super) fn list(format: ModelFormat, page: &Page<'_>) -> Json {
    let models: Vec<Json> = page.models.iter().map(|model| encode(format, model)).collect();
    let next = page.next();
    match format {
        ModelFormat::OpenAi => object! { "object": "list", "data": models },
        ModelFormat::Codex => {
            let own = page.models.iter().filter(|model| !has_codex_metadata(model));
            let own: Vec<Json> = own.enumerate().map(codex_model).collect();
            object! { "object": "list", "data": models, "models": own }
        }
        ModelFormat::Anthropic => object! {
            "data": models, "has_more": page.has_more,
            "first_id": page.models.first().map(|model| &model.id),
            "last_id": page.models.last().map(|model| &model.id),
        },
        ModelFormat::Gemini => object! { "models": models, "nextPageToken"? next },
        ModelFormat::Vertex => object! { "publisherModels": models, "nextPageToken"? next },
        ModelFormat::BedrockModels => object! { "modelSummaries": models },
        ModelFormat::BedrockProfiles => {
            object! { "inferenceProfileSummaries": models, "nextToken"? next }
        }
    }
}

/// Encodes a single model.
pub(super) fn one(format: ModelFormat, model: &ListedModel) -> Json {
    let json = encode(format, model);
    if format == ModelFormat::BedrockModels {
        object! { "modelDetails": json }
    } else {
        json
    }
}

/// Encodes a model as an element of the list.
fn encode(format: ModelFormat, model: &ListedModel) -> Json {
    let ListedModel { id, title, context, output, .. } = model;
    match format {
        ModelFormat::OpenAi | ModelFormat::Codex => object! {
            "id": id, "object": "model", "created": created(model), "owned_by": "throughline",
            "display_name": title, "context_length"? context, "context_window"? context,
            "max_input_tokens"? context, "max_output_tokens"? output,
        },
        ModelFormat::Anthropic => anthropic_model(model),
        ModelFormat::Gemini => object! {
            "name": format!("models/{id}"), "version": "001", "displayName": title,
            "inputTokenLimit"? context, "outputTokenLimit"? output,
            "supportedGenerationMethods": ["generateContent", "countTokens"],
            "thinking": thinks(&model.profile),
        },
        ModelFormat::Vertex => {
            object! { "name": publisher_name(id), "versionId": "default", "displayName": title }
        }
        ModelFormat::BedrockModels => object! {
            "modelArn": arn("foundation-model", id), "modelId": id, "modelName": title,
            "providerName": vendor_name(&model.profile),
            "inputModalities": ["TEXT", "IMAGE"], "outputModalities": ["TEXT"],
            "responseStreamingSupported": true, "customizationsSupported": Vec::<&str>::new(),
            "inferenceTypesSupported": ["ON_DEMAND"],
            "modelLifecycle": object! { "status": "ACTIVE" },
        },
        ModelFormat::BedrockProfiles => object! {
            "inferenceProfileId": id, "inferenceProfileName": title,
            "inferenceProfileArn": arn("inference-profile", id),
            "models": [object! { "modelArn": arn("foundation-model", id) }],
            "status": "ACTIVE", "type": "SYSTEM_DEFINED",
        },
    }
}

/// Encodes a model in Anthropic's format. Capabilities are listed for Claude only, because they
/// describe what Anthropic's API accepts.
fn anthropic_model(model: &ListedModel) -> Json {
    let ListedModel { id, title, context, output, profile, .. } = model;
    let date = model.released.as_deref().unwrap_or(UNKNOWN_DATE);
    let json = object! {
        "type": "model", "id": id, "display_name": title,
        "created_at": format!("{date}T00:00:00Z"), "lifecycle": "active",
        "max_input_tokens"? context, "max_tokens"? output,
    };
    if profile.vendor != Some(Vendor::Anthropic) {
        return json;
    }
    let support = |is_supported: bool| object! { "supported": is_supported };
    let mode = |mode: Mode| support(profile.modes.contains(&mode));
    let types = object! {
        "adaptive": mode(Mode::Adaptive), "between_tools": mode(Mode::BetweenTools),
        "disabled": mode(Mode::Disabled), "enabled": mode(Mode::Enabled),
    };
    let thinking = object! { "supported": thinks(profile), "types": types };
    let effort = |effort: &str| support(profile.efforts.iter().any(|known| known == effort));
    let effort = object! {
        "supported": !profile.efforts.is_empty(), "low": effort("low"),
        "medium": effort("medium"), "high": effort("high"), "xhigh": effort("xhigh"),
        "max": effort("max"),
    };
    let capabilities = object! { "thinking": thinking, "effort": effort };
    join_objects(&json, &object! { "capabilities": capabilities })
}

/// Encodes a model with the members that Codex requires.
fn codex_model((index, model): (usize, &ListedModel)) -> Json {
    let ListedModel { id, title, context, profile, .. } = model;
    let efforts =
        CODEX_EFFORTS.iter().filter(|effort| profile.efforts.iter().any(|it| it == *effort));
    let levels: Vec<Json> =
        efforts.clone().map(|effort| object! { "effort": effort, "description": "" }).collect();
    let default = profile.notes.get("default-effort");
    let default = default.filter(|default| CODEX_EFFORTS.contains(&default.as_str()));
    object! {
        "slug": id, "display_name": title, "description": title,
        "default_reasoning_level"? default, "supported_reasoning_levels": levels,
        "shell_type": "shell_command", "visibility": "list", "supported_in_api": true,
        "priority": index, "availability_nux": (), "upgrade": (),
        "base_instructions": CODEX_INSTRUCTIONS,
        "supports_reasoning_summaries": true, "support_verbosity": false,
        "default_verbosity": (), "apply_patch_tool_type": (),
        "truncation_policy": object! { "mode": "tokens", "limit": 10_000 },
        "supports_parallel_tool_calls": true,
        "context_window"? context, "max_context_window"? context,
        "experimental_supported_tools": Vec::<&str>::new(),
        "input_modalities": ["text", "image"],
    }
}

/// Returns whether Codex has its own metadata for a model: OpenAI's models under their own names.
fn has_codex_metadata(model: &ListedModel) -> bool {
    model.profile.vendor == Some(Vendor::OpenAi) && !model.id.contains('/')
}

/// Returns the release date in seconds since the epoch; 0 if the date is unknown.
fn created(model: &ListedModel) -> i64 {
    let date = model.released.as_deref().and_then(|date| date.parse::<jiff::civil::Date>().ok());
    let time = date.and_then(|date| date.to_zoned(jiff::tz::TimeZone::UTC).ok());
    time.map_or(0, |time| time.timestamp().as_second())
}

fn thinks(profile: &Profile) -> bool {
    let is_mode = |mode: &Mode| *mode != Mode::Disabled;
    profile.always_thinks
        || profile.thinks_by_default
        || profile.modes.iter().any(is_mode)
        || !profile.levels.is_empty()
        || profile.budget.is_some()
}

/// Returns the name of a model on Vertex. `NAME/model` becomes a model of the publisher NAME, which
/// is how Google's client requests the model.
fn publisher_name(id: &Name) -> String {
    let (publisher, model) = id.split_once('/').unwrap_or(("google", id));
    format!("publishers/{publisher}/models/{model}")
}

fn arn(kind: &str, id: &Name) -> String {
    format!("arn:aws:bedrock:us-east-1::{kind}/{id}")
}

fn vendor_name(profile: &Profile) -> &'static str {
    match profile.vendor {
        Some(Vendor::Anthropic) => "Anthropic",
        Some(Vendor::Google) => "Google",
        Some(Vendor::OpenAi) => "OpenAI",
        Some(Vendor::Xai) => "xAI",
        None => "Throughline",
    }
}
