//! Reads an agent file (`agent.toml`) and locates the key that causes a problem, so that error
//! messages name its line.

use std::path::Path;

use serde::de::DeserializeOwned;
use throughline_tools::{Problems, reader};
use toml::{Table, Value};

use crate::print::failure::{Failure, Result};
use crate::print::text::{self, plain};

#[cfg(test)]
#[path = "agent_file_tests.rs"]
mod agent_file_tests;

/// A parsed agent file. The default value represents a command without an agent file.
#[derive(Default)]
pub(super) struct AgentFile {
    name: String,
    pub(super) text: String,
    pub(super) table: Table,
}

/// A problem in a declaration, and the path of the key that causes the problem.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InvalidKey {
    pub(super) path: Vec<String>,
    pub(super) problem: String,
}

impl AgentFile {
    pub(super) fn read(file: &Path) -> Result<Self> {
        Self::parse(plain(&file.display().to_string()), text::read_file(file)?)
    }

    fn parse(name: String, text: String) -> Result<Self> {
        match toml::from_str(&text) {
            Ok(table) => Ok(Self { name, text, table }),
            Err(error) => {
                let at = error.span().map_or(0, |span| span.start);
                let file = Self { name, text, table: Table::new() };
                let message = format!("{}: invalid TOML: {}", file.position(at), error.message());
                Err(Failure::BadData(message))
            }
        }
    }

    /// Returns the start of an error message about a key: the name of the file, and the line and
    /// column of the key if the file contains the key.
    pub(super) fn prefix(&self, path: &[String]) -> String {
        if self.name.is_empty() {
            return String::new();
        }
        let document = reader::Value::from_toml(&self.text).ok().filter(|_| !path.is_empty());
        match document.and_then(|document| document.find(path)) {
            Some(at) => format!("{}: ", self.position(at)),
            None => format!("{}: ", self.name),
        }
    }

    /// Creates the failure for a problem with the key at this path.
    pub(super) fn invalid(&self, path: &[String], problem: &str) -> Failure {
        Failure::BadData(format!("{}{problem}", self.prefix(path)))
    }

    /// Creates the failure for problems that have their own positions.
    pub(super) fn invalid_tools(&self, Problems(problems): &Problems) -> Failure {
        let lines = problems.iter().map(|problem| format!("{}:{problem}", self.name));
        Failure::BadData(lines.collect::<Vec<_>>().join("\n"))
    }

    /// Formats a byte offset as `NAME:LINE:COLUMN`.
    fn position(&self, at: usize) -> String {
        let before = self.text.get(..at).unwrap_or(&self.text);
        let line = 1 + before.matches('\n').count();
        let column = 1 + before.chars().rev().take_while(|c| *c != '\n').count();
        format!("{}:{line}:{column}", self.name)
    }
}

/// Deserializes a TOML table by its JSON field names. The deserializer reads generated JSON and
/// knows no positions in the TOML text, so an error contains the path of the key instead.
pub(super) fn from_toml<T: DeserializeOwned>(table: &Table) -> Result<T, InvalidKey> {
    deserialize(table).map_err(|problem| {
        let path = find_cause::<T>(table, &problem);
        let problem = explain(table, &path, &problem).unwrap_or(problem);
        InvalidKey { path, problem }
    })
}

/// Replaces the deserializer's message about a value of the wrong type, which names types of Rust.
/// Returns `None` for other messages.
fn explain(table: &Table, path: &[String], problem: &str) -> Option<String> {
    let starts = ["invalid type: ", "invalid value: "].into_iter();
    let mut rest = starts.filter_map(|start| problem.strip_prefix(start));
    let (found, expected) = rest.next()?.split_once(", expected ")?;
    let (last, parents) = path.split_last()?;
    let parent = parents.iter().try_fold(table, |table, key| table.get(key)?.as_table())?;
    let elements = parent.get(last).and_then(Value::as_array);
    let has_tables = elements.is_some_and(|all| all.iter().any(Value::is_table));
    let expected = match expected {
        "a map" => "a table",
        "a sequence" => "a list",
        "a boolean" => "true or false",
        "a string" | "a borrowed string" => "a string",
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number of at least 0",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        other if other.starts_with("struct ") => "a table",
        other => other,
    };
    let found = match found {
        "map" => "a table",
        "sequence" => "a list",
        other => other,
    };
    let key = path.join(".");
    // The value of the key may be a list that contains a value of the wrong type.
    let subject = match elements {
        Some(_) if has_tables => format!("a value in `{key}`"),
        Some(_) if found != "a list" => format!("an element of `{key}`"),
        _ => format!("`{key}`"),
    };
    Some(format!("{subject} must be {expected}, not {found}; see docs/agents.md"))
}

fn deserialize<T: DeserializeOwned>(table: &Table) -> Result<T, String> {
    if let Some(member) = table.iter().find_map(|(key, value)| find_non_finite(key, value)) {
        return Err(format!("{member} is not a finite number"));
    }
    let value = serde_json::to_value(table).and_then(serde_json::from_value);
    value.map_err(|error| error.to_string())
}

/// Returns the path of the key that causes a problem: without this key, deserialization does not
/// report the problem. The path is empty if a missing key causes the problem.
fn find_cause<T: DeserializeOwned>(table: &Table, problem: &str) -> Vec<String> {
    let mut path: Vec<String> = Vec::new();
    loop {
        let inner = path.iter().try_fold(table, |table, key| table.get(key)?.as_table());
        let keys: Vec<String> = inner.into_iter().flat_map(Table::keys).cloned().collect();
        let is_cause = |key: &String| {
            let mut without = table.clone();
            let inner =
                path.iter().try_fold(&mut without, |table, key| table.get_mut(key)?.as_table_mut());
            if let Some(inner) = inner {
                inner.remove(key);
            }
            deserialize::<T>(&without).err().as_deref() != Some(problem)
        };
        let Some(key) = keys.into_iter().find(is_cause) else { return path };
        path.push(key);
    }
}

/// Returns the key path of a `nan` or `inf` value, which JSON cannot represent.
fn find_non_finite(name: &str, value: &Value) -> Option<String> {
    match value {
        Value::Float(number) => (!number.is_finite()).then(|| name.to_owned()),
        Value::Array(list) => list.iter().find_map(|value| find_non_finite(name, value)),
        Value::Table(table) => {
            table.iter().find_map(|(key, value)| find_non_finite(&format!("{name}.{key}"), value))
        }
        _ => None,
    }
}
