//! Routes a path: the path determines the wire; the path or the model name determines the provider
//! row.

use std::borrow::Cow;
use std::sync::Arc;

use throughline_codec::Catalog;
use throughline_core::{Provider, Wire};

use crate::turn::Operation;

#[cfg(test)]
#[path = "route_tests.rs"]
mod route_tests;

/// The destination of a path.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Route {
    /// A request to a model.
    Model {
        wire: Wire,
        verb: Operation,
        /// The model, if the path names it.
        model: Option<String>,
        /// The endpoint, if the path names it.
        row: Option<Arc<Provider>>,
    },
    /// The list of models.
    Models {
        /// The wire of the list; `None` for `/v1/models`, which two wires share.
        wire: Option<Wire>,
        /// The model, if the path names one.
        model: Option<String>,
    },
    Ledger,
    Unknown,
    /// A row name that the catalog does not contain.
    UnknownRow(String),
}

/// Routes a path without its query.
pub(crate) fn route(path: &str, catalog: &Catalog) -> Route {
    if path == "/sim/ledger" {
        return Route::Ledger;
    }
    let Some(rest) = path.strip_prefix("/at/") else { return plain(path, None) };
    let (row, rest) = rest.find('/').and_then(|at| rest.split_at_checked(at)).unwrap_or((rest, ""));
    let Some(named) = catalog.provider(row) else { return Route::UnknownRow(row.to_owned()) };
    match plain(rest, Some(named.name.as_ref())) {
        Route::Model { wire, verb, model, .. } => {
            // The row `deepseek` on Anthropic's wire is `deepseek-anthropic`.
            let found = catalog.provider_on_wire(&named.name, &wire).unwrap_or(named);
            Route::Model { wire, verb, model, row: Some(found) }
        }
        Route::Models { wire: None, model } => {
            Route::Models { wire: Some(named.wire.clone()), model }
        }
        route @ (Route::Models { .. } | Route::Ledger | Route::Unknown | Route::UnknownRow(_)) => {
            route
        }
    }
}

/// Routes the path after the row name. With a named row, any prefix before the wire's own path is
/// accepted.
fn plain(path: &str, row: Option<&str>) -> Route {
    let ends = |exact: &str, tail: &str| path == exact || (row.is_some() && path.ends_with(tail));
    let to = |wire: Wire, verb: Operation, model: Option<String>| Route::Model {
        wire,
        verb,
        model,
        row: None,
    };
    if ends("/v1/messages", "/messages") {
        return to(Wire::ANTHROPIC_MESSAGES, Operation::Answer, None);
    }
    if ends("/v1/messages/count_tokens", "/messages/count_tokens") {
        return to(Wire::ANTHROPIC_MESSAGES, Operation::Count, None);
    }
    if ends("/v1/responses", "/responses") {
        return to(Wire::OPENAI_RESPONSES, Operation::Answer, None);
    }
    if ends("/v1/responses/input_tokens", "/responses/input_tokens") {
        return to(Wire::OPENAI_RESPONSES, Operation::Count, None);
    }
    if ends("/v1/chat/completions", "/chat/completions") || path == "/api/v1/chat/completions" {
        return to(Wire::OPENAI_CHAT, Operation::Answer, None);
    }
    if let Some(rest) = path.strip_prefix("/model/") {
        return converse(rest);
    }
    if let Some((_, rest)) = path.split_once("/models/")
        && let Some((model, verb)) = rest.rsplit_once(':')
    {
        return gemini(model, verb);
    }
    models(path)
}

fn converse(rest: &str) -> Route {
    let Some((model, verb)) = rest.rsplit_once('/') else { return Route::Unknown };
    let verb = match verb {
        "converse" => Operation::Answer,
        "converse-stream" => Operation::Stream,
        "count-tokens" => Operation::Count,
        _ => return Route::Unknown,
    };
    let model = Some(unescaped(model).into_owned());
    Route::Model { wire: Wire::BEDROCK_CONVERSE, verb, model, row: None }
}

fn gemini(model: &str, verb: &str) -> Route {
    let verb = match verb {
        "generateContent" => Operation::Answer,
        "streamGenerateContent" => Operation::Stream,
        "countTokens" => Operation::Count,
        _ => return Route::Unknown,
    };
    let model = Some(unescaped(model).into_owned());
    Route::Model { wire: Wire::GEMINI, verb, model, row: None }
}

fn models(path: &str) -> Route {
    if let Some(rest) = path.strip_prefix("/v1beta/models") {
        let model = rest.strip_prefix('/').map(|model| unescaped(model).into_owned());
        return Route::Models { wire: Some(Wire::GEMINI), model };
    }
    if path == "/foundation-models" {
        return Route::Models { wire: Some(Wire::BEDROCK_CONVERSE), model: None };
    }
    match path.split_once("/models") {
        Some((_, "")) => Route::Models { wire: None, model: None },
        Some((_, rest)) => {
            let model = rest.strip_prefix('/').map(|model| unescaped(model).into_owned());
            model.map_or(Route::Unknown, |model| Route::Models { wire: None, model: Some(model) })
        }
        None => Route::Unknown,
    }
}

/// Returns the provider row for a model on a wire if the path names none.
pub(crate) fn row(catalog: &Catalog, wire: &Wire, model: &str, path: &str) -> Arc<Provider> {
    let is_vertex = *wire == Wire::GEMINI && path.contains("/projects/");
    let vertex = catalog.provider("vertex").filter(|_| is_vertex);
    let found = vertex.or_else(|| catalog.provider_for_model(wire, model));
    // If the catalog has no row for this wire, use an empty one.
    found.unwrap_or_else(|| {
        Arc::new(Provider {
            name: wire.as_str().into(),
            wire: wire.clone(),
            base_url: "".into(),
            key_env: None,
            dialect: throughline_core::Dialect::default(),
        })
    })
}

/// Decodes percent escapes. Returns the part unchanged if the result is not UTF-8.
fn unescaped(part: &str) -> Cow<'_, str> {
    if !part.contains('%') {
        return Cow::Borrowed(part);
    }
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part;
    while let Some((before, after)) = rest.split_once('%') {
        bytes.extend_from_slice(before.as_bytes());
        let digits = after.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match digits {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(b'%');
                rest = after;
            }
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8(bytes).map_or(Cow::Borrowed(part), Cow::Owned)
}
