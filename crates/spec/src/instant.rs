//! Parses the timestamps that callers supply: ISO 8601, Unix seconds, Unix milliseconds, or typed
//! values.

use std::time::SystemTime;

use jiff::civil::{Date, DateTime, ISOWeekDate, Weekday};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use throughline_json::{JsonKind, Name, Node};

/// The smallest absolute value that is read as milliseconds. If read as seconds, it would be a date
/// in the year 5138, or before the year -1199.
const FIRST_MILLISECONDS: i128 = 100_000_000_000;

/// A timestamp as supplied by a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RawInstant {
    /// A timestamp that needs no parsing.
    Ready(Timestamp),
    /// ISO 8601: a date, or a date and time with an optional offset. The default offset is UTC. The
    /// date is a year, a month, a calendar date, a week date or an ordinal date.
    Text(Name),
    /// A decimal number, verbatim: Unix seconds if its absolute value is below 10^11, otherwise
    /// Unix milliseconds.
    Number(Name),
}

impl RawInstant {
    /// Reads a JSON string or number; `None` for any other value.
    pub fn from_node(node: Node<'_>) -> Option<Self> {
        match node.shape() {
            JsonKind::String => node.name().map(Self::Text),
            JsonKind::Number => node.number().map(|number| Self::Number(Name::from(number))),
            JsonKind::Null | JsonKind::Bool | JsonKind::Array | JsonKind::Object => None,
        }
    }

    /// Parses the text or number into a timestamp.
    pub fn timestamp(&self) -> Result<Timestamp, InvalidInstant> {
        let (timestamp, input) = match self {
            Self::Ready(ready) => return Ok(*ready),
            Self::Text(text) => (parse_iso_8601(text), text),
            Self::Number(number) => (parse_unix(number), number),
        };
        timestamp.ok_or_else(|| InvalidInstant { given: input.clone() })
    }
}

impl From<Timestamp> for RawInstant {
    fn from(timestamp: Timestamp) -> Self {
        Self::Ready(timestamp)
    }
}

impl From<Zoned> for RawInstant {
    fn from(zoned: Zoned) -> Self {
        Self::Ready(zoned.timestamp())
    }
}

impl From<SystemTime> for RawInstant {
    /// Converts the time of a system clock. A time that a timestamp cannot represent becomes the
    /// nearest timestamp.
    fn from(time: SystemTime) -> Self {
        let nearest = if time < SystemTime::UNIX_EPOCH { Timestamp::MIN } else { Timestamp::MAX };
        Self::Ready(Timestamp::try_from(time).unwrap_or(nearest))
    }
}

impl From<&str> for RawInstant {
    fn from(text: &str) -> Self {
        Self::Text(Name::from(text))
    }
}

impl From<String> for RawInstant {
    fn from(text: String) -> Self {
        Self::Text(Name::from(text))
    }
}

impl From<i64> for RawInstant {
    fn from(number: i64) -> Self {
        Self::Number(Name::from(number.to_string()))
    }
}

impl From<f64> for RawInstant {
    fn from(number: f64) -> Self {
        Self::Number(Name::from(number.to_string()))
    }
}

/// Error for a text or number that is not a valid timestamp.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{given:?} is not a timestamp; use ISO 8601 (2026-01-31T12:00:00Z), Unix seconds or Unix \
     milliseconds"
)]
pub struct InvalidInstant {
    /// The text or number that was rejected.
    pub given: Name,
}

fn parse_iso_8601(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    parse_common_form(text).or_else(|| {
        let (date, time) = match text.find(['T', 't', ' ']) {
            Some(start) => (text.get(..start)?, text.get(start + 1..)?),
            None => (text, "00:00"),
        };
        let mut date = parse_date(date)?;
        // `24:00` is the end of the day.
        let hour = time.get(..2).filter(|hour| hour.bytes().all(|digit| digit.is_ascii_digit()))?;
        let mut rest = time.get(2..)?;
        let hour = if hour == "24" {
            let is_zero = |c: char| matches!(c, '0' | ':' | '.' | ',');
            let end = rest.find(|c| !is_zero(c)).unwrap_or(rest.len());
            rest = rest.get(end..)?;
            date = date.tomorrow().ok()?;
            "00"
        } else {
            hour
        };
        // An hour may stand alone or before the offset.
        let minutes =
            if rest.starts_with(|c: char| c == ':' || c.is_ascii_digit()) { "" } else { ":00" };
        parse_common_form(&format!("{date}T{hour}{minutes}{rest}"))
    })
}

