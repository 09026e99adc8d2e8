//! Reading tables of TOML key by key. Whatever is wrong is noted with its line and column, and reading goes on.
//!
//! What a value says is repeated only where it cannot be a secret.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use throughline_provider::Unheard;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::likeness::{closest, did_you_mean};

/// What is wrong with a configuration, where, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// The line, counted from one.
    pub(crate) line: usize,
    /// The column, counted in characters from one.
    pub(crate) column: usize,
    /// A sentence.
    pub(crate) message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)
    }
}

/// What was noted while a text was read.
pub(super) struct Notes<'t> {
    text: &'t str,
    /// What must be mended.
    pub(super) errors: Vec<Problem>,
    /// What is worth knowing.
    pub(super) warnings: Vec<Problem>,
    /// What is wrong with variables, each once. They have no place in the text.
    pub(super) unheard: Vec<Unheard>,
    /// The lines of all keys that were read, by their paths.
    pub(super) lines: BTreeMap<String, usize>,
}

impl<'t> Notes<'t> {
    pub(super) fn on(text: &'t str) -> Self {
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

    pub(super) fn unheard(&mut self, unheard: Unheard) {
        if !self.unheard.contains(&unheard) {
            self.unheard.push(unheard);
        }
    }

    /// The line that a place is in.
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

/// A value, and where it stands.
#[derive(Clone, Copy)]
pub(super) struct At<T> {
    pub(super) at: usize,
    pub(super) value: T,
}

/// A table, and what it is called.
pub(super) struct Section<'s, 't> {
    /// Its path: `providers.work`.
    path: String,
    /// How it is written: `[providers.work]`.
    header: String,
    /// Where it begins.
    pub(super) at: usize,
    table: &'s DeTable<'t>,
}

impl<'s, 't> Section<'s, 't> {
    /// The whole text.
    pub(super) fn root(table: &'s Spanned<DeTable<'t>>) -> Self {
        Self { path: String::new(), header: String::new(), at: 0, table: table.get_ref() }
    }

    /// Notes the keys that there are not, with what may have been meant.
    pub(super) fn takes_only(&self, known: &[&str], notes: &mut Notes<'_>) {
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
                "" => format!(": there are {}", known.join(", ")),
                _ => close,
            };
            notes.error(key.span().start, format!("there is no key `{name}` {place}{advice}"));
        }
    }

    /// The table of that key.
    pub(super) fn section(&self, key: &str, notes: &mut Notes<'_>) -> Option<Section<'s, 't>> {
        let found = self.get(key, notes)?;
        let path = self.path_of(key);
        let Some(table) = found.value.as_table() else {
            notes.error(found.at, format!("`{key}` must be a table: write [{path}]"));
            return None;
        };
        Some(Section { header: format!("[{path}]"), path, at: self.key_at(key), table })
    }

    /// All tables within this one, in the order of the text.
    pub(super) fn sections(&self, notes: &mut Notes<'_>) -> Vec<(&'s str, Section<'s, 't>)> {
        let mut names: Vec<_> = self.table.keys().collect();
        names.sort_by_key(|name| name.span().start);
        let names = names.into_iter().map(|name| &**name.get_ref());
        names.filter_map(|name| Some((name, self.section(name, notes)?))).collect()
    }

    /// The tables of a list, as `[[routes]]` writes them.
    pub(super) fn list(&self, key: &str, notes: &mut Notes<'_>) -> Vec<Section<'s, 't>> {
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

    /// A text that says something.
    pub(super) fn text(
        &self,
        key: &str,
        example: &str,
        notes: &mut Notes<'_>,
    ) -> Option<At<&'s str>> {
        let found = self.get(key, notes)?;
        match found.value.as_str().filter(|text| !text.trim().is_empty()) {
            Some(value) => Some(At { at: found.at, value }),
            None => {
                let what = if found.value.is_str() { "must not be empty" } else { "must be text" };
                notes.error(found.at, format!("`{key}` {what}: write {key} = \"{example}\""));
                None
            }
        }
    }

