//! A declaration as values with their places, whichever language it is written in.

use throughline_core::{Json, Node, Shape, Tree, json};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// How deep a declaration may be nested.
const DEEPEST: usize = 64;

/// A value, and where it begins.
#[derive(Clone, Debug)]
pub(super) struct Value {
    pub(super) at: usize,
    pub(super) kind: Kind,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Text(String),
    /// A number, as JSON writes it.
    Number(String),
    Flag(bool),
    Null,
    List(Vec<Value>),
    Table(Vec<Member>),
}

/// A key, and what it says.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) at: usize,
    pub(super) key: String,
    pub(super) value: Value,
}

/// Reads TOML but for those keys at its top; else the place and what is wrong there.
pub(super) fn toml(text: &str, others: &[&str]) -> Result<Value, (usize, String)> {
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        (at, format!("this is no TOML: {}", error.message()))
    })?;
    let kind = of_table(table.get_ref(), others, DEEPEST)?;
    Ok(Value { at: 0, kind })
}

/// A table but for those keys.
fn of_table(table: &DeTable<'_>, others: &[&str], depth: usize) -> Result<Kind, (usize, String)> {
    let mut members = Vec::new();
    for (key, value) in table.iter().filter(|(key, _)| !others.contains(&&**key.get_ref())) {
        let (at, key) = (key.span().start, key.get_ref().to_string());
        members.push(Member { at, key, value: of_toml(value, depth)? });
    }
    members.sort_by_key(|member| member.at);
    Ok(Kind::Table(members))
}

fn of_toml(value: &Spanned<DeValue<'_>>, depth: usize) -> Result<Value, (usize, String)> {
    let at = value.span().start;
    let deeper = depth.checked_sub(1).ok_or_else(|| too_deep(at))?;
    let kind = match value.get_ref() {
        DeValue::String(text) => Kind::Text(text.to_string()),
        DeValue::Integer(number) => {
            let whole = i64::from_str_radix(number.as_str(), number.radix());
            let whole = whole.map_err(|_| (at, "this number is too large".to_owned()))?;
            Kind::Number(whole.to_string())
        }
        DeValue::Float(number) => {
            let number = number.as_str().parse::<f64>().ok().filter(|number| number.is_finite());
            let number = number.ok_or_else(|| (at, "this number cannot be used".to_owned()))?;
            Kind::Number(number.to_string())
        }
        DeValue::Boolean(flag) => Kind::Flag(*flag),
        DeValue::Datetime(date) => Kind::Text(date.to_string()),
        DeValue::Array(array) => {
            let values = array.iter().map(|value| of_toml(value, deeper));
            Kind::List(values.collect::<Result<_, _>>()?)
        }
        DeValue::Table(table) => of_table(table, &[], deeper)?,
    };
    Ok(Value { at, kind })
}

/// Reads JSON; else the place and what is wrong there.
pub(super) fn json(text: &str) -> Result<Value, (usize, String)> {
    let tree = Tree::parse(text.to_owned())
        .map_err(|error| (error.offset, format!("this is no JSON: {error}")))?;
    of_json(tree.root(), DEEPEST)
}

fn of_json(node: Node<'_>, depth: usize) -> Result<Value, (usize, String)> {
    let at = node.range().start;
    let deeper = depth.checked_sub(1).ok_or_else(|| too_deep(at))?;
    let kind = match node.shape() {
        Shape::Object => {
            let member = |(name, value): (Node<'_>, Node<'_>)| {
                let (at, key) = (name.range().start, name.text().unwrap_or_default().into_owned());
                Ok(Member { at, key, value: of_json(value, deeper)? })
            };
            Kind::Table(node.members().map(member).collect::<Result<_, _>>()?)
        }
        Shape::Array => {
            let values = node.elements().map(|value| of_json(value, deeper));
            Kind::List(values.collect::<Result<_, _>>()?)
        }
        Shape::Null => Kind::Null,
        _ => match (node.text(), node.bool(), node.number()) {
            (Some(text), _, _) => Kind::Text(text.into_owned()),
            (_, Some(flag), _) => Kind::Flag(flag),
            (_, _, number) => Kind::Number(number.unwrap_or("0").to_owned()),
        },
    };
    Ok(Value { at, kind })
}

fn too_deep(at: usize) -> (usize, String) {
    (at, format!("this is nested more than {DEEPEST} deep"))
}

impl Value {
    pub(super) fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn list(&self) -> Option<&[Value]> {
        match &self.kind {
            Kind::List(list) => Some(list),
            _ => None,
        }
    }

    pub(super) fn table(&self) -> Option<&[Member]> {
        match &self.kind {
            Kind::Table(members) => Some(members),
            _ => None,
        }
    }

    /// A whole number.
    pub(super) fn whole(&self) -> Option<u64> {
        match &self.kind {
            Kind::Number(number) => number.parse().ok(),
            _ => None,
        }
    }

    /// The same as JSON.
    pub(super) fn json(&self) -> Json {
        match &self.kind {
            Kind::Text(text) => json::string(text),
            Kind::Number(number) => Json::parse(number.clone()).unwrap_or_else(|_| Json::null()),
            Kind::Flag(true) => Json::parse("true").unwrap_or_else(|_| Json::null()),
            Kind::Flag(false) => Json::parse("false").unwrap_or_else(|_| Json::null()),
            Kind::Null => Json::null(),
            Kind::List(list) => json::array(|array| {
                for value in list {
                    array.raw(&value.json());
                }
            }),
            Kind::Table(members) => json::object(|object| {
                for member in members {
                    object.raw(&member.key, &member.value.json());
                }
            }),
        }
    }
}
