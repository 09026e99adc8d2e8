//! Instants as callers write them: ISO 8601, Unix seconds, Unix milliseconds, or ready values.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use crate::json::{Node, Shape};
use crate::name::Name;

/// Numbers from here on are milliseconds; in seconds this would be the year 5138.
const FIRST_MILLISECONDS: i128 = 100_000_000_000;

/// An instant as a caller gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RawInstant {
    /// A ready value.
    Ready(Timestamp),
    /// ISO 8601: a date, or a date and time with or without an offset. Without one it is UTC.
    Text(Name),
    /// A decimal number as it was written: below 10^11 Unix seconds, else Unix milliseconds.
    Number(Name),
}

impl RawInstant {
    /// The instant that a JSON value gives, if it is a string or a number.
    pub fn of(node: Node<'_>) -> Option<Self> {
        match node.shape() {
            Shape::String => node.name().map(Self::Text),
            Shape::Number => node.number().map(|number| Self::Number(Name::from(number))),
            Shape::Null | Shape::Bool | Shape::Array | Shape::Object => None,
        }
    }

    /// The instant.
    pub fn timestamp(&self) -> Result<Timestamp, InvalidInstant> {
        let (read, given) = match self {
            Self::Ready(ready) => return Ok(*ready),
            Self::Text(text) => (iso_8601(text), text),
            Self::Number(number) => (unix(number), number),
        };
        read.ok_or_else(|| InvalidInstant { given: given.clone() })
    }
}

impl From<Timestamp> for RawInstant {
    fn from(ready: Timestamp) -> Self {
        Self::Ready(ready)
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

/// Something that is not an instant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{given:?} is not an instant: write ISO 8601 (2026-01-31T12:00:00Z), Unix seconds or Unix milliseconds"
)]
pub struct InvalidInstant {
    /// What was given.
    pub given: Name,
}

fn iso_8601(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    if let Ok(instant) = text.parse() {
        return Some(instant);
    }
    // The parser of civil times ignores an offset, so one that the parser above refused is refused here too.
    let time = text.find(['T', 't', ' ']).and_then(|start| text.get(start..)).unwrap_or_default();
    if time.contains(['+', '-', 'Z', 'z', '[', '\u{2212}']) {
        return None;
    }
    let civil: DateTime = text.parse().ok()?;
    TimeZone::UTC.to_timestamp(civil).ok()
}

/// Exact: the digits are never squeezed through a floating-point number.
fn unix(number: &str) -> Option<Timestamp> {
    let (mantissa, exponent) = match number.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (number, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    // Beyond 20 places a fraction says nothing that a nanosecond could hold, unless an exponent lifts it.
    let fraction = if exponent == 0 { fraction.get(..20).unwrap_or(fraction) } else { fraction };
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let places = exponent.checked_sub(i32::try_from(fraction.len()).ok()?)?;
    let as_seconds = scale(digits, places.checked_add(9)?)?;
    let nanoseconds = if as_seconds < FIRST_MILLISECONDS * 1_000_000_000 {
        as_seconds
    } else {
        scale(digits, places.checked_add(6)?)?
    };
    Timestamp::from_nanosecond(nanoseconds).ok()
}

/// `digits` × 10^`places`, rounded down.
fn scale(digits: i128, places: i32) -> Option<i128> {
    if digits == 0 {
        return Some(0);
    }
    match 10_i128.checked_pow(places.unsigned_abs()) {
        Some(power) if places < 0 => Some(digits.div_euclid(power)),
        Some(power) => digits.checked_mul(power),
        // Too small to be told from zero, or too large to be an instant.
        None if places < 0 => Some(if digits < 0 { -1 } else { 0 }),
        None => None,
    }
}

#[cfg(test)]
#[path = "instant_tests.rs"]
mod instant_tests;
