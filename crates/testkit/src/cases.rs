//! Case counts for property tests and fuzzers: few on every commit, many in a soak run.
//!
//! Each test specifies its default count. `THROUGHLINE_CASES` and `THROUGHLINE_FUZZ_SECONDS`
//! override all defaults.

use std::num::ParseIntError;
use std::str::FromStr;

use proptest::test_runner::{Config, FileFailurePersistence};

const CASES: &str = "THROUGHLINE_CASES";
const FUZZ_SECONDS: &str = "THROUGHLINE_FUZZ_SECONDS";

/// Returns how many cases a property test runs: `THROUGHLINE_CASES` if set, else `default`.
pub fn cases(default: u32) -> u32 {
    number_or(CASES, environment(CASES).as_deref(), default)
}

/// Returns how many seconds a fuzzer runs: `THROUGHLINE_FUZZ_SECONDS` if set, else 2.
pub fn fuzz_seconds() -> u64 {
    number_or(FUZZ_SECONDS, environment(FUZZ_SECONDS).as_deref(), 2)
}

/// Returns a proptest configuration whose number of cases is [`cases(default)`](cases).
///
/// A failing case is stored in a file beside the test: `x.regressions` for `x.rs`. Commit that
/// file, so that later runs try its cases first. Proptest's default location does not work for
/// integration tests.
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

#[expect(clippy::disallowed_methods, reason = "the counts are configured for the whole test run")]
fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Parses a count. Panics on an invalid value, so that a typo does not silently shorten a soak run.
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
