//! JSON Schemas of documents, generated from the declarations that read and write them.

use crate as json;
use crate::document::{DocumentRecord, RecordMember};
use crate::{Json, Object};

/// The schemas of all referenced records, each once, by name.
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
        let path = format!("#/$defs/{}", T::NAME);
        json::object(|out| {
            out.string("$ref", &path);
        })
    }

    /// Builds a complete schema document with all definitions sorted by name.
    pub fn document(mut self, name: &str, about: &str, body: impl FnOnce(&mut Object<'_>)) -> Json {
        self.0.sort_unstable_by_key(|(name, _)| *name);
        json::object(|out| {
            out.string("$schema", "https://json-schema.org/draft/2020-12/schema");
            out.string("title", name).string("description", about);
            body(out);
            out.object("$defs", |out| {
                for (name, schema) in &self.0 {
                    out.raw(name, schema);
                }
            });
        })
    }
}

/// Builds the schema of one record member by member.
pub struct SchemaBuilder<'d> {
    definitions: &'d mut Definitions,
    members: Vec<(&'static str, Json)>,
    required: Vec<&'static str>,
}

impl<'d> SchemaBuilder<'d> {
    /// Starts the schema of a record; nested records are added to `definitions`.
    pub fn new(definitions: &'d mut Definitions) -> Self {
        Self { definitions, members: Vec::new(), required: Vec::new() }
    }

    /// Adds the constant `type` member.
    pub fn tag(&mut self, tag: &str) {
        let said = json::object(|out| {
            out.string("const", tag);
        });
        self.members.push(("type", said));
        self.required.push("type");
    }

    /// Adds a required member.
    pub fn required<T: RecordMember>(&mut self, key: &'static str, about: &str) {
        self.optional::<T>(key, about);
        self.required.push(key);
    }

    /// Adds an optional member.
    pub fn optional<T: RecordMember>(&mut self, key: &'static str, about: &str) {
        let schema = T::schema(self.definitions);
        self.member(key, about, &schema);
    }

    /// Adds a member with the given schema.
    pub fn member(&mut self, key: &'static str, about: &str, schema: &Json) {
        // Doc links make sense only in the source, so their brackets are removed.
        let about = about.trim().replace("[`", "`").replace("`]", "`");
        let described = json::object(|out| {
            out.string("description", &about);
            for (name, value) in schema.tree().root().members() {
                out.node(&name.text().unwrap_or_default(), value);
            }
        });
        self.members.push((key, described));
    }

    /// Returns the schema. Unknown members are allowed, because records keep them.
    pub fn finish(self) -> Json {
        json::object(|out| {
            out.string("type", "object");
            out.object("properties", |out| {
                for (name, schema) in &self.members {
                    out.raw(name, schema);
                }
            });
            out.array("required", |list| {
                for name in &self.required {
                    list.string(name);
                }
            });
        })
    }
}

/// Returns a schema for any value of a JSON type.
pub fn type_schema(kind: &str) -> Json {
    json::object(|out| {
        out.string("type", kind);
    })
}

/// Returns a schema for an array of `items`.
pub fn array_schema(items: &Json) -> Json {
    json::object(|out| {
        out.string("type", "array").raw("items", items);
    })
}
