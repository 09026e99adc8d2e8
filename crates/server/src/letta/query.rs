//! The query of a path.

use throughline_core::Name;

/// What stands behind the question mark.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(Vec<(Name, Name)>);

impl Query {
    pub(crate) fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name), decoded(value))
        });
        Self(pairs.collect())
    }

    /// The value of that name.
    pub(crate) fn get(&self, name: &str) -> Option<&Name> {
        let found = self.0.iter().find(|(known, value)| **known == *name && !value.is_empty());
        found.map(|(_, value)| value)
    }

    /// All values of that name: repeated, with brackets, or with commas.
    pub(crate) fn all(&self, name: &str) -> Vec<Name> {
        let is_it = |known: &str| known.strip_suffix("[]").unwrap_or(known) == name;
        let found = self.0.iter().filter(|(known, _)| is_it(known));
        let values = found.flat_map(|(_, value)| value.split(',').map(Name::from));
        values.filter(|value| !value.is_empty()).collect()
    }

    pub(crate) fn is(&self, name: &str) -> Option<bool> {
        self.get(name).map(|value| matches!(&**value, "true" | "True" | "1"))
    }
}

/// Text without its percent signs and plus signs.
pub(crate) fn decoded(text: &str) -> Name {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        let hex = after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        let value = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (byte, value) {
            (b'%', Some(value)) => {
                bytes.push(value);
                rest = after.get(2..).unwrap_or_default();
            }
            (b'+', _) => bytes.push(b' '),
            (other, _) => bytes.push(*other),
        }
    }
    Name::from(String::from_utf8_lossy(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_decoded_and_listed() {
        let query = Query::parse("name=a%20b+c&tags=x&tags=y,z&statuses[]=r&none=&bad=%zz");
        assert_eq!(query.get("name").map(|name| &**name), Some("a b c"));
        assert_eq!(query.all("tags"), ["x", "y", "z"].map(Name::from));
        assert_eq!(query.all("statuses"), [Name::from("r")]);
        assert_eq!(query.get("none"), None);
        assert_eq!(query.get("bad").map(|bad| &**bad), Some("%zz"));
    }
}
