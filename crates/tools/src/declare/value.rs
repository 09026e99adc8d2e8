//! Declarations as values with their positions, parsed from TOML or JSON.

use throughline_core::{Json, JsonKind, Node, Tree, json};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Maximum nesting depth of a declaration.
const DEEPEST: usize = 64;

/// A value and its byte offset.
#[derive(Clone, Debug)]
pub(super) struct Value {
    pub(super) at: usize,
    pub(super) kind: ValueKind,
}

#[derive(Clone, Debug)]
pub(super) enum ValueKind {
    Text(String),
    /// A number in JSON syntax.
    Number(String),
    Flag(bool),
    Null,
    List(Vec<Value>),
    Table(Vec<Member>),
}

/// A key with its value.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) at: usize,
    pub(super) key: String,
    pub(super) value: Value,
}

/// Parses TOML without the keys in `others` at the top level; an error contains its offset.
pub(super) fn toml(text: &str, others: &[&str]) -> Result<Value, (usize, String)> {
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        (at, format!("this is not valid TOML: {}", error.message()))
    })?;
    let kind = table_kind(table.get_ref(), others, DEEPEST)?;
    Ok(Value { at: 0, kind })
}

/// Converts a table without these keys.
fn table_kind(
    table: &DeTable<'_>,
    others: &[&str],
    depth: usize,
) -> Result<ValueKind, (usize, String)> {
    let mut members = Vec::new();
    for (key, value) in table.iter().filter(|(key, _)| !others.contains(&&**key.get_ref())) {
        let (at, key) = (key.span().start, key.get_ref().to_string());
        members.push(Member { at, key, value: value_from_toml(value, depth)? });
    }
    members.sort_by_key(|member| member.at);
    Ok(ValueKind::Table(members))
}

fn value_from_toml(value: &Spanned<DeValue<'_>>, depth: usize) -> Result<Value, (usize, String)> {
    let at = value.span().start;
    let deeper = depth.checked_sub(1).ok_or_else(|| too_deep(at))?;
    let kind = match value.get_ref() {
        DeValue::String(text) => ValueKind::Text(text.to_string()),
        DeValue::Integer(number) => {
            let whole = i64::from_str_radix(number.as_str(), number.radix());
            let whole = whole.map_err(|_| (at, "this number is too large".to_owned()))?;
            ValueKind::Number(whole.to_string())
        }
        DeValue::Float(number) => {
            let number = number.as_str().parse::<f64>().ok().filter(|number| number.is_finite());
            let number = number.ok_or_else(|| (at, "this number cannot be used".to_owned()))?;
            ValueKind::Number(number.to_string())
        }
        DeValue::Boolean(flag) => ValueKind::Flag(*flag),
        DeValue::Datetime(date) => ValueKind::Text(date.to_string()),
        DeValue::Array(array) => {
            let values = array.iter().map(|value| value_from_toml(value, deeper));
            ValueKind::List(values.collect::<Result<_, _>>()?)
        }
        DeValue::Table(table) => table_kind(table, &[], deeper)?,
    };
    Ok(Value { at, kind })
}

/// Parses JSON; an error contains its offset.
pub(super) fn json(text: &str) -> Result<Value, (usize, String)> {
    let tree = Tree::parse(text.to_owned())
        .map_err(|error| (error.offset, format!("this is not valid JSON: {error}")))?;
    value_from_json(tree.root(), DEEPEST)
}

fn value_from_json(node: Node<'_>, depth: usize) -> Result<Value, (usize, String)> {
    let at = node.range().start;
    let deeper = depth.checked_sub(1).ok_or_else(|| too_deep(at))?;
    let kind = match node.shape() {
        JsonKind::Object => {
            let member = |(name, value): (Node<'_>, Node<'_>)| {
                let (at, key) = (name.range().start, name.text().unwrap_or_default().into_owned());
                Ok(Member { at, key, value: value_from_json(value, deeper)? })
            };
            ValueKind::Table(node.members().map(member).collect::<Result<_, _>>()?)
        }
        JsonKind::Array => {
            let values = node.elements().map(|value| value_from_json(value, deeper));
            ValueKind::List(values.collect::<Result<_, _>>()?)
        }
        JsonKind::Null => ValueKind::Null,
        _ => match (node.text(), node.bool(), node.number()) {
            (Some(text), _, _) => ValueKind::Text(text.into_owned()),
            (_, Some(flag), _) => ValueKind::Flag(flag),
            (_, _, number) => ValueKind::Number(number.unwrap_or("0").to_owned()),
        },
    };
    Ok(Value { at, kind })
}

fn too_deep(at: usize) -> (usize, String) {
    (at, format!("this is nested more than {DEEPEST} levels deep"))
}

impl Value {
    pub(super) fn text(&self) -> Option<&str> {
        match &self.kind {
            ValueKind::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn list(&self) -> Option<&[Value]> {
        match &self.kind {
            ValueKind::List(list) => Some(list),
            _ => None,
        }
    }

    pub(super) fn table(&self) -> Option<&[Member]> {
        match &self.kind {
            ValueKind::Table(members) => Some(members),
            _ => None,
        }
    }

    /// Returns an unsigned integer.
    pub(super) fn whole(&self) -> Option<u64> {
        match &self.kind {
            ValueKind::Number(number) => number.parse().ok(),
            _ => None,
        }
    }

    /// Converts the value to JSON.
    pub(super) fn json(&self) -> Json {
        match &self.kind {
            ValueKind::Text(text) => json::string(text),
            ValueKind::Number(number) => {
                Json::parse(number.clone()).unwrap_or_else(|_| Json::null())
            }
            ValueKind::Flag(true) => Json::parse("true").unwrap_or_else(|_| Json::null()),
            ValueKind::Flag(false) => Json::parse("false").unwrap_or_else(|_| Json::null()),
            ValueKind::Null => Json::null(),
            ValueKind::List(list) => json::array(|array| {
                for value in list {
                    array.raw(&value.json());
                }
            }),
            ValueKind::Table(members) => json::object(|object| {
                for member in members {
                    object.raw(&member.key, &member.value.json());
                }
            }),
        }
    }
}
