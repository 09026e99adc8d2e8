//! Tests that generated values pass a JSON Schema validator.

use super::*;

#[test]
fn generated_values_are_valid() {
    let schemas = [
        json!({"type": "object"}),
        json!({}),
        json!({"type": "object", "properties": {"a": {}}, "required": ["a", "b"]}),
        json!({"type": "object", "properties": {
            "date": {"type": "string", "format": "date"},
            "uuid": {"type": "string", "format": "uuid"},
            "mail": {"type": "string", "format": "email"},
            "short": {"type": "string", "maxLength": 2},
            "long": {"type": "string", "minLength": 40},
        }}),
        json!({"type": "object", "properties": {
            "few": {"type": "integer", "minimum": 100},
            "many": {"type": "integer", "maximum": -5},
            "tens": {"type": "integer", "multipleOf": 10, "minimum": 5},
            "open": {"type": "integer", "exclusiveMinimum": 6, "exclusiveMaximum": 8},
            "part": {"type": "number", "minimum": 0, "maximum": 1},
            "flag": {"type": "boolean"},
            "none": {"type": "null"},
        }}),
        json!({"type": "object", "properties": {
            "list": {"type": "array", "items": {"type": "integer"}, "minItems": 3},
            "pair": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]},
            "none": {"type": "array", "maxItems": 0},
        }}),
        json!({"type": "object", "required": ["tree"], "properties": {"tree": {"$ref": "#/$defs/t"}},
        "$defs": {"t": {"type": "object", "required": ["name"], "properties": {
            "name": {"type": "string"}, "child": {"$ref": "#/$defs/t"},
        }}}}),
        json!({"type": "object", "properties": {
            "either": {"oneOf": [{"type": "null"}, {"type": "object", "properties": {"x": {"const": 1}}}]},
            "both": {"allOf": [
                {"type": "object", "properties": {"p": {"type": "integer"}}, "required": ["p"]},
                {"type": "object", "properties": {"q": {"enum": ["r"]}}, "required": ["q"]},
            ]},
        }}),
    ];
    for schema in schemas {
        for seed in 0..8_u8 {
            let value = generate(&schema, Digest::new("schema", [seed]));
            let validator = jsonschema::validator_for(&schema).unwrap();
            assert!(validator.is_valid(&value), "{value} does not fit {schema}");
        }
    }
}

#[test]
fn capitalised_gemini_types_are_accepted() {
    let schema = json!({"type": "OBJECT", "properties": {"days": {"type": "INTEGER"}}});
    assert_eq!(generate(&schema, Digest::default()), json!({"days": 7}));
}

#[test]
fn required_recursion_terminates() {
    let schema =
        json!({"type": "object", "required": ["self"], "properties": {"self": {"$ref": "#"}}});
    assert!(generate(&schema, Digest::default()).is_object());
}
