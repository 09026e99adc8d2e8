//! Runs of agents over the simulated providers, which verify every seal that comes back.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and asks the clock itself"
)]

mod mixed;
mod peers;
mod witness;
mod world;
