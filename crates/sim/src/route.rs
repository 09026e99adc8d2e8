//! Routes requests: the path selects the wire, and the path or the model name selects the provider.

use std::borrow::Cow;
use std::sync::Arc;

use throughline_codec::Catalog;
use throughline_core::{Provider, Wire};

use crate::turn::Operation;

#[cfg(test)]
#[path = "route_tests.rs"]
mod route_tests;

/// The handler that a path selects.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Route {
    /// A request to a model.
    Model {
        wire: Wire,
        verb: Operation,
        /// Model named in the path, if any.
        model: Option<String>,
        /// Provider named in the path, if any.
        row: Option<Arc<Provider>>,
    },
    /// The list of models, or a single model.
    Models {
        /// Wire whose list is requested; `None` for `/v1/models`, because two wires share this
        /// path.
        wire: Option<Wire>,
        /// Model named in the path, if any.
        model: Option<String>,
    },
    Ledger,
    /// Replacement of the script.
    Script,
    Unknown,
    /// The path names a provider that the catalog does not contain.
    UnknownRow(String),
}

/// Routes a path, which must not contain a query.
pub(crate) fn route(path: &str, catalog: &Catalog) -> Route {
    if path == "/sim/ledger" {
        return Route::Ledger;
    }
    if path == "/sim/script" {
        return Route::Script;
    }
    let Some(rest) = path.strip_prefix("/at/") else { return route_path(path, None) };
    let (row, rest) = rest.find('/').and_then(|at| rest.split_at_checked(at)).unwrap_or((rest, ""));
    let Some(named) = catalog.provider(row) else { return Route::UnknownRow(row.to_owned()) };
    match route_path(rest, Some(named.name.as_ref())) {
        Route::Model { wire, verb, model, .. } => {
            // For example, `deepseek` on Anthropic's wire is the catalog entry
            // `deepseek-anthropic`.
            let provider = catalog.provider_on_wire(&named.name, &wire).unwrap_or(named);
            Route::Model { wire, verb, model, row: Some(provider) }
        }
        Route::Models { wire: None, model } => {
            Route::Models { wire: Some(named.wire.clone()), model }
        }
        route @ (Route::Models { .. }
        | Route::Ledger
        | Route::Script
        | Route::Unknown
        | Route::UnknownRow(_)) => route,
    }
}

/// Routes the path after `/at/{row}`. If the path names a provider, any prefix before the wire's
/// own path is accepted.
fn route_path(path: &str, row: Option<&str>) -> Route {
    let routes = [
        ("/v1/messages", Wire::ANTHROPIC_MESSAGES, Operation::Answer),
        ("/v1/messages/count_tokens", Wire::ANTHROPIC_MESSAGES, Operation::Count),
        ("/v1/responses", Wire::OPENAI_RESPONSES, Operation::Answer),
        ("/v1/responses/input_tokens", Wire::OPENAI_RESPONSES, Operation::Count),
        ("/v1/responses/compact", Wire::OPENAI_RESPONSES, Operation::Compact),
        ("/v1/chat/completions", Wire::OPENAI_CHAT, Operation::Answer),
    ];
    let path = if path == "/api/v1/chat/completions" { "/v1/chat/completions" } else { path };
    for (exact, wire, verb) in routes {
        let is_below_row = || row.is_some() && path.ends_with(exact.trim_start_matches("/v1"));
        if path == exact || is_below_row() {
            return Route::Model { wire, verb, model: None, row: None };
        }
    }
    if let Some(rest) = path.strip_prefix("/model/") {
        let Some((model, verb)) = rest.rsplit_once('/') else { return Route::Unknown };
        let verbs = ["converse", "converse-stream", "count-tokens"];
        return model_action(Wire::BEDROCK_CONVERSE, model, verb, verbs);
    }
    if let Some((_, rest)) = path.split_once("/models/")
        && let Some((model, verb)) = rest.rsplit_once(':')
    {
        if verb.ends_with("awPredict") {
            let verbs = ["rawPredict", "streamRawPredict", ""];
            return model_action(Wire::ANTHROPIC_MESSAGES, model, verb, verbs);
        }
        let verbs = ["generateContent", "streamGenerateContent", "countTokens"];
        return model_action(Wire::GEMINI, model, verb, verbs);
    }
    models(path)
}

/// Routes a path that names its model. `verbs` are the names that the path uses for
/// [`Operation::Answer`], [`Operation::Stream`] and [`Operation::Count`].
fn model_action(wire: Wire, model: &str, verb: &str, verbs: [&str; 3]) -> Route {
    let operations = [Operation::Answer, Operation::Stream, Operation::Count];
    let mut named_operations = verbs.into_iter().zip(operations);
    let Some((_, verb)) = named_operations.find(|(name, _)| *name == verb) else {
        return Route::Unknown;
    };
    Route::Model { wire, verb, model: Some(unescaped(model).into_owned()), row: None }
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

/// Selects the provider by wire and model name, for paths that do not name a provider.
pub(crate) fn row(catalog: &Catalog, wire: &Wire, model: &str, path: &str) -> Arc<Provider> {
    let is_vertex = *wire == Wire::GEMINI && path.contains("/projects/");
    let vertex = catalog.provider("vertex").filter(|_| is_vertex);
    let provider = vertex.or_else(|| catalog.provider_for_model(wire, model));
    // Without a catalog entry for this wire, use an empty provider.
    provider.unwrap_or_else(|| {
        Arc::new(Provider {
            name: wire.as_str().into(),
            wire: wire.clone(),
            base_url: "".into(),
            key_env: None,
            dialect: throughline_core::Dialect::default(),
            replay_plain: throughline_core::PlainReplay::default(),
        })
    })
}

/// Decodes percent escapes; returns the input unchanged if the decoded bytes are not UTF-8.
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
