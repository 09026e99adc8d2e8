//! Which stand-in a path leads to: the wire from the path, the provider's row from the path or the model's name.

use std::borrow::Cow;
use std::sync::Arc;

use throughline_codec::Catalog;
use throughline_core::{Provider, Wire};

use crate::turn::Verb;

#[cfg(test)]
#[path = "route_tests.rs"]
mod route_tests;

/// Where a path leads.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Route {
    /// To a model.
    Model {
        /// The wire that the path is of.
        wire: Wire,
        /// What is wanted.
        verb: Verb,
        /// The model, where the path names it.
        model: Option<String>,
        /// The endpoint, where the path names it.
        row: Option<Arc<Provider>>,
    },
    /// To the list of models.
    Models {
        /// The wire whose list it is; nothing for `/v1/models`, which two wires have in common.
        wire: Option<Wire>,
        /// The model, where only one is asked for.
        model: Option<String>,
    },
    /// To the ledger.
    Ledger,
    /// Nowhere.
    Unknown,
    /// To an endpoint that no row describes.
    UnknownRow(String),
}

/// The route of a path, without its query.
pub(crate) fn route(path: &str, catalog: &Catalog) -> Route {
    if path == "/sim/ledger" {
        return Route::Ledger;
    }
    let Some(rest) = path.strip_prefix("/at/") else { return plain(path, None) };
    let (row, rest) = rest.find('/').and_then(|at| rest.split_at_checked(at)).unwrap_or((rest, ""));
    let Some(named) = catalog.provider(row) else { return Route::UnknownRow(row.to_owned()) };
    match plain(rest, Some(named.name.as_ref())) {
        Route::Model { wire, verb, model, .. } => {
            // `deepseek` asked on Anthropic's wire is `deepseek-anthropic`.
            let found = catalog.provider_on(&named.name, &wire).unwrap_or(named);
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

/// The route of a path behind the row. Where a row is named, what stands before the wire's own path is the row's affair.
fn plain(path: &str, row: Option<&str>) -> Route {
    let ends = |exact: &str, tail: &str| path == exact || (row.is_some() && path.ends_with(tail));
    let to = |wire: Wire, verb: Verb, model: Option<String>| Route::Model {
        wire,
        verb,
        model,
        row: None,
    };
    if ends("/v1/messages", "/messages") {
        return to(Wire::ANTHROPIC_MESSAGES, Verb::Answer, None);
    }
    if ends("/v1/messages/count_tokens", "/messages/count_tokens") {
        return to(Wire::ANTHROPIC_MESSAGES, Verb::Count, None);
    }
    if ends("/v1/responses", "/responses") {
        return to(Wire::OPENAI_RESPONSES, Verb::Answer, None);
    }
    if ends("/v1/responses/input_tokens", "/responses/input_tokens") {
        return to(Wire::OPENAI_RESPONSES, Verb::Count, None);
    }
    if ends("/v1/chat/completions", "/chat/completions") || path == "/api/v1/chat/completions" {
        return to(Wire::OPENAI_CHAT, Verb::Answer, None);
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
        "converse" => Verb::Answer,
        "converse-stream" => Verb::Stream,
        "count-tokens" => Verb::Count,
        _ => return Route::Unknown,
    };
    let model = Some(unescaped(model).into_owned());
    Route::Model { wire: Wire::BEDROCK_CONVERSE, verb, model, row: None }
}

fn gemini(model: &str, verb: &str) -> Route {
    let verb = match verb {
        "generateContent" => Verb::Answer,
        "streamGenerateContent" => Verb::Stream,
        "countTokens" => Verb::Count,
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

/// The row that answers a model on a wire when the path names none.
pub(crate) fn row(catalog: &Catalog, wire: &Wire, model: &str, path: &str) -> Arc<Provider> {
    let is_vertex = *wire == Wire::GEMINI && path.contains("/projects/");
    let vertex = catalog.provider("vertex").filter(|_| is_vertex);
    let found = vertex.or_else(|| catalog.provider_of(wire, model));
    // A catalog without any row of a wire still has the wire: nothing is known of its endpoint.
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

/// A path's part with its `%3A`s undone. What is not text then is left as it was.
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
