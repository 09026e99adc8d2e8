//! Writes JSON member by member in call order, so that equal input gives equal bytes.

use std::cell::Cell;

use bytes::Bytes;

use crate::{Json, text};

/// Maximum length in bytes up to which the scratch buffer is reused.
const LARGE: usize = 64 << 10;

/// Builds an object.
pub fn object(fill: impl FnOnce(&mut Object<'_>)) -> Json {
    build_json(|out| write_object(out, fill))
}

/// Builds an array.
pub fn array(fill: impl FnOnce(&mut Array<'_>)) -> Json {
    build_json(|out| write_array(out, fill))
}

/// Writes into a reused scratch buffer and returns an exact-size copy. A nested call gets its own
/// buffer.
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
    write_array(&mut out, |a| {
        for value in values {
            a.raw(value);
        }
    });
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
    write_object(&mut out, |o| {
        for (key, value) in members {
            o.raw(key, value);
        }
    });
    Json::from_trusted(Bytes::from(out))
}

/// Builds a string.
pub fn string(value: &str) -> Json {
    // Reserve space for the quotes and a few escapes.
    let mut out = Vec::with_capacity(value.len() + value.len() / 8 + 2);
    text::push_quoted(&mut out, value);
    Json::from_trusted(Bytes::from(out))
}

/// Appends a quoted string to the output.
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

/// Appends the digits of a number to the output.
pub fn push_number(out: &mut Vec<u8>, value: u64) {
    let begin = out.len();
    let mut rest = value;
    loop {
        let digit = u8::try_from(rest % 10).unwrap_or_default();
        out.push(b'0' + digit);
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.get_mut(begin..).unwrap_or_default().reverse();
}

/// Writes the members of an object.
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

    /// Adds a value that is already JSON.
    pub fn raw(&mut self, key: &str, value: &Json) -> &mut Self {
        self.key(key).extend_from_slice(value.bytes());
        self
    }

    /// Adds a value from a [`crate::Tree`] verbatim.
    pub fn node(&mut self, key: &str, value: crate::Node<'_>) -> &mut Self {
        self.key(key).extend_from_slice(value.raw());
        self
    }

    /// Adds a string.
    pub fn string(&mut self, key: &str, value: &str) -> &mut Self {
        text::push_quoted(self.key(key), value);
        self
    }

    /// Adds a string if there is one.
    pub fn maybe_string(&mut self, key: &str, value: Option<&str>) -> &mut Self {
        if let Some(value) = value {
            self.string(key, value);
        }
        self
    }

    /// Adds an integer.
    pub fn number(&mut self, key: &str, value: u64) -> &mut Self {
        push_number(self.key(key), value);
        self
    }

    /// Adds `true` or `false`.
    pub fn bool(&mut self, key: &str, value: bool) -> &mut Self {
        self.key(key).extend_from_slice(if value { b"true" } else { b"false" });
        self
    }

    /// Adds `null`.
    pub fn null(&mut self, key: &str) -> &mut Self {
        self.key(key).extend_from_slice(b"null");
        self
    }

    /// Adds an object.
    pub fn object(&mut self, key: &str, fill: impl FnOnce(&mut Object<'_>)) -> &mut Self {
        write_object(self.key(key), fill);
        self
    }

    /// Adds an array.
    pub fn array(&mut self, key: &str, fill: impl FnOnce(&mut Array<'_>)) -> &mut Self {
        write_array(self.key(key), fill);
        self
    }
}

/// Writes the elements of an array.
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

    /// Adds a value that is already JSON.
    pub fn raw(&mut self, value: &Json) -> &mut Self {
        self.next().extend_from_slice(value.bytes());
        self
    }

    /// Adds a value from a [`crate::Tree`] verbatim.
    pub fn node(&mut self, value: crate::Node<'_>) -> &mut Self {
        self.next().extend_from_slice(value.raw());
        self
    }

    /// Adds a string.
    pub fn string(&mut self, value: &str) -> &mut Self {
        text::push_quoted(self.next(), value);
        self
    }

    /// Adds an integer.
    pub fn number(&mut self, value: u64) -> &mut Self {
        push_number(self.next(), value);
        self
    }

    /// Adds an object.
    pub fn object(&mut self, fill: impl FnOnce(&mut Object<'_>)) -> &mut Self {
        write_object(self.next(), fill);
        self
    }

    /// Adds an array.
    pub fn array(&mut self, fill: impl FnOnce(&mut Array<'_>)) -> &mut Self {
        write_array(self.next(), fill);
        self
    }

    /// Whether no element was added yet.
    pub fn is_empty(&self) -> bool {
        self.first
    }
}
