//! Reads TOML tables key by key. Each problem is recorded with line and column, and reading
//! continues.
//!
//! Messages repeat a value only if it cannot be a secret.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use throughline_provider::EnvWarning;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::suggest::{closest, did_you_mean};

/// A problem in a configuration: where, what, and how to fix it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// Line, counted from one.
    pub(crate) line: usize,
    /// Column in characters, counted from one.
    pub(crate) column: usize,
    pub(crate) message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)
    }
}

/// Problems recorded while a text is read.
pub(super) struct Diagnostics<'t> {
    text: &'t str,
    pub(super) errors: Vec<Problem>,
    pub(super) warnings: Vec<Problem>,
    /// Invalid variables, each once. They have no position in the text.
    pub(super) unheard: Vec<EnvWarning>,
    /// Line numbers of all keys that were read, by key path.
    pub(super) lines: BTreeMap<String, usize>,
}

impl<'t> Diagnostics<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        let (errors, warnings, unheard) = (Vec::new(), Vec::new(), Vec::new());
        Self { text, errors, warnings, unheard, lines: BTreeMap::new() }
    }

    pub(super) fn error(&mut self, at: usize, message: impl Into<String>) {
        let problem = self.problem(at, message.into());
        self.errors.push(problem);
    }

    pub(super) fn warning(&mut self, at: usize, message: impl Into<String>) {
        let problem = self.problem(at, message.into());
        self.warnings.push(problem);
    }

    pub(super) fn env_warning(&mut self, unheard: EnvWarning) {
        if !self.unheard.contains(&unheard) {
            self.unheard.push(unheard);
        }
    }

    /// Returns the line that contains an offset.
    pub(super) fn line(&self, at: usize) -> usize {
        self.problem(at, String::new()).line
    }

    fn problem(&self, at: usize, message: String) -> Problem {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line = 1 + before.matches('\n').count();
        let start = before.rfind('\n').map_or(0, |at| at + 1);
        let column = 1 + before.get(start..).unwrap_or_default().chars().count();
        Problem { line, column, message }
    }
}

/// A value and its offset.
#[derive(Clone, Copy)]
pub(super) struct SpannedValue<T> {
    pub(super) at: usize,
    pub(super) value: T,
}

/// A table and its name.
pub(super) struct Section<'s, 't> {
    /// Key path, such as `providers.work`.
    path: String,
    /// Header as written, such as `[providers.work]`.
    header: String,
    /// Offset of the table.
    pub(super) at: usize,
    table: &'s DeTable<'t>,
}

impl<'s, 't> Section<'s, 't> {
    /// Wraps the root table.
    pub(super) fn root(table: &'s Spanned<DeTable<'t>>) -> Self {
        Self { path: String::new(), header: String::new(), at: 0, table: table.get_ref() }
    }

    /// Reports unknown keys, with suggestions.
    pub(super) fn reject_unknown_keys(&self, known: &[&str], notes: &mut Diagnostics<'_>) {
        for key in self.table.keys() {
            let name = key.get_ref();
            if known.contains(&&**name) {
                continue;
            }
            let place = match self.header.as_str() {
                "" => "at the top of the file".to_owned(),
                header => format!("in {header}"),
            };
            let close = did_you_mean(&closest(name, known.iter().copied()));
            let advice = match close.as_str() {
                "" => format!("; valid keys are {}", known.join(", ")),
                _ => close,
            };
            notes.error(key.span().start, format!("unknown key `{name}` {place}{advice}"));
        }
    }

    /// Returns the table of a key.
    pub(super) fn section(
        &self,
        key: &str,
        notes: &mut Diagnostics<'_>,
    ) -> Option<Section<'s, 't>> {
        let found = self.get(key, notes)?;
        let path = self.path_of(key);
        let Some(table) = found.value.as_table() else {
            notes.error(found.at, format!("`{key}` must be a table: write [{path}]"));
            return None;
        };
        Some(Section { header: format!("[{path}]"), path, at: self.key_at(key), table })
    }

