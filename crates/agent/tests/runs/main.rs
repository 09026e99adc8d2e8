//! Tests of agent runs with scripted models and a real store.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod calls;
mod compaction;
mod concurrency;
mod documented;
mod failures;
mod first;
mod forged;
mod harness;
mod history;
mod limits;
mod mortal;
mod nodes;
mod plays;
mod public_types;
mod refused;
mod resume;
mod spec_004;
mod switch;
