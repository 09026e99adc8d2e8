//! Tests of the simulators over HTTP, per provider. One test binary links the shared code only
//! once.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::too_many_lines,
    reason = "a test fails by panicking"
)]

mod anthropic;
mod chat;
mod common;
mod converse;
mod gemini;
mod responses;
mod sdk;
mod server;