    /// Returns all tables inside this one, in the order of the text.
    pub(super) fn sections(&self, notes: &mut Diagnostics<'_>) -> Vec<(&'s str, Section<'s, 't>)> {
        let mut names: Vec<_> = self.table.keys().collect();
        names.sort_by_key(|name| name.span().start);
        let names = names.into_iter().map(|name| &**name.get_ref());
        names.filter_map(|name| Some((name, self.section(name, notes)?))).collect()
    }

    /// Returns the tables of a list, such as `[[routes]]`.
    pub(super) fn list(&self, key: &str, notes: &mut Diagnostics<'_>) -> Vec<Section<'s, 't>> {
        let Some(found) = self.get(key, notes) else { return Vec::new() };
        let tables = found.value.as_array().and_then(|array| {
            let tables =
                array.iter().map(|one| Some((one.span().start, one.get_ref().as_table()?)));
            tables.collect::<Option<Vec<_>>>()
        });
        let Some(tables) = tables else {
            notes.error(found.at, format!("`{key}` must be a list of tables: write [[{key}]]"));
            return Vec::new();
        };
        let header = format!("[[{key}]]");
        let section =
            |(at, table)| Section { path: key.to_owned(), header: header.clone(), at, table };
        tables.into_iter().map(section).collect()
    }

