//! Runs a client with its settings in the environment, on the command line, or in a private file
//! that the command line names. No file of the client is changed.

use std::io::ErrorKind;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use serde_json::Value;

use crate::clients::{ClientEntry, ClientFile};
use crate::config::environment::data_folder;
use crate::print::failure::{Failure, Result};
use crate::print::text;

use super::files::{PRIVATE, digest, replace};
use super::merge::{FileSetting, toml_value};
use super::plan::plan;
use super::settings::{file_settings, file_text};
use super::target::{ConnectTarget, GatewayKey, KEY_VARIABLE};

/// Replaces this process with the client, which then receives all signals. Returns only if the
/// client cannot be started.
pub(crate) fn launch(
    client: &ClientEntry,
    mut target: ConnectTarget,
    arguments: &[String],
) -> Result<()> {
    // The client reads the key from the environment, because command lines are visible to others.
    if let GatewayKey::Value(key) = &target.key {
        target.key = GatewayKey::Variable(key.clone());
    }
    let mut words = client.program.iter().chain(arguments).map(String::as_str);
    let Some(program) = words.next() else {
        return Err(Failure::Usage(format!(
            "{} is a library: name the program that uses it, as in `throughline connect {} --run \
             -- python app.py`",
            client.title, client.name
        )));
    };
    let mut command = Command::new(program);
    for name in client.removed_variables() {
        command.env_remove(name);
    }
    if let GatewayKey::Variable(key) = &target.key {
        command.env(KEY_VARIABLE, key);
    }
    let secret = target.key.secret();
    for (name, value) in &client.environment {
        command.env(name, target.fill(value, secret));
    }
    for file in &client.files {
        let settings = file_settings(client, file, &target, secret);
        if let Some(option) = &file.option {
            for setting in &settings {
                let value = toml_value(&setting.value).map_err(|problem| {
                    Failure::Outside(anyhow::anyhow!("cannot format the settings: {problem}"))
                })?;
                command.arg(option).arg(format!("{}={}", setting.name(), value.trim()));
            }
        }
        if let Some(option) = &file.path_option {
            refuse_option(client, option, arguments)?;
            command.arg(option).arg(settings_copy(client, file, settings.clone())?);
        }
        if let Some(variable) = &file.variable {
            command.env(variable, file_text(file.format, &settings)?);
        }
        if file.has_own_folder
            && let Some(folder) = own_folder(client, file, &target)?
        {
            command.env(&file.folder.variable, folder);
        }
        if is_only_read(file) {
            require_settings(client, file, &target)?;
        }
    }
    let error = command.args(words).exec();
    Err(match error.kind() {
        ErrorKind::NotFound if client.program.is_some() => Failure::Usage(format!(
            "`{program}` is not installed, or its folder is not in PATH: install {} with `{}`",
            client.title, client.install
        )),
        ErrorKind::NotFound => {
            Failure::Usage(format!("cannot run `{program}`: there is no such program in PATH"))
        }
        _ => Failure::Outside(anyhow::anyhow!("cannot run `{program}`: {error}")),
    })
}

/// Fails if the arguments contain the option with which connect passes the settings. The client
/// would use only one of the two.
fn refuse_option(client: &ClientEntry, option: &str, arguments: &[String]) -> Result<()> {
    let is_option = |word: &String| {
        word.strip_prefix(option).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    };
    if !arguments.iter().any(is_option) {
        return Ok(());
    }
    let (title, name) = (&client.title, &client.name);
    Err(Failure::Usage(format!(
        "--run passes the gateway's settings to {title} with {option}, and {title} accepts this \
         option only once: remove {option} from the arguments, or use `throughline connect {name} \
         --write` instead"
    )))
}

/// Writes the settings to a private file of their own and returns its path. The file also clears
/// the variables that bypass the gateway, because other files of the client may set them.
fn settings_copy(
    client: &ClientEntry,
    file: &ClientFile,
    mut settings: Vec<FileSetting>,
) -> Result<PathBuf> {
    if let Some(parents) = &file.environment {
        settings.extend(client.removed_variables().map(|name| FileSetting {
            path: parents.iter().cloned().chain([name.to_owned()]).collect(),
            value: Value::String(String::new()),
        }));
    }
    let text = file_text(file.format, &settings)?;
    let folder = own_data_folder(client)?;
    create_folder(&folder)?;
    // Each content has a file of its own, so that concurrent runs with other settings do not
    // change the file that a running client reads.
    let digest = digest(text.as_bytes());
    let name = file.names.last().map(String::as_str).unwrap_or_default();
    let path = folder.join(format!("{}-{name}", digest.get(..16).unwrap_or(&digest)));
    replace(&path, text.as_bytes(), PRIVATE)?;
    Ok(path)
}

/// Returns the folder with the files that `--run` creates for a client.
fn own_data_folder(client: &ClientEntry) -> Result<PathBuf> {
    Ok(data_folder()?.join("throughline").join("connect").join(&client.name))
}

fn create_folder(folder: &Path) -> Result<()> {
    let created = std::fs::create_dir_all(folder);
    Ok(created.with_context(|| format!("cannot create {}", folder.display()))?)
}

/// Returns whether the client reads the settings only from its file.
fn is_only_read(file: &ClientFile) -> bool {
    let is_passed = file.option.is_some()
        || file.path_option.is_some()
        || file.variable.is_some()
        || file.has_own_folder;
    file.environment.is_none() && !is_passed
}

/// Fails if the client's file lacks the settings.
fn require_settings(client: &ClientEntry, file: &ClientFile, target: &ConnectTarget) -> Result<()> {
    let planned = plan(client, file, target)?;
    if planned.former.as_deref() == Some(planned.text.as_bytes()) {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "{} reads these settings only from {}: run `throughline connect {} --write` first",
        client.title,
        planned.path.display(),
        client.name
    )))
}

/// Creates a folder for a client that reads the settings only from its folder. The folder contains
/// a copy of the client's own file with the settings. Returns `None` if the file has the settings.
fn own_folder(
    client: &ClientEntry,
    file: &ClientFile,
    target: &ConnectTarget,
) -> Result<Option<PathBuf>> {
    let planned = plan(client, file, target)?;
    if planned.former.as_deref() == Some(planned.text.as_bytes()) {
        return Ok(None);
    }
    let folder = own_data_folder(client)?;
    let inner = folder.join(file.folder.suffix.as_deref().unwrap_or_default());
    create_folder(&inner)?;
    let name = planned.path.file_name().unwrap_or_default();
    replace(&inner.join(name), planned.text.as_bytes(), PRIVATE)?;
    text::note(&format!(
        "{} uses the folder {} for this run, because {} lacks settings; `throughline connect {} \
         --write` adds them",
        client.title,
        folder.display(),
        planned.path.display(),
        client.name
    ));
    Ok(Some(folder))
}
