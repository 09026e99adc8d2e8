//! Changes settings in a configuration file and keeps everything else as it is.

mod env_file;
mod json_file;
mod toml_file;

use serde_json::Value;

use crate::clients::FileFormat;

/// A setting of a configuration file, ready to be written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FileSetting {
    /// Member names from the outermost object to the setting.
    pub(crate) path: Vec<String>,
    pub(crate) value: Value,
}

impl FileSetting {
    /// Returns the path as a dotted name, for messages.
    pub(crate) fn name(&self) -> String {
        self.path.join(".")
    }
}

/// A byte order mark, with which some editors start a file.
const MARK: char = '\u{feff}';

/// Sets the settings in the text of a file. The error states the problem and its position.
pub(crate) fn merge(
    format: FileFormat,
    text: &str,
    settings: &[FileSetting],
) -> Result<String, String> {
    after_mark(text, |text| match format {
        FileFormat::Json => json_file::merge(text, settings),
        FileFormat::Toml => toml_file::merge(text, settings),
        FileFormat::Env => env_file::merge(text, settings),
    })
}

/// Returns the values in the text of a file as nested objects.
pub(crate) fn values(format: FileFormat, text: &str) -> Result<Value, String> {
    let text = text.strip_prefix(MARK).unwrap_or(text);
    match format {
        FileFormat::Json => json_file::values(text),
        FileFormat::Toml => toml::from_str(text).map_err(|error| error.to_string()),
        FileFormat::Env => env_file::values(text),
    }
}

/// Changes the text after the byte order mark, and keeps the mark.
fn after_mark(
    text: &str,
    change: impl FnOnce(&str) -> Result<String, String>,
) -> Result<String, String> {
    match text.strip_prefix(MARK) {
        Some(rest) => change(rest).map(|changed| format!("{MARK}{changed}")),
        None => change(text),
    }
}

/// Removes the settings at these paths from the text of a file, if the file has them.
pub(crate) fn remove(
    format: FileFormat,
    text: &str,
    paths: &[Vec<String>],
) -> Result<String, String> {
    match (format, paths) {
        (_, []) => Ok(text.to_owned()),
        (FileFormat::Toml, paths) => after_mark(text, |text| toml_file::remove(text, paths)),
        (FileFormat::Json | FileFormat::Env, [path, ..]) => {
            Err(format!("`{}` cannot be removed from a file of this format", path.join(".")))
        }
    }
}

/// Returns a value as it appears in a TOML file.
pub(crate) fn toml_value(value: &Value) -> Result<String, String> {
    toml_file::convert(value).map(|value| value.to_string())
}

#[cfg(test)]
#[path = "merge/merge_tests.rs"]
mod merge_tests;
