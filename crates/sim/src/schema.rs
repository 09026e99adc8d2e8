//! Generates values that are valid against a JSON Schema.

use serde_json::{Map, Number, Value, json};

use crate::digest::Digest;
use crate::prompt_values::PromptValues;
use crate::schema_merge::{Combined, combine};
use crate::schema_text;

#[cfg(test)]
#[path = "schema_tests.rs"]
mod schema_tests;

/// Maximum nesting depth of a generated value, because a schema may be recursive.
const DEEPEST: usize = 12;

/// Maximum number of generated elements in an array and of added members in an object.
const LONGEST: u64 = 64;

/// The largest integer up to which every integer is exact as a floating-point number.
const EXACT: f64 = 9_007_199_254_740_991.0;

/// The number that a model sends if the schema allows it.
const USUAL_NUMBER: f64 = 7.0;

/// Generates a value that is valid against `schema`. The same schema and nonce always give the same
/// value. Numbers are whole numbers if the schema allows them, because some clients declare
/// `number` and accept only integers.
pub(crate) fn generate(schema: &Value, nonce: Digest) -> Value {
    SampleGenerator { root: schema, nonce, variant: 0, prompt: None }.value(schema, "", 0)
}

/// Like [`generate`], but takes values from a user message where they fit.
pub(crate) fn generate_from(schema: &Value, nonce: Digest, message: &str) -> Value {
    let prompt = PromptValues::new(message);
    SampleGenerator { root: schema, nonce, variant: 0, prompt: Some(&prompt) }.value(schema, "", 0)
}

/// Generates the required members of an object.
pub(crate) fn required_members(schema: &Value, nonce: Digest) -> Map<String, Value> {
    let Value::Object(mut members) = generate(schema, nonce) else { return Map::new() };
    let Combined { schema, .. } = combine(schema, schema, DEEPEST);
    members.retain(|name, _| is_required(&schema, name));
    members
}

#[derive(Clone, Copy)]
struct SampleGenerator<'s> {
    root: &'s Value,
    nonce: Digest,
    /// Distinguishes the elements of an array with unique elements.
    variant: u64,
    /// The values in the user's message.
    prompt: Option<&'s PromptValues>,
}

impl SampleGenerator<'_> {
    fn value(&self, schema: &Value, name: &str, depth: usize) -> Value {
        if depth > DEEPEST {
            return Value::Null;
        }
        let Combined { schema, is_null } = combine(schema, self.root, DEEPEST - depth);
        if is_null {
            return Value::Null;
        }
        if let Some(constant) = schema.get("const") {
            return constant.clone();
        }
        if let Some(choices) = schema.get("enum").and_then(Value::as_array) {
            return self.choice(choices, name);
        }
        let is_root = depth == 0;
        match kind(&schema, is_root).as_str() {
            "object" => self.object(&schema, depth),
            "array" => self.array(&schema, name, depth),
            "string" => {
                let known = self.first_prompt().and_then(|prompt| prompt.text(name, &schema));
                let text = || schema_text::text(&schema, self.nonce.and(name), self.variant);
                Value::String(known.unwrap_or_else(text))
            }
            "integer" => self.number(&schema, true),
            "number" => self.number(&schema, false),
            "boolean" => Value::Bool(self.variant == 0),
            _ => Value::Null,
        }
    }

    /// Returns the values in the user's message. Further elements of an array with unique elements
    /// must not repeat them.
    fn first_prompt(&self) -> Option<&PromptValues> {
        self.prompt.filter(|_| self.variant == 0)
    }

    fn number(&self, schema: &Map<String, Value>, is_integer: bool) -> Value {
        let is_valid = |value: f64| {
            let bound = |key: &str| schema.get(key).and_then(Value::as_f64);
            let is_multiple = |step: f64| (value / step).fract() == 0.0;
            value.abs() <= EXACT
                && (!is_integer || value.fract() == 0.0)
                && bound("minimum").is_none_or(|least| value >= least)
                && bound("maximum").is_none_or(|most| value <= most)
                && bound("exclusiveMinimum").is_none_or(|least| value > least)
                && bound("exclusiveMaximum").is_none_or(|most| value < most)
                && bound("multipleOf").is_none_or(is_multiple)
        };
        let known = self.first_prompt().and_then(|prompt| prompt.number(is_valid));
        known.map_or_else(|| number(schema, is_integer, self.variant), whole)
    }

    /// Chooses a value other than `null`, unless there is no other value.
    fn choice(&self, choices: &[Value], name: &str) -> Value {
        let mut usable: Vec<&Value> = choices.iter().filter(|choice| !choice.is_null()).collect();
        if usable.is_empty() {
            usable.extend(choices);
        }
        if let Some(named) = self.first_prompt().and_then(|prompt| prompt.choice(&usable)) {
            return named.clone();
        }
        let first = self.nonce.and(name).below(usable.len().max(1));
        let offset = usize::try_from(self.variant).unwrap_or_default();
        let chosen = usable.get((first + offset) % usable.len().max(1));
        chosen.copied().cloned().unwrap_or_default()
    }

    fn object(&self, schema: &Map<String, Value>, depth: usize) -> Value {
        let properties = schema.get("properties").and_then(Value::as_object);
        let required = names(schema, "required");
        let mut members = Map::new();
        for (name, property) in properties.into_iter().flatten() {
            // If the schema requires no member, include the optional members near the top, where
            // recursive schemas still terminate.
            let is_sample = required.is_empty() && depth < 2 && !is_impossible(property);
            if is_sample || is_required(schema, name) {
                members.insert(name.clone(), self.value(property, name, depth + 1));
            }
        }
        let additional = schema.get("additionalProperties").filter(|schema| schema.is_object());
        let additional = additional.cloned().unwrap_or_else(|| json!({"type": "string"}));
        let least = schema.get("minProperties").and_then(Value::as_u64).unwrap_or(0).min(LONGEST);
        let extra = (1..=least).map(|number| format!("key{number}"));
        let optional = properties.into_iter().flatten().map(|(name, _)| name.clone());
        for name in required.iter().map(|name| (*name).to_owned()).chain(optional).chain(extra) {
            let is_missing = members.len() < usize::try_from(least).unwrap_or_default();
            if !members.contains_key(&name) && (is_missing || required.contains(&name.as_str())) {
                let property = properties.and_then(|properties| properties.get(&name));
                let value = self.value(property.unwrap_or(&additional), &name, depth + 1);
                members.insert(name, value);
            }
        }
        Value::Object(members)
    }

    fn array(&self, schema: &Map<String, Value>, name: &str, depth: usize) -> Value {
        let limit = |key: &str| schema.get(key).and_then(Value::as_u64);
        let fixed = schema.get("prefixItems").and_then(Value::as_array);
        let fixed = fixed.map(Vec::as_slice).unwrap_or_default();
        let usual = u64::try_from(fixed.len()).unwrap_or(0).max(1);
        let count = limit("minItems").unwrap_or(0).max(usual);
        let count = count.min(limit("maxItems").unwrap_or(u64::MAX)).min(LONGEST);
        let item = schema.get("items").cloned().unwrap_or_else(|| json!({"type": "string"}));
        let is_unique = schema.get("uniqueItems").and_then(Value::as_bool) == Some(true);
        (0..count)
            .map(|number| {
                let at = usize::try_from(number).unwrap_or_default();
                let variant = if is_unique { number } else { 0 };
                let generator = SampleGenerator { variant, ..*self };
                generator.value(fixed.get(at).unwrap_or(&item), name, depth + 1)
            })
            .collect()
    }
}

