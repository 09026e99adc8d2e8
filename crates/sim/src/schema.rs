//! Generates values that are valid against a JSON Schema.

use serde_json::{Map, Value, json};

use crate::digest::Digest;

#[cfg(test)]
#[path = "schema_tests.rs"]
mod schema_tests;

/// Maximum nesting depth of a generated value, because a schema may be recursive.
const DEEPEST: usize = 12;

/// Generates a value that is valid against `schema`. The same schema and nonce always give the same
/// value.
pub(crate) fn generate(schema: &Value, nonce: Digest) -> Value {
    SampleGenerator { root: schema, nonce }.value(schema, "", 0)
}

struct SampleGenerator<'s> {
    root: &'s Value,
    nonce: Digest,
}

impl SampleGenerator<'_> {
    fn value(&self, schema: &Value, name: &str, depth: usize) -> Value {
        if depth > DEEPEST {
            return Value::Null;
        }
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            let pointed = reference.strip_prefix('#').and_then(|at| self.root.pointer(at));
            return pointed.map_or(Value::Null, |schema| self.value(schema, name, depth + 1));
        }
        if let Some(constant) = schema.get("const") {
            return constant.clone();
        }
        if let Some(choices) = schema.get("enum").and_then(Value::as_array) {
            return self.nonce.and(name).choose(choices).cloned().unwrap_or_default();
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(choices) = schema.get(key).and_then(Value::as_array) {
                let is_null = |s: &&Value| s.get("type").and_then(Value::as_str) == Some("null");
                let chosen = choices.iter().find(|choice| !is_null(choice)).or(choices.first());
                return chosen.map_or(Value::Null, |schema| self.value(schema, name, depth + 1));
            }
        }
        if let Some(all) = schema.get("allOf").and_then(Value::as_array) {
            return self.merged(schema, all, name, depth);
        }
        match self.kind(schema).as_str() {
            "object" => self.object(schema, depth),
            "array" => self.array(schema, name, depth),
            "string" => Value::String(self.string(schema, name)),
            "integer" => integer(schema),
            "number" => number(schema),
            "boolean" => Value::Bool(true),
            _ => Value::Null,
        }
    }

    /// Determines the type that a schema describes. Gemini writes type names in capitals. If the
    /// schema lists several types, the first type other than `null` is used. A schema without a
    /// type is classified by its members.
    fn kind(&self, schema: &Value) -> String {
        let named = match schema.get("type") {
            Some(Value::String(kind)) => Some(kind.as_str()),
            Some(Value::Array(kinds)) => {
                kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null")
            }
            _ => None,
        };
        match named {
            Some(kind) => kind.to_ascii_lowercase(),
            None if schema.get("properties").is_some() => "object".to_owned(),
            None if schema.get("items").is_some() => "array".to_owned(),
            None if std::ptr::eq(schema, self.root) => "object".to_owned(),
            None => "string".to_owned(),
        }
    }

    fn merged(&self, schema: &Value, all: &[Value], name: &str, depth: usize) -> Value {
        let mut merged = Map::new();
        let alone = schema.as_object().cloned().unwrap_or_default();
        let alone: Map<String, Value> =
            alone.into_iter().filter(|(key, _)| key != "allOf").collect();
        let parts = std::iter::once(&Value::Object(alone)).chain(all).cloned().collect::<Vec<_>>();
        let mut last = Value::Null;
        for part in &parts {
            if part.as_object().is_some_and(Map::is_empty) {
                continue;
            }
            last = self.value(part, name, depth + 1);
            if let Value::Object(members) = &last {
                merged.extend(members.clone());
            }
        }
        if merged.is_empty() { last } else { Value::Object(merged) }
    }

    fn object(&self, schema: &Value, depth: usize) -> Value {
        let required = schema.get("required").and_then(Value::as_array);
        let is_required = |name: &str| {
            required.is_some_and(|required| required.iter().any(|one| one.as_str() == Some(name)))
        };
        let mut members = Map::new();
        let properties = schema.get("properties").and_then(Value::as_object);
        for (name, property) in properties.into_iter().flatten() {
            // Include optional members only near the top, so that recursive schemas terminate.
            if is_required(name) || depth < 2 {
                members.insert(name.clone(), self.value(property, name, depth + 1));
            }
        }
        for name in required.into_iter().flatten().filter_map(Value::as_str) {
            if !members.contains_key(name) {
                members.insert(name.to_owned(), json!("…"));
            }
        }
        Value::Object(members)
    }

    fn array(&self, schema: &Value, name: &str, depth: usize) -> Value {
        if let Some(items) = schema.get("prefixItems").and_then(Value::as_array) {
            return items.iter().map(|item| self.value(item, name, depth + 1)).collect();
        }
        let least = schema.get("minItems").and_then(Value::as_u64).unwrap_or(1);
        let most = schema.get("maxItems").and_then(Value::as_u64).unwrap_or(u64::MAX);
        let count = least.max(1).min(most).min(64);
        let item = schema.get("items").cloned().unwrap_or_else(|| json!({"type": "string"}));
        let is_unique = schema.get("uniqueItems").and_then(Value::as_bool) == Some(true);
        (0..count)
            .map(|number| {
                let nonce =
                    if is_unique { self.nonce.and(number.to_le_bytes()) } else { self.nonce };
                SampleGenerator { root: self.root, nonce }.value(&item, name, depth + 1)
            })
            .collect()
    }

    fn string(&self, schema: &Value, name: &str) -> String {
        let sample = match schema.get("format").and_then(Value::as_str) {
            Some("date") => "2026-11-15",
            Some("date-time") => "2026-11-15T09:30:00Z",
            Some("time") => "09:30:00Z",
            Some("duration") => "PT15M",
            Some("email" | "idn-email") => "ada@example.com",
            Some("uri" | "url" | "uri-reference" | "iri") => "https://example.com/",
            Some("hostname") => "example.com",
            Some("ipv4") => "192.0.2.1",
            Some("ipv6") => "2001:db8::1",
            Some("uuid") => return self.nonce.and(name).uuid(),
            _ => return self.text(schema, name),
        };
        sample.to_owned()
    }

    /// Returns a plausible string with non-ASCII characters, which careless encoders corrupt.
    fn text(&self, schema: &Value, name: &str) -> String {
        const WORDS: [&str; 8] = [
            "Zürich",
            "naïve café",
            "東京",
            "São Paulo 🌊",
            "Ångström & sons",
            "a \"quoted\" word",
            "C:\\notes",
            "Reykjavík 🌋",
        ];
        let text = self.nonce.and(name).choose(&WORDS).copied().unwrap_or_default();
        let limit = |key: &str| -> Option<usize> { schema.get(key)?.as_u64()?.try_into().ok() };
        let least = limit("minLength").unwrap_or(0).min(4096);
        let length = text.chars().count().max(least).min(limit("maxLength").unwrap_or(usize::MAX));
        text.chars().chain(std::iter::repeat('x')).take(length).collect()
    }
}