    /// Texts that say something.
    pub(super) fn texts(
        &self,
        key: &str,
        example: &str,
        notes: &mut Notes<'_>,
    ) -> Option<At<Vec<At<&'s str>>>> {
        let found = self.get(key, notes)?;
        let one = |one: &'s Spanned<DeValue<'t>>| {
            let text = one.get_ref().as_str().filter(|text| !text.trim().is_empty())?;
            Some(At { at: one.span().start, value: text })
        };
        let all = found.value.as_array().map(|array| array.iter().map(one).collect());
        match all.flatten() {
            Some(value) => Some(At { at: found.at, value }),
            None => {
                let message = format!("`{key}` must be a list of texts: write {key} = [{example}]");
                notes.error(found.at, message);
                None
            }
        }
    }

    /// `true` or `false`.
    pub(super) fn flag(&self, key: &str, notes: &mut Notes<'_>) -> Option<bool> {
        let found = self.get(key, notes)?;
        let flag = found.value.as_bool();
        if flag.is_none() {
            notes.error(found.at, format!("`{key}` must be true or false: write {key} = true"));
        }
        flag
    }

    /// One of some words.
    pub(super) fn choice<T: Copy>(
        &self,
        key: &str,
        all: &[(&str, T)],
        notes: &mut Notes<'_>,
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

    /// A whole number from one on.
    pub(super) fn count(&self, key: &str, example: u32, notes: &mut Notes<'_>) -> Option<u32> {
        let found = self.get(key, notes)?;
        let number = whole(found.value).and_then(|number| u32::try_from(number).ok());
        let number = number.filter(|number| *number > 0);
        if number.is_none() {
            let message =
                format!("`{key}` must be a whole number from 1 on: write {key} = {example}");
            notes.error(found.at, message);
        }
        number
    }

    /// A number of bytes, as `67108864` or `"64MiB"`.
    pub(super) fn bytes(&self, key: &str, notes: &mut Notes<'_>) -> Option<u64> {
        let found = self.get(key, notes)?;
        let written = found.value.as_str().and_then(|text| crate::amount::bytes(text).ok());
        let bytes = written.or_else(|| whole(found.value)).filter(|bytes| *bytes > 0);
        if bytes.is_none() {
            let message = format!(
                "`{key}` must be a number of bytes: write {key} = \"64MiB\", or the bare number"
            );
            notes.error(found.at, message);
        }
        bytes
    }

    /// A time, as `30` seconds or `"500ms"`.
    pub(super) fn time(&self, key: &str, notes: &mut Notes<'_>) -> Option<Duration> {
        let found = self.get(key, notes)?;
        let written = found.value.as_str().and_then(duration);
        let time = written.or_else(|| whole(found.value).map(Duration::from_secs));
        let longest = Duration::from_hours(24);
        let time = time.filter(|time| !time.is_zero() && *time <= longest);
        if time.is_none() {
            let message = format!(
                "`{key}` must be a time of at most a day: write {key} = \"30s\", \"500ms\" or \"5m\", \
                 or a number of seconds"
            );
            notes.error(found.at, message);
        }
        time
    }

    /// A price in dollars, in millionths of them.
    pub(super) fn dollars(&self, key: &str, notes: &mut Notes<'_>) -> Option<u64> {
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

    /// Where a key stands.
    pub(super) fn key_at(&self, key: &str) -> usize {
        let found = self.table.keys().find(|known| &**known.get_ref() == key);
        found.map_or(self.at, |known| known.span().start)
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.table.keys().any(|known| &**known.get_ref() == key)
    }

    fn get(&self, key: &str, notes: &mut Notes<'_>) -> Option<At<&'s DeValue<'t>>> {
        let (name, value) = self.table.iter().find(|(name, _)| &**name.get_ref() == key)?;
        let line = notes.line(name.span().start);
        notes.lines.insert(self.path_of(key), line);
        Some(At { at: value.span().start, value: value.get_ref() })
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }
}

fn whole(value: &DeValue<'_>) -> Option<u64> {
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
