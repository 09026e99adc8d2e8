//! Writes JSON member by member in call order, so that equal input gives equal bytes.

use std::cell::Cell;

use bytes::Bytes;

use crate::{Json, Name, Node, text};

/// Maximum length in bytes of a scratch buffer that is kept for reuse.
const LARGE: usize = 64 << 10;

/// Builds an object. `fill` adds the members in order.
pub fn object(fill: impl FnOnce(&mut Object<'_>)) -> Json {
    build_json(|out| write_object(out, fill))
}

/// Builds an array. `fill` adds the elements in order.
pub fn array(fill: impl FnOnce(&mut Array<'_>)) -> Json {
    build_json(|out| write_array(out, fill))
}

/// Writes into a reused scratch buffer and returns a copy of exact size. Nested calls use separate
/// buffers.
fn build_json(write: impl FnOnce(&mut Vec<u8>)) -> Json {
    thread_local! {
        static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    }
    let mut out = SCRATCH.take();
    write(&mut out);
    if out.len() > LARGE {
        return Json::from_trusted(Bytes::from(out));
    }
    let json = Json::from_trusted(Bytes::copy_from_slice(&out));
    out.clear();
    SCRATCH.set(out);
    json
}

/// Builds an array of values that are already JSON, in one exact allocation.
pub fn array_of<'j, I>(values: I) -> Json
where
    I: IntoIterator<Item = &'j Json>,
    I::IntoIter: Clone,
{
    let values = values.into_iter();
    let size: usize = values.clone().map(|value| value.bytes().len() + 1).sum();
    let mut out = Vec::with_capacity(size + 2);
    write_array(&mut out, |list| list.extend(values));
    Json::from_trusted(Bytes::from(out))
}

/// Builds an object whose members are already JSON, in one exact allocation.
pub fn object_of<'j, I>(members: I) -> Json
where
    I: IntoIterator<Item = (&'j str, &'j Json)>,
    I::IntoIter: Clone,
{
    let members = members.into_iter();
    let size: usize = members.clone().map(|(key, value)| key.len() + value.bytes().len() + 4).sum();
    let mut out = Vec::with_capacity(size + 2);
    write_object(&mut out, |out| {
        for (key, value) in members {
            out.put(key, value);
        }
    });
    Json::from_trusted(Bytes::from(out))
}

/// Builds a JSON string with the required escapes.
pub fn string(value: &str) -> Json {
    // Reserve space for the quotes and a few escapes.
    let mut out = Vec::with_capacity(value.len() + value.len() / 8 + 2);
    text::push_quoted(&mut out, value);
    Json::from_trusted(Bytes::from(out))
}

/// Appends a quoted and escaped string to the output.
pub fn push_string(out: &mut Vec<u8>, value: &str) {
    text::push_quoted(out, value);
}

fn write_object(out: &mut Vec<u8>, fill: impl FnOnce(&mut Object<'_>)) {
    out.push(b'{');
    fill(&mut Object { out, first: true });
    out.push(b'}');
}

fn write_array(out: &mut Vec<u8>, fill: impl FnOnce(&mut Array<'_>)) {
    out.push(b'[');
    fill(&mut Array { out, first: true });
    out.push(b']');
}

/// Appends a number in decimal to the output.
pub fn push_number(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// A value that can be added to an [`Object`] or [`Array`].
pub trait JsonValue {
    /// Appends the value's JSON text to the output.
    fn push_to(self, out: &mut Vec<u8>);
}

macro_rules! json_values {
    ($($kind:ty => |$value:ident, $out:ident| $push:expr;)+) => { $(
        impl JsonValue for $kind {
            fn push_to(self, $out: &mut Vec<u8>) {
                let $value = self;
                $push;
            }
        }
    )+ };
}
json_values! {
    &str => |value, out| text::push_quoted(out, value);
    &Name => |value, out| text::push_quoted(out, value);
    u64 => |value, out| push_number(out, value);
    usize => |value, out| push_number(out, value as u64);
    i64 => |value, out| out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    bool => |value, out| out.extend_from_slice(if value { b"true" } else { b"false" });
    &Json => |value, out| out.extend_from_slice(value.bytes());
    Node<'_> => |value, out| out.extend_from_slice(value.raw());
}

/// Builds an object from literal names and [`JsonValue`]s: `object!("type": "text", "text": text)`.
#[macro_export]
macro_rules! object {
    ($($key:literal: $value:expr),+ $(,)?) => {
        $crate::object(|out| { out$(.put($key, $value))+; })
    };
}

/// Writes the members of an object in call order. Names are not checked for duplicates.
pub struct Object<'o> {
    out: &'o mut Vec<u8>,
    first: bool,
}

impl Object<'_> {
    fn key(&mut self, key: &str) -> &mut Vec<u8> {
        if !std::mem::take(&mut self.first) {
            self.out.push(b',');
        }
        text::push_quoted(self.out, key);
        self.out.push(b':');
        self.out
    }

    /// Adds a member with the name `key`.
    pub fn put(&mut self, key: &str, value: impl JsonValue) -> &mut Self {
        value.push_to(self.key(key));
        self
    }

    /// Adds a member if `value` is `Some`.
    pub fn maybe(&mut self, key: &str, value: Option<impl JsonValue>) -> &mut Self {
        match value {
            Some(value) => self.put(key, value),
            None => self,
        }
    }

    /// Adds the member with the value `true` if the flag is set; otherwise adds nothing.
    pub fn flag(&mut self, key: &str, is_set: bool) -> &mut Self {
        self.maybe(key, is_set.then_some(true))
    }

    /// Adds a member whose value is already JSON, verbatim.
    pub fn raw(&mut self, key: &str, value: &Json) -> &mut Self {
        self.put(key, value)
    }

    /// Adds a member with a value from a [`crate::Tree`], verbatim.
    pub fn node(&mut self, key: &str, value: Node<'_>) -> &mut Self {
        self.put(key, value)
    }

    /// Adds members from a [`crate::Tree`], with their values verbatim.
    pub fn nodes<'t>(
        &mut self,
        members: impl IntoIterator<Item = (Node<'t>, Node<'t>)>,
    ) -> &mut Self {
        for (key, value) in members {
            self.put(&key.text().unwrap_or_default(), value);
        }
        self
    }

    /// Adds a string member, escaped as required.
    pub fn string(&mut self, key: &str, value: &str) -> &mut Self {
        self.put(key, value)
    }

    /// Adds a string member if `value` is `Some`.
    pub fn maybe_string(&mut self, key: &str, value: Option<&str>) -> &mut Self {
        self.maybe(key, value)
    }

    /// Adds a member with a non-negative integer.
    pub fn number(&mut self, key: &str, value: u64) -> &mut Self {
        self.put(key, value)
    }

    /// Adds a boolean member even if it is `false`; see [`Object::flag`].
    pub fn bool(&mut self, key: &str, value: bool) -> &mut Self {
        self.put(key, value)
    }

    /// Adds a member with the value `null`.
    pub fn null(&mut self, key: &str) -> &mut Self {
        self.put(key, &Json::null())
    }

    /// Adds a nested object. `fill` writes its members.
    pub fn object(&mut self, key: &str, fill: impl FnOnce(&mut Object<'_>)) -> &mut Self {
        write_object(self.key(key), fill);
        self
    }

    /// Adds a nested array. `fill` writes its elements.
    pub fn array(&mut self, key: &str, fill: impl FnOnce(&mut Array<'_>)) -> &mut Self {
        write_array(self.key(key), fill);
        self
    }

    /// Adds an array member with one element per value.
    pub fn list(
        &mut self,
        key: &str,
        values: impl IntoIterator<Item = impl JsonValue>,
    ) -> &mut Self {
        self.array(key, |list| list.extend(values))
    }

    /// Adds an array member with one object per item. `fill` writes the object's members.
    pub fn objects<T>(
        &mut self,
        key: &str,
        items: impl IntoIterator<Item = T>,
        mut fill: impl FnMut(&mut Object<'_>, T),
    ) -> &mut Self {
        self.array(key, |list| {
            for item in items {
                list.object(|out| fill(out, item));
            }
        })
    }
}

/// Writes the elements of an array in call order.
pub struct Array<'o> {
    out: &'o mut Vec<u8>,
    first: bool,
}

impl Array<'_> {
    fn next(&mut self) -> &mut Vec<u8> {
        if !std::mem::take(&mut self.first) {
            self.out.push(b',');
        }
        self.out
    }

    /// Adds an element of any supported type.
    pub fn push(&mut self, value: impl JsonValue) -> &mut Self {
        value.push_to(self.next());
        self
    }

    /// Adds one element per value.
    pub fn extend(&mut self, values: impl IntoIterator<Item = impl JsonValue>) {
        for value in values {
            self.push(value);
        }
    }

    /// Adds an element that is already JSON, verbatim.
    pub fn raw(&mut self, value: &Json) -> &mut Self {
        self.push(value)
    }

    /// Adds an element from a [`crate::Tree`], verbatim.
    pub fn node(&mut self, value: Node<'_>) -> &mut Self {
        self.push(value)
    }

    /// Adds a string element, escaped as required.
    pub fn string(&mut self, value: &str) -> &mut Self {
        self.push(value)
    }

    /// Adds a non-negative integer.
    pub fn number(&mut self, value: u64) -> &mut Self {
        self.push(value)
    }

    /// Adds a nested object. `fill` writes its members.
    pub fn object(&mut self, fill: impl FnOnce(&mut Object<'_>)) -> &mut Self {
        write_object(self.next(), fill);
        self
    }

    /// Adds a nested array. `fill` writes its elements.
    pub fn array(&mut self, fill: impl FnOnce(&mut Array<'_>)) -> &mut Self {
        write_array(self.next(), fill);
        self
    }

    /// Whether no element was added yet.
    pub fn is_empty(&self) -> bool {
        self.first
    }
}
