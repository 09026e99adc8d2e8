//! Tests that generated values pass a JSON Schema validator.

use proptest::prelude::*;

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

#[test]
fn numbers_are_whole_numbers_if_the_schema_allows_them() {
    let cases = [
        (json!({"type": "number"}), json!(7)),
        (json!({"type": "number", "minimum": 0, "maximum": 1}), json!(1)),
        (json!({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}), json!(0.5)),
        (json!({"type": "number", "minimum": 10000.0}), json!(10000)),
        (json!({"type": "integer", "minimum": 1.5}), json!(7)),
        (
            json!({"type": "integer", "minimum": -9_007_199_254_740_991_i64, "exclusiveMinimum": 8}),
            json!(9),
        ),
        (json!({"type": "integer", "maximum": 0}), json!(0)),
        (json!({"type": ["integer", "null"]}), json!(7)),
        (json!({"anyOf": [{"type": "null"}, {"type": "number", "multipleOf": 2}]}), json!(6)),
    ];
    for (schema, expected) in cases {
        let object = json!({"type": "object", "properties": {"n": schema}, "required": ["n"]});
        let value = generate(&object, Digest::default());
        assert_eq!(value["n"].to_string(), expected.to_string(), "{schema}");
    }
}

#[test]
fn optional_members_are_omitted_if_the_schema_requires_others() {
    let schema = json!({
        "type": "object",
        "properties": {"command": {"type": "string"}, "background": {"type": "boolean"}},
        "required": ["command"],
    });
    let value = generate(&schema, Digest::default());
    assert_eq!(value.as_object().unwrap().keys().collect::<Vec<_>>(), ["command"]);
}

#[test]
fn combined_schemas_and_patterns_are_satisfied() {
    let schemas = [
        json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}},
               "anyOf": [{"required": ["a"]}, {"required": ["b"]}], "additionalProperties": false}),
        json!({"$ref": "#/$defs/x", "$defs": {"x": {"type": "object", "required": ["y"],
               "properties": {"y": {"$ref": "#/$defs/y"}}}, "y": {"type": "array", "minItems": 2,
               "items": {"enum": ["p", "q"]}}}}),
        json!({"type": "object", "required": ["id"], "properties": {
            "id": {"type": "string", "pattern": "^wf_[a-z0-9-]{6,}$"}}}),
        json!({"type": "object", "required": ["id"], "properties": {
            "id": {"type": "string", "pattern": "^(read|write):[A-Z]+\\.txt$"}}}),
        json!({"type": "object", "minProperties": 2, "additionalProperties": {"type": "integer"}}),
        json!({"type": "object", "required": ["set"], "properties": {
            "set": {"type": "array", "minItems": 5, "uniqueItems": true,
                    "items": {"type": "integer", "minimum": 0}}}}),
        json!({"type": "object", "required": ["set"], "properties": {
            "set": {"type": "array", "minItems": 12, "uniqueItems": true,
                    "items": {"type": "string"}}}}),
        json!({"type": "object", "required": ["status"], "properties": {"status": {"anyOf": [
            {"type": "string", "enum": ["open", "done"]}, {"type": "string", "const": "gone"}]}}}),
    ];
    for schema in schemas {
        let value = generate(&schema, Digest::default());
        let validator = jsonschema::validator_for(&schema).unwrap();
        assert!(validator.is_valid(&value), "{value} does not fit {schema}");
    }
}

const FORMATS: &[&str] =
    &["date", "date-time", "time", "email", "uri", "hostname", "ipv4", "ipv6", "uuid"];

/// A schema without nested schemas.
fn simple_schema() -> impl Strategy<Value = Value> {
    let bounds = (-50_i64..50, 0_i64..20);
    let integers =
        (bounds.clone(), 1_i64..6, any::<bool>()).prop_map(|((least, span), step, open)| {
            // The range always contains a multiple of the step.
            let (low, high) = (least, least + span + step);
            if open {
                json!({"type": "integer", "exclusiveMinimum": low - 1, "exclusiveMaximum": high + 1,
                   "multipleOf": step})
            } else {
                json!({"type": "integer", "minimum": low, "maximum": high, "multipleOf": step})
            }
        });
    let numbers = bounds.prop_map(
        |(least, span)| json!({"type": "number", "minimum": least, "maximum": least + span}),
    );
    prop_oneof![
        integers,
        numbers,
        Just(json!({"type": "boolean"})),
        Just(json!({"type": "null"})),
        Just(json!({"type": ["string", "null"]})),
        (0_u64..30, 0_u64..10).prop_map(|(least, more)| {
            json!({"type": "string", "minLength": least, "maxLength": least + more})
        }),
        proptest::sample::select(FORMATS)
            .prop_map(|format| json!({"type": "string", "format": format})),
        proptest::collection::vec("[a-z]{1,4}", 1..4).prop_map(|choices| json!({"enum": choices})),
        any::<i32>().prop_map(|constant| json!({"const": constant})),
    ]
}

fn any_schema() -> impl Strategy<Value = Value> {
    simple_schema().prop_recursive(3, 24, 4, |inner| {
        let members = proptest::collection::btree_map("[a-z]{1,6}", (inner.clone(), any::<bool>()), 0..4);
        prop_oneof![
            members.prop_map(|members| {
                let required: Vec<&String> =
                    members.iter().filter(|(_, (_, needed))| *needed).map(|(name, _)| name).collect();
                let properties: Map<String, Value> =
                    members.iter().map(|(name, (schema, _))| (name.clone(), schema.clone())).collect();
                json!({"type": "object", "properties": properties, "required": required,
                       "additionalProperties": false})
            }),
            (inner.clone(), 0_u64..4, 0_u64..3).prop_map(|(items, least, more)| {
                json!({"type": "array", "items": items, "minItems": least, "maxItems": least + more})
            }),
            proptest::collection::vec(inner.clone(), 1..4)
                .prop_map(|branches| json!({"anyOf": branches})),
            inner.clone().prop_map(|schema| json!({"oneOf": [{"type": "null"}, schema]}))
                .prop_filter("null is valid in one branch only", |schema| {
                    let validator = jsonschema::validator_for(schema).unwrap();
                    validator.is_valid(&Value::Null)
                }),
            inner.prop_map(|schema| json!({"allOf": [schema]})),
        ]
    })
}

proptest! {
    #![proptest_config(throughline_testkit::proptest_config(256))]

    /// Arguments are an object whose members use the schema, once directly and once by reference.
    #[test]
    fn arguments_are_valid_against_any_schema(schema in any_schema(), seed in any::<u8>()) {
        let arguments = json!({
            "type": "object",
            "properties": {"direct": schema, "shared": {"$ref": "#/$defs/shared"}},
            "required": ["direct", "shared"],
            "additionalProperties": false,
            "$defs": {"shared": schema},
        });
        let value = generate(&arguments, Digest::new("schema", [seed]));
        let validator = jsonschema::options().should_validate_formats(true).build(&arguments).unwrap();
        prop_assert!(validator.is_valid(&value), "{} does not fit {}", value, arguments);
    }
}
