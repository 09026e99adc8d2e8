//! Reads TOML and JSON documents key by key. Problems are recorded with line and column, and do not
//! stop the reader.
//!
//! Messages quote a value only if it cannot be a secret.

mod value;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use throughline_core::Credential;
use throughline_json::{Json, Name};

pub use crate::reader::value::Value;

use crate::reader::value::Member;
use crate::secret::Secrets;
use crate::suggest::{closest, did_you_mean};

/// Looks up an environment variable by name; `None` if it is not set.
pub type Variables<'v> = &'v dyn Fn(&str) -> Option<String>;

/// A problem in a document, with its position and a suggested fix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {message}")]
pub struct Problem {
    /// Line number, starting at 1.
    pub line: usize,
    /// Column in characters, starting at 1.
    pub column: usize,
    /// One sentence that describes the problem and the fix.
    pub message: String,
}

/// All problems found in a document, in the order of the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct Problems(pub Vec<Problem>);

/// Phrases in error messages that depend on the kind of document.
pub struct Phrases {
    /// Text before the name of an unknown key.
    pub unknown_key: &'static str,
    /// Phrase for the location of top-level keys, such as `at the top level`.
    pub root: &'static str,
    /// Text before the list of known keys.
    pub known_keys: &'static str,
    /// Name for a string value, such as `a string`.
    pub string: &'static str,
    /// Describes a valid duration. The maximum is one day.
    pub duration: &'static str,
    /// Describes a valid size, with an example for the given key.
    pub size: fn(&str) -> String,
    /// Maximum size in bytes that the document may specify.
    pub largest_size: u64,
}

/// Collects the problems found while a document is read.
pub struct Diagnostics<'t> {
    text: &'t str,
    phrases: &'static Phrases,
    /// Looks up environment variables for `${NAME}` placeholders.
    pub variables: Variables<'t>,
    /// Problems that make the document unusable.
    pub errors: Vec<Problem>,
    /// Problems that leave the document usable.
    pub warnings: Vec<Problem>,
    /// Line number of each key that was read, by key path.
    pub lines: BTreeMap<String, usize>,
}

impl<'t> Diagnostics<'t> {
    /// Creates an empty list of problems. `text` is the document, from which line and column
    /// numbers are computed.
    pub fn new(text: &'t str, phrases: &'static Phrases, variables: Variables<'t>) -> Self {
        let (errors, warnings) = (Vec::new(), Vec::new());
        Self { text, phrases, variables, errors, warnings, lines: BTreeMap::new() }
    }

    /// Records an error at a byte offset.
    pub fn error(&mut self, at: usize, message: impl Into<String>) {
        self.errors.push(self.problem(at, message.into()));
    }

    /// Records a warning at a byte offset.
    pub fn warning(&mut self, at: usize, message: impl Into<String>) {
        self.warnings.push(self.problem(at, message.into()));
    }

    /// Returns the line number of a byte offset, starting at 1.
    pub fn line(&self, at: usize) -> usize {
        self.problem(at, String::new()).line
    }

    /// Sorts errors and warnings by their position in the text.
    pub fn sort(&mut self) {
        for problems in [&mut self.errors, &mut self.warnings] {
            problems.sort_by_key(|problem| (problem.line, problem.column));
        }
    }

    /// Returns the value, or all errors if there are any.
    pub(crate) fn finish<T>(mut self, value: T) -> Result<T, Problems> {
        self.sort();
        if self.errors.is_empty() { Ok(value) } else { Err(Problems(self.errors)) }
    }

