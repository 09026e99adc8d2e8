//! Reads tables key by key. Each problem is recorded with its line and column, and reading
//! continues.
//!
//! Messages repeat a value only where it cannot be a secret.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use throughline_core::{Credential, Json, Name};

use crate::declare::Variables;
use crate::declare::value::{Member, Value, ValueKind};

/// A problem in a declaration, with its position and remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Line number, starting at 1.
    pub line: usize,
    /// Column in characters, starting at 1.
    pub column: usize,
    /// Problem and remedy, as one sentence.
    pub message: String,
}

/// All problems of a declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, problem) in self.0.iter().enumerate() {
            let Problem { line, column, message } = problem;
            let end = if position == 0 { "" } else { "\n" };
            write!(f, "{end}{line}:{column}: {message}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// Collects problems while a text is read.
pub(super) struct Diagnostics<'t> {
    text: &'t str,
    pub(super) variables: Variables<'t>,
    problems: Vec<Problem>,
}

impl<'t> Diagnostics<'t> {
    pub(super) fn new(text: &'t str, variables: Variables<'t>) -> Self {
        Self { text, variables, problems: Vec::new() }
    }

    pub(super) fn error(&mut self, at: usize, message: impl Into<String>) {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line = 1 + before.matches('\n').count();
        let start = before.rfind('\n').map_or(0, |at| at + 1);
        let column = 1 + before.get(start..).unwrap_or_default().chars().count();
        self.problems.push(Problem { line, column, message: message.into() });
    }

    /// Returns the value if there are no problems.
    pub(super) fn finish<T>(mut self, read: T) -> Result<T, Problems> {
        self.problems.sort_by_key(|problem| (problem.line, problem.column));
        if self.problems.is_empty() { Ok(read) } else { Err(Problems(self.problems)) }
    }

    /// Replaces `${NAME}` with environment variables.
    pub(super) fn expand_variables(&mut self, at: usize, text: &str) -> Option<String> {
        let (mut filled, mut rest) = (String::new(), text);
        while let Some((before, after)) = rest.split_once("${") {
            filled.push_str(before);
            let Some((name, after)) = after.split_once('}') else {
                self.error(at, "there is a `${` without its `}`: write ${NAME}");
                return None;
            };
            let Some(value) = (self.variables)(name) else {
                let message =
                    format!("the variable `{name}` is not set: set it, or write the value itself");
                self.error(at, message);
                return None;
            };
            filled.push_str(&value);
            rest = after;
        }
        filled.push_str(rest);
        Some(filled)
    }
}

/// A table with its name.
pub(super) struct Section<'s> {
    /// Path of the table, such as `mcp.files`.
    path: String,
    /// Header of the table, such as `[mcp.files]`.
    pub(super) header: String,
    pub(super) at: usize,
    members: &'s [Member],
}

impl<'s> Section<'s> {
    /// Opens the top-level table.
    pub(super) fn root(value: &'s Value, notes: &mut Diagnostics<'_>) -> Option<Self> {
        let Some(members) = value.table() else {
            notes.error(value.at, "this must be an object with `mcp` and `http`");
            return None;
        };
        Some(Self { path: String::new(), header: String::new(), at: 0, members })
    }

    /// Reports unknown keys, with a suggestion.
    pub(super) fn reject_unknown_keys(&self, known: &[&str], notes: &mut Diagnostics<'_>) {
        for member in self.members.iter().filter(|member| !known.contains(&member.key.as_str())) {
            let place = match self.header.as_str() {
                "" => "at the top".to_owned(),
                header => format!("in {header}"),
            };
            let advice = match closest_match(&member.key, known) {
                Some(close) => format!("; did you mean `{close}`?"),
                None => format!("; known keys: {}", known.join(", ")),
            };
            notes.error(member.at, format!("there is no key `{}` {place}{advice}", member.key));
        }
    }

