//! Tests for timestamp parsing.

use jiff::Timestamp;
use proptest::prelude::*;
use throughline_json::Json;

use crate::{InvalidInstant, RawInstant};

fn read(given: impl Into<RawInstant>) -> Result<String, InvalidInstant> {
    given.into().timestamp().map(|instant| instant.to_string())
}

fn number(text: &str) -> Option<String> {
    let json = Json::parse(text.to_owned()).unwrap();
    let raw = RawInstant::from_node(json.tree().root())?;
    raw.timestamp().ok().map(|instant| instant.to_string())
}

#[test]
fn iso_8601_offset_is_applied() {
    assert_eq!(read("2026-01-31T12:00:00Z").unwrap(), "2026-01-31T12:00:00Z");
    assert_eq!(read("2026-01-31T12:00:00+02:00").unwrap(), "2026-01-31T10:00:00Z");
    assert_eq!(
        read("2026-01-31T12:00:00.123456789-05:30").unwrap(),
        "2026-01-31T17:30:00.123456789Z"
    );
}

#[test]
fn iso_8601_without_an_offset_is_utc() {
    assert_eq!(read("2026-01-31T12:00:00").unwrap(), "2026-01-31T12:00:00Z");
    assert_eq!(read("2026-01-31 12:00").unwrap(), "2026-01-31T12:00:00Z");
    assert_eq!(read("2026-01-31T12:00:00.5").unwrap(), "2026-01-31T12:00:00.5Z");
    assert_eq!(read("2026-01-31").unwrap(), "2026-01-31T00:00:00Z");
    assert_eq!(read("20260131").unwrap(), "2026-01-31T00:00:00Z");
}

#[test]
fn week_ordinal_month_and_year_dates_are_accepted() {
    for (text, expected) in [
        ("2026-W05-6", "2026-01-31T00:00:00Z"),
        ("2026W056", "2026-01-31T00:00:00Z"),
        ("2026-W05", "2026-01-26T00:00:00Z"),
        ("2026-W05-6T12:30:00+02:00", "2026-01-31T10:30:00Z"),
        ("2020-W53-7", "2021-01-03T00:00:00Z"),
        ("2026-031", "2026-01-31T00:00:00Z"),
        ("2026031T08", "2026-01-31T08:00:00Z"),
        ("2024-366", "2024-12-31T00:00:00Z"),
        ("2026-01", "2026-01-01T00:00:00Z"),
        ("202601", "2026-01-01T00:00:00Z"),
        ("2026", "2026-01-01T00:00:00Z"),
        ("2026-01-31T08", "2026-01-31T08:00:00Z"),
        ("2026-01-31T08Z", "2026-01-31T08:00:00Z"),
    ] {
        assert_eq!(read(text).as_deref(), Ok(expected), "{text:?}");
    }
    for text in
        ["2026-W54-1", "2025-W53-1", "2026-366", "2026-000", "2026-W05-8", "26-01", "2026-1"]
    {
        assert!(read(text).is_err(), "{text:?}");
    }
}

#[test]
fn hour_24_is_the_start_of_the_next_day() {
    assert_eq!(read("2026-01-31T24:00").unwrap(), "2026-02-01T00:00:00Z");
    assert_eq!(read("2026-12-31T24:00:00.000").unwrap(), "2027-01-01T00:00:00Z");
    assert_eq!(read("2026-01-31T24:00:00+02:00").unwrap(), "2026-01-31T22:00:00Z");
    assert!(read("2026-01-31T24:01").is_err());
    assert!(read("2026-01-31T24:00:01Z").is_err());
}

#[test]
fn negative_numbers_follow_the_same_rule_as_positive_ones() {
    assert_eq!(read(-100_000_000_000_i64).unwrap(), "1966-10-31T14:13:20Z");
    assert_eq!(read(-1_000_000_000_000_i64).unwrap(), "1938-04-24T22:13:20Z");
    assert_eq!(read(-99_999_999_999_i64).unwrap(), "-001199-02-15T14:13:21Z");
    assert_eq!(read(-62_135_596_800_i64).unwrap(), "0001-01-01T00:00:00Z");
}

