//! Gateway tests with real clients, in one binary so that shared code is built and linked once.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::missing_panics_doc,
    reason = "a test fails by panicking, and may read the clock"
)]

mod call_records;
mod chain;
mod claims;
mod common;
mod content;
mod count;
mod dialects;
mod door;
mod fidelity;
mod harness;
mod hold;
mod house;
mod isolation;
mod letta;
mod lossy;
mod minds;
mod outage;
mod prefix;
mod recordings;
mod responses;
mod restore;
mod sdk;
mod usage;
