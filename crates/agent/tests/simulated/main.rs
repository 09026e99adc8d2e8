//! Tests that run agents against the simulated providers, which verify every returned Seal.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test fails by panicking and reads the clock"
)]

mod documents;
mod mixed;
mod peers;
mod witness;
mod world;
