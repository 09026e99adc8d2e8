//! The text of `--print`: exports, configuration files or program text.

use std::path::Path;

use crate::clients::{ClientEntry, FileFormat, KeyKind};
use crate::config::environment::{folder, readable_variable};
use crate::print::failure::Result;

use super::settings::{file_path, file_settings, file_text};
use super::target::{ConnectTarget, GatewayKey};

/// Returns the settings of a client as text. The text contains a key only if the command line
/// contains the key.
pub(crate) fn settings_text(client: &ClientEntry, target: &ConnectTarget) -> Result<String> {
    let mut sections = Vec::new();
    if !client.environment.is_empty() {
        let set = client.removed_variables().filter(|name| readable_variable(name).is_some());
        let unset = set.map(|name| format!("unset {name}\n"));
        let exports = exports(client, target).into_iter().map(|pair| format!("export {pair}\n"));
        let lines: String = unset.chain(exports).collect();
        sections.push(format!("{}{lines}", heading(client, "#", "variables")));
    }
    // The exports replace a file that holds environment variables.
    for file in client.files.iter().filter(|file| file.environment.is_none()) {
        let settings = file_settings(client, file, target, &target.key.shown());
        let path = short_path(&file_path(file)?);
        let comment = match file.format {
            FileFormat::Json => "//",
            FileFormat::Toml | FileFormat::Env => "#",
        };
        let text = file_text(file.format, &settings)?;
        sections.push(format!("{}{text}", heading(client, comment, &path)));
    }
    if let Some(snippet) = &client.snippet {
        let key = match target.key.kind() {
            KeyKind::Variable => snippet.key.clone(),
            KeyKind::None | KeyKind::Value => format!("\"{}\"", target.key.shown()),
        };
        let import = snippet
            .import
            .as_deref()
            .into_iter()
            .filter(|_| target.key.kind() == KeyKind::Variable);
        let import: String = import.flat_map(|line| [line, "\n"]).collect();
        let text = target.fill(&snippet.text, &key);
        let heading = heading(client, &snippet.comment, &snippet.language);
        sections.push(format!("{heading}{import}{text}"));
    }
    Ok(sections.join("\n"))
}

/// Returns a comment that states where the following settings belong.
fn heading(client: &ClientEntry, comment: &str, place: &str) -> String {
    format!("{comment} {}: {place} (see {})\n", client.title, client.docs)
}

/// Returns `NAME=value` for each variable, quoted for a shell.
pub(crate) fn exports(client: &ClientEntry, target: &ConnectTarget) -> Vec<String> {
    let key = target.key.shown();
    let is_variable = matches!(target.key, GatewayKey::Variable(_));
    let pairs = client.environment.iter().map(|(name, value)| {
        let text = target.fill(value, &key);
        // The shell expands the reference to the key.
        let text = if is_variable && value.contains("{key}") {
            format!("\"{text}\"")
        } else {
            shell_quoted(&text)
        };
        format!("{name}={text}")
    });
    pairs.collect()
}

/// Quotes a text for a POSIX shell.
fn shell_quoted(text: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_./:@%+,-…".contains(letter);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// Returns a path with `~` for the home directory.
pub(crate) fn short_path(path: &Path) -> String {
    let home = folder("HOME").ok().flatten();
    match home.and_then(|home| path.strip_prefix(home).ok().map(Path::to_owned)) {
        Some(below) => format!("~/{}", below.display()),
        None => path.display().to_string(),
    }
}
