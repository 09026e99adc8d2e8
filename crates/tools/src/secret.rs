//! Secrets in a server's configuration, and their removal from error messages.

use throughline_core::Credential;
use throughline_json::Name;

/// Text that replaces a secret in an error message.
const MASK: &str = "…";

/// Minimum length of a masked word. Shorter words could match unrelated text.
const SHORTEST: usize = 8;

/// Names and secret values of headers or environment variables.
pub(crate) type Secrets = Vec<(Name, Credential)>;

/// Removes the query from a URL, because the query may contain keys.
pub(crate) fn without_query(url: &str) -> &str {
    url.split('?').next().unwrap_or_default()
}

/// Replaces secrets in error messages.
#[derive(Clone, Default)]
pub(crate) struct Mask(Vec<Credential>);

impl Mask {
    /// Collects all values, and the words in them, as secrets to mask.
    pub(crate) fn new<'s>(values: impl IntoIterator<Item = &'s str>) -> Self {
        let secrets = values.into_iter().flat_map(|value| {
            let parts = value.split_whitespace().filter(move |part| *part != value);
            std::iter::once(value).chain(parts)
        });
        let mut secrets: Vec<&str> = secrets.filter(|secret| secret.len() >= SHORTEST).collect();
        // Mask longer secrets first, so that a whole value is masked before its words.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Self(secrets.into_iter().map(Credential::new).collect())
    }

    pub(crate) fn apply(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| text.replace(secret.reveal(), MASK))
    }
}

#[cfg(test)]
mod secret_tests {
    use super::Mask;

    #[test]
    fn secrets_and_their_parts_are_masked() {
        let mask = Mask::new(["Bearer sk-12345678", "on"]);
        let text = "Bearer sk-12345678 is on; sk-12345678 is not";
        assert_eq!(mask.apply(text), "… is on; … is not");
    }
}
