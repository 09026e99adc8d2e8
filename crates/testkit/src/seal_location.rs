//! Locates the Seals and the plain `reasoning_content` in a request body.

use serde_json::Value;

/// Location of a Seal or of `reasoning_content` in a request body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealLocation {
    /// JSON pointer to the object that contains the value.
    pub parent: String,
    /// Key of the value in that object.
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

/// Returns the locations of all Seals, and of plain `reasoning_content`, in document order.
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
