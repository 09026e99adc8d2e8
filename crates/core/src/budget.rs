//! Budget periods and their windows.
//!
//! All windows are in UTC: a day starts at midnight, a week on Monday, and a month on its first
//! day. The windows of a period follow each other without gaps.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use throughline_json::{StringEnum as _, words};

words! {
    /// The period after which a budget starts again.
    BudgetPeriod {
        /// The budget never starts again.
        Total = "total",
        /// A calendar month.
        Month = "month",
        /// A week, from Monday to Sunday.
        Week = "week",
        /// A calendar day.
        Day = "day",
        /// A minute, for rates.
        Minute = "minute",
    }
}

/// The window of a period that contains a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetWindow {
    /// The first second of the window since 1970; 0 for [`BudgetPeriod::Total`].
    pub start: u64,
    /// The first second after the window; `None` for [`BudgetPeriod::Total`].
    pub end: Option<u64>,
}

impl BudgetPeriod {
    /// Parses a name such as `day`; `None` if the name is unknown.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|period| period.as_str() == name)
    }

    /// Returns the window that contains `at`.
    pub fn window(self, at: Timestamp) -> BudgetWindow {
        let date = at.to_zoned(TimeZone::UTC).date();
        let (first, next) = match self {
            BudgetPeriod::Total => return BudgetWindow { start: 0, end: None },
            BudgetPeriod::Minute => {
                let second = u64::try_from(at.as_second()).unwrap_or_default();
                let start = second - second % 60;
                return BudgetWindow { start, end: Some(start + 60) };
            }
            BudgetPeriod::Day => (date, date.saturating_add(1.day())),
            BudgetPeriod::Week => {
                let first = date.saturating_sub(date.weekday().to_monday_zero_offset().days());
                (first, first.saturating_add(1.week()))
            }
            BudgetPeriod::Month => {
                let first = date.first_of_month();
                (first, first.saturating_add(1.month()))
            }
        };
        BudgetWindow { start: midnight(first), end: Some(midnight(next)) }
    }
}

/// Returns the first second of a day since 1970.
fn midnight(date: Date) -> u64 {
    let start = date.to_zoned(TimeZone::UTC).ok();
    start.and_then(|start| u64::try_from(start.timestamp().as_second()).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn second(text: &str) -> u64 {
        u64::try_from(text.parse::<Timestamp>().unwrap().as_second()).unwrap()
    }

    #[test]
    fn windows_start_and_end_in_utc() {
        let cases = [
            (BudgetPeriod::Day, "2026-11-18T00:00:00Z", "2026-11-18", "2026-11-19"),
            (BudgetPeriod::Day, "2026-11-18T23:59:59.999Z", "2026-11-18", "2026-11-19"),
            (BudgetPeriod::Day, "2026-11-19T00:30:00+02:00", "2026-11-18", "2026-11-19"),
            (BudgetPeriod::Week, "2026-11-18T12:00:00Z", "2026-11-16", "2026-11-23"),
            (BudgetPeriod::Week, "2026-11-16T00:00:00Z", "2026-11-16", "2026-11-23"),
            (BudgetPeriod::Week, "2027-01-01T00:00:00Z", "2026-12-28", "2027-01-04"),
            (BudgetPeriod::Month, "2026-01-31T23:59:59Z", "2026-01-01", "2026-02-01"),
            (BudgetPeriod::Month, "2028-02-29T12:00:00Z", "2028-02-01", "2028-03-01"),
            (BudgetPeriod::Month, "2026-12-31T23:59:59Z", "2026-12-01", "2027-01-01"),
        ];
        for (period, at, start, end) in cases {
            let window = period.window(at.parse().unwrap());
            let expected = BudgetWindow {
                start: second(&format!("{start}T00:00:00Z")),
                end: Some(second(&format!("{end}T00:00:00Z"))),
            };
            assert_eq!(window, expected, "{period} at {at}");
        }
        let minute = BudgetPeriod::Minute.window("2026-11-18T07:59:59.5Z".parse().unwrap());
        assert_eq!(minute.start, second("2026-11-18T07:59:00Z"));
        assert_eq!(minute.end, Some(second("2026-11-18T08:00:00Z")));
        let total = BudgetPeriod::Total.window(Timestamp::UNIX_EPOCH);
        assert_eq!(total, BudgetWindow { start: 0, end: None });
    }

    #[test]
    fn windows_of_a_period_follow_each_other() {
        for period in [BudgetPeriod::Month, BudgetPeriod::Week, BudgetPeriod::Day] {
            let mut at: Timestamp = "2026-11-18T07:00:00Z".parse().unwrap();
            for _ in 0..50 {
                let end = period.window(at).end.unwrap();
                at = Timestamp::from_second(end.try_into().unwrap()).unwrap();
                assert_eq!(period.window(at).start, end, "{period}");
            }
        }
    }
}
