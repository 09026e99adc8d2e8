//! Arguments that come piece by piece: a path, and a value or a piece of a string.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use throughline_core::{Json, Name, Node, json};

use crate::gemini::wire::get;

/// How deep a path may lead, and how far beyond its end a list may be written: real arguments stay far below, and what
/// a broken stream can make us hold is bounded.
const DEEPEST: usize = 256;
const WIDEST_GAP: usize = 64;

/// Arguments as far as they have come.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    values: Vec<Value>,
}

/// A value; containers hold the places of their members in [`Arguments::values`], so that depth costs no stack.
#[derive(Debug)]
enum Value {
    Whole(Json),
    Text { text: String, goes_on: bool },
    Object(Members),
    List(Vec<usize>),
}

/// The members of an object: in their order, and by name.
#[derive(Debug, Default)]
struct Members {
    ordered: Vec<(Name, usize)>,
    places: HashMap<Name, usize>,
}

impl Members {
    fn put(&mut self, name: &str, place: usize) {
        let name = Name::from(name);
        self.places.insert(Arc::clone(&name), place);
        self.ordered.push((name, place));
    }
}

/// One step of a path.
#[derive(Debug, PartialEq, Eq)]
enum Step<'p> {
    Member(Cow<'p, str>),
    Element(usize),
}

impl Arguments {
    /// Arguments that begin with these members.
    pub(super) fn beginning_with(args: Option<Node<'_>>) -> Self {
        let mut arguments = Self { values: vec![Value::Object(Members::default())] };
        for (key, value) in args.into_iter().flat_map(Node::members) {
            let place = arguments.push(Value::Whole(value.json()));
            if let Some(Value::Object(members)) = arguments.values.first_mut() {
                members.put(&key.text().unwrap_or_default(), place);
            }
        }
        arguments
    }

    /// Puts one piece in its place, and answers the value that came; nothing where the piece makes no sense.
    pub(super) fn put(&mut self, piece: Node<'_>) -> Option<Json> {
        let path = get(piece, "jsonPath")?.text()?;
        let goes_on = get(piece, "willContinue").and_then(Node::bool) == Some(true);
        let value = value_of(piece)?;
        let place = self.place(&steps(&path)?)?;
        let tree = value.tree();
        let said = tree.root().text();
        match (self.values.get_mut(place)?, said) {
            (Value::Text { text, goes_on: open }, Some(more)) if *open => {
                text.push_str(&more);
                *open = goes_on;
            }
            (old, Some(text)) => *old = Value::Text { text: text.into_owned(), goes_on },
            (old, None) => *old = Value::Whole(value.clone()),
        }
        Some(value)
    }

    fn push(&mut self, value: Value) -> usize {
        self.values.push(value);
        self.values.len() - 1
    }

    /// The place of the value at a path, made where it is not there yet.
    fn place(&mut self, steps: &[Step<'_>]) -> Option<usize> {
        if self.values.is_empty() {
            self.push(Value::Object(Members::default()));
        }
        let mut place = 0;
        for step in steps {
            place = match step {
                Step::Member(name) => self.member(place, name)?,
                Step::Element(index) => self.element(place, *index)?,
            };
        }
        Some(place)
    }

    fn member(&mut self, of: usize, name: &str) -> Option<usize> {
        let next = self.values.len();
        match self.values.get_mut(of)? {
            Value::Object(members) => {
                if let Some(place) = members.places.get(name) {
                    return Some(*place);
                }
                members.put(name, next);
            }
            old @ (Value::Whole(_) | Value::Text { .. }) => {
                let mut members = Members::default();
                members.put(name, next);
                *old = Value::Object(members);
            }
            Value::List(_) => return None,
        }
        Some(self.push(Value::Whole(Json::null())))
    }

    fn element(&mut self, of: usize, index: usize) -> Option<usize> {
        let next = self.values.len();
        let old = self.values.get_mut(of)?;
        if let Value::Whole(_) | Value::Text { .. } = old {
            *old = Value::List(Vec::new());
        }
        let Value::List(elements) = old else { return None };
        if let Some(place) = elements.get(index) {
            return Some(*place);
        }
        let missing = (index - elements.len()).checked_add(1).filter(|gap| *gap <= WIDEST_GAP)?;
        elements.extend(next..next + missing);
        (0..missing).map(|_| self.push(Value::Whole(Json::null()))).last()
    }

    /// The arguments as one object, in the order in which their members came.
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
                Task::Value(place) => match self.values.get(place) {
                    None => out.extend_from_slice(b"{}"),
                    Some(Value::Whole(json)) => out.extend_from_slice(json.bytes()),
                    Some(Value::Text { text, .. }) => json::push_string(&mut out, text),
                    Some(Value::Object(members)) => {
                        out.push(b'{');
                        tasks.push(Task::Literal(b'}'));
                        for (position, (key, place)) in members.ordered.iter().enumerate().rev() {
                            tasks.push(Task::Value(*place));
                            tasks.push(Task::Key(key));
                            if position > 0 {
                                tasks.push(Task::Literal(b','));
                            }
                        }
                    }
                    Some(Value::List(elements)) => {
                        out.push(b'[');
                        tasks.push(Task::Literal(b']'));
                        for (position, place) in elements.iter().enumerate().rev() {
                            tasks.push(Task::Value(*place));
                            if position > 0 {
                                tasks.push(Task::Literal(b','));
                            }
                        }
                    }
                },
            }
        }
        Json::parse(out).unwrap_or_else(|_| json::object(|_| {}))
    }
}

/// The value of a piece. Of a `nullValue` only the presence counts: its value is an enum's name.
fn value_of(piece: Node<'_>) -> Option<Json> {
    let simple = ["stringValue", "numberValue", "boolValue"];
    let value = simple.iter().find_map(|name| get(piece, name)).map(Node::json);
    value.or_else(|| get(piece, "nullValue").map(|_| Json::null()))
}

/// The steps of a path such as `$.recipe.steps[2]` or `$['odd name']`.
fn steps(path: &str) -> Option<Vec<Step<'_>>> {
    let mut rest = path.strip_prefix('$')?;
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if steps.len() == DEEPEST {
            return None;
        }
        if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[']).unwrap_or(after.len());
            let (name, after) = after.split_at(end);
            steps.push(Step::Member(Cow::Borrowed(name)));
            rest = after;
            continue;
        }
        let after = rest.strip_prefix('[')?;
        if let Some(quote) = after.chars().next().filter(|c| matches!(c, '\'' | '"')) {
            let (name, after) = quoted(after.get(1..)?, quote)?;
            steps.push(Step::Member(Cow::Owned(name)));
            rest = after.strip_prefix(']')?;
        } else {
            let (index, after) = after.split_once(']')?;
            steps.push(Step::Element(index.parse().ok()?));
            rest = after;
        }
    }
    Some(steps)
}

/// A quoted name, and what stands behind its closing quote.
fn quoted(text: &str, quote: char) -> Option<(String, &str)> {
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
