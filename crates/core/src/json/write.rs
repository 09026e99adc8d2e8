//! Writing JSON member by member, in the order of the calls, so that equal input gives equal bytes.

use std::cell::Cell;

use bytes::Bytes;

use crate::json::{Json, text};

/// How long a text is that stays where it was written.
const LARGE: usize = 64 << 10;

/// Writes an object.
pub fn object(fill: impl FnOnce(&mut Object<'_>)) -> Json {
    written(|out| write_object(out, fill))
}

/// Writes an array.
pub fn array(fill: impl FnOnce(&mut Array<'_>)) -> Json {
    written(|out| write_array(out, fill))
}

/// What is written into memory that is kept from one text to the next, in memory of the right size. Who writes a text within
/// a text has memory of its own.
fn written(write: impl FnOnce(&mut Vec<u8>)) -> Json {
    thread_local! {
        static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    }
    let mut out = SCRATCH.take();
    write(&mut out);
    if out.len() > LARGE {
        return Json::trusted(Bytes::from(out));
    }
    let json = Json::trusted(Bytes::copy_from_slice(&out));
    out.clear();
    SCRATCH.set(out);
    json
}

/// Writes an array of values that are JSON already, into memory of the right size.
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
    Json::trusted(Bytes::from(out))
}

/// Writes an object whose members are JSON already, into memory of the right size.
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
    Json::trusted(Bytes::from(out))
}

/// Writes a string.
pub fn string(value: &str) -> Json {
    // Room for the quotes, and for an escape here and there.
    let mut out = Vec::with_capacity(value.len() + value.len() / 8 + 2);
    text::push_quoted(&mut out, value);
    Json::trusted(Bytes::from(out))
}

/// Appends a quoted string to a text that is being written.
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

/// Appends the digits of a number to a text that is being written.
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

/// An object that is being written.
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

    /// A value that is JSON already.
    pub fn raw(&mut self, key: &str, value: &Json) -> &mut Self {
        self.key(key).extend_from_slice(value.bytes());
        self
    }

    /// A value that is JSON already, cut from a [`crate::Tree`].
    pub fn node(&mut self, key: &str, value: crate::json::Node<'_>) -> &mut Self {
        self.key(key).extend_from_slice(value.raw());
        self
    }

    /// A string.
    pub fn string(&mut self, key: &str, value: &str) -> &mut Self {
        text::push_quoted(self.key(key), value);
        self
    }

    /// A string, or nothing at all.
    pub fn maybe_string(&mut self, key: &str, value: Option<&str>) -> &mut Self {
        if let Some(value) = value {
            self.string(key, value);
        }
        self
    }

    /// A whole number.
    pub fn number(&mut self, key: &str, value: u64) -> &mut Self {
        push_number(self.key(key), value);
        self
    }

    /// `true` or `false`.
    pub fn bool(&mut self, key: &str, value: bool) -> &mut Self {
        self.key(key).extend_from_slice(if value { b"true" } else { b"false" });
        self
    }

    /// `null`.
    pub fn null(&mut self, key: &str) -> &mut Self {
        self.key(key).extend_from_slice(b"null");
        self
    }

    /// An object.
    pub fn object(&mut self, key: &str, fill: impl FnOnce(&mut Object<'_>)) -> &mut Self {
        write_object(self.key(key), fill);
        self
    }

    /// An array.
    pub fn array(&mut self, key: &str, fill: impl FnOnce(&mut Array<'_>)) -> &mut Self {
        write_array(self.key(key), fill);
        self
    }
}

/// An array that is being written.
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

    /// A value that is JSON already.
    pub fn raw(&mut self, value: &Json) -> &mut Self {
        self.next().extend_from_slice(value.bytes());
        self
    }

    /// A value that is JSON already, cut from a [`crate::Tree`].
    pub fn node(&mut self, value: crate::json::Node<'_>) -> &mut Self {
        self.next().extend_from_slice(value.raw());
        self
    }

    /// A string.
    pub fn string(&mut self, value: &str) -> &mut Self {
        text::push_quoted(self.next(), value);
        self
    }

    /// A whole number.
    pub fn number(&mut self, value: u64) -> &mut Self {
        push_number(self.next(), value);
        self
    }

    /// An object.
    pub fn object(&mut self, fill: impl FnOnce(&mut Object<'_>)) -> &mut Self {
        write_object(self.next(), fill);
        self
    }

    /// An array.
    pub fn array(&mut self, fill: impl FnOnce(&mut Array<'_>)) -> &mut Self {
        write_array(self.next(), fill);
        self
    }

    /// Whether nothing was written yet.
    pub fn is_empty(&self) -> bool {
        self.first
    }
}