    /// Replaces `${NAME}` placeholders with environment variables. Reports an error at `at` if a
    /// variable is not set.
    pub(crate) fn expand_variables(&mut self, at: usize, text: &str) -> Option<String> {
        let (mut filled, mut rest) = (String::new(), text);
        while let Some((before, after)) = rest.split_once("${") {
            filled.push_str(before);
            let Some((name, after)) = after.split_once('}') else {
                self.error(at, "there is a `${` without a matching `}`: write ${NAME}");
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

    fn problem(&self, at: usize, message: String) -> Problem {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line = 1 + before.matches('\n').count();
        let start = before.rfind('\n').map_or(0, |at| at + 1);
        let column = 1 + before.get(start..).unwrap_or_default().chars().count();
        Problem { line, column, message }
    }
}

/// A table of the document and its path.
pub struct Section<'s> {
    /// Path of the table, such as `mcp.files`.
    path: String,
    /// Header as written, such as `[mcp.files]`.
    pub(crate) header: String,
    /// Byte offset of the table in the document.
    pub at: usize,
    members: &'s [Member],
}

impl<'s> Section<'s> {
    /// Opens the top-level table; `None` if the document is not a table.
    pub fn root(value: &'s Value) -> Option<Self> {
        Some(Self { path: String::new(), header: String::new(), at: 0, members: value.table()? })
    }

    /// Reports each key that is not in `known`, and suggests similar keys.
    pub fn reject_unknown_keys(&self, known: &[&str], notes: &mut Diagnostics<'_>) {
        let phrases = notes.phrases;
        for Member { at, key, .. } in self.members {
            if known.contains(&key.as_str()) {
                continue;
            }
            let location = match self.header.as_str() {
                "" => phrases.root.to_owned(),
                header => format!("in {header}"),
            };
            let advice = match did_you_mean(&closest(key, known.iter().copied())) {
                close if close.is_empty() => {
                    format!("; {} {}", phrases.known_keys, known.join(", "))
                }
                close => close,
            };
            notes.error(*at, format!("{} `{key}` {location}{advice}", phrases.unknown_key));
        }
    }

    /// Returns the table under a key. Reports an error if the value is not a table.
    pub fn section(&self, key: &str, notes: &mut Diagnostics<'_>) -> Option<Section<'s>> {
        let path = self.path_of(key);
        let expected = format_args!("a table: write [{path}]");
        let members = self.parse(key, Value::table, expected, notes)?;
        Some(Section { header: format!("[{path}]"), path, at: self.key_at(key), members })
    }

    /// Returns all tables directly inside this table, in the order of the text.
    pub fn sections(&self, notes: &mut Diagnostics<'_>) -> Vec<(&'s str, Section<'s>)> {
        let keys = self.members.iter().map(|member| member.key.as_str());
        keys.filter_map(|key| Some((key, self.section(key, notes)?))).collect()
    }

    /// Returns the elements of an array of tables, such as `[[routes]]`.
    pub fn list(&self, key: &str, notes: &mut Diagnostics<'_>) -> Vec<Section<'s>> {
        let path = self.path_of(key);
        let section = |value: &'s Value| {
            let (path, header) = (path.clone(), format!("[[{path}]]"));
            Some(Section { path, header, at: value.at, members: value.table()? })
        };
        let sections = |value: &'s Value| value.list()?.iter().map(section).collect();
        let expected = format_args!("a list of tables: write [[{path}]]");
        self.parse(key, sections, expected, notes).unwrap_or_default()
    }

    /// Returns the string under a key. Reports an error if the string is empty.
    pub fn text(&self, key: &str, example: &str, notes: &mut Diagnostics<'_>) -> Option<&'s str> {
        let value = self.get(key, notes)?;
        let text = value.text().filter(|text| !text.trim().is_empty());
        if text.is_none() {
            let problem = match value.text() {
                Some(_) => "not be empty",
                None => &format!("be {}", notes.phrases.string),
            };
            notes.error(value.at, format!("`{key}` must {problem}: write {key} = \"{example}\""));
        }
        text
    }

    /// Returns the list of non-empty strings under a key, each with its byte offset.
    pub fn texts(
        &self,
        key: &str,
        example: &str,
        notes: &mut Diagnostics<'_>,
    ) -> Option<Vec<(usize, &'s str)>> {
        self.strings(key, example, |text| !text.trim().is_empty(), notes)
    }

    /// Returns the strings in the list under a key, which may be empty.
    pub fn any_texts(
        &self,
        key: &str,
        example: &str,
        notes: &mut Diagnostics<'_>,
    ) -> Option<Vec<(usize, &'s str)>> {
        self.strings(key, example, |_| true, notes)
    }

    /// Returns the non-empty string under a key, with `${NAME}` placeholders replaced.
    pub(crate) fn filled(
        &self,
        key: &str,
        example: &str,
        notes: &mut Diagnostics<'_>,
    ) -> Option<String> {
        let text = self.text(key, example, notes)?;
        notes.expand_variables(self.value_at(key), text)
    }

    /// Returns the list of strings under a key, with `${NAME}` placeholders replaced.
    pub(crate) fn filled_texts(
        &self,
        key: &str,
        example: &str,
        notes: &mut Diagnostics<'_>,
    ) -> Option<Vec<String>> {
        let texts = self.any_texts(key, example, notes)?;
        texts.into_iter().map(|(at, text)| notes.expand_variables(at, text)).collect()
    }

    fn strings(
        &self,
        key: &str,
        example: &str,
        is_valid: fn(&str) -> bool,
        notes: &mut Diagnostics<'_>,
    ) -> Option<Vec<(usize, &'s str)>> {
        let string = |value: &'s Value| Some((value.at, value.text().filter(|t| is_valid(t))?));
        let strings = |value: &'s Value| value.list()?.iter().map(string).collect();
        let expected = format_args!("a list of strings: write {key} = [{example}]");
        self.parse(key, strings, expected, notes)
    }

    /// Returns the names and secret values in the table under a key, with `${NAME}` placeholders
    /// replaced.
    pub(crate) fn secrets(&self, key: &str, example: &str, notes: &mut Diagnostics<'_>) -> Secrets {
        let texts = |value: &'s Value| -> Option<Vec<_>> {
            let text = |member: &'s Member| Some((member, member.value.text()?));
            value.table()?.iter().map(text).collect()
        };
        let expected =
            format_args!("a table of strings: write {key} = {{ {example} = \"${{NAME}}\" }}");
        let texts = self.parse(key, texts, expected, notes).unwrap_or_default();
        let secret = |(member, text): (&Member, &str)| {
            let value = notes.expand_variables(member.value.at, text)?;
            Some((Name::from(member.key.as_str()), Credential::new(value)))
        };
        texts.into_iter().filter_map(secret).collect()
    }

    /// Returns the Boolean under a key. Reports any other value as an error.
    pub fn flag(&self, key: &str, notes: &mut Diagnostics<'_>) -> Option<bool> {
        self.parse(key, Value::bool, format_args!("true or false: write {key} = true"), notes)
    }

    /// Returns the choice whose name is the string under a key. Reports any other value as an
    /// error.
    pub fn choice<T: Copy>(
        &self,
        key: &str,
        all: &[(&str, T)],
        notes: &mut Diagnostics<'_>,
    ) -> Option<T> {
        let text = self.get(key, notes)?.text();
        let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        let close = text.map(|text| closest(text, names.iter().copied())).unwrap_or_default();
        let find_choice =
            |_| all.iter().find(|(name, _)| text == Some(*name)).map(|(_, value)| *value);
        let expected = format_args!("one of {}{}", names.join(", "), did_you_mean(&close));
        self.parse(key, find_choice, expected, notes)
    }

    /// Returns the whole number under a key. Reports an error if the number is less than 1.
    pub fn count(&self, key: &str, example: u32, notes: &mut Diagnostics<'_>) -> Option<u32> {
        let count = |value: &Value| u32::try_from(value.whole()?).ok().filter(|count| *count > 0);
        let expected = format_args!("a whole number of at least 1: write {key} = {example}");
        self.parse(key, count, expected, notes)
    }

    /// Returns the size in bytes under a key. The value is a number, such as `67108864`, or a
    /// string, such as `"64MiB"`.
    pub fn bytes(&self, key: &str, notes: &mut Diagnostics<'_>) -> Option<u64> {
        let Phrases { size, largest_size, .. } = notes.phrases;
        let bytes = |value: &Value| {
            let bytes = value.whole().or_else(|| parse_bytes(value.text()?).ok());
            bytes.filter(|bytes| (1..=*largest_size).contains(bytes))
        };
        self.parse(key, bytes, size(key), notes)
    }

    /// Returns the duration under a key. A number, such as `30`, is in seconds. A string, such as
    /// `"500ms"`, contains the unit.
    pub fn time(&self, key: &str, notes: &mut Diagnostics<'_>) -> Option<Duration> {
        let time = |value: &Value| {
            let seconds = value.whole().map(Duration::from_secs);
            let time = seconds.or_else(|| parse_duration(value.text()?))?;
            (!time.is_zero() && time <= Duration::from_hours(24)).then_some(time)
        };
        let expected = notes.phrases.duration;
        let example = "\"30s\", \"500ms\" or \"5m\", or a number of seconds";
        self.parse(key, time, format_args!("{expected}: write {key} = {example}"), notes)
    }

    /// Returns the table under a key as JSON.
    pub fn json(
        &self,
        key: &str,
        expected: impl fmt::Display,
        notes: &mut Diagnostics<'_>,
    ) -> Option<Json> {
        let value = self.parse(key, |value| value.table().map(|_| value), expected, notes)?;
        value.json().map_err(|(at, problem)| notes.error(at, problem)).ok()
    }

    /// Applies `parse` to the value under a key. If the result is `None`, reports an error that
    /// states what was expected.
    pub fn parse<T>(
        &self,
        key: &str,
        parse: impl FnOnce(&'s Value) -> Option<T>,
        expected: impl fmt::Display,
        notes: &mut Diagnostics<'_>,
    ) -> Option<T> {
        let value = self.get(key, notes)?;
        let parsed = parse(value);
        if parsed.is_none() {
            notes.error(value.at, format!("`{key}` must be {expected}"));
        }
        parsed
    }

    /// Returns whether the table contains the key.
    pub fn has(&self, key: &str) -> bool {
        self.member(key).is_some()
    }

    /// Returns the byte offset of a key, or that of the table if the key is missing.
    pub fn key_at(&self, key: &str) -> usize {
        self.member(key).map_or(self.at, |member| member.at)
    }

    /// Returns the byte offset of a key's value, or that of the table if the key is missing.
    pub fn value_at(&self, key: &str) -> usize {
        self.member(key).map_or(self.at, |member| member.value.at)
    }

    fn get(&self, key: &str, notes: &mut Diagnostics<'_>) -> Option<&'s Value> {
        let member = self.member(key)?;
        let line = notes.line(member.at);
        notes.lines.insert(self.path_of(key), line);
        Some(&member.value)
    }

    fn member(&self, key: &str) -> Option<&'s Member> {
        self.members.iter().find(|member| member.key == key)
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }
}

/// Parses a size in bytes, such as `800`, `800KB` or `1.5 GiB`.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let invalid = || "expected a number of bytes, such as 5000000, 800KB or 2GB".to_owned();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1_000,
        "m" | "mb" => 1_000_000,
        "g" | "gb" => 1_000_000_000,
        "t" | "tb" => 1_000_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        "tib" => 1 << 40,
        _ => return Err(invalid()),
    };
    if let Ok(integer) = number.parse::<u64>() {
        return integer.checked_mul(factor).ok_or_else(invalid);
    }
    let number: f64 = number.parse().map_err(|_| invalid())?;
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the value is not negative, and a fraction of a unit needs no single-byte precision"
    )]
    Ok((number * factor as f64) as u64)
}

fn parse_duration(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let number: u64 = number.parse().ok()?;
    match unit.trim() {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" | "min" => number.checked_mul(60).map(Duration::from_secs),
        "h" => number.checked_mul(3600).map(Duration::from_secs),
        _ => None,
    }
}
