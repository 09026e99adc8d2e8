//! Declares records: JSON objects whose parser, writer and JSON Schema come from one declaration.

use crate as json;
use crate::document::{
    Definitions, Fields, InvalidDocument, array_schema, type_schema, write_extras,
};
use crate::name::Name;
use crate::number::Number;
use crate::{Json, Node, Object};

/// A JSON object with declared members; implemented by [`record!`](crate::record).
pub trait DocumentRecord: Sized {
    /// The record's name in error paths and in the JSON Schema.
    const NAME: &'static str;

    /// Returns the record's JSON Schema. Nested records are added to `definitions` and referenced.
    fn schema(definitions: &mut Definitions) -> Json;

    /// Reads and validates all members. Undeclared members are kept.
    fn read(fields: &Fields<'_>) -> Result<Self, InvalidDocument>;

    /// Writes all present members in declaration order.
    fn write(&self, out: &mut Object<'_>);
}

/// The value type of a record member.
pub trait RecordMember: Sized {
    /// Returns a description of the expected value, such as `a string`. Error messages append it to
    /// the word `expected`.
    fn expected() -> String;

    /// Returns the JSON Schema for the value.
    fn schema(definitions: &mut Definitions) -> Json;

    /// Reads the member. Returns `None` if it is absent, and fails if it is invalid.
    fn read(fields: &Fields<'_>, key: &str) -> Result<Option<Self>, InvalidDocument>;

    /// Writes the member with the name `key`.
    fn write(&self, out: &mut Object<'_>, key: &str);

    /// Reads the member and fails if it is absent.
    fn required(fields: &Fields<'_>, key: &str) -> Result<Self, InvalidDocument> {
        Self::read(fields, key)?
            .ok_or_else(|| fields.error(key, format!("is missing; expected {}", Self::expected())))
    }
}

/// The value of a member for which `null` and absence have different meanings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Nullable<T> {
    /// JSON `null`.
    Null,
    /// A value other than `null`.
    Value(T),
}

impl<T> Nullable<T> {
    /// Returns the value unless it is `null`.
    pub fn value(&self) -> Option<&T> {
        match self {
            Self::Null => None,
            Self::Value(value) => Some(value),
        }
    }
}

impl<T: RecordMember> RecordMember for Nullable<T> {
    fn expected() -> String {
        format!("{}, or null", T::expected())
    }

    fn schema(definitions: &mut Definitions) -> Json {
        let value = T::schema(definitions);
        json::object(|out| {
            out.list("anyOf", [&value, &type_schema("null")]);
        })
    }

    fn read(fields: &Fields<'_>, key: &str) -> Result<Option<Self>, InvalidDocument> {
        if fields.get(key).is_some_and(Node::is_null) {
            return Ok(Some(Self::Null));
        }
        Ok(T::read(fields, key)?.map(Self::Value))
    }

    fn write(&self, out: &mut Object<'_>, key: &str) {
        match self.value() {
            Some(value) => value.write(out, key),
            None => _ = out.null(key),
        }
    }
}

macro_rules! record_members {
    (|$fields:ident, $key:ident, $value:ident, $out:ident|
        $($kind:ty: $expected:literal, $schema:expr, $read:expr, $write:expr;)+) => { $(
        impl RecordMember for $kind {
            fn expected() -> String {
                $expected.to_owned()
            }

            fn schema(_: &mut Definitions) -> Json {
                $schema
            }

            fn read($fields: &Fields<'_>, $key: &str) -> Result<Option<Self>, InvalidDocument> {
                $read
            }

            fn write(&self, $out: &mut Object<'_>, $key: &str) {
                let $value = self;
                $write;
            }
        }
    )+ };
}
record_members! {
    |fields, key, value, out|
    Name: "a string", type_schema("string"), fields.text(key), out.put(key, value);
    bool: "true or false", type_schema("boolean"), fields.bool(key), out.put(key, *value);
    u64: "a non-negative whole number", json::object!("type": "integer", "minimum": 0_u64),
        fields.count(key), out.put(key, *value);
    Number: "a number", type_schema("number"), fields.number(key), out.put(key, &value.json());
    // A member that may be any JSON value is kept verbatim, including `null`.
    Json: "any JSON value", json::object(|_| {}),
        Ok(fields.get(key).map(Node::json)), out.put(key, value);
    Vec<Name>: "an array of strings", array_schema(&type_schema("string")),
        fields.texts(key), out.list(key, value);
    // An object with arbitrary members keeps them verbatim and in order.
    Vec<(Name, Json)>: "an object", type_schema("object"),
        Ok(fields.object(key)?.map(|inner| inner.extras(&[]))),
        out.object(key, |out| write_extras(out, value, &[]));
}

impl<T: DocumentRecord> RecordMember for T {
    fn expected() -> String {
        "an object".to_owned()
    }

    fn schema(definitions: &mut Definitions) -> Json {
        definitions.reference::<T>()
    }

    fn read(fields: &Fields<'_>, key: &str) -> Result<Option<Self>, InvalidDocument> {
        fields.object(key)?.as_ref().map(T::read).transpose()
    }

    fn write(&self, out: &mut Object<'_>, key: &str) {
        out.object(key, |out| T::write(self, out));
    }
}

impl<T: DocumentRecord> RecordMember for Vec<T> {
    fn expected() -> String {
        "an array of objects".to_owned()
    }

    fn schema(definitions: &mut Definitions) -> Json {
        array_schema(&definitions.reference::<T>())
    }

    fn read(fields: &Fields<'_>, key: &str) -> Result<Option<Self>, InvalidDocument> {
        if fields.present(key).is_none() {
            return Ok(None);
        }
        fields.list(key)?.iter().map(T::read).collect::<Result<_, _>>().map(Some)
    }

    fn write(&self, out: &mut Object<'_>, key: &str) {
        out.objects(key, self, |out, record| record.write(out));
    }
}

/// Declares records: structs whose fields are JSON members, written in declaration order.
///
/// `field: Type` declares a required member and `field?: Type` an optional one. Undeclared members
/// are kept in `extras` and written last. `is "plan"` adds the member `"type": "plan"`, which is
/// written first. The doc comments of the members become the descriptions in the JSON Schema.
#[macro_export]
macro_rules! record {
    ($(
        $(#[$about:meta])*
        $name:ident $(is $tag:literal)? {
            $($(#[doc = $note:literal])* $key:literal => $field:ident $(?: $wanted:ty)? $(: $needed:ty)?,)+
        }
    )+) => { $(
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $($(#[doc = $note])* pub $field: $(Option<$wanted>)? $($needed)?,)+
            /// Members that the record does not declare, verbatim.
            pub extras: Vec<($crate::Name, $crate::Json)>,
        }

        impl $name {
            $(
                /// The required value of the record's `type` member.
                pub const TYPE: &'static str = $tag;
            )?

            const MEMBERS: &'static [&'static str] =
                &[$($crate::record!(@second $tag, "type"),)? $($key,)+];

            /// Creates a record from its required members, in declaration order. Optional members
            /// are absent.
            pub fn new($($($field: $needed,)?)+) -> Self {
                Self {
                    $($field: $($crate::record!(@second $wanted, None))? $($crate::record!(@second $needed, $field))?,)+
                    extras: Vec::new(),
                }
            }

            /// Parses the record. JSON `null` means absent, except in members that accept any
            /// value.
            pub fn parse(document: &$crate::Json) -> Result<Self, $crate::InvalidDocument> {
                let tree = document.tree();
                let fields = $crate::Fields::from_node(tree.root(), stringify!($name))?;
                $crate::DocumentRecord::read(&fields)
            }

            /// Returns the record as JSON, without absent members.
            pub fn json(&self) -> $crate::Json {
                $crate::object(|out| $crate::DocumentRecord::write(self, out))
            }
        }

        impl $crate::DocumentRecord for $name {
            const NAME: &'static str = stringify!($name);

            fn schema(definitions: &mut $crate::Definitions) -> $crate::Json {
                let mut shape = $crate::SchemaBuilder::new(definitions);
                $(shape.tag($tag);)?
                $(
                    let about = concat!($($note),*);
                    $(shape.optional::<$wanted>($key, about);)?
                    $(shape.required::<$needed>($key, about);)?
                )+
                shape.finish()
            }

            fn read(fields: &$crate::Fields<'_>) -> Result<Self, $crate::InvalidDocument> {
                $(fields.expect_string("type", $tag)?;)?
                Ok(Self {
                    $($field:
                        $(<$wanted as $crate::RecordMember>::read(fields, $key)?)?
                        $(<$needed as $crate::RecordMember>::required(fields, $key)?)?,)+
                    extras: fields.extras(Self::MEMBERS),
                })
            }

            fn write(&self, out: &mut $crate::Object<'_>) {
                $(out.string("type", $tag);)?
                $(
                    $(if let Some(value) = &self.$field {
                        <$wanted as $crate::RecordMember>::write(value, out, $key);
                    })?
                    $(<$needed as $crate::RecordMember>::write(&self.$field, out, $key);)?
                )+
                $crate::write_extras(out, &self.extras, Self::MEMBERS);
            }
        }
    )+ };
    (@second $first:literal, $second:expr) => { $second };
    (@second $first:ty, $second:expr) => { $second };
}
