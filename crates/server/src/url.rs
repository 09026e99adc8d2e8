//! Parses query strings and decodes percent-encoding.

use percent_encoding::percent_decode_str;
use throughline_json::Name;

/// The decoded parameters of a query string.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(Vec<(Name, Name)>);

impl Query {
    pub(crate) fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode_query(name), decode_query(value))
        });
        Self(pairs.collect())
    }

    /// Returns the first non-empty value of a parameter.
    pub(crate) fn get(&self, name: &str) -> Option<&Name> {
        let found = self.0.iter().find(|(known, value)| **known == *name && !value.is_empty());
        found.map(|(_, value)| value)
    }

    /// Returns all values of a parameter. The parameter may be repeated, written with brackets, or
    /// contain values separated by commas.
    pub(crate) fn all(&self, name: &str) -> Vec<Name> {
        let is_it = |known: &str| known.strip_suffix("[]").unwrap_or(known) == name;
        let found = self.0.iter().filter(|(known, _)| is_it(known));
        let values = found.flat_map(|(_, value)| value.split(',').map(Name::from));
        values.filter(|value| !value.is_empty()).collect()
    }

    pub(crate) fn bool(&self, name: &str) -> Option<bool> {
        self.get(name).map(|value| matches!(&**value, "true" | "True" | "1"))
    }
}

/// Decodes a path segment. A plus sign stays a plus sign.
pub(crate) fn decode_segment(text: &str) -> Name {
    percent_decode_str(text).decode_utf8_lossy().into()
}

/// Decodes a name or value in a query string. A plus sign becomes a space.
pub(crate) fn decode_query(text: &str) -> Name {
    decode_segment(&text.replace('+', " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plus_sign_is_a_space_only_in_queries() {
        assert_eq!(&*decode_segment("a+b%20c%2B"), "a+b c+");
        assert_eq!(&*decode_query("a+b%20c%2B"), "a b c+");
    }

    #[test]
    fn query_values_are_decoded_and_repeated_values_listed() {
        let query = Query::parse("name=a%20b+c&tags=x&tags=y,z&statuses[]=r&none=&bad=%zz");
        assert_eq!(query.get("name").map(|name| &**name), Some("a b c"));
        assert_eq!(query.all("tags"), ["x", "y", "z"].map(Name::from));
        assert_eq!(query.all("statuses"), [Name::from("r")]);
        assert_eq!(query.get("none"), None);
        assert_eq!(query.get("bad").map(|bad| &**bad), Some("%zz"));
    }
}
