//! Lists the models that a caller may use, in the shape of its dialect: all of them, or one by
//! name.

use throughline_core::Wire;
use throughline_json::{self as json, Json, Name};

use crate::access::Caller;
use crate::error::GatewayError;
use crate::gateway::Gateway;
use crate::response::GatewayResponse;

/// The creation date of every model, which some dialects require.
const CREATED: &str = "2026-01-01T00:00:00Z";

/// The names of the models that the caller may use.
fn names(gateway: &Gateway, caller: &Caller) -> Vec<Name> {
    let names = gateway.directory.models().into_iter();
    names.filter(|name| caller.admission.allows(name)).collect()
}

/// Returns the list of models.
pub(crate) fn list(gateway: &Gateway, caller: &Caller, wire: &Wire) -> GatewayResponse {
    let names = names(gateway, caller);
    let models: Vec<Json> = names.iter().map(|name| model(wire, name)).collect();
    let models = json::array_of(&models);
    let list = json::object(|o| match wire.as_str() {
        "gemini" => {
            o.raw("models", &models);
        }
        "anthropic-messages" => {
            o.raw("data", &models);
            o.bool("has_more", false).maybe_string("first_id", names.first().map(|name| &**name));
            o.maybe_string("last_id", names.last().map(|name| &**name));
        }
        _ => {
            o.string("object", "list");
            o.raw("data", &models);
        }
    });
    GatewayResponse::json(200, &list)
}

/// Returns one model of the list.
pub(crate) fn one(
    gateway: &Gateway,
    caller: &Caller,
    wire: &Wire,
    name: &str,
) -> Result<GatewayResponse, GatewayError> {
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
    json::object(|o| match wire.as_str() {
        "gemini" => {
            o.string("name", &format!("models/{name}")).string("displayName", name);
            o.array("supportedGenerationMethods", |a| {
                a.string("generateContent").string("countTokens");
            });
        }
        "anthropic-messages" => {
            o.string("type", "model").string("id", name).string("display_name", name);
            o.string("created_at", CREATED);
        }
        _ => {
            o.string("id", name).string("object", "model").number("created", 0);
            o.string("owned_by", "throughline");
        }
    })
}
