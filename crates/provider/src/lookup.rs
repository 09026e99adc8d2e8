//! Reads variables through a lookup function, because this crate does not read the environment.

/// Function that returns the value of an environment variable; `None` if the variable is not set.
pub type EnvLookup<'l> = &'l dyn Fn(&str) -> Option<String>;

/// Returns the trimmed value of a variable; `None` if it is unset or empty.
pub(crate) fn non_empty(name: &str, lookup: EnvLookup<'_>) -> Option<String> {
    let value = lookup(name)?.trim().to_owned();
    (!value.is_empty()).then_some(value)
}
