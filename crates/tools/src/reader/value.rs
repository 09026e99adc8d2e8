//! Values parsed from TOML or JSON, with their byte offsets.

use throughline_json::{self as json, Json, JsonKind, Node, Tree};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Maximum nesting depth of a document.
const DEEPEST: usize = 64;
const TOO_DEEP: ValueKind = ValueKind::Invalid("this value is nested more than 64 levels deep");

/// A value with its byte offset in the document.
pub struct Value {
    pub(super) at: usize,
    kind: ValueKind,
}

enum ValueKind {
    Text(String),
    /// A number in JSON syntax.
    Number(String),
    Flag(bool),
    Null,
    List(Vec<Value>),
    Table(Vec<Member>),
    /// A value that JSON cannot represent, with the reason.
    Invalid(&'static str),
}

pub(super) struct Member {
    pub(super) at: usize,
    pub(super) key: String,
    pub(super) value: Value,
}

impl Value {
    /// Parses TOML. The error contains a byte offset and a message.
    pub fn from_toml(text: &str) -> Result<Self, (usize, String)> {
        match DeTable::parse(text) {
            Ok(table) => Ok(Self { at: 0, kind: table_kind(table.get_ref(), DEEPEST) }),
            Err(error) => {
                let at = error.span().map_or(0, |span| span.start);
                Err((at, error.message().to_owned()))
            }
        }
    }

    /// Parses JSON. The error contains a byte offset and a message.
    pub fn from_json(text: &str) -> Result<Self, (usize, String)> {
        let tree =
            Tree::parse(text.to_owned()).map_err(|error| (error.offset, error.to_string()))?;
        Ok(value_from_json(tree.root(), DEEPEST))
    }

    /// Returns the string, or `None` if the value is of another type.
    pub fn text(&self) -> Option<&str> {
        if let ValueKind::Text(text) = &self.kind { Some(text) } else { None }
    }

    /// Returns the Boolean, or `None` if the value is of another type.
    pub fn bool(&self) -> Option<bool> {
        if let ValueKind::Flag(flag) = self.kind { Some(flag) } else { None }
    }

    /// Returns the number in JSON syntax, or `None` if the value is of another type.
    pub fn number(&self) -> Option<&str> {
        if let ValueKind::Number(number) = &self.kind { Some(number) } else { None }
    }

    /// Returns the number if it is a non-negative integer.
    pub fn whole(&self) -> Option<u64> {
        self.number()?.parse().ok()
    }

    /// Returns the elements of a list, or `None` if the value is of another type.
    pub fn list(&self) -> Option<&[Value]> {
        if let ValueKind::List(list) = &self.kind { Some(list) } else { None }
    }

    /// Returns the byte offset of the key or element at a path; `None` if the value does not
    /// contain the path. In a list, a step of the path is the number of an element, from 0.
    pub fn find(&self, path: &[impl AsRef<str>]) -> Option<usize> {
        let (mut value, mut at) = (self, self.at);
        for step in path {
            let step: &str = step.as_ref();
            (value, at) = match &value.kind {
                ValueKind::Table(members) => {
                    let member = members.iter().find(|member| member.key == step)?;
                    (&member.value, member.at)
                }
                ValueKind::List(list) => {
                    let element = list.get(step.parse::<usize>().ok()?)?;
                    (element, element.at)
                }
                ValueKind::Text(_)
                | ValueKind::Number(_)
                | ValueKind::Flag(_)
                | ValueKind::Null
                | ValueKind::Invalid(_) => return None,
            };
        }
        Some(at)
    }

    pub(super) fn table(&self) -> Option<&[Member]> {
        if let ValueKind::Table(members) = &self.kind { Some(members) } else { None }
    }

    /// Converts the value to JSON. The error contains the byte offset of the invalid value.
    pub(super) fn json(&self) -> Result<Json, (usize, &'static str)> {
        Ok(match &self.kind {
            ValueKind::Text(text) => json::string(text),
            ValueKind::Number(number) => {
                Json::parse(number.clone()).unwrap_or_else(|_| Json::null())
            }
            ValueKind::Flag(flag) => Json::from(*flag),
            ValueKind::Null => Json::null(),
            ValueKind::List(list) => {
                let values: Vec<Json> = list.iter().map(Value::json).collect::<Result<_, _>>()?;
                json::array_of(&values)
            }
            ValueKind::Table(members) => {
                let values = members.iter().map(|member| member.value.json());
                let values: Vec<Json> = values.collect::<Result<_, _>>()?;
                let keys = members.iter().map(|member| member.key.as_str());
                json::object_of(keys.zip(&values))
            }
            ValueKind::Invalid(problem) => return Err((self.at, problem)),
        })
    }
}

fn table_kind(table: &DeTable<'_>, depth: usize) -> ValueKind {
    let members = table.iter().map(|(key, value)| Member {
        at: key.span().start,
        key: key.get_ref().to_string(),
        value: value_from_toml(value, depth),
    });
    let mut members: Vec<Member> = members.collect();
    members.sort_by_key(|member| member.at);
    ValueKind::Table(members)
}

fn value_from_toml(value: &Spanned<DeValue<'_>>, depth: usize) -> Value {
    let at = value.span().start;
    let Some(deeper) = depth.checked_sub(1) else { return Value { at, kind: TOO_DEEP } };
    let kind = match value.get_ref() {
        DeValue::String(text) => ValueKind::Text(text.to_string()),
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => ValueKind::Number(number.to_string()),
            Err(_) => ValueKind::Invalid("this number is too large"),
        },
        DeValue::Float(number) => match number.as_str().parse::<f64>() {
            Ok(number) if number.is_finite() => ValueKind::Number(number.to_string()),
            _ => ValueKind::Invalid("this number is not finite"),
        },
        DeValue::Boolean(flag) => ValueKind::Flag(*flag),
        DeValue::Datetime(date) => ValueKind::Text(date.to_string()),
        DeValue::Array(array) => {
            ValueKind::List(array.iter().map(|value| value_from_toml(value, deeper)).collect())
        }
        DeValue::Table(table) => table_kind(table, deeper),
    };
    Value { at, kind }
}

fn value_from_json(node: Node<'_>, depth: usize) -> Value {
    let at = node.range().start;
    let Some(deeper) = depth.checked_sub(1) else { return Value { at, kind: TOO_DEEP } };
    let kind = match node.shape() {
        JsonKind::Object => {
            let member = |(name, value): (Node<'_>, Node<'_>)| Member {
                at: name.range().start,
                key: name.text().unwrap_or_default().into_owned(),
                value: value_from_json(value, deeper),
            };
            ValueKind::Table(node.members().map(member).collect())
        }
        JsonKind::Array => {
            ValueKind::List(node.elements().map(|value| value_from_json(value, deeper)).collect())
        }
        JsonKind::Null => ValueKind::Null,
        _ => match (node.text(), node.bool(), node.number()) {
            (Some(text), _, _) => ValueKind::Text(text.into_owned()),
            (_, Some(flag), _) => ValueKind::Flag(flag),
            (_, _, number) => ValueKind::Number(number.unwrap_or("0").to_owned()),
        },
    };
    Value { at, kind }
}
