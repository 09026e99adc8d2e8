//! The Messages API, in both directions.
