//! Parses and writes the redaction policy as a JSON document.

use throughline_json::{self as json, Fields, InvalidDocument, Json, Name, Object};

use crate::redaction::{Pattern, RedactionPolicy};

const POLICY: [&str; 7] = [
    "keys",
    "patterns",
    "fields",
    "emitPatterns",
    "thinkingPatterns",
    "secretPatterns",
    "builtInSecrets",
];

impl RedactionPolicy {
    /// Parses and validates the policy. An unknown key or an invalid pattern is an error. Built-in
    /// secrets are redacted unless `builtInSecrets` is `false`.
    pub fn parse(document: &Json) -> Result<Self, InvalidDocument> {
        let tree = document.tree();
        let fields = Fields::from_node(tree.root(), "RedactionPolicy")?;
        fields.refuse_unknown(&POLICY)?;
        Ok(Self {
            keys: fields.texts("keys")?.unwrap_or_default(),
            patterns: patterns(&fields, "patterns")?,
            fields: paths(&fields)?,
            emit_patterns: patterns(&fields, "emitPatterns")?,
            thinking_patterns: patterns(&fields, "thinkingPatterns")?,
            secret_patterns: patterns(&fields, "secretPatterns")?,
            built_in_secrets: fields.bool("builtInSecrets")?.unwrap_or(true),
        })
    }

    /// Returns the policy as JSON, omitting empty lists and default values.
    pub fn json(&self) -> Json {
        json::object(|out| {
            if !self.keys.is_empty() {
                out.list("keys", &self.keys);
            }
            write_patterns(out, "patterns", &self.patterns);
            if !self.fields.is_empty() {
                out.object("fields", |out| {
                    for (key, paths) in &self.fields {
                        out.list(key, paths);
                    }
                });
            }
            write_patterns(out, "emitPatterns", &self.emit_patterns);
            write_patterns(out, "thinkingPatterns", &self.thinking_patterns);
            write_patterns(out, "secretPatterns", &self.secret_patterns);
            out.maybe("builtInSecrets", (!self.built_in_secrets).then_some(false));
        })
    }
}

fn patterns(fields: &Fields<'_>, key: &str) -> Result<Vec<Pattern>, InvalidDocument> {
    let texts = fields.texts(key)?.unwrap_or_default();
    let compiled = texts.iter().enumerate().map(|(index, text)| {
        Pattern::new(text).map_err(|error| {
            fields.error(&format!("{key}[{index}]"), format!("is invalid: {error}"))
        })
    });
    compiled.collect()
}

fn paths(fields: &Fields<'_>) -> Result<Vec<(Name, Vec<Name>)>, InvalidDocument> {
    let Some(inner) = fields.object("fields")? else { return Ok(Vec::new()) };
    let names = inner.entries().map(|(key, _, _)| key);
    names.map(|key| Ok((key.clone(), inner.texts(&key)?.unwrap_or_default()))).collect()
}

fn write_patterns(out: &mut Object<'_>, key: &str, patterns: &[Pattern]) {
    if !patterns.is_empty() {
        out.list(key, patterns.iter().map(Pattern::as_str));
    }
}
