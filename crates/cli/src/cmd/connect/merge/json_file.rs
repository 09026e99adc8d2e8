//! Changes settings in a JSON file. Comments, trailing commas, order and formatting are kept.
//!
//! Comments and trailing commas are replaced by spaces in a copy. The copy is indexed, and the
//! positions that the index yields are valid in the original text.

use std::ops::Range;

use serde_json::Value;
use throughline_json::{Node, Tree};

use super::FileSetting;

/// Indentation of a file that has no indented line.
const INDENT: &str = "  ";

pub(super) fn merge(text: &str, settings: &[FileSetting]) -> Result<String, String> {
    let mut text = text.to_owned();
    for setting in settings {
        text = set(text, setting)?;
    }
    Ok(text)
}

/// Returns the values of a file.
pub(super) fn values(text: &str) -> Result<Value, String> {
    let plain = without_extensions(text)?;
    serde_json::from_str(&plain).map_err(|error| error.to_string())
}

fn set(mut text: String, setting: &FileSetting) -> Result<String, String> {
    if without_extensions(&text)?.trim().is_empty() {
        let separator = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        text.push_str(separator);
        text.push_str("{}\n");
    }
    let plain = without_extensions(&text)?;
    let tree = Tree::parse(plain)
        .map_err(|error| format!("line {}, column {}: {}", error.line, error.column, error.what))?;
    let mut object = tree.root();
    if !object.is_object() {
        return Err("the file must contain a JSON object".to_owned());
    }
    for (depth, name) in setting.path.iter().enumerate() {
        let rest = setting.path.get(depth + 1..).unwrap_or_default();
        // If a name occurs twice, readers use the last member.
        let members = object.members().filter(|(key, _)| key.is(name));
        match members.last() {
            Some((_, value)) if rest.is_empty() => {
                let old: Option<Value> = serde_json::from_slice(value.raw()).ok();
                if old.as_ref() != Some(&setting.value) {
                    let indent = line_indent(&text, value.range().start);
                    let new = format_value(&setting.value, &indent, &text);
                    text.replace_range(value.range(), &new);
                }
                return Ok(text);
            }
            Some((_, value)) if value.is_object() => object = value,
            Some(_) => {
                let path = setting.path.get(..=depth).unwrap_or_default().join(".");
                return Err(format!("`{path}` is not an object"));
            }
            None => {
                let value = rest.iter().rev().fold(setting.value.clone(), |value, name| {
                    Value::Object([(name.clone(), value)].into_iter().collect())
                });
                return insert(&text, object, name, &value);
            }
        }
    }
    Ok(text)
}

/// Adds a member at the end of an object.
fn insert(text: &str, object: Node<'_>, name: &str, value: &Value) -> Result<String, String> {
    let Range { start: open, end } = object.range();
    let close = end.saturating_sub(1);
    let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let outer = line_indent(text, open);
    let name = Value::String(name.to_owned());
    let Some((first, _)) = object.members().next() else {
        let kept = text.get(open + 1..close).unwrap_or_default().trim_end();
        let inner = format!("{outer}{}", unit(text));
        let value = format_value(value, &inner, text);
        let member = format!("{kept}{newline}{inner}{name}: {value}{newline}{outer}");
        return Ok(replaced(text, open + 1..close, &member));
    };
    let last = object.members().last().map_or(open + 1, |(_, value)| value.range().end);
    let tail = text.get(last..close).unwrap_or_default();
    let kept = tail.trim_end();
    let has_comma = without_comments(text)?.get(last..close).is_some_and(|tail| tail.contains(','));
    let comma = if has_comma { "" } else { "," };
    let first = first.range().start;
    let is_on_own_line = text.get(open..first).is_some_and(|before| before.contains('\n'));
    // A member after a line comment must start on a new line.
    let member = if is_on_own_line || kept.contains("//") {
        let inner = if is_on_own_line {
            line_indent(text, first)
        } else {
            format!("{outer}{}", unit(text))
        };
        format!("{newline}{inner}{name}: {}", format_value(value, &inner, text))
    } else {
        format!(" {name}: {value}")
    };
    Ok(replaced(text, last..last + kept.len(), &format!("{comma}{kept}{member}")))
}