/// Parses a calendar date, optionally with a time and an offset.
fn parse_common_form(text: &str) -> Option<Timestamp> {
    if let Ok(instant) = text.parse() {
        return Some(instant);
    }
    // The civil-time parser below ignores offsets, so a text with an offset that the first parser
    // rejected must be rejected here.
    let time = text.find(['T', 't', ' ']).and_then(|start| text.get(start..)).unwrap_or_default();
    if time.contains(['+', '-', 'Z', 'z', '[', '\u{2212}']) {
        return None;
    }
    let civil: DateTime = text.parse().ok()?;
    TimeZone::UTC.to_timestamp(civil).ok()
}

/// Parses a date of any ISO 8601 form: `2026`, `2026-01`, `2026-01-31`, `2026-031`, `2026-W05` or
/// `2026-W05-6`, with or without hyphens.
fn parse_date(text: &str) -> Option<Date> {
    if let Ok(date) = text.parse() {
        return Some(date);
    }
    let number = |digits: &str| -> Option<i16> {
        let are_digits = digits.bytes().all(|digit| digit.is_ascii_digit());
        digits.parse().ok().filter(|_| are_digits)
    };
    let year = text.get(..4).and_then(number)?;
    let rest = text.get(4..)?;
    let rest = rest.strip_prefix('-').unwrap_or(rest);
    if let Some(week) = rest.strip_prefix(['W', 'w']) {
        let (week, day) = week.split_at_checked(2)?;
        let day = day.strip_prefix('-').unwrap_or(day);
        let day = if day.is_empty() { Some(1) } else { number(day).filter(|_| day.len() == 1) };
        let week = i8::try_from(number(week)?).ok()?;
        let weekday = Weekday::from_monday_one_offset(i8::try_from(day?).ok()?).ok()?;
        return ISOWeekDate::new(year, week, weekday).ok().map(ISOWeekDate::date);
    }
    let first = Date::new(year, 1, 1).ok()?;
    match rest.len() {
        0 => Some(first),
        2 => Date::new(year, i8::try_from(number(rest)?).ok()?, 1).ok(),
        3 => first.with().day_of_year(number(rest)?).build().ok(),
        _ => None,
    }
}

/// Parses Unix time exactly, without a floating-point conversion.
fn parse_unix(number: &str) -> Option<Timestamp> {
    let (mantissa, exponent) = match number.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (number, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    // Digits beyond the 20th decimal place are below a nanosecond, unless an exponent shifts them.
    let fraction = if exponent == 0 { fraction.get(..20).unwrap_or(fraction) } else { fraction };
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let places = exponent.checked_sub(i32::try_from(fraction.len()).ok()?)?;
    let as_seconds = scale(digits, places.checked_add(9)?)?;
    let nanoseconds = if as_seconds.abs() < FIRST_MILLISECONDS * 1_000_000_000 {
        as_seconds
    } else {
        scale(digits, places.checked_add(6)?)?
    };
    Timestamp::from_nanosecond(nanoseconds).ok()
}

/// Computes `digits` × 10^`places`, rounded down.
fn scale(digits: i128, places: i32) -> Option<i128> {
    if digits == 0 {
        return Some(0);
    }
    match 10_i128.checked_pow(places.unsigned_abs()) {
        Some(power) if places < 0 => Some(digits.div_euclid(power)),
        Some(power) => digits.checked_mul(power),
        // The value is indistinguishable from zero, or too large for a timestamp.
        None if places < 0 => Some(if digits < 0 { -1 } else { 0 }),
        None => None,
    }
}

#[cfg(test)]
#[path = "instant_tests.rs"]
mod instant_tests;
