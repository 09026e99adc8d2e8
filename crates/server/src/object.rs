//! Builds JSON objects from literal members.

use serde::Serialize;
use throughline_json::{Json, Node, Object};

pub(crate) fn to_json(value: &impl Serialize) -> Json {
    // Only a map with keys that are not strings cannot be serialized, and no caller passes one.
    let text = serde_json::to_vec(value).unwrap_or_else(|_| b"null".to_vec());
    Json::from_trusted(text.into())
}

/// Builds a JSON object with these members in this order. `"key"? value` omits the member if the
/// value is `None`.
macro_rules! object {
    (@member $key:literal : $value:expr) => {
        Some(($key, $crate::object::to_json(&$value)))
    };
    (@member $key:literal ? $value:expr) => {
        $value.as_ref().map(|value| ($key, $crate::object::to_json(value)))
    };
    ($($key:literal $mark:tt $value:expr),* $(,)?) => {{
        let members = [$($crate::object::object!(@member $key $mark $value)),*];
        throughline_json::object_of(members.iter().flatten().map(|(key, value)| (*key, value)))
    }};
}
pub(crate) use object;

/// Builds an object with the members of `first`, then the members of `second`.
pub(crate) fn join_objects(first: &Json, second: &Json) -> Json {
    throughline_json::object(|o| {
        put_members(o, first.tree().root().members());
        put_members(o, second.tree().root().members());
    })
}

/// Appends the members of a parsed object to `object`.
pub(crate) fn put_members<'t>(
    object: &mut Object<'_>,
    members: impl Iterator<Item = (Node<'t>, Node<'t>)>,
) {
    for (name, value) in members {
        object.node(&name.text().unwrap_or_default(), value);
    }
}
