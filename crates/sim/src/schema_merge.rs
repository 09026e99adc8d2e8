//! Combines the parts of a JSON Schema: references, `allOf`, and one branch of `anyOf` and `oneOf`.

use serde_json::{Map, Value, json};

/// A schema without references and combinations.
pub(crate) struct Combined {
    pub(crate) schema: Map<String, Value>,
    /// Whether only `null` is valid.
    pub(crate) is_null: bool,
}

/// Resolves the references and combinations of a schema. `root` is the document that references
/// point into, and `limit` the maximum number of nested references and combinations.
pub(crate) fn combine(schema: &Value, root: &Value, limit: usize) -> Combined {
    let mut combined = Map::new();
    let mut is_null = false;
    let mut pending = vec![(schema, 0)];
    while let Some((schema, depth)) = pending.pop() {
        let Some(members) = schema.as_object().filter(|_| depth <= limit) else { continue };
        for (key, value) in members {
            match key.as_str() {
                "$ref" => {
                    let at = value.as_str().and_then(|reference| reference.strip_prefix('#'));
                    pending.extend(at.and_then(|at| root.pointer(at)).map(|to| (to, depth + 1)));
                }
                "allOf" => {
                    pending.extend(value.as_array().into_iter().flatten().map(|p| (p, depth + 1)));
                }
                "anyOf" | "oneOf" => {
                    let branch = branch(value.as_array().map(Vec::as_slice).unwrap_or_default());
                    is_null |= branch.is_some_and(describes_null);
                    pending.extend(branch.map(|branch| (branch, depth + 1)));
                }
                _ => merge(&mut combined, key, value),
            }
        }
    }
    Combined { schema: combined, is_null }
}

/// Chooses the first branch that allows a value other than `null`.
fn branch(branches: &[Value]) -> Option<&Value> {
    let is_usable = |branch: &&Value| !describes_null(branch) && **branch != Value::Bool(false);
    branches.iter().find(is_usable).or(branches.first())
}

fn describes_null(schema: &Value) -> bool {
    let named = schema.get("type").and_then(Value::as_str);
    named.is_some_and(|kind| kind.eq_ignore_ascii_case("null"))
        || schema.get("const").is_some_and(Value::is_null)
}

/// Adds a keyword to a schema. Both the earlier and the new keyword then apply.
fn merge(schema: &mut Map<String, Value>, key: &str, value: &Value) {
    let Some(earlier) = schema.get_mut(key) else {
        schema.insert(key.to_owned(), value.clone());
        return;
    };
    let is_larger = |value: &Value, other: &Value| value.as_f64() > other.as_f64();
    match (key, earlier, value) {
        ("required", Value::Array(earlier), Value::Array(names)) => {
            let added: Vec<Value> =
                names.iter().filter(|name| !earlier.contains(name)).cloned().collect();
            earlier.extend(added);
        }
        ("enum", Value::Array(earlier), Value::Array(choices)) => {
            earlier.retain(|choice| choices.contains(choice));
        }
        ("properties", Value::Object(earlier), Value::Object(properties)) => {
            for (name, property) in properties {
                let both = earlier.get(name).map(|other| json!({"allOf": [other, property]}));
                earlier.insert(name.clone(), both.unwrap_or_else(|| property.clone()));
            }
        }
        ("type", earlier, value) => {
            // Every integer is a number.
            if value.as_str() == Some("integer") || earlier.is_array() {
                *earlier = value.clone();
            }
        }
        (
            "minimum" | "exclusiveMinimum" | "minLength" | "minItems" | "minProperties",
            earlier,
            value,
        ) => {
            if is_larger(value, earlier) {
                *earlier = value.clone();
            }
        }
        (
            "maximum" | "exclusiveMaximum" | "maxLength" | "maxItems" | "maxProperties",
            earlier,
            value,
        ) => {
            if is_larger(earlier, value) {
                *earlier = value.clone();
            }
        }
        (_, earlier, value) => *earlier = value.clone(),
    }
}
