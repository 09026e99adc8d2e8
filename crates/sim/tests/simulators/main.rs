//! Tests for the simulators over HTTP, one module per provider. All modules share one test binary,
//! so that common code is linked only once.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::too_many_lines,
    reason = "a test fails by panicking"
)]

mod agents;
mod anthropic;
mod chat;
mod common;
mod converse;
mod gemini;
mod responses;
mod sdk;
mod server;
mod websocket;