    /// Returns the table under a key.
    pub(super) fn section(&self, key: &str, notes: &mut Diagnostics<'_>) -> Option<Section<'s>> {
        let member = self.member(key)?;
        let path =
            if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) };
        let Some(members) = member.value.table() else {
            notes.error(member.value.at, format!("`{key}` must be a table: write [{path}]"));
            return None;
        };
        Some(Section { header: format!("[{path}]"), path, at: member.at, members })
    }

    /// Returns all nested tables in document order.
    pub(super) fn sections(&self, notes: &mut Diagnostics<'_>) -> Vec<(&'s str, Section<'s>)> {
        let keys = self.members.iter().map(|member| member.key.as_str());
        keys.filter_map(|key| Some((key, self.section(key, notes)?))).collect()
    }

    /// Returns a non-empty text.
    pub(super) fn text(
        &self,
        key: &str,
        example: &str,
        notes: &mut Diagnostics<'_>,
    ) -> Option<&'s str> {
        let value = &self.member(key)?.value;
        let text = value.text().filter(|text| !text.trim().is_empty());
        if text.is_none() {
            let what = if value.text().is_some() { "must not be empty" } else { "must be text" };
            notes.error(value.at, format!("`{key}` {what}: write {key} = \"{example}\""));
        }
        text
    }

    /// Returns a text with its variables replaced.
    pub(super) fn filled(
        &self,
        key: &str,
        example: &str,
        notes: &mut Diagnostics<'_>,
    ) -> Option<String> {
        let text = self.text(key, example, notes)?;
        notes.expand_variables(self.value_at(key), text)
    }

    /// Returns a list of texts.
    pub(super) fn texts(
        &self,
        key: &str,
        example: &str,
        notes: &mut Diagnostics<'_>,
    ) -> Option<Vec<&'s str>> {
        let value = &self.member(key)?.value;
        let texts = value.list().and_then(|list| list.iter().map(Value::text).collect());
        if texts.is_none() {
            let message = format!("`{key}` must be a list of strings: write {key} = [{example}]");
            notes.error(value.at, message);
        }
        texts
    }

    /// Returns a list of texts with their variables replaced.
    pub(super) fn filled_texts(
        &self,
        key: &str,
        example: &str,
        notes: &mut Diagnostics<'_>,
    ) -> Option<Vec<String>> {
        let texts = self.texts(key, example, notes)?;
        let at = self.value_at(key);
        texts.into_iter().map(|text| notes.expand_variables(at, text)).collect()
    }

    /// Returns names with secret values, with their variables replaced.
    pub(super) fn secrets(
        &self,
        key: &str,
        example: &str,
        notes: &mut Diagnostics<'_>,
    ) -> Vec<(Name, Credential)> {
        let Some(member) = self.member(key) else { return Vec::new() };
        let values = member.value.table().and_then(|members| {
            let values = members.iter().map(|member| Some((member, member.value.text()?)));
            values.collect::<Option<Vec<_>>>()
        });
        let Some(values) = values else {
            let message = format!(
                "`{key}` must be a table of strings: write {key} = {{ {example} = \"${{NAME}}\" }}"
            );
            notes.error(member.value.at, message);
            return Vec::new();
        };
        let secret = |(member, text): (&Member, &str)| {
            let value = notes.expand_variables(member.value.at, text)?;
            Some((Name::from(member.key.as_str()), Credential::new(value)))
        };
        values.into_iter().filter_map(secret).collect()
    }

    /// Returns a Boolean.
    pub(super) fn flag(&self, key: &str, notes: &mut Diagnostics<'_>) -> Option<bool> {
        let value = &self.member(key)?.value;
        if let ValueKind::Flag(flag) = value.kind {
            return Some(flag);
        }
        notes.error(value.at, format!("`{key}` must be true or false: write {key} = true"));
        None
    }

    /// Returns one of several words.
    pub(super) fn choice<T: Copy>(
        &self,
        key: &str,
        all: &[(&str, T)],
        notes: &mut Diagnostics<'_>,
    ) -> Option<T> {
        let value = &self.member(key)?.value;
        let known = all.iter().find(|(word, _)| value.text() == Some(*word));
        if known.is_none() {
            let words: Vec<&str> = all.iter().map(|(word, _)| *word).collect();
            let close = value.text().and_then(|said| closest_match(said, &words));
            let close =
                close.map_or_else(String::new, |close| format!("; did you mean `{close}`?"));
            let words = words.join(", ");
            notes.error(value.at, format!("`{key}` must be one of {words}{close}"));
        }
        known.map(|(_, value)| *value)
    }

    /// Returns a duration such as `30` seconds or `"500ms"`.
    pub(super) fn time(&self, key: &str, notes: &mut Diagnostics<'_>) -> Option<Duration> {
        let value = &self.member(key)?.value;
        let written = value.text().and_then(duration);
        let time = written.or_else(|| value.whole().map(Duration::from_secs));
        let time = time.filter(|time| !time.is_zero() && *time <= Duration::from_hours(24));
        if time.is_none() {
            let message = format!(
                "`{key}` must be a time of at most a day: write {key} = \"30s\", \"500ms\" or \"5m\", or a number of seconds"
            );
            notes.error(value.at, message);
        }
        time
    }

    /// Returns a size in bytes such as `1048576` or `"1MiB"`.
    pub(super) fn bytes(&self, key: &str, notes: &mut Diagnostics<'_>) -> Option<usize> {
        let value = &self.member(key)?.value;
        let bytes = value.whole().or_else(|| value.text().and_then(size));
        let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok()).filter(|bytes| *bytes > 0);
        let bytes = bytes.filter(|bytes| *bytes <= 1 << 30);
        if bytes.is_none() {
            let message = format!(
                "`{key}` must be a number of bytes, at most 1GiB: write {key} = \"1MiB\", or the bare number"
            );
            notes.error(value.at, message);
        }
        bytes
    }

    /// Returns HTTP status ranges such as `404` or `"5xx"`.
    pub(super) fn statuses(
        &self,
        key: &str,
        notes: &mut Diagnostics<'_>,
    ) -> Option<Vec<RangeInclusive<u16>>> {
        let value = &self.member(key)?.value;
        let all = value.list().and_then(|list| list.iter().map(status).collect());
        if all.is_none() {
            let message =
                format!("`{key}` must be a list of statuses: write {key} = [404, \"5xx\"]");
            notes.error(value.at, message);
        }
        all
    }

    /// Returns an object as JSON.
    pub(super) fn json(&self, key: &str, notes: &mut Diagnostics<'_>) -> Option<Json> {
        let value = &self.member(key)?.value;
        if value.table().is_none() {
            let message =
                format!("`{key}` must be a JSON Schema: write {key} = {{ type = \"object\" }}");
            notes.error(value.at, message);
            return None;
        }
        Some(value.json())
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.member(key).is_some()
    }

    /// Returns the offset of a key.
    pub(super) fn key_at(&self, key: &str) -> usize {
        self.member(key).map_or(self.at, |member| member.at)
    }

    /// Returns the offset of a key's value.
    pub(super) fn value_at(&self, key: &str) -> usize {
        self.member(key).map_or(self.at, |member| member.value.at)
    }

    fn member(&self, key: &str) -> Option<&'s Member> {
        self.members.iter().find(|member| member.key == key)
    }
}

