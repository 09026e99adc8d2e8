//! The models that a caller can ask for, in the shape of its dialect: all of them, and one by its name.

use throughline_core::{Json, Name, Wire, json};

use crate::exchange::{Caller, Problem};
use crate::gateway::{Answered, Gateway};

/// When a model of ours was made, as far as the dialect asks.
const CREATED: &str = "2026-01-01T00:00:00Z";

/// The names that the caller may ask for.
fn names(gateway: &Gateway, caller: &Caller) -> Vec<Name> {
    let names = gateway.directory.models().into_iter();
    names.filter(|name| caller.admission.allows(name)).collect()
}

/// The list of models.
pub(crate) fn list(gateway: &Gateway, caller: &Caller, wire: &Wire) -> Answered {
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
    Answered::json(200, &list)
}

/// One model of the list.
pub(crate) fn one(
    gateway: &Gateway,
    caller: &Caller,
    wire: &Wire,
    name: &str,
) -> Result<Answered, Problem> {
    if names(gateway, caller).iter().any(|known| **known == *name) {
        return Ok(Answered::json(200, &model(wire, name)));
    }
    let message = match wire.as_str() {
        "gemini" => format!("models/{name} is not found"),
        "anthropic-messages" => format!("model: {name}"),
        _ => format!("The model '{name}' does not exist"),
    };
    let code = Some(("model", "model_not_found"));
    Err(Problem { code, ..Problem::new(404, message) })
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