    /// Returns a non-empty string.
    pub(super) fn text(
        &self,
        key: &str,
        example: &str,
        notes: &mut Diagnostics<'_>,
    ) -> Option<SpannedValue<&'s str>> {
        let found = self.get(key, notes)?;
        match found.value.as_str().filter(|text| !text.trim().is_empty()) {
            Some(value) => Some(SpannedValue { at: found.at, value }),
            None => {
                let what =
                    if found.value.is_str() { "must not be empty" } else { "must be a string" };
                notes.error(found.at, format!("`{key}` {what}: write {key} = \"{example}\""));
                None
            }
        }
    }

    /// Returns a list of non-empty strings.
    pub(super) fn texts(
        &self,
        key: &str,
        example: &str,
        notes: &mut Diagnostics<'_>,
    ) -> Option<SpannedValue<Vec<SpannedValue<&'s str>>>> {
        let found = self.get(key, notes)?;
        let one = |one: &'s Spanned<DeValue<'t>>| {
            let text = one.get_ref().as_str().filter(|text| !text.trim().is_empty())?;
            Some(SpannedValue { at: one.span().start, value: text })
        };
        let all = found.value.as_array().map(|array| array.iter().map(one).collect());
        match all.flatten() {
            Some(value) => Some(SpannedValue { at: found.at, value }),
            None => {
                let message =
                    format!("`{key}` must be a list of strings: write {key} = [{example}]");
                notes.error(found.at, message);
                None
            }
        }
    }

    /// Returns a boolean.
    pub(super) fn flag(&self, key: &str, notes: &mut Diagnostics<'_>) -> Option<bool> {
        let found = self.get(key, notes)?;
        let flag = found.value.as_bool();
        if flag.is_none() {
            notes.error(found.at, format!("`{key}` must be true or false: write {key} = true"));
        }
        flag
    }

    /// Returns one of the listed values.
    pub(super) fn choice<T: Copy>(
        &self,
        key: &str,
        all: &[(&str, T)],
        notes: &mut Diagnostics<'_>,
    ) -> Option<T> {
        let found = self.get(key, notes)?;
        let said = found.value.as_str();
        let known = said.and_then(|said| all.iter().find(|(word, _)| *word == said));
        if known.is_none() {
            let words: Vec<&str> = all.iter().map(|(word, _)| *word).collect();
            let close = said.map(|said| closest(said, words.iter().copied())).unwrap_or_default();
            let close = did_you_mean(&close);
            let words = words.join(", ");
            notes.error(found.at, format!("`{key}` must be one of {words}{close}"));
        }
        known.map(|(_, value)| *value)
    }

    /// Returns a whole number of at least one.
    pub(super) fn count(
        &self,
        key: &str,
        example: u32,
        notes: &mut Diagnostics<'_>,
    ) -> Option<u32> {
        let found = self.get(key, notes)?;
        let number = whole_number(found.value).and_then(|number| u32::try_from(number).ok());
        let number = number.filter(|number| *number > 0);
        if number.is_none() {
            let message =
                format!("`{key}` must be a whole number of at least 1: write {key} = {example}");
            notes.error(found.at, message);
        }
        number
    }

    /// Returns a number of bytes, such as `67108864` or `"64MiB"`.
    pub(super) fn bytes(&self, key: &str, notes: &mut Diagnostics<'_>) -> Option<u64> {
        let found = self.get(key, notes)?;
        let written = found.value.as_str().and_then(|text| crate::amount::bytes(text).ok());
        let bytes = written.or_else(|| whole_number(found.value)).filter(|bytes| *bytes > 0);
        if bytes.is_none() {
            let message = format!(
                "`{key}` must be a number of bytes: write {key} = \"64MiB\", or a plain number"
            );
            notes.error(found.at, message);
        }
        bytes
    }

    /// Returns a duration, such as `30` seconds or `"500ms"`.
    pub(super) fn time(&self, key: &str, notes: &mut Diagnostics<'_>) -> Option<Duration> {
        let found = self.get(key, notes)?;
        let written = found.value.as_str().and_then(duration);
        let time = written.or_else(|| whole_number(found.value).map(Duration::from_secs));
        let longest = Duration::from_hours(24);
        let time = time.filter(|time| !time.is_zero() && *time <= longest);
        if time.is_none() {
            let message = format!(
                "`{key}` must be a duration of at most one day: write {key} = \"30s\", \"500ms\" or \"5m\", \
                 or a number of seconds"
            );
            notes.error(found.at, message);
        }
        time
    }

    /// Returns a price, converted from dollars to millionths of a dollar.
    pub(super) fn dollars(&self, key: &str, notes: &mut Diagnostics<'_>) -> Option<u64> {
        let found = self.get(key, notes)?;
        let number = match found.value {
            DeValue::Integer(number) => number.as_str().parse().ok(),
            DeValue::Float(number) => number.as_str().parse().ok(),
            _ => None,
        };
        let price = number.and_then(crate::amount::micro_dollars);
        if price.is_none() {
            let message = format!(
                "`{key}` must be a price in dollars per million tokens: write {key} = 2.50"
            );
            notes.error(found.at, message);
        }
        price
    }

    /// Returns the offset of a key.
    pub(super) fn key_at(&self, key: &str) -> usize {
        let found = self.table.keys().find(|known| &**known.get_ref() == key);
        found.map_or(self.at, |known| known.span().start)
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.table.keys().any(|known| &**known.get_ref() == key)
    }

    fn get(&self, key: &str, notes: &mut Diagnostics<'_>) -> Option<SpannedValue<&'s DeValue<'t>>> {
        let (name, value) = self.table.iter().find(|(name, _)| &**name.get_ref() == key)?;
        let line = notes.line(name.span().start);
        notes.lines.insert(self.path_of(key), line);
        Some(SpannedValue { at: value.span().start, value: value.get_ref() })
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }
}

fn whole_number(value: &DeValue<'_>) -> Option<u64> {
    let number = value.as_integer()?;
    u64::from_str_radix(number.as_str(), number.radix()).ok()
}

fn duration(text: &str) -> Option<Duration> {
    let end = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(end);
    let number: u64 = number.parse().ok()?;
    match unit.trim() {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" | "min" => number.checked_mul(60).map(Duration::from_secs),
        "h" => number.checked_mul(3600).map(Duration::from_secs),
        _ => None,
    }
}