fn integer(schema: &Value) -> Value {
    let multiple = schema.get("multipleOf").and_then(Value::as_i64).unwrap_or(1).max(1);
    let exclusive = schema.get("exclusiveMinimum").and_then(Value::as_i64).map(|least| least + 1);
    let least = schema.get("minimum").and_then(Value::as_i64).or(exclusive);
    let below = schema.get("exclusiveMaximum").and_then(Value::as_i64).map(|most| most - 1);
    let most = schema.get("maximum").and_then(Value::as_i64).or(below);
    let chosen = 7.max(least.unwrap_or(i64::MIN)).min(most.unwrap_or(i64::MAX));
    let rounded = chosen.div_euclid(multiple).saturating_mul(multiple);
    let is_too_small = least.is_some_and(|least| rounded < least);
    json!(if is_too_small { rounded.saturating_add(multiple) } else { rounded })
}

fn number(schema: &Value) -> Value {
    let bound = |key: &str| schema.get(key).and_then(Value::as_f64);
    let least = bound("minimum").or(bound("exclusiveMinimum").map(|least| least + 0.5));
    let most = bound("maximum").or(bound("exclusiveMaximum").map(|most| most - 0.5));
    let chosen = 2.5_f64.max(least.unwrap_or(f64::MIN)).min(most.unwrap_or(f64::MAX));
    if let (Some(above), Some(below)) = (bound("exclusiveMinimum"), bound("exclusiveMaximum")) {
        return json!(f64::midpoint(above, below));
    }
    json!(chosen)
}
