//! Paths that the operator allows although the gateway does not recognise them.

use throughline_json::Name;

/// The methods that the gateway forwards.
pub(crate) const METHODS: [&str; 6] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];

/// Paths that are forwarded without changes for every key. All tenants share the objects under
/// these paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Passthrough(Vec<Pattern>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    /// The only method that the pattern allows; `None` allows every method.
    method: Option<Name>,
    /// The path or the URI of S3 or Cloud Storage objects, in which `*` matches any characters.
    path: Name,
}

/// A pattern that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidPattern(pub String);

impl Passthrough {
    /// Parses patterns such as `/v1/videos*`, `GET /v1/videos/*` for one method, or `s3://bucket/*`
    /// and `gs://bucket/*` for objects that a provider reads.
    pub fn new<'p>(patterns: impl IntoIterator<Item = &'p str>) -> Result<Self, InvalidPattern> {
        patterns.into_iter().map(Pattern::parse).collect::<Result<_, _>>().map(Self)
    }

    /// Returns whether any pattern allows this method and path.
    pub(crate) fn allows(&self, method: &str, path: &str) -> bool {
        self.0.iter().any(|pattern| {
            pattern.method.as_deref().is_none_or(|only| only == method) && fits(&pattern.path, path)
        })
    }
}

impl Pattern {
    fn parse(text: &str) -> Result<Self, InvalidPattern> {
        let (method, path) = match text.split_once(' ') {
            Some((method, path)) => (Some(method), path.trim_start()),
            None => (None, text),
        };
        if let Some(method) = method.filter(|method| !METHODS.contains(method)) {
            let known = METHODS.join(", ");
            return Err(InvalidPattern(format!(
                "`{method}` is not a supported method; use {known}"
            )));
        }
        let is_path = ["/", "s3://", "gs://"].iter().any(|start| path.starts_with(start));
        if !is_path || path.contains([' ', '?', '#']) {
            let message = format!(
                "`{path}` is not a path; use a form such as \"/v1/videos*\", \"s3://bucket/*\" or \
                 \"gs://bucket/*\""
            );
            return Err(InvalidPattern(message));
        }
        Ok(Self { method: method.map(Name::from), path: Name::from(path) })
    }
}

/// Returns whether a path matches a pattern. Unlike model names, paths are case-sensitive.
fn fits(pattern: &str, path: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == path };
    let Some(mut left) = path.strip_prefix(head) else { return false };
    let mut pieces = rest.split('*').peekable();
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            return left.ends_with(piece);
        }
        match left.find(piece) {
            Some(at) => left = left.get(at + piece.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_limits_method_and_path() {
        let read = Passthrough::new(["GET /v1/videos/*", "/v1/evals*"]);
        let allows = |method, path| read.as_ref().is_ok_and(|allowed| allowed.allows(method, path));
        assert!(allows("GET", "/v1/videos/1/content"));
        assert!(!allows("POST", "/v1/videos/1"));
        assert!(!allows("GET", "/v1/videos"));
        assert!(!allows("GET", "/V1/videos/1"));
        assert!(allows("POST", "/v1/evals") && allows("GET", "/v1/evals/1/runs"));
        assert!(!allows("GET", "/v1/files"));
        let shared = Passthrough::new(["s3://shared/*"]).unwrap();
        assert!(shared.allows("GET", "s3://shared/a.png"));
        assert!(!shared.allows("GET", "s3://shared-2/a.png"));
        assert!(fits("/a*b*c", "/a1b2c") && !fits("/a*b*c", "/a1c"));
    }

    #[test]
    fn invalid_patterns_are_refused() {
        for pattern in ["videos", "FETCH /v1/videos", "GET", "/v1/a?b=1"] {
            assert!(Passthrough::new([pattern]).is_err(), "{pattern}");
        }
    }
}
