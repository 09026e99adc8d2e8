//! Records: whole objects of a document, declared member by member in the order in which they are printed.

use crate::document::{
    Definitions, Fields, InvalidDocument, Word, list_of, list_of_words, of_type,
};
use crate::json::{self, Json, Node, Object};
use crate::name::Name;
use crate::number::Number;

/// An object of a document.
pub(crate) trait Record: Sized {
    /// What the document calls it.
    const NAME: &'static str;

    /// Its JSON Schema. Records within it are referred to.
    fn schema(definitions: &mut Definitions) -> Json;

    /// Reads the members.
    fn read(fields: &Fields<'_>) -> Result<Self, InvalidDocument>;

    /// Prints the members.
    fn write(&self, out: &mut Object<'_>);
}

/// What a member of a record can be.
pub(crate) trait Member: Sized {
    /// What is to be written, as the end of a sentence that begins with `it must be`.
    fn demand() -> String;

    /// Its JSON Schema.
    fn schema(definitions: &mut Definitions) -> Json;

    /// Reads the member; nothing where it is absent.
    fn read(fields: &Fields<'_>, key: &str) -> Result<Option<Self>, InvalidDocument>;

    /// Prints the member.
    fn write(&self, out: &mut Object<'_>, key: &str);

    /// Reads the member, which must be there.
    fn required(fields: &Fields<'_>, key: &str) -> Result<Self, InvalidDocument> {
        Self::read(fields, key)?
            .ok_or_else(|| fields.error(key, format!("is missing: it must be {}", Self::demand())))
    }
}

/// A member of which the document tells `null` from absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Nullable<T> {
    /// `null`
    Null,
    /// Anything else.
    Value(T),
}

impl<T> Nullable<T> {
    /// The value, unless it is `null`.
    pub fn value(&self) -> Option<&T> {
        match self {
            Self::Null => None,
            Self::Value(value) => Some(value),
        }
    }
}

impl<T: Member> Member for Nullable<T> {
    fn demand() -> String {
        format!("{}, or null", T::demand())
    }

    fn schema(definitions: &mut Definitions) -> Json {
        let value = T::schema(definitions);
        json::object(|out| {
            out.array("anyOf", |list| {
                list.raw(&value).raw(&of_type("null"));
            });
        })
    }

    fn read(fields: &Fields<'_>, key: &str) -> Result<Option<Self>, InvalidDocument> {
        if fields.given(key).is_some_and(Node::is_null) {
            return Ok(Some(Self::Null));
        }
        Ok(T::read(fields, key)?.map(Self::Value))
    }

    fn write(&self, out: &mut Object<'_>, key: &str) {
        match self {
            Self::Null => {
                out.null(key);
            }
            Self::Value(value) => value.write(out, key),
        }
    }
}

impl Member for Name {
    fn demand() -> String {
        "a string".to_owned()
    }

    fn schema(_: &mut Definitions) -> Json {
        of_type("string")
    }

    fn read(fields: &Fields<'_>, key: &str) -> Result<Option<Self>, InvalidDocument> {
        fields.text(key)
    }

    fn write(&self, out: &mut Object<'_>, key: &str) {
        out.string(key, self);
    }
}

impl Member for bool {
    fn demand() -> String {
        "true or false".to_owned()
    }

    fn schema(_: &mut Definitions) -> Json {
        of_type("boolean")
    }

    fn read(fields: &Fields<'_>, key: &str) -> Result<Option<Self>, InvalidDocument> {
        fields.bool(key)
    }

    fn write(&self, out: &mut Object<'_>, key: &str) {
        out.bool(key, *self);
    }
}

impl Member for u64 {
    fn demand() -> String {
        "a non-negative whole number".to_owned()
    }

    fn schema(_: &mut Definitions) -> Json {
        json::object(|out| {
            out.string("type", "integer").number("minimum", 0_u64);
        })
    }

    fn read(fields: &Fields<'_>, key: &str) -> Result<Option<Self>, InvalidDocument> {
        fields.count(key)
    }

    fn write(&self, out: &mut Object<'_>, key: &str) {
        out.number(key, *self);
    }
}

impl Member for Number {
    fn demand() -> String {
        "a number".to_owned()
    }

    fn schema(_: &mut Definitions) -> Json {
        of_type("number")
    }

    fn read(fields: &Fields<'_>, key: &str) -> Result<Option<Self>, InvalidDocument> {
        fields.number(key)
    }

    fn write(&self, out: &mut Object<'_>, key: &str) {
        out.raw(key, &self.json());
    }
}

/// Anything, verbatim: `null` is a value here.
impl Member for Json {
    fn demand() -> String {
        "given, and may be anything".to_owned()
    }

    fn schema(_: &mut Definitions) -> Json {
        json::object(|_| {})
    }

    fn read(fields: &Fields<'_>, key: &str) -> Result<Option<Self>, InvalidDocument> {
        Ok(fields.given(key).map(Node::json))
    }

    fn write(&self, out: &mut Object<'_>, key: &str) {
        out.raw(key, self);
    }
}

impl<T: Word> Member for T {
    fn demand() -> String {
        format!("one of {}", list_of_words::<T>())
    }

    fn schema(_: &mut Definitions) -> Json {
        json::object(|out| {
            out.string("type", "string").array("enum", |list| {
                for word in T::ALL {
                    list.string(word.as_str());
                }
            });
        })
    }

    fn read(fields: &Fields<'_>, key: &str) -> Result<Option<Self>, InvalidDocument> {
        fields.word(key)
    }

    fn write(&self, out: &mut Object<'_>, key: &str) {
        out.string(key, self.as_str());
    }
}

impl Member for Vec<Name> {
    fn demand() -> String {
        "an array of strings".to_owned()
    }

    fn schema(_: &mut Definitions) -> Json {
        list_of(&of_type("string"))
    }

    fn read(fields: &Fields<'_>, key: &str) -> Result<Option<Self>, InvalidDocument> {
        fields.texts(key)
    }

    fn write(&self, out: &mut Object<'_>, key: &str) {
        out.array(key, |list| {
            for text in self {
                list.string(text);
            }
        });
    }
}

impl<T: Record> Member for Vec<T> {
    fn demand() -> String {
        "an array of objects".to_owned()
    }

    fn schema(definitions: &mut Definitions) -> Json {
        list_of(&definitions.refer::<T>())
    }

    fn read(fields: &Fields<'_>, key: &str) -> Result<Option<Self>, InvalidDocument> {
        if fields.present(key).is_none() {
            return Ok(None);
        }
        fields.list(key)?.iter().map(T::read).collect::<Result<_, _>>().map(Some)
    }

    fn write(&self, out: &mut Object<'_>, key: &str) {
        out.array(key, |list| {
            for record in self {
                list.object(|out| record.write(out));
            }
        });
    }
}

/// An object of any members, verbatim and in their order.
impl Member for Vec<(Name, Json)> {
    fn demand() -> String {
        "an object".to_owned()
    }

    fn schema(_: &mut Definitions) -> Json {
        of_type("object")
    }

    fn read(fields: &Fields<'_>, key: &str) -> Result<Option<Self>, InvalidDocument> {
        Ok(object(fields, key)?.map(|inner| inner.extras(&[])))
    }

    fn write(&self, out: &mut Object<'_>, key: &str) {
        out.object(key, |out| {
            for (key, value) in self {
                out.raw(key, value);
            }
        });
    }
}

/// The members of the object that is a member.
pub(crate) fn object<'t>(
    fields: &Fields<'t>,
    key: &str,
) -> Result<Option<Fields<'t>>, InvalidDocument> {
    fields.present(key).map(|node| Fields::of(node, fields.path(key))).transpose()
}

/// Declares a record with the names of its members in the document, in the order in which they are printed: `field: Type` is
/// required, `field?: Type` is an `Option`. Members that are not declared are kept in `extras` and printed last. A record that
/// `is "plan"` has that `type`, which is printed first.
macro_rules! record {
    (
        $(#[$about:meta])*
        $name:ident $(is $tag:literal)? {
            $($(#[doc = $note:literal])* $key:literal => $field:ident $(?: $wanted:ty)? $(: $needed:ty)?,)+
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $($(#[doc = $note])* pub $field: $(Option<$wanted>)? $($needed)?,)+
            /// Members that the document does not know, verbatim.
            pub extras: Vec<(crate::name::Name, crate::json::Json)>,
        }

        impl $name {
            $(
                /// The `type` that the document has.
                pub const TYPE: &'static str = $tag;
            )?

            const MEMBERS: &'static [&'static str] =
                &[$(record!(@second $tag, "type"),)? $($key,)+];

            /// Takes the required members, in the order of the document. All others are absent.
            pub fn new($($($field: $needed,)?)+) -> Self {
                Self {
                    $($field: $(record!(@second $wanted, None))? $(record!(@second $needed, $field))?,)+
                    extras: Vec::new(),
                }
            }

            /// Reads the document. JSON `null` means absent, except where the member may be anything.
            pub fn parse(
                document: &crate::json::Json,
            ) -> Result<Self, crate::document::InvalidDocument> {
                let tree = document.tree();
                let fields = crate::document::Fields::of(tree.root(), stringify!($name))?;
                crate::document::Record::read(&fields)
            }

            /// The document. What is absent is left out.
            pub fn json(&self) -> crate::json::Json {
                crate::json::object(|out| crate::document::Record::write(self, out))
            }
        }

        impl crate::document::Record for $name {
            const NAME: &'static str = stringify!($name);

            fn schema(definitions: &mut crate::document::Definitions) -> crate::json::Json {
                let mut shape = crate::document::Shape::new(definitions);
                $(shape.tag($tag);)?
                $(
                    let about = concat!($($note),*);
                    $(shape.takes::<$wanted>($key, about);)?
                    $(shape.needs::<$needed>($key, about);)?
                )+
                shape.end()
            }

            fn read(
                fields: &crate::document::Fields<'_>,
            ) -> Result<Self, crate::document::InvalidDocument> {
                $(fields.must_say("type", $tag)?;)?
                Ok(Self {
                    $($field:
                        $(<$wanted as crate::document::Member>::read(fields, $key)?)?
                        $(<$needed as crate::document::Member>::required(fields, $key)?)?,)+
                    extras: fields.extras(Self::MEMBERS),
                })
            }

            fn write(&self, out: &mut crate::json::Object<'_>) {
                $(out.string("type", $tag);)?
                $(
                    $(if let Some(value) = &self.$field {
                        <$wanted as crate::document::Member>::write(value, out, $key);
                    })?
                    $(<$needed as crate::document::Member>::write(&self.$field, out, $key);)?
                )+
                crate::document::write_extras(out, &self.extras, Self::MEMBERS);
            }
        }

        impl crate::document::Member for $name {
            fn demand() -> String {
                "an object".to_owned()
            }

            fn schema(definitions: &mut crate::document::Definitions) -> crate::json::Json {
                definitions.refer::<Self>()
            }

            fn read(
                fields: &crate::document::Fields<'_>,
                key: &str,
            ) -> Result<Option<Self>, crate::document::InvalidDocument> {
                let inner = crate::document::object(fields, key)?;
                inner.as_ref().map(crate::document::Record::read).transpose()
            }

            fn write(&self, out: &mut crate::json::Object<'_>, key: &str) {
                out.object(key, |out| crate::document::Record::write(self, out));
            }
        }
    };
    (@second $first:literal, $second:expr) => { $second };
    (@second $first:ty, $second:expr) => { $second };
}
pub(crate) use record;
