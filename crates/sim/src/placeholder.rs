//! Placeholders in scripts: `{{result}}`, `{{result.N}}` and `{{user}}`.

use serde_json::Value;

use crate::turn::Turn;

/// A value of the request that a script can insert into a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placeholder {
    /// The last tool result since the last user message.
    LastResult,
    /// The tool result with this index, starting at 0.
    Result(usize),
    /// The text of the last user message.
    User,
}

impl Placeholder {
    fn parse(name: &str) -> Option<Self> {
        match name {
            "result" => Some(Self::LastResult),
            "user" => Some(Self::User),
            name => Some(Self::Result(name.strip_prefix("result.")?.parse().ok()?)),
        }
    }

    /// Returns the value; empty if the request does not contain it.
    fn value(self, turn: &Turn) -> &str {
        let result = match self {
            Self::LastResult => turn.results.last(),
            Self::Result(at) => turn.results.get(at),
            Self::User => Some(&turn.user_text),
        };
        result.map(String::as_str).unwrap_or_default()
    }
}

/// A part of a scripted text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TextPiece<'t> {
    Literal(&'t str),
    /// A name in double braces.
    Name(&'t str),
}

/// Splits a text at the names in double braces. Braces around anything else, such as code, are
/// literal text.
fn split(text: &str) -> Vec<TextPiece<'_>> {
    let is_name = |name: &str| {
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_');
        !name.is_empty() && name.chars().all(is_part)
    };
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        pieces.push(TextPiece::Literal(before));
        match after.split_once("}}").filter(|(name, _)| is_name(name.trim())) {
            Some((name, after)) => {
                pieces.push(TextPiece::Name(name.trim()));
                rest = after;
            }
            None => {
                pieces.push(TextPiece::Literal("{{"));
                rest = after;
            }
        }
    }
    pieces.push(TextPiece::Literal(rest));
    pieces
}

/// Checks that a text contains only known placeholders.
pub(crate) fn check(text: &str) -> Result<(), String> {
    for piece in split(text) {
        if let TextPiece::Name(name) = piece
            && Placeholder::parse(name).is_none()
        {
            return Err(format!(
                "unknown placeholder `{{{{{name}}}}}`; use {{{{result}}}}, {{{{result.0}}}} or \
                 {{{{user}}}}"
            ));
        }
    }
    Ok(())
}

/// Checks the placeholders in all texts of a JSON value.
pub(crate) fn check_value(value: &Value) -> Result<(), String> {
    let mut pending = vec![value];
    while let Some(value) = pending.pop() {
        match value {
            Value::String(text) => check(text)?,
            Value::Array(elements) => pending.extend(elements),
            Value::Object(members) => pending.extend(members.values()),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    Ok(())
}

/// Replaces the placeholders in a text with the values of the request.
pub(crate) fn expand(text: &str, turn: &Turn) -> String {
    let texts = split(text).into_iter().map(|piece| match piece {
        TextPiece::Literal(text) => text,
        TextPiece::Name(name) => {
            Placeholder::parse(name).map_or("", |placeholder| placeholder.value(turn))
        }
    });
    texts.collect()
}

/// Replaces the placeholders in all texts of a JSON value.
pub(crate) fn expand_value(value: &mut Value, turn: &Turn) {
    let mut pending = vec![value];
    while let Some(value) = pending.pop() {
        match value {
            Value::String(text) => *text = expand(text, turn),
            Value::Array(elements) => pending.extend(elements),
            Value::Object(members) => pending.extend(members.values_mut()),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}