fn replaced(text: &str, range: Range<usize>, new: &str) -> String {
    let mut text = text.to_owned();
    text.replace_range(range, new);
    text
}

/// Formats a value over several lines, with the indentation and line ends of the file.
fn format_value(value: &Value, indent: &str, text: &str) -> String {
    let pretty = serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string());
    let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let unit = unit(text);
    let lines = pretty.lines().enumerate().map(|(number, line)| {
        let content = line.trim_start();
        let levels = (line.len() - content.len()) / INDENT.len();
        let indent = if number == 0 { "" } else { indent };
        format!("{indent}{}{content}", unit.repeat(levels))
    });
    lines.collect::<Vec<_>>().join(newline)
}

/// Returns the whitespace at the start of the line that contains a position.
fn line_indent(text: &str, position: usize) -> String {
    let before = text.get(..position).unwrap_or_default();
    let line = before.rfind('\n').map_or(before, |newline| before.get(newline + 1..).unwrap_or(""));
    line.chars().take_while(|letter| matches!(letter, ' ' | '\t')).collect()
}

/// Returns the indentation of one level: that of the first indented line of the file.
fn unit(text: &str) -> String {
    let indents = text.lines().map(|line| (line, line.trim_start_matches([' ', '\t'])));
    let mut indents = indents
        .filter(|(line, content)| content.starts_with('"') && content.len() < line.len())
        .map(|(line, content)| line.get(..line.len() - content.len()).unwrap_or(INDENT));
    indents.next().unwrap_or(INDENT).to_owned()
}

/// Replaces comments and trailing commas by spaces. All other characters keep their positions.
fn without_extensions(text: &str) -> Result<String, String> {
    let mut plain = without_comments(text)?.into_bytes();
    let (mut is_string, mut is_escaped, mut comma) = (false, false, None);
    for position in 0..plain.len() {
        let byte = plain.get(position).copied().unwrap_or_default();
        if is_string {
            is_string = is_escaped || byte != b'"';
            is_escaped = !is_escaped && byte == b'\\';
            continue;
        }
        match byte {
            b'"' => (is_string, comma) = (true, None),
            b',' => comma = Some(position),
            b'}' | b']' => {
                if let Some(byte) = comma.take().and_then(|comma| plain.get_mut(comma)) {
                    *byte = b' ';
                }
            }
            byte if byte.is_ascii_whitespace() => {}
            _ => comma = None,
        }
    }
    String::from_utf8(plain).map_err(|error| error.to_string())
}

/// Replaces comments by spaces. All other characters keep their positions.
fn without_comments(text: &str) -> Result<String, String> {
    let mut plain = text.as_bytes().to_vec();
    let mut at = 0;
    let (mut is_string, mut is_escaped) = (false, false);
    while let Some(rest) = text.as_bytes().get(at..).filter(|rest| !rest.is_empty()) {
        let byte = rest.first().copied().unwrap_or_default();
        if is_string {
            is_string = is_escaped || byte != b'"';
            is_escaped = !is_escaped && byte == b'\\';
            at += 1;
            continue;
        }
        let find = |end: &[u8]| rest.windows(end.len()).position(|window| window == end);
        let length = if rest.starts_with(b"//") {
            find(b"\n").unwrap_or(rest.len())
        } else if rest.starts_with(b"/*") {
            let after = rest.get(2..).unwrap_or_default();
            let end = after.windows(2).position(|window| window == b"*/");
            let line = || text.get(..at).unwrap_or_default().matches('\n').count() + 1;
            end.ok_or_else(|| format!("line {}: the comment is not closed", line()))? + 4
        } else {
            is_string = byte == b'"';
            at += 1;
            continue;
        };
        for blank in plain.iter_mut().skip(at).take(length) {
            if !blank.is_ascii_whitespace() {
                *blank = b' ';
            }
        }
        at += length;
    }
    String::from_utf8(plain).map_err(|error| error.to_string())
}
