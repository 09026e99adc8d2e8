//! Assembles function arguments that arrive in pieces. Each piece has a path to an argument, and
//! either a value or a fragment of a string.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use throughline_json::{self as json, Json, Name, Node};

use crate::gemini::wire::get;

/// The maximum depth of a path, and the maximum gap beyond the end of a list. The limits bound the
/// memory that a broken stream can use; real arguments stay far below them.
const DEEPEST: usize = 256;
const MAX_GAP: usize = 64;

#[derive(Debug, Default)]
pub(super) struct PartialArguments {
    values: Vec<ArgumentValue>,
}

/// A partial value. Containers store indexes into [`PartialArguments::values`], so nesting does not
/// cause recursion.
#[derive(Debug)]
enum ArgumentValue {
    Whole(Json),
    Text { text: String, goes_on: bool },
    Object(ArgumentMembers),
    List(Vec<usize>),
}

/// The members of an object, both in order and by name.
#[derive(Debug, Default)]
struct ArgumentMembers {
    ordered: Vec<(Name, usize)>,
    places: HashMap<Name, usize>,
}

impl ArgumentMembers {
    fn put(&mut self, name: &str, place: usize) {
        let name = Name::from(name);
        self.places.insert(Arc::clone(&name), place);
        self.ordered.push((name, place));
    }
}

/// One step of a path to an argument.
#[derive(Debug, PartialEq, Eq)]
enum ArgumentPathStep<'p> {
    Member(Cow<'p, str>),
    Element(usize),
}

impl PartialArguments {
    /// Starts with the members of `args` if the call already has a complete `args` object.
    pub(super) fn from_members(args: Option<Node<'_>>) -> Self {
        let (mut members, mut values) = (ArgumentMembers::default(), Vec::new());
        for (key, value) in args.into_iter().flat_map(Node::members) {
            values.push(ArgumentValue::Whole(value.json()));
            // The object itself becomes value 0.
            members.put(&key.text().unwrap_or_default(), values.len());
        }
        values.insert(0, ArgumentValue::Object(members));
        Self { values }
    }

    /// Stores one piece and returns its value; `None` if the piece is invalid.
    pub(super) fn put(&mut self, piece: Node<'_>) -> Option<Json> {
        let path = get(piece, "jsonPath")?.text()?;
        let goes_on = get(piece, "willContinue").and_then(Node::bool) == Some(true);
        let value = value_of(piece)?;
        let place = self.value_index(&parse_path(&path)?)?;
        let tree = value.tree();
        let text_value = tree.root().text();
        match (self.values.get_mut(place)?, text_value) {
            (ArgumentValue::Text { text, goes_on: open }, Some(more)) if *open => {
                text.push_str(&more);
                *open = goes_on;
            }
            (old, Some(text)) => *old = ArgumentValue::Text { text: text.into_owned(), goes_on },
            (old, None) => *old = ArgumentValue::Whole(value.clone()),
        }
        Some(value)
    }

    fn push(&mut self, value: ArgumentValue) -> usize {
        self.values.push(value);
        self.values.len() - 1
    }

