//! Changes variables in a file with lines of the form `NAME=value`. All other lines are kept.

use serde_json::Value;

use super::FileSetting;

/// Quotes that can enclose a value. A quoted value can span several lines.
const QUOTES: [char; 3] = ['"', '\'', '`'];

pub(super) fn merge(text: &str, settings: &[FileSetting]) -> Result<String, String> {
    let end = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let mut text = text.to_owned();
    for setting in settings {
        let name = setting.name();
        let Value::String(value) = &setting.value else {
            return Err(format!("`{name}` must be a text"));
        };
        let line = format!("{name}={}", quoted(&name, value)?);
        // Readers use the last line that sets a variable.
        let existing = assignments(&text)?.into_iter().rfind(|entry| entry.name == name);
        match existing {
            Some(entry) => {
                let line = if entry.is_exported { format!("export {line}") } else { line };
                text.replace_range(entry.start..entry.end, &line);
            }
            None => {
                if !text.is_empty() && !text.ends_with('\n') {
                    text.push_str(end);
                }
                text.push_str(&line);
                text.push_str(end);
            }
        }
    }
    Ok(text)
}

/// Returns the variables of a file. If a variable is set twice, readers use the last line.
pub(super) fn values(text: &str) -> Result<Value, String> {
    let variables = assignments(text)?.into_iter().filter_map(|entry| {
        let (_, value) = text.get(entry.start..entry.end)?.split_once('=')?;
        let value = value.trim();
        let quote = value.chars().next().filter(|first| QUOTES.contains(first));
        let value = match quote {
            Some(quote) => value.get(1..)?.split(quote).next()?,
            None => value.split(" #").next()?.trim_end(),
        };
        Some((entry.name, Value::String(value.to_owned())))
    });
    Ok(Value::Object(variables.collect()))
}

/// A line that sets a variable, as a range of the text without its line end.
struct EnvAssignment {
    name: String,
    is_exported: bool,
    start: usize,
    end: usize,
}

/// Finds the lines that set a variable. Lines inside a quoted value are skipped.
fn assignments(text: &str) -> Result<Vec<EnvAssignment>, String> {
    let mut found: Vec<EnvAssignment> = Vec::new();
    let (mut start, mut open): (usize, Option<char>) = (0, None);
    for line in text.split_inclusive('\n') {
        let begin = start;
        start += line.len();
        let line = line.trim_end_matches(['\n', '\r']);
        if let Some(quote) = open {
            // The closing quote ends the value that an earlier line began.
            if line.contains(quote) {
                open = None;
                if let Some(last) = found.last_mut() {
                    last.end = begin + line.len();
                }
            }
            continue;
        }
        let indent = line.len() - line.trim_start().len();
        let content = line.trim_start();
        let exported = content.strip_prefix("export ");
        let Some((name, value)) = exported.unwrap_or(content).split_once('=') else { continue };
        let name = name.trim();
        if name.is_empty() || name.starts_with('#') {
            continue;
        }
        let value = value.trim_start();
        let quote = value.chars().next().filter(|first| QUOTES.contains(first));
        open = quote.filter(|quote| !value.get(1..).unwrap_or_default().contains(*quote));
        found.push(EnvAssignment {
            name: name.to_owned(),
            is_exported: exported.is_some(),
            start: begin + indent,
            end: begin + line.len(),
        });
    }
    match (open, found.last()) {
        (Some(_), Some(last)) => {
            Err(format!("the quoted value of `{}` has no closing quote", last.name))
        }
        (Some(_) | None, _) => Ok(found),
    }
}

/// Quotes a value if it contains special characters.
fn quoted(name: &str, value: &str) -> Result<String, String> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_./:@%+,-".contains(letter);
    if !value.is_empty() && value.chars().all(is_plain) {
        return Ok(value.to_owned());
    }
    match QUOTES.iter().skip(1).find(|quote| !value.contains(**quote)) {
        Some(quote) if !value.contains(['\n', '\r']) => Ok(format!("{quote}{value}{quote}")),
        Some(_) | None => Err(format!("the value of `{name}` cannot be quoted")),
    }
}
