//! Checks that every response in these tests matches the `OpenAPI` document.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::{Value, json};
use throughline_server::{openapi, routes};

static DOCUMENT: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_slice(openapi().bytes()).unwrap());

static ANSWERS: LazyLock<HashMap<(&str, &str), jsonschema::Validator>> = LazyLock::new(|| {
    let answers = routes().iter().filter_map(|route| {
        let operation = &DOCUMENT["paths"][route.path][route.method.to_lowercase()];
        let schema = operation["responses"]["200"]["content"].get("application/json")?;
        Some(((route.method, route.path), validator(&schema["schema"])))
    });
    answers.collect()
});

fn validator(schema: &Value) -> jsonschema::Validator {
    let mut document = schema.clone();
    document["components"] = DOCUMENT["components"].clone();
    jsonschema::validator_for(&document).unwrap()
}

/// Returns the documented path template that matches a path; `None` if no route matches.
fn route_of(method: &str, path: &str) -> Option<&'static str> {
    let path = path.split('?').next().unwrap_or_default().trim_end_matches('/');
    let fits = |pattern: &str| {
        let (pattern, path) = (pattern.trim_end_matches('/').split('/'), path.split('/'));
        pattern.clone().count() == path.clone().count()
            && pattern.zip(path).all(|(segment, step)| segment.starts_with('{') || segment == step)
    };
    let found = routes().iter().filter(|route| route.method == method && fits(route.path));
    found.map(|route| route.path).min_by_key(|path| path.matches('{').count())
}

/// Validates a response against the schema of its route.
pub(crate) fn check(method: &str, path: &str, status: u16, answer: &Value) {
    let Some(route) = route_of(method, path) else { return };
    if status >= 400 {
        assert!(answer.get("detail").is_some(), "{method} {path}: {answer}");
        return;
    }
    let Some(promised) = ANSWERS.get(&(method, route)) else { return };
    // Tests that read a stream check its frames themselves.
    if answer.is_string() && answer.as_str().is_some_and(|text| text.starts_with("data: ")) {
        return;
    }
    let problems: Vec<String> =
        promised.iter_errors(answer).take(3).map(|error| error.to_string()).collect();
    assert_eq!(json!(problems), json!([]), "{method} {path}: {answer}");
}
