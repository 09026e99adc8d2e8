//! Changes settings in a TOML file. Comments, order and formatting are kept.

use serde_json::Value;
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, TableLike};

use super::FileSetting;

pub(super) fn merge(text: &str, settings: &[FileSetting]) -> Result<String, String> {
    change(text, |document| settings.iter().try_for_each(|setting| set(document, setting)))
}

pub(super) fn remove(text: &str, paths: &[Vec<String>]) -> Result<String, String> {
    change(text, |document| {
        for path in paths {
            remove_setting(document, path);
        }
        Ok(())
    })
}

/// Changes the document that a text contains.
fn change(
    text: &str,
    edit: impl FnOnce(&mut DocumentMut) -> Result<(), String>,
) -> Result<String, String> {
    // The library writes line feeds only, so a file with carriage returns is converted twice.
    let has_returns = text.contains("\r\n");
    let mut document: DocumentMut =
        text.parse().map_err(|error: toml_edit::TomlError| describe(text, &error))?;
    edit(&mut document)?;
    let changed = document.to_string();
    Ok(if has_returns { changed.replace("\r\n", "\n").replace('\n', "\r\n") } else { changed })
}

/// Removes a value. A table is kept, because it is not a setting of connect.
fn remove_setting(document: &mut DocumentMut, path: &[String]) {
    let Some((name, parents)) = path.split_last() else { return };
    let mut table: &mut dyn TableLike = document.as_table_mut();
    for parent in parents {
        let Some(child) = table.get_mut(parent).and_then(Item::as_table_like_mut) else { return };
        table = child;
    }
    if table.get(name).is_some_and(Item::is_value) {
        table.remove(name);
    }
}

fn set(document: &mut DocumentMut, setting: &FileSetting) -> Result<(), String> {
    let Some((name, parents)) = setting.path.split_last() else { return Ok(()) };
    let mut table: &mut dyn TableLike = document.as_table_mut();
    for (depth, parent) in (1..).zip(parents) {
        if !table.contains_key(parent) {
            let mut child = Table::new();
            child.set_implicit(true);
            table.insert(parent, Item::Table(child));
        }
        let child = table.get_mut(parent).and_then(Item::as_table_like_mut);
        let path = || parents.iter().take(depth).map(String::as_str).collect::<Vec<_>>().join(".");
        table = child.ok_or_else(|| format!("`{}` is not a table", path()))?;
    }
    let mut value = convert(&setting.value)?;
    match table.get_mut(name) {
        Some(Item::Value(old)) => {
            if !is_equal(old, &setting.value) {
                *value.decor_mut() = old.decor().clone();
                *old = value;
            }
        }
        None | Some(Item::None) => {
            table.insert(name, Item::Value(value));
        }
        Some(Item::Table(_) | Item::ArrayOfTables(_)) => {
            return Err(format!("`{}` is a table, but it must be a value", setting.name()));
        }
    }
    Ok(())
}

/// Returns whether the file already has the value. Such a value keeps its notation.
fn is_equal(old: &toml_edit::Value, new: &Value) -> bool {
    match new {
        Value::String(text) => old.as_str() == Some(text),
        Value::Bool(flag) => old.as_bool() == Some(*flag),
        Value::Number(number) => number.as_i64().is_some_and(|new| old.as_integer() == Some(new)),
        Value::Null | Value::Array(_) | Value::Object(_) => false,
    }
}

/// Converts a value to TOML.
pub(super) fn convert(value: &Value) -> Result<toml_edit::Value, String> {
    Ok(match value {
        Value::Null => return Err("TOML has no null".to_owned()),
        Value::Bool(flag) => (*flag).into(),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(number), _) => number.into(),
            (None, Some(number)) => number.into(),
            (None, None) => return Err(format!("TOML cannot represent {number}")),
        },
        Value::String(text) => text.into(),
        Value::Array(values) => {
            toml_edit::Value::Array(values.iter().map(convert).collect::<Result<Array, _>>()?)
        }
        Value::Object(members) => {
            let mut table = InlineTable::new();
            for (name, value) in members {
                table.insert(name, convert(value)?);
            }
            table.into()
        }
    })
}

/// Describes a syntax error with its position. The message does not repeat the file, which may
/// contain a key.
fn describe(text: &str, error: &toml_edit::TomlError) -> String {
    let offset = error.span().map_or(0, |span| span.start);
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    format!("line {line}: {}", error.message())
}