/// Returns the known word that is most similar to a misspelt one.
pub(super) fn closest_match<'k>(said: &str, known: &[&'k str]) -> Option<&'k str> {
    let said = said.to_lowercase().replace('-', "_");
    let is_part = |word: &str| said.len() > 2 && (word.contains(&said) || said.contains(word));
    let far = |word: &str| strsim::osa_distance(&said, word);
    let close =
        known.iter().filter(|word| far(word) <= 1 + said.chars().count() / 4 || is_part(word));
    close.min_by_key(|word| far(word)).copied()
}

fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = split_unit(text)?;
    match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" | "min" => number.checked_mul(60).map(Duration::from_secs),
        "h" => number.checked_mul(3600).map(Duration::from_secs),
        _ => None,
    }
}

fn size(text: &str) -> Option<u64> {
    let (number, unit) = split_unit(text)?;
    let times = match unit {
        "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "KB" | "kB" => 1000,
        "MB" => 1_000_000,
        _ => return None,
    };
    number.checked_mul(times)
}

fn split_unit(text: &str) -> Option<(u64, &str)> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    Some((number.parse().ok()?, unit.trim()))
}

fn status(value: &Value) -> Option<RangeInclusive<u16>> {
    let one = value.whole().and_then(|number| u16::try_from(number).ok());
    if let Some(one) = one.filter(|one| (100..=599).contains(one)) {
        return Some(one..=one);
    }
    let hundred: u16 = value.text()?.strip_suffix("xx")?.parse().ok()?;
    (1..=5).contains(&hundred).then_some(100 * hundred..=100 * hundred + 99)
}
