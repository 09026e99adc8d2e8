//! Versions of catalogs, which decide whether a catalog file is newer than another one.

use std::fmt;
use std::str::FromStr;

use jiff::civil::Date;

/// The version of a catalog: the date of its newest row, and a revision if several catalogs have
/// the same date. Later versions compare as greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CatalogVersion {
    /// The date of the newest row.
    pub date: Date,
    /// The revision on that date, starting at 1.
    pub revision: u32,
}

/// A text that is not a catalog version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a version: write a date such as 2026-11-17, or 2026-11-17.2 for its revision"
)]
pub struct InvalidVersion(String);

impl FromStr for CatalogVersion {
    type Err = InvalidVersion;

    /// Parses `YYYY-MM-DD` or `YYYY-MM-DD.REVISION`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (date, revision) = text.split_once('.').unwrap_or((text, "1"));
            // The date parser also accepts times and longer years.
            let date: Date = date.parse().ok().filter(|_| date.len() == "2026-11-17".len())?;
            let is_plain = revision.bytes().all(|byte| byte.is_ascii_digit());
            let revision = revision.parse().ok().filter(|number| *number > 0 && is_plain)?;
            Some(Self { date, revision })
        };
        parse().ok_or_else(|| InvalidVersion(text.to_owned()))
    }
}

impl fmt::Display for CatalogVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.revision {
            1 => write!(f, "{}", self.date),
            revision => write!(f, "{}.{revision}", self.date),
        }
    }
}