    /// Returns the index of the value at a path. Missing values are created.
    fn value_index(&mut self, steps: &[ArgumentPathStep<'_>]) -> Option<usize> {
        if self.values.is_empty() {
            self.push(ArgumentValue::Object(ArgumentMembers::default()));
        }
        let mut place = 0;
        for step in steps {
            place = match step {
                ArgumentPathStep::Member(name) => self.member(place, name)?,
                ArgumentPathStep::Element(index) => self.element(place, *index)?,
            };
        }
        Some(place)
    }

    fn member(&mut self, of: usize, name: &str) -> Option<usize> {
        let next = self.values.len();
        match self.values.get_mut(of)? {
            ArgumentValue::Object(members) => {
                if let Some(place) = members.places.get(name) {
                    return Some(*place);
                }
                members.put(name, next);
            }
            old @ (ArgumentValue::Whole(_) | ArgumentValue::Text { .. }) => {
                let mut members = ArgumentMembers::default();
                members.put(name, next);
                *old = ArgumentValue::Object(members);
            }
            ArgumentValue::List(_) => return None,
        }
        Some(self.push(ArgumentValue::Whole(Json::null())))
    }

    fn element(&mut self, of: usize, index: usize) -> Option<usize> {
        let next = self.values.len();
        let old = self.values.get_mut(of)?;
        if let ArgumentValue::Whole(_) | ArgumentValue::Text { .. } = old {
            *old = ArgumentValue::List(Vec::new());
        }
        let ArgumentValue::List(elements) = old else { return None };
        if let Some(place) = elements.get(index) {
            return Some(*place);
        }
        let missing = (index - elements.len()).checked_add(1).filter(|gap| *gap <= MAX_GAP)?;
        elements.extend(next..next + missing);
        (0..missing).map(|_| self.push(ArgumentValue::Whole(Json::null()))).last()
    }

    /// Returns the arguments as one object, with members in order of arrival.
    pub(super) fn json(&self) -> Json {
        enum Task<'v> {
            Value(usize),
            Key(&'v str),
            Literal(u8),
        }
        let mut out = Vec::new();
        let mut tasks = vec![Task::Value(0)];
        while let Some(task) = tasks.pop() {
            match task {
                Task::Literal(byte) => out.push(byte),
                Task::Key(key) => {
                    json::push_string(&mut out, key);
                    out.push(b':');
                }
                Task::Value(place) => {
                    let (open, close, values): (_, _, Vec<_>) = match self.values.get(place) {
                        None => (b'{', b'}', Vec::new()),
                        Some(ArgumentValue::Whole(json)) => {
                            out.extend_from_slice(json.bytes());
                            continue;
                        }
                        Some(ArgumentValue::Text { text, .. }) => {
                            json::push_string(&mut out, text);
                            continue;
                        }
                        Some(ArgumentValue::Object(members)) => {
                            let members = members.ordered.iter();
                            (b'{', b'}', members.map(|(key, place)| (Some(key), *place)).collect())
                        }
                        Some(ArgumentValue::List(elements)) => {
                            (b'[', b']', elements.iter().map(|place| (None, *place)).collect())
                        }
                    };
                    out.push(open);
                    tasks.push(Task::Literal(close));
                    for (position, (key, place)) in values.into_iter().enumerate().rev() {
                        tasks.push(Task::Value(place));
                        tasks.extend(key.map(|key| Task::Key(key)));
                        if position > 0 {
                            tasks.push(Task::Literal(b','));
                        }
                    }
                }
            }
        }
        Json::parse(out).unwrap_or_else(|_| json::object(|_| {}))
    }
}

/// Reads the value of a piece. `nullValue` means null regardless of its own value, which is only an
/// enum name.
fn value_of(piece: Node<'_>) -> Option<Json> {
    let simple = ["stringValue", "numberValue", "boolValue"];
    let value = simple.iter().find_map(|name| get(piece, name)).map(Node::json);
    value.or_else(|| get(piece, "nullValue").map(|_| Json::null()))
}

/// Parses a path such as `$.recipe.steps[2]` or `$['odd name']`.
fn parse_path(path: &str) -> Option<Vec<ArgumentPathStep<'_>>> {
    let mut rest = path.strip_prefix('$')?;
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if steps.len() == DEEPEST {
            return None;
        }
        if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[']).unwrap_or(after.len());
            let (name, after) = after.split_at(end);
            steps.push(ArgumentPathStep::Member(Cow::Borrowed(name)));
            rest = after;
            continue;
        }
        let after = rest.strip_prefix('[')?;
        if let Some(quote) = after.chars().next().filter(|c| matches!(c, '\'' | '"')) {
            let (name, after) = parse_quoted_name(after.get(1..)?, quote)?;
            steps.push(ArgumentPathStep::Member(Cow::Owned(name)));
            rest = after.strip_prefix(']')?;
        } else {
            let (index, after) = after.split_once(']')?;
            steps.push(ArgumentPathStep::Element(index.parse().ok()?));
            rest = after;
        }
    }
    Some(steps)
}

/// Parses a quoted name and returns it with the text after the closing quote.
fn parse_quoted_name(text: &str, quote: char) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => name.push(chars.next()?.1),
            c if c == quote => return Some((name, text.get(at + c.len_utf8()..)?)),
            c => name.push(c),
        }
    }
    None
}
