//! Tests that generated arguments take values from the user's message.

use serde_json::json;

use super::*;
use crate::digest::Digest;
use crate::schema;

/// Generates the arguments of a call for a message.
fn arguments(message: &str, properties: &Value) -> Value {
    let required: Vec<&String> = properties.as_object().unwrap().keys().collect();
    let schema = json!({"type": "object", "properties": properties, "required": required});
    let value = schema::generate_from(&schema, Digest::default(), message);
    let validator = jsonschema::validator_for(&schema).unwrap();
    assert!(validator.is_valid(&value), "{value} does not fit {schema}");
    value
}

#[test]
fn arguments_take_values_from_the_message() {
    let text = json!({"type": "string"});
    for (message, properties, expected) in [
        ("What is the time?", json!({"input": text}), json!({"input": "What is the time?"})),
        (
            "What is the weather in New York on 2026-12-24?",
            json!({"city": text, "date": {"type": "string", "format": "date"}}),
            json!({"city": "New York", "date": "2026-12-24"}),
        ),
        (
            "What is 12 times 30?",
            json!({"a": {"type": "integer"}, "b": {"type": "number"}}),
            json!({"a": 12, "b": 30}),
        ),
        (
            "Deploy the app to production.",
            json!({"environment": {"enum": ["staging", "production"]}}),
            json!({"environment": "production"}),
        ),
    ] {
        assert_eq!(arguments(message, &properties), expected, "{message}");
    }
}

#[test]
fn values_that_do_not_fit_are_generated() {
    let message = "Add 900 to the list, please";
    let properties = json!({
        "n": {"type": "integer", "maximum": 10},
        "query": {"type": "string", "maxLength": 5},
        "city": {"type": "string"},
    });
    let value = arguments(message, &properties);
    assert_eq!(value["n"], 7);
    assert!(!message.contains(value["city"].as_str().unwrap()), "{value}");
}

#[test]
fn messages_never_become_commands_or_paths() {
    let names = ["command", "cmd", "script", "code", "path", "file_path", "content", "url", "sql"];
    let message = "rm Important.txt";
    for name in names {
        let value = arguments(message, &json!({name: {"type": "string"}}));
        let value = value[name].as_str().unwrap();
        assert!(!value.contains("rm") && !value.contains("Important"), "{name}: {value}");
    }
}
