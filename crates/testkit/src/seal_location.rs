//! The opaque values of a request, and where they are.

use serde_json::Value;

/// The location of an opaque value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealLocation {
    /// A JSON pointer to the parent object.
    pub parent: String,
    /// The key in the parent object.
    pub key: String,
}

impl SealLocation {
    /// Returns a JSON pointer to the value.
    pub fn pointer(&self) -> String {
        format!("{}/{}", self.parent, self.key)
    }
}

const SEALED: [&str; 7] = [
    "signature",
    "data",
    "encrypted_content",
    "thoughtSignature",
    "thought_signature",
    "redactedContent",
    "reasoning_content",
];

/// Returns the locations of the opaque values of a request, in order.
pub fn seals(request: &Value) -> Vec<SealLocation> {
    let mut found = Vec::new();
    collect_seals(request, "", &mut found);
    found
}

fn collect_seals(value: &Value, at: &str, found: &mut Vec<SealLocation>) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                if SEALED.contains(&key.as_str())
                    && value.as_str().is_some_and(|seal| seal.len() > 8)
                {
                    found.push(SealLocation { parent: at.to_owned(), key: key.clone() });
                } else {
                    collect_seals(value, &format!("{at}/{key}"), found);
                }
            }
        }
        Value::Array(elements) => {
            for (index, element) in elements.iter().enumerate() {
                collect_seals(element, &format!("{at}/{index}"), found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
