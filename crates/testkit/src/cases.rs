//! How much to try: little on every commit, much in a soak.
//!
//! A test names the count that suits it day to day; `THROUGHLINE_CASES` and
//! `THROUGHLINE_FUZZ_SECONDS` replace it everywhere at once.

use std::num::ParseIntError;
use std::str::FromStr;

use proptest::test_runner::{Config, FileFailurePersistence};

const CASES: &str = "THROUGHLINE_CASES";
const FUZZ_SECONDS: &str = "THROUGHLINE_FUZZ_SECONDS";

/// How many cases a property test tries: `THROUGHLINE_CASES` where it is set, else `default`.
pub fn cases(default: u32) -> u32 {
    number_or(CASES, environment(CASES).as_deref(), default)
}

/// How long one fuzzer runs: `THROUGHLINE_FUZZ_SECONDS` where it is set, else two seconds.
pub fn fuzz_seconds() -> u64 {
    number_or(FUZZ_SECONDS, environment(FUZZ_SECONDS).as_deref(), 2)
}

/// A proptest configuration with [`cases`] cases.
///
/// A failing case is kept in a file beside the test, `x.regressions` for `x.rs`, to be committed
/// and tried first from then on. Proptest's own default finds no place for integration tests.
///
/// ```
/// use proptest::prelude::*;
///
/// proptest! {
///     #![proptest_config(throughline_testkit::proptest_config(64))]
///     fn doubling_is_even(number in 0u32..1000) {
///         prop_assert_eq!((number * 2) % 2, 0);
///     }
/// }
/// # doubling_is_even();
/// ```
pub fn proptest_config(default: u32) -> Config {
    Config {
        cases: cases(default),
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..Config::default()
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the counts are set for a whole test run from outside"
)]
fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// A mistyped count must not silently turn a soak into a short run, so it panics.
fn number_or<Number>(name: &str, value: Option<&str>, default: Number) -> Number
where
    Number: FromStr<Err = ParseIntError>,
{
    let Some(value) = value else { return default };
    match value.parse() {
        Ok(number) => number,
        Err(error) => panic!("{name} must be a whole number, but is {value:?}: {error}"),
    }
}

#[cfg(test)]
#[path = "cases_tests.rs"]
mod tests;
