//! Lists the models that a caller may use, or returns a single model, in the format of the caller's
//! dialect.

use throughline_core::Wire;
use throughline_json::{Json, Name};

use crate::access::Caller;
use crate::error::{GatewayError, GatewayResult};
use crate::gateway::Gateway;
use crate::object::object;
use crate::response::GatewayResponse;

/// The creation date reported for every model, because some dialects require one.
const CREATED: &str = "2026-01-01T00:00:00Z";

fn names(gateway: &Gateway, caller: &Caller) -> Vec<Name> {
    let names = gateway.directory.models().into_iter();
    names.filter(|name| caller.admission.allows(name)).collect()
}

/// Returns the models that the caller may use, in the list format of the wire.
pub(crate) fn list(gateway: &Gateway, caller: &Caller, wire: &Wire) -> GatewayResponse {
    let names = names(gateway, caller);
    let models: Vec<Json> = names.iter().map(|name| model(wire, name)).collect();
    let list = match wire.as_str() {
        "gemini" => object! { "models": models },
        "anthropic-messages" => object! {
            "data": models, "has_more": false,
            "first_id"? names.first(), "last_id"? names.last(),
        },
        _ => object! { "object": "list", "data": models },
    };
    GatewayResponse::json(200, &list)
}

/// Returns one model by name. Returns 404 if the model does not exist or the caller may not use it.
pub(crate) fn one(gateway: &Gateway, caller: &Caller, wire: &Wire, name: &str) -> GatewayResult {
    if names(gateway, caller).iter().any(|known| **known == *name) {
        return Ok(GatewayResponse::json(200, &model(wire, name)));
    }
    let message = match wire.as_str() {
        "gemini" => format!("models/{name} is not found"),
        "anthropic-messages" => format!("model: {name}"),
        _ => format!("The model '{name}' does not exist"),
    };
    let code = Some(("model", "model_not_found"));
    Err(GatewayError { code, ..GatewayError::new(404, message) })
}

fn model(wire: &Wire, name: &str) -> Json {
    match wire.as_str() {
        "gemini" => object! {
            "name": format!("models/{name}"), "displayName": name,
            "supportedGenerationMethods": ["generateContent", "countTokens"],
        },
        "anthropic-messages" => {
            object! { "type": "model", "id": name, "display_name": name, "created_at": CREATED }
        }
        _ => object! { "id": name, "object": "model", "created": 0, "owned_by": "throughline" },
    }
}
