//! Finds environment variables and settings that override or bypass what `--write` writes.

use std::path::Path;

use serde_json::Value;

use crate::clients::{ClientEntry, ClientFile};
use crate::config::environment::readable_variable;
use crate::print::failure::Result;

use super::merge::{FileSetting, values};
use super::plan::read;
use super::settings::{file_path, file_settings};
use super::show::short_path;
use super::target::ConnectTarget;

/// Values that switch a variable off.
const OFF: [&str; 3] = ["", "0", "false"];

/// Returns a warning for each variable of the environment and each setting of another file that
/// defeats the written settings. Call this function after the files were written.
pub(crate) fn warnings(client: &ClientEntry, target: &ConnectTarget) -> Result<Vec<String>> {
    let mut warnings = Vec::new();
    let (title, name) = (&client.title, &client.name);
    let run = format!("start {title} with `throughline connect {name} --run`");
    for conflict in &client.conflicts {
        let variable = &conflict.variable;
        if readable_variable(variable).is_some_and(|value| !OFF.contains(&&*value)) {
            let effect = &conflict.effect;
            warnings.push(format!(
                "{variable} is set in this environment, so {effect}: unset it before you start \
                 {title}, or {run}"
            ));
        }
    }
    for file in &client.files {
        let shown = short_path(&file_path(file)?);
        for (variable, value) in client.environment.iter().filter(|_| file.environment_wins) {
            let wanted = target.fill(value, target.key.secret());
            if readable_variable(variable).is_some_and(|value| value != wanted) {
                warnings.push(format!(
                    "{variable} is set to another value in this environment and takes precedence \
                     over {shown}: unset it before you start {title}, or {run}"
                ));
            }
        }
        for setting in bypasses(client, file, &file_path(file)?)? {
            let effect = &setting.1;
            warnings.push(format!("{shown} sets `{}`, so {effect}: remove it", setting.0));
        }
        for path in file.project.iter().map(Path::new) {
            warnings.extend(project_warning(client, file, target, path)?.map(|problem| {
                let path = path.display();
                format!("{path} in the current folder {problem}, or {run} here")
            }));
        }
    }
    Ok(warnings)
}

/// Returns the settings of a file that set a variable which bypasses the gateway, each with its
/// effect.
fn bypasses<'c>(
    client: &'c ClientEntry,
    file: &ClientFile,
    path: &Path,
) -> Result<Vec<(String, &'c str)>> {
    let (Some(parents), Some(values)) = (&file.environment, file_values(file, path)?) else {
        return Ok(Vec::new());
    };
    let found = client.conflicts.iter().filter_map(|conflict| {
        let setting: Vec<String> =
            parents.iter().cloned().chain([conflict.variable.clone()]).collect();
        let value = value_at(&values, &setting)?;
        let is_off = value.as_str().is_some_and(|value| OFF.contains(&value));
        (!is_off).then(|| (setting.join("."), conflict.effect.as_str()))
    });
    Ok(found.collect())
}

/// Describes how a file in the project folder defeats the client's own file, and what to do.
fn project_warning(
    client: &ClientEntry,
    file: &ClientFile,
    target: &ConnectTarget,
    path: &Path,
) -> Result<Option<String>> {
    let own = file_path(file)?;
    let is_same =
        path.canonicalize().ok().is_some_and(|real| own.canonicalize().ok() == Some(real));
    if is_same {
        return Ok(None);
    }
    let Some(values) = file_values(file, path)? else { return Ok(None) };
    let settings = file_settings(client, file, target, target.key.secret());
    let shown = short_path(&own);
    if file.project_replaces {
        let is_set = |setting: &FileSetting| {
            value_at(&values, &setting.path).is_some_and(|value| *value == setting.value)
        };
        let problem =
            format!("makes {} ignore {shown}: add the variables of that file to it", client.title);
        return Ok((!settings.iter().all(is_set)).then_some(problem));
    }
    if let Some((setting, effect)) = bypasses(client, file, path)?.into_iter().next() {
        return Ok(Some(format!("sets `{setting}`, so {effect}: remove it")));
    }
    let is_other = |setting: &&FileSetting| {
        value_at(&values, &setting.path).is_some_and(|value| *value != setting.value)
    };
    let other: Vec<String> =
        settings.iter().filter(is_other).map(|setting| format!("`{}`", setting.name())).collect();
    let problem = format!(
        "sets {}, which takes precedence over {shown}: remove it from that file",
        other.join(", ")
    );
    Ok((!other.is_empty()).then_some(problem))
}

/// Reads the values of a configuration file. Returns `None` if the file does not exist or is
/// invalid: the client reports an invalid file itself.
fn file_values(file: &ClientFile, path: &Path) -> Result<Option<Value>> {
    let Some(bytes) = read(path)? else { return Ok(None) };
    Ok(std::str::from_utf8(&bytes).ok().and_then(|text| values(file.format, text).ok()))
}

fn value_at<'v>(values: &'v Value, path: &[String]) -> Option<&'v Value> {
    path.iter().try_fold(values, |value, name| value.get(name))
}
