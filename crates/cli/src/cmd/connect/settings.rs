//! The settings of a client with all placeholders filled in.

use std::path::PathBuf;

use serde_json::Value;

use crate::clients::{ClientEntry, ClientFile, FileFormat};
use crate::config::environment::{folder, variable};
use crate::print::failure::{Failure, Result};

use super::merge::{FileSetting, merge};
use super::target::ConnectTarget;

/// Returns the settings that a configuration file needs. `key` is the text for `{key}`.
pub(crate) fn file_settings(
    client: &ClientEntry,
    file: &ClientFile,
    target: &ConnectTarget,
    key: &str,
) -> Vec<FileSetting> {
    let resolve = |text: &str| target.fill(text, key);
    let mut settings = Vec::new();
    if let Some(parents) = &file.environment {
        settings.extend(client.environment.iter().map(|(name, value)| FileSetting {
            path: parents.iter().chain([name]).cloned().collect(),
            value: Value::String(resolve(value)),
        }));
    }
    let kind = target.key.kind();
    let chosen = file.set.iter().filter(|setting| setting.when.is_none_or(|when| when == kind));
    settings.extend(chosen.map(|setting| FileSetting {
        path: setting.at.iter().map(|name| resolve(name)).collect(),
        value: filled(&setting.value, &resolve),
    }));
    settings
}

/// Returns the paths of the settings that apply only to other kinds of key. The file may contain
/// them from an earlier write.
pub(crate) fn stale_settings(
    file: &ClientFile,
    target: &ConnectTarget,
    settings: &[FileSetting],
) -> Vec<Vec<String>> {
    let kind = target.key.kind();
    let others = file.set.iter().filter(|setting| setting.when.is_some_and(|when| when != kind));
    let paths = others.map(|setting| -> Vec<String> {
        setting.at.iter().map(|name| target.fill(name, target.key.secret())).collect()
    });
    paths.filter(|path| settings.iter().all(|setting| setting.path != *path)).collect()
}

/// Returns whether a configuration file contains the key itself.
pub(crate) fn contains_key(
    client: &ClientEntry,
    file: &ClientFile,
    target: &ConnectTarget,
) -> bool {
    let without = file_settings(client, file, target, "");
    without != file_settings(client, file, target, target.key.secret())
}

/// Returns the path of a configuration file. The client's own variables take precedence.
pub(crate) fn file_path(file: &ClientFile) -> Result<PathBuf> {
    let named = client_folder(&file.folder.variable)?;
    let mut path = match (named, file.folder.default.strip_prefix("~/")) {
        (Some(named), _) => match &file.folder.suffix {
            Some(suffix) => named.join(suffix),
            None => named,
        },
        (None, Some(below)) => folder("HOME")?
            .ok_or_else(|| {
                let variable = &file.folder.variable;
                Failure::Usage(format!(
                    "cannot determine the home directory; set HOME or {variable}"
                ))
            })?
            .join(below),
        (None, None) => PathBuf::from(&file.folder.default),
    };
    let existing = file.names.iter().find(|name| path.join(name).exists());
    path.push(existing.or(file.names.last()).map(String::as_str).unwrap_or_default());
    Ok(path)
}

/// Reads the variable that names a client's folder. According to the XDG specification, a relative
/// path in an `XDG_` variable is ignored. The clients resolve other relative paths against the
/// folder in which they start, so that such a path names no fixed folder.
fn client_folder(name: &str) -> Result<Option<PathBuf>> {
    let absolute = folder(name)?;
    match variable(name)? {
        Some(value) if absolute.is_none() && !name.starts_with("XDG_") => {
            Err(Failure::Usage(format!(
                "{name} is the relative path {value}, which names another folder wherever the \
                 client starts: set it to an absolute path"
            )))
        }
        Some(_) | None => Ok(absolute),
    }
}

/// Returns a file that contains only these settings.
pub(crate) fn file_text(format: FileFormat, settings: &[FileSetting]) -> Result<String> {
    merge(format, "", settings).map_err(|problem| {
        Failure::Outside(anyhow::anyhow!("cannot format the settings: {problem}"))
    })
}

fn filled(value: &Value, fill: &impl Fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => Value::String(fill(text)),
        Value::Array(values) => values.iter().map(|value| filled(value, fill)).collect(),
        Value::Object(members) => {
            let members = members.iter().map(|(name, value)| (fill(name), filled(value, fill)));
            Value::Object(members.collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}
