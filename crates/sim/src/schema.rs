//! Generates values that are valid against a JSON Schema.

use serde_json::{Map, Value, json};

use crate::digest::Digest;

#[cfg(test)]
#[path = "schema_tests.rs"]
mod schema_tests;

/// Maximum depth of a value, because a schema may be recursive.
const DEEPEST: usize = 12;

/// Generates a value that is valid against `schema`. Equal nonces give equal values.
pub(crate) fn fitting(schema: &Value, nonce: Digest) -> Value {
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
            let chosen = self.nonce.and(name).below(choices.len());
            return choices.get(chosen).cloned().unwrap_or_default();
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

    /// Determines the type of a schema. Gemini writes types in capitals; a list of types is a
    /// choice; without a type, the members decide.
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
            // Include optional members near the top only, so that a recursive schema terminates.
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
        let text = match schema.get("format").and_then(Value::as_str) {
            Some("date") => return "2026-11-15".to_owned(),
            Some("date-time") => return "2026-11-15T09:30:00Z".to_owned(),
            Some("time") => return "09:30:00Z".to_owned(),
            Some("duration") => return "PT15M".to_owned(),
            Some("email" | "idn-email") => return "ada@example.com".to_owned(),
            Some("uri" | "url" | "uri-reference" | "iri") => {
                return "https://example.com/".to_owned();
            }
            Some("hostname") => return "example.com".to_owned(),
            Some("ipv4") => return "192.0.2.1".to_owned(),
            Some("ipv6") => return "2001:db8::1".to_owned(),
            Some("uuid") => return self.uuid(name),
            _ => self.sample_text(name),
        };
        let least = schema.get("minLength").and_then(Value::as_u64).unwrap_or(0);
        let most = schema.get("maxLength").and_then(Value::as_u64).unwrap_or(u64::MAX);
        let least = usize::try_from(least.min(4096)).unwrap_or_default();
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let filled = text.chars().chain(std::iter::repeat('x'));
        let length = text.chars().count().max(least).min(most);
        filled.take(length).collect()
    }

    fn uuid(&self, name: &str) -> String {
        let hex = self.nonce.and(name).hex(32);
        let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
        let (one, two, three) = (part(0, 8), part(8, 12), part(13, 16));
        format!("{one}-{two}-4{three}-8{}-{}", part(17, 20), part(20, 32))
    }

    /// Returns a plausible text with letters that careless encoders corrupt.
    fn sample_text(&self, name: &str) -> String {
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
        let chosen = self.nonce.and(name).below(WORDS.len());
        WORDS.get(chosen).copied().unwrap_or("Zürich").to_owned()
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
