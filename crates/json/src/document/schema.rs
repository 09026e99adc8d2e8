//! Builds JSON Schemas from the record declarations, which also generate the parsers and writers.

use crate as json;
use crate::document::{DocumentRecord, RecordMember, StringEnum};
use crate::{Json, Object};

/// The schemas of all referenced records, by name. Each record occurs once.
#[derive(Default)]
pub struct Definitions(Vec<(&'static str, Json)>);

impl Definitions {
    /// Returns a reference to a record's schema and adds that schema on first use.
    pub fn reference<T: DocumentRecord>(&mut self) -> Json {
        if !self.0.iter().any(|(name, _)| *name == T::NAME) {
            // Register the name first, because a record may contain itself.
            self.0.push((T::NAME, Json::null()));
            let schema = T::schema(self);
            if let Some((_, known)) = self.0.iter_mut().find(|(name, _)| *name == T::NAME) {
                *known = schema;
            }
        }
        json::object!("$ref": &*format!("#/$defs/{}", T::NAME))
    }

    /// Builds a complete schema document with all definitions sorted by name.
    pub fn document(mut self, name: &str, about: &str, body: impl FnOnce(&mut Object<'_>)) -> Json {
        self.0.sort_unstable_by_key(|(name, _)| *name);
        json::object(|out| {
            out.string("$schema", "https://json-schema.org/draft/2020-12/schema");
            out.string("title", name).string("description", about);
            body(out);
            out.raw("$defs", &json::object_of(self.0.iter().map(|(name, schema)| (*name, schema))));
        })
    }
}

/// Builds the schema for one record, member by member.
pub struct SchemaBuilder<'d> {
    definitions: &'d mut Definitions,
    members: Vec<(&'static str, Json)>,
    required: Vec<&'static str>,
}

impl<'d> SchemaBuilder<'d> {
    /// Starts a schema without members. Nested records are added to `definitions`.
    pub fn new(definitions: &'d mut Definitions) -> Self {
        Self { definitions, members: Vec::new(), required: Vec::new() }
    }

    /// Adds a required `type` member with the constant value `tag`.
    pub fn tag(&mut self, tag: &str) {
        self.members.push(("type", json::object!("const": tag)));
        self.required.push("type");
    }

    /// Adds a required member with the schema of `T` and the description `about`.
    pub fn required<T: RecordMember>(&mut self, key: &'static str, about: &str) {
        self.optional::<T>(key, about);
        self.required.push(key);
    }

    /// Adds an optional member with the schema of `T` and the description `about`.
    pub fn optional<T: RecordMember>(&mut self, key: &'static str, about: &str) {
        let schema = T::schema(self.definitions);
        self.member(key, about, &schema);
    }

    /// Adds an optional member with the given schema and the description `about`.
    pub fn member(&mut self, key: &'static str, about: &str, schema: &Json) {
        // Doc links make sense only in the source, so their brackets are removed.
        let about = about.trim().replace("[`", "`").replace("`]", "`");
        let described = json::object(|out| {
            out.string("description", &about).nodes(schema.tree().root().members());
        });
        self.members.push((key, described));
    }

    /// Returns the finished schema. It allows unknown members, because records keep them.
    pub fn finish(self) -> Json {
        let members = self.members.iter().map(|(name, schema)| (*name, schema));
        json::object(|out| {
            out.string("type", "object").raw("properties", &json::object_of(members));
            out.list("required", self.required);
        })
    }
}

/// Returns a schema for any value of one JSON type, such as `string`.
pub fn type_schema(kind: &str) -> Json {
    json::object!("type": kind)
}

/// Returns a schema for an array whose elements match the schema `items`.
pub fn array_schema(items: &Json) -> Json {
    json::object!("type": "array", "items": items)
}

/// Returns a schema that allows only the strings of an enum.
pub fn enum_schema<T: StringEnum>() -> Json {
    let names = T::ALL.iter().map(|name| name.as_str());
    json::object(|out| {
        out.string("type", "string").list("enum", names);
    })
}
