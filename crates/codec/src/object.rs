//! Macros that write JSON objects in JSON notation and in source order.
//!
//! `object! { "type": "text", "text": text }` builds a `Json`. `members! { … }` expands to a
//! closure that writes the same members into an open object. Values are literals, nested objects
//! and arrays, `null`, or expressions that implement [`Value`]; members with the value `None` are
//! omitted. A key that is not a literal is written in parentheses. The macros write directly into
//! the output buffer.

use std::borrow::Cow;

pub(crate) use throughline_json as json;
use throughline_json::{Json, Name, Node};

macro_rules! object {
    ($($members:tt)*) => { $crate::object::json::object(members! { $($members)* }) };
}

/// Expands to a closure that writes members into an open object.
macro_rules! members {
    () => { |_: &mut $crate::object::json::Object<'_>| {} };
    ($($members:tt)+) => {
        |o: &mut $crate::object::json::Object<'_>| { put_members! { o $($members)+ } }
    };
}

/// Writes the first member, then recurses for the rest.
macro_rules! put_members {
    ($o:ident) => {};
    ($o:ident $key:literal : $($rest:tt)+) => { put_members! { @value $o ($key) $($rest)+ } };
    ($o:ident ($key:expr) : $($rest:tt)+) => { put_members! { @value $o ($key) $($rest)+ } };
    (@value $o:ident ($key:expr) null $(, $($rest:tt)*)?) => {
        $o.null($key);
        put_members! { $o $($($rest)*)? }
    };
    (@value $o:ident ($key:expr) { $($inner:tt)* } $(, $($rest:tt)*)?) => {
        $o.object($key, members! { $($inner)* });
        put_members! { $o $($($rest)*)? }
    };
    (@value $o:ident ($key:expr) [] $(, $($rest:tt)*)?) => {
        $o.array($key, |_| {});
        put_members! { $o $($($rest)*)? }
    };
    (@value $o:ident ($key:expr) [{ $($inner:tt)* }] $(, $($rest:tt)*)?) => {
        $o.array($key, |a| {
            a.object(members! { $($inner)* });
        });
        put_members! { $o $($($rest)*)? }
    };
    (@value $o:ident ($key:expr) [$word:literal] $(, $($rest:tt)*)?) => {
        $o.array($key, |a| {
            a.string($word);
        });
        put_members! { $o $($($rest)*)? }
    };
    (@value $o:ident ($key:expr) [$element:expr] $(, $($rest:tt)*)?) => {
        $o.array($key, |a| {
            a.raw(&$element);
        });
        put_members! { $o $($($rest)*)? }
    };
    (@value $o:ident ($key:expr) $value:expr $(, $($rest:tt)*)?) => {
        $crate::object::Value::put(&$value, $o, $key);
        put_members! { $o $($($rest)*)? }
    };
}

/// Iterates over the members of an object except those in `names`.
pub(crate) fn members_except<'t>(
    node: Node<'t>,
    names: &[&str],
) -> impl Iterator<Item = (Node<'t>, Node<'t>)> {
    node.members().filter(|(key, _)| !names.iter().any(|name| key.is(name)))
}

/// Copies members from a parsed object into an open object.
pub(crate) fn copy_members<'t>(
    o: &mut json::Object<'_>,
    members: impl IntoIterator<Item = (Node<'t>, Node<'t>)>,
) {
    for (key, value) in members {
        o.node(&key.text().unwrap_or_default(), value);
    }
}

/// Writes owned members into an open object.
pub(crate) fn put_all<'m>(
    o: &mut json::Object<'_>,
    members: impl IntoIterator<Item = &'m (Name, Json)>,
) {
    for (key, value) in members {
        o.raw(key, value);
    }
}

/// Writes members and inserts an additional member after the member named `after`, or at the end.
pub(crate) fn put_all_with<'m>(
    o: &mut json::Object<'_>,
    members: impl IntoIterator<Item = &'m (Name, Json)>,
    after: &str,
    (key, value): (&str, &Json),
) {
    let mut added = Some(value);
    for (name, member) in members {
        o.raw(name, member);
        if let Some(value) = added.take_if(|_| **name == *after) {
            o.raw(key, value);
        }
    }
    if let Some(value) = added {
        o.raw(key, value);
    }
}

/// A value that `object!` and `members!` can write.
pub(crate) trait Value {
    fn put(&self, o: &mut json::Object<'_>, key: &str);
}

macro_rules! impl_value {
    ($($type:ty => $method:ident($($deref:tt)?);)+) => {$(
        impl Value for $type {
            fn put(&self, o: &mut json::Object<'_>, key: &str) {
                o.$method(key, $($deref)? self);
            }
        }
    )+};
}

impl_value! {
    str => string(); String => string(); Name => string(); Cow<'_, str> => string();
    Json => raw(); Node<'_> => node(*); u64 => number(*); bool => bool(*);
}

impl<T: Value + ?Sized> Value for &T {
    fn put(&self, o: &mut json::Object<'_>, key: &str) {
        (**self).put(o, key);
    }
}

impl<T: Value> Value for Option<T> {
    fn put(&self, o: &mut json::Object<'_>, key: &str) {
        if let Some(value) = self {
            value.put(o, key);
        }
    }
}

#[cfg(test)]
#[path = "object_tests.rs"]
mod tests;