/// Determines the type that a schema describes. Gemini writes type names in capitals. If the schema
/// lists several types, the first type other than `null` is used. A schema without a type is
/// classified by its members.
fn kind(schema: &Map<String, Value>, is_root: bool) -> String {
    let named = match schema.get("type") {
        Some(Value::String(kind)) => Some(kind.as_str()),
        Some(Value::Array(kinds)) => {
            let mut kinds = kinds.iter().filter_map(Value::as_str);
            kinds.find(|kind| !kind.eq_ignore_ascii_case("null")).or(Some("null"))
        }
        _ => None,
    };
    let has = |keys: &[&str]| keys.iter().any(|key| schema.contains_key(*key));
    match named {
        Some(kind) => kind.to_ascii_lowercase(),
        None if has(&["properties", "required", "minProperties"]) => "object".to_owned(),
        None if has(&["items", "prefixItems", "minItems"]) => "array".to_owned(),
        None if is_root => "object".to_owned(),
        None if has(&["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]) => {
            "number".to_owned()
        }
        None => "string".to_owned(),
    }
}

fn names<'s>(schema: &'s Map<String, Value>, key: &str) -> Vec<&'s str> {
    let names = schema.get(key).and_then(Value::as_array).into_iter().flatten();
    names.filter_map(Value::as_str).collect()
}

fn is_required(schema: &Map<String, Value>, name: &str) -> bool {
    names(schema, "required").contains(&name)
}

/// Returns whether no value is valid against a schema.
fn is_impossible(schema: &Value) -> bool {
    *schema == Value::Bool(false)
}

/// Generates a number: the usual number, or the whole number closest to it within the limits. If no
/// whole number is within the limits, generates the middle of the range.
fn number(schema: &Map<String, Value>, is_integer: bool, variant: u64) -> Value {
    let bound = |key: &str| schema.get(key).and_then(Value::as_f64);
    let step = bound("multipleOf").filter(|step| *step > 0.0);
    let unit = match (step, is_integer) {
        (Some(step), true) if step.fract() != 0.0 => 1.0,
        (Some(step), _) => step,
        (None, _) => 1.0,
    };
    let above = bound("exclusiveMinimum");
    let below = bound("exclusiveMaximum");
    let mut least = (bound("minimum").unwrap_or(-EXACT) / unit).ceil();
    if let Some(above) = above {
        least = least.max((above / unit).floor() + 1.0);
    }
    let mut most = (bound("maximum").unwrap_or(EXACT) / unit).floor();
    if let Some(below) = below {
        most = most.min((below / unit).ceil() - 1.0);
    }
    if least > most && !is_integer {
        let low = bound("minimum").or(above).unwrap_or(0.0);
        let high = bound("maximum").or(below).unwrap_or(low + 1.0);
        return json!(f64::midpoint(low, high));
    }
    let offset = f64::from(u32::try_from(variant).unwrap_or(u32::MAX));
    let usual = (USUAL_NUMBER / unit).floor().clamp(least.min(most), most);
    let upwards = usual + offset;
    let multiple = if upwards <= most { upwards } else { (most - offset).max(least) };
    whole(multiple * unit)
}

/// Writes a number without a fraction as an integer.
fn whole(number: f64) -> Value {
    #[expect(clippy::cast_possible_truncation, reason = "only numbers that fit are converted")]
    let integer = number as i64;
    #[expect(clippy::cast_precision_loss, reason = "compared with the exact number")]
    let is_exact = (integer as f64 - number).abs() < f64::EPSILON;
    if is_exact { Value::Number(Number::from(integer)) } else { json!(number) }
}
