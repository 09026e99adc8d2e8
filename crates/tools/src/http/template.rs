//! URL templates with `{argument}` placeholders.

use reqwest::Url;
use throughline_json::Node;

use crate::client;

#[derive(Clone, Debug)]
pub(super) struct Template {
    /// Literal text and placeholders, in order.
    pieces: Vec<Piece>,
    /// Scheme, host and port of the URL, which arguments must not change.
    origin: url::Origin,
}

#[derive(Clone, Debug)]
enum Piece {
    Text(String),
    Argument(String),
}

impl Template {
    /// Parses a template. Placeholders are allowed only in the path and the query, so the model
    /// cannot choose the host.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let pieces = pieces(text)?;
        let scheme =
            text.find("://").map(|at| at + 3).ok_or("must begin with http:// or https://")?;
        let rest = text.get(scheme..).unwrap_or_default();
        let host = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        if text.get(..scheme + host).unwrap_or_default().contains('{') {
            return Err("may have arguments only in its path and query, not in its host".to_owned());
        }
        if rest.contains('#') {
            return Err("must not have a fragment (`#`), which would not be sent".to_owned());
        }
        let filled = pieces.iter().map(|piece| match piece {
            Piece::Text(text) => text,
            Piece::Argument(_) => "x",
        });
        let origin = client::parse(&filled.collect::<String>())?.origin();
        Ok(Self { pieces, origin })
    }

    /// Returns the names of all placeholders, without duplicates.
    pub(super) fn arguments(&self) -> Vec<&str> {
        let mut names = Vec::new();
        for piece in &self.pieces {
            if let Piece::Argument(name) = piece
                && !names.contains(&name.as_str())
            {
                names.push(name.as_str());
            }
        }
        names
    }

    pub(super) fn takes(&self, name: &str) -> bool {
        self.arguments().contains(&name)
    }

    /// Replaces the placeholders with arguments. Each argument is percent-encoded as a whole.
    pub(super) fn fill(&self, args: Node<'_>) -> Result<Url, String> {
        let mut filled = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => filled.push_str(text),
                Piece::Argument(name) => {
                    let missing = || format!("The argument `{name}` is missing.");
                    encode(&text(args.present(name).ok_or_else(missing)?), &mut filled);
                }
            }
        }
        let path = filled.split('?').next().unwrap_or_default();
        // A URL parser resolves these segments, so the URL could leave the path of the template.
        if path.split('/').any(|segment| matches!(segment, "." | "..")) {
            let problem =
                "An argument turns a path segment into `.` or `..`, so the request was not sent.";
            return Err(problem.to_owned());
        }
        let url = Url::parse(&filled).map_err(|error| format!("The URL is not valid: {error}."))?;
        if url.origin() != self.origin {
            return Err("The arguments would send the request to another server.".to_owned());
        }
        Ok(url)
    }
}

fn pieces(text: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        let Some((name, after)) = after.split_once('}') else {
            return Err("has a `{` without a matching `}`: write {argument}".to_owned());
        };
        let is_good = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
        if name.is_empty() || !name.chars().all(is_good) {
            let problem = "which is not a valid argument name: write {argument}";
            return Err(format!("contains `{{{name}}}`, {problem}"));
        }
        pieces.extend([Piece::Text(before.to_owned()), Piece::Argument(name.to_owned())]);
        rest = after;
    }
    if rest.contains('}') {
        return Err("has a `}` without a matching `{`: write {argument}".to_owned());
    }
    pieces.push(Piece::Text(rest.to_owned()));
    Ok(pieces)
}

/// Converts an argument to text: a string as is, any other value as JSON.
pub(super) fn text(value: Node<'_>) -> String {
    value.text().map_or_else(|| value.json().as_str().to_owned(), std::borrow::Cow::into_owned)
}

/// Percent-encodes everything except unreserved characters.
fn encode(text: &str, out: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push_str(&["%", &format!("{byte:02X}")].concat());
        }
    }
}

#[cfg(test)]
mod template_tests {
    use throughline_json::Json;

    use super::Template;

    fn filled(url: &str, args: &'static str) -> Result<String, String> {
        let template = Template::parse(url).unwrap();
        let args = Json::parse(args).unwrap();
        template.fill(args.tree().root()).map(String::from)
    }

    #[test]
    fn arguments_cannot_leave_their_place() {
        let url = "http://example.com/cities/{city}/days?from={from}&to=9";
        assert_eq!(
            filled(url, r#"{"city":"Köln/../?a=b#c","from":3}"#),
            Ok("http://example.com/cities/K%C3%B6ln%2F..%2F%3Fa%3Db%23c/days?from=3&to=9"
                .to_owned())
        );
        assert_eq!(
            filled(url, r#"{"city":"x"}"#),
            Err("The argument `from` is missing.".to_owned())
        );
        for city in [r#"{"city":"..","from":1}"#, r#"{"city":".","from":1}"#] {
            assert!(filled(url, city).unwrap_err().contains("turns a path segment"));
        }
        let split = "http://example.com/{a}{b}/secret";
        assert!(filled(split, r#"{"a":".","b":"."}"#).is_err());
    }

    #[test]
    fn invalid_urls_are_rejected_with_advice() {
        for (url, reason) in [
            ("example.com/{a}", "must begin with http://"),
            ("ftp://example.com", "must begin with http://"),
            ("http://{host}/", "only in its path and query"),
            ("http://example.com:{port}", "only in its path and query"),
            ("http://ann:secret@example.com/", "must not contain a user"),
            ("http://example.com/{a", "without a matching `}`"),
            ("http://example.com/a}", "without a matching `{`"),
            ("http://example.com/{a b}", "not a valid argument name"),
            ("http://example.com/#{a}", "fragment (`#`)"),
            ("http://169.254.169.254/latest", "link-local or cloud metadata address"),
            ("http://2852039166/", "link-local or cloud metadata address"),
            ("http://[fe80::1]/", "link-local or cloud metadata address"),
        ] {
            let error = Template::parse(url).unwrap_err();
            assert!(error.contains(reason), "{url}: {error}");
        }
    }
}
