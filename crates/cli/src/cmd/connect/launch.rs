//! Runs a client with its settings in the environment and on the command line. No file of the
//! client is changed.

use std::io::ErrorKind;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;

use crate::clients::{ClientEntry, ClientFile};
use crate::config::environment::data_folder;
use crate::print::failure::{Failure, Result};
use crate::print::text;

use super::files::{PRIVATE, replace};
use super::merge::toml_value;
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
    for name in &client.remove {
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

/// Returns whether the client reads the settings only from its file.
fn is_only_read(file: &ClientFile) -> bool {
    let is_passed = file.option.is_some() || file.variable.is_some() || file.has_own_folder;
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
    let folder = data_folder()?.join("throughline").join("connect").join(&client.name);
    let inner = folder.join(file.folder.suffix.as_deref().unwrap_or_default());
    std::fs::create_dir_all(&inner)
        .with_context(|| format!("cannot create {}", inner.display()))?;
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