#[test]
fn system_times_and_zoned_times_are_accepted() {
    use std::time::{Duration, SystemTime};
    let at = Duration::from_millis(1_769_860_800_123);
    let after = RawInstant::from(SystemTime::UNIX_EPOCH + at);
    assert_eq!(after.timestamp().unwrap().to_string(), "2026-01-31T12:00:00.123Z");
    let before = RawInstant::from(SystemTime::UNIX_EPOCH - Duration::from_secs(1));
    assert_eq!(before.timestamp().unwrap().to_string(), "1969-12-31T23:59:59Z");
    let late = RawInstant::from(SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 40));
    assert_eq!(late.timestamp().unwrap(), Timestamp::MAX);
    let zone = jiff::tz::TimeZone::fixed(jiff::tz::offset(2));
    let zoned = "2026-01-31T10:00:00Z".parse::<Timestamp>().unwrap().to_zoned(zone);
    assert_eq!(RawInstant::from(zoned).timestamp().unwrap().to_string(), "2026-01-31T10:00:00Z");
}

#[test]
fn numbers_below_ten_to_the_eleventh_are_seconds_and_others_milliseconds() {
    assert_eq!(read(1_769_860_800_i64).unwrap(), "2026-01-31T12:00:00Z");
    assert_eq!(read(1_769_860_800_123_i64).unwrap(), "2026-01-31T12:00:00.123Z");
    assert_eq!(read(1_769_860_800.5_f64).unwrap(), "2026-01-31T12:00:00.5Z");
    assert_eq!(read(99_999_999_999_i64).unwrap(), "5138-11-16T09:46:39Z");
    assert_eq!(read(100_000_000_000_i64).unwrap(), "1973-03-03T09:46:40Z");
    assert_eq!(read(0_i64).unwrap(), "1970-01-01T00:00:00Z");
    assert_eq!(read(-1_i64).unwrap(), "1969-12-31T23:59:59Z");
}

#[test]
fn numbers_are_parsed_exactly() {
    assert_eq!(number("1769860800.123456789").unwrap(), "2026-01-31T12:00:00.123456789Z");
    assert_eq!(number("1.7698608e9").unwrap(), "2026-01-31T12:00:00Z");
    assert_eq!(number("1.769860800123E+12").unwrap(), "2026-01-31T12:00:00.123Z");
    assert_eq!(number("-0.5").unwrap(), "1969-12-31T23:59:59.5Z");
    assert_eq!(number("1e-400").unwrap(), "1970-01-01T00:00:00Z");
    assert_eq!(number("0e99999").unwrap(), "1970-01-01T00:00:00Z");
    assert_eq!(number("1e400"), None);
    assert_eq!(number("1e99999999999999"), None);
    assert_eq!(number("true"), None);
}

#[test]
fn typed_timestamp_passes_through() {
    let timestamp: Timestamp = "2026-01-31T12:00:00.000000001Z".parse().unwrap();
    assert_eq!(RawInstant::from(timestamp).timestamp().unwrap(), timestamp);
}

#[test]
fn other_values_are_rejected_with_advice() {
    for text in ["", "soon", "2026-13-01", "2026-01-31T25:00", "9999-12-31T23:59:59-23:00", "12:00"]
    {
        assert!(read(text).is_err(), "{text:?}");
    }
    assert_eq!(
        read("soon").unwrap_err().to_string(),
        "\"soon\" is not a timestamp; use ISO 8601 (2026-01-31T12:00:00Z), Unix seconds or Unix \
         milliseconds"
    );
    assert!(read("2026-01-31T12:00:00[America/New_York]").is_err());
    assert!(read(f64::NAN).is_err());
    assert!(read(f64::INFINITY).is_err());
}

proptest! {
    #[test]
    fn every_timestamp_round_trips(nanoseconds in -62_135_596_800_000_000_000_i128..253_402_207_200_000_000_000_i128) {
        let instant = Timestamp::from_nanosecond(nanoseconds).unwrap();
        prop_assert_eq!(RawInstant::from(instant.to_string()).timestamp().unwrap(), instant);
    }

    #[test]
    fn small_numbers_are_seconds(seconds in -62_135_596_800_i64..100_000_000_000_i64) {
        let read = RawInstant::from(seconds).timestamp().unwrap();
        prop_assert_eq!(read.as_second(), seconds);
    }

    #[test]
    fn large_numbers_are_milliseconds(milliseconds in 100_000_000_000_i64..253_402_207_200_000_i64) {
        let read = RawInstant::from(milliseconds).timestamp().unwrap();
        prop_assert_eq!(read.as_millisecond(), milliseconds);
    }

    #[test]
    fn errors_contain_the_rejected_input(text in any::<String>()) {
        for raw in [RawInstant::from(text.as_str()), RawInstant::Number(text.as_str().into())] {
            if let Err(error) = raw.timestamp() {
                prop_assert_eq!(&*error.given, text.as_str());
            }
        }
    }
}
