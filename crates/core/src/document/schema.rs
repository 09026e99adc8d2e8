//! The JSON Schemas of documents, made from the same declarations that read and print them.

use crate::document::{Member, Record};
use crate::json::{self, Json, Object};

/// The schemas of the records that were met, each once, by name.
#[derive(Default)]
pub(crate) struct Definitions(Vec<(&'static str, Json)>);

impl Definitions {
    /// What stands for a record wherever it is met.
    pub(crate) fn refer<T: Record>(&mut self) -> Json {
        if !self.0.iter().any(|(name, _)| *name == T::NAME) {
            // It may hold itself, and is known from here on.
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

    /// A document of its own, with all that it refers to, in the order of the names.
    pub(crate) fn document(
        mut self,
        name: &str,
        about: &str,
        body: impl FnOnce(&mut Object<'_>),
    ) -> Json {
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

/// The schema of a record that is being written, member by member.
pub(crate) struct Shape<'d> {
    definitions: &'d mut Definitions,
    members: Vec<(&'static str, Json)>,
    required: Vec<&'static str>,
}

impl<'d> Shape<'d> {
    pub(crate) fn new(definitions: &'d mut Definitions) -> Self {
        Self { definitions, members: Vec::new(), required: Vec::new() }
    }

    /// It has that `type`.
    pub(crate) fn tag(&mut self, tag: &str) {
        let said = json::object(|out| {
            out.string("const", tag);
        });
        self.members.push(("type", said));
        self.required.push("type");
    }

    /// A member that must be there.
    pub(crate) fn needs<T: Member>(&mut self, key: &'static str, about: &str) {
        self.takes::<T>(key, about);
        self.required.push(key);
    }

    /// A member that may be there.
    pub(crate) fn takes<T: Member>(&mut self, key: &'static str, about: &str) {
        let schema = T::schema(self.definitions);
        self.says(key, about, &schema);
    }

    /// A member of that schema.
    pub(crate) fn says(&mut self, key: &'static str, about: &str, schema: &Json) {
        // Links are for those who read the code.
        let about = about.trim().replace("[`", "`").replace("`]", "`");
        let described = json::object(|out| {
            out.string("description", &about);
            for (name, value) in schema.tree().root().members() {
                out.node(&name.text().unwrap_or_default(), value);
            }
        });
        self.members.push((key, described));
    }

    /// The schema. What it does not know is kept, and so allowed.
    pub(crate) fn end(self) -> Json {
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

/// Anything of that JSON type.
pub(crate) fn of_type(kind: &str) -> Json {
    json::object(|out| {
        out.string("type", kind);
    })
}

/// A list of that.
pub(crate) fn list_of(items: &Json) -> Json {
    json::object(|out| {
        out.string("type", "array").raw("items", items);
    })
}
