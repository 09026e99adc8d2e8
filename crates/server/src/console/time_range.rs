//! Ranges of time in queries.

use jiff::Timestamp;
use throughline_json::Name;

use crate::api::{ApiError, ApiRequest, ApiResult};

/// A half-open range of time; an absent bound is unlimited.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TimeRange {
    pub(crate) since: Option<Timestamp>,
    pub(crate) until: Option<Timestamp>,
}

impl TimeRange {
    /// Parses the query's `since` and `until`.
    pub(crate) fn from_query(request: &ApiRequest<'_>) -> ApiResult<Self> {
        let time = |name: &str| {
            let parse = |text: &Name| {
                let wrong = format!("{name}: `{text}` is not a time; use 2026-01-31T00:00:00Z");
                text.parse().map_err(|_| ApiError::new(422, wrong))
            };
            request.query.get(name).map(parse).transpose()
        };
        Ok(Self { since: time("since")?, until: time("until")? })
    }

    pub(crate) fn contains(&self, at: Timestamp) -> bool {
        !self.is_before(at) && self.until.is_none_or(|until| at < until)
    }

    /// Returns whether a time lies before the range.
    pub(crate) fn is_before(&self, at: Timestamp) -> bool {
        self.since.is_some_and(|since| at < since)
    }
}

#[cfg(test)]
mod tests {
    use jiff::ToSpan as _;

    use super::*;

    #[test]
    fn time_range_excludes_its_end() {
        let at = |hours: i64| Timestamp::UNIX_EPOCH + hours.hours();
        let range = TimeRange { since: Some(at(1)), until: Some(at(2)) };
        assert_eq!([0, 1, 2].map(|hour| range.contains(at(hour))), [false, true, false]);
        assert!(TimeRange::default().contains(at(0)));
    }
}
