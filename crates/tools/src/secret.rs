//! What nobody is told: the values that a server gets, and what of them may come back in its words.

use throughline_core::{Credential, Name};

/// What stands wherever a secret would.
const MASK: &str = "…";

/// Shorter words are not masked: they would be found by chance.
const SHORTEST: usize = 8;

/// Names and secret values: headers, or variables of a process.
pub(crate) type Secrets = Vec<(Name, Credential)>;

/// An address as it may be shown: a query may hold keys.
pub(crate) fn without_query(url: &str) -> &str {
    url.split('?').next().unwrap_or_default()
}

/// The words that are masked wherever an error would tell them.
#[derive(Clone, Default)]
pub(crate) struct Mask(Vec<Credential>);

impl Mask {
    /// The words of these values.
    pub(crate) fn of<'s>(values: impl IntoIterator<Item = &'s str>) -> Self {
        let words = values.into_iter().flat_map(|value| {
            let parts = value.split_whitespace().filter(move |part| *part != value);
            std::iter::once(value).chain(parts)
        });
        let mut words: Vec<&str> = words.filter(|word| word.len() >= SHORTEST).collect();
        // A value is masked before its words are.
        words.sort_by_key(|word| std::cmp::Reverse(word.len()));
        Self(words.into_iter().map(Credential::new).collect())
    }

    /// The text without them.
    pub(crate) fn over(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, word| text.replace(word.reveal(), MASK))
    }
}

#[cfg(test)]
mod secret_tests {
    use super::Mask;

    #[test]
    fn a_secret_is_masked_whole_and_by_its_words() {
        let mask = Mask::of(["Bearer sk-12345678", "on"]);
        let told = "Bearer sk-12345678 is on; sk-12345678 is not";
        assert_eq!(mask.over(told), "… is on; … is not");
    }
}
