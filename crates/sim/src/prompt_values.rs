//! Finds values in the user's message that fit the arguments of a generated call.
//!
//! Only properties that describe something get such a value: a message must never become a command
//! or the path of a file, because a client may execute the call.

use std::cell::Cell;

use serde_json::{Map, Value};

#[cfg(test)]
#[path = "prompt_values_tests.rs"]
mod prompt_values_tests;

/// Properties that take the whole message.
const TEXTS: &[&str] = &[
    "description",
    "input",
    "keywords",
    "message",
    "prompt",
    "q",
    "query",
    "question",
    "request",
    "search",
    "subject",
    "task",
    "term",
    "text",
    "title",
    "topic",
];

/// Properties that take a name.
const NAMES: &[&str] = &[
    "city",
    "company",
    "country",
    "customer",
    "destination",
    "location",
    "name",
    "origin",
    "person",
    "place",
    "product",
    "region",
    "town",
    "user",
];

/// Maximum length of a message, in characters. Longer messages are usually context, not a request.
const LONGEST: usize = 500;

/// Values in a user's message.
pub(crate) struct PromptValues {
    text: String,
    /// Words in lower case.
    words: Vec<String>,
    names: Vec<String>,
    dates: Vec<String>,
    numbers: Vec<f64>,
    /// How many of the numbers were used.
    used: Cell<usize>,
}

impl PromptValues {
    /// Finds the values in a message; finds none in a long message.
    pub(crate) fn new(message: &str) -> Self {
        let text = message.split_whitespace().collect::<Vec<_>>().join(" ");
        let text = if text.chars().count() > LONGEST { String::new() } else { text };
        let is_edge = |c: char| !c.is_alphanumeric();
        let tokens: Vec<&str> = text.split(' ').collect();
        let words = tokens.iter().map(|token| token.trim_matches(is_edge).to_lowercase()).collect();
        let dates = tokens.iter().map(|token| token.trim_matches(is_edge));
        let dates = dates.filter(|token| token.parse::<jiff::civil::Date>().is_ok());
        let number = |token: &&str| {
            let token = token.trim_matches(|c: char| is_edge(c) && c != '-');
            token.parse().ok().filter(|number: &f64| number.is_finite())
        };
        Self {
            words,
            names: names(&tokens),
            dates: dates.map(str::to_owned).collect(),
            numbers: tokens.iter().filter_map(number).collect(),
            used: Cell::new(0),
            text,
        }
    }

    /// Returns a text for a property; `None` if the message contains no value that fits.
    pub(crate) fn text(&self, property: &str, schema: &Map<String, Value>) -> Option<String> {
        if schema.contains_key("pattern") {
            return None;
        }
        let property = property.to_ascii_lowercase();
        let value = match schema.get("format").and_then(Value::as_str) {
            Some("date") => self.dates.first()?,
            None if NAMES.contains(&property.as_str()) => self.names.first()?,
            None if TEXTS.contains(&property.as_str()) => &self.text,
            Some(_) | None => return None,
        };
        let limit = |key: &str| schema.get(key).and_then(Value::as_u64);
        let length = u64::try_from(value.chars().count()).unwrap_or(u64::MAX);
        let fits = length >= limit("minLength").unwrap_or(1).max(1)
            && limit("maxLength").is_none_or(|most| length <= most);
        fits.then(|| value.clone())
    }

    /// Returns the first of these choices that the message names.
    pub(crate) fn choice<'c>(&self, choices: &[&'c Value]) -> Option<&'c Value> {
        let is_named = |choice: &&&'c Value| {
            let choice = choice.as_str().map(str::to_lowercase);
            choice.is_some_and(|choice| self.words.contains(&choice))
        };
        choices.iter().find(is_named).copied()
    }

    /// Returns the next number of the message that is valid, and uses it up.
    pub(crate) fn number(&self, is_valid: impl Fn(f64) -> bool) -> Option<f64> {
        let (at, number) =
            self.numbers.iter().enumerate().skip(self.used.get()).find(|(_, it)| is_valid(**it))?;
        self.used.set(at + 1);
        Some(*number)
    }
}

/// Returns the names in a message: words with a capital letter that do not start a sentence.
fn names(tokens: &[&str]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let (mut starts_sentence, mut continues) = (true, false);
    for token in tokens {
        let word = token.trim_matches(|c: char| !c.is_alphanumeric());
        let is_name = word.chars().next().is_some_and(char::is_uppercase)
            && word.chars().nth(1).is_some_and(char::is_lowercase);
        let is_new = is_name && !starts_sentence;
        match names.last_mut() {
            Some(last) if is_new && continues => *last = format!("{last} {word}"),
            _ if is_new => names.push(word.to_owned()),
            _ => {}
        }
        continues = is_new && token.ends_with(char::is_alphanumeric);
        starts_sentence = token.ends_with(['.', '!', '?', ':']);
    }
    names
}
