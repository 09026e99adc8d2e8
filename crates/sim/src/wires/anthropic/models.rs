//! The list of Claude models, with the capabilities of their families.

use serde_json::{Value, json};
use throughline_core::{Mode, Profile};

use crate::state::SimState;

/// Model id, display name and release date, newest first.
const MODELS: [(&str, &str, &str); 14] = [
    ("claude-opus-5-5", "Claude Opus 5.5", "2026-10-20T00:00:00Z"),
    ("claude-sonnet-5-5", "Claude Sonnet 5.5", "2026-10-06T00:00:00Z"),
    ("claude-haiku-5-5", "Claude Haiku 5.5", "2026-09-29T00:00:00Z"),
    ("claude-fable-5-1", "Claude Fable 5.1", "2026-08-31T00:00:00Z"),
    ("claude-mythos-5-1", "Claude Mythos 5.1", "2026-08-31T00:00:00Z"),
    ("claude-fable-5", "Claude Fable 5", "2026-07-14T00:00:00Z"),
    ("claude-opus-5", "Claude Opus 5", "2026-06-30T00:00:00Z"),
    ("claude-sonnet-5", "Claude Sonnet 5", "2026-06-30T00:00:00Z"),
    ("claude-opus-4-8", "Claude Opus 4.8", "2026-05-12T00:00:00Z"),
    ("claude-opus-4-7", "Claude Opus 4.7", "2026-04-14T00:00:00Z"),
    ("claude-opus-4-6", "Claude Opus 4.6", "2026-02-04T00:00:00Z"),
    ("claude-sonnet-4-6", "Claude Sonnet 4.6", "2026-02-17T00:00:00Z"),
    ("claude-opus-4-5-20251101", "Claude Opus 4.5", "2025-11-24T00:00:00Z"),
    ("claude-sonnet-4-5-20250929", "Claude Sonnet 4.5", "2025-09-29T00:00:00Z"),
];

/// Returns the whole model list, or only the requested model; `None` if that model is unknown.
pub(super) fn models(state: &SimState, model: Option<&str>) -> Option<Value> {
    let catalog = state.catalog.current();
    let row = |(id, name, created): &(&str, &str, &str)| {
        json!({
            "type": "model",
            "id": id,
            "display_name": name,
            "created_at": created,
            "max_input_tokens": 1_000_000,
            "max_tokens": 128_000,
            "capabilities": capabilities(&catalog.profile(id)),
        })
    };
    if let Some(model) = model {
        return MODELS.iter().find(|(id, ..)| *id == model).map(row);
    }
    let data: Vec<Value> = MODELS.iter().map(row).collect();
    Some(json!({
        "first_id": data.first().and_then(|first| first.get("id")),
        "last_id": data.last().and_then(|last| last.get("id")),
        "has_more": false,
        "data": data,
    }))
}

fn capabilities(profile: &Profile) -> Value {
    let supported = |is_supported: bool| json!({"supported": is_supported});
    let takes = |mode: Mode| supported(profile.supports_mode(mode));
    let effort = |level: &str| supported(profile.efforts.iter().any(|known| known == level));
    json!({
        "batch": supported(true),
        "citations": supported(true),
        "code_execution": supported(true),
        "context_management": {
            "supported": true,
            "clear_thinking_20251015": supported(true),
            "clear_tool_uses_20250919": supported(true),
            "compact_20260112": supported(true),
        },
        "effort": {
            "supported": !profile.efforts.is_empty(),
            "low": effort("low"),
            "medium": effort("medium"),
            "high": effort("high"),
            "xhigh": effort("xhigh"),
            "max": effort("max"),
        },
        "image_input": supported(true),
        "pdf_input": supported(true),
        "structured_outputs": supported(true),
        "thinking": {
            "supported": profile.can_think(),
            "types": {
                "adaptive": takes(Mode::Adaptive),
                "between_tools": takes(Mode::BetweenTools),
                "disabled": takes(Mode::Disabled),
                "enabled": takes(Mode::Enabled),
            },
        },
    })
}
