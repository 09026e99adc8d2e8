//! Tools that come from elsewhere, before real servers: MCP over pipes and over HTTP, raw sockets, and a run that uses them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod http;
mod mcp;
mod run;
mod world;

#[expect(dead_code, reason = "the runs of the agent's own tests need more of it")]
#[path = "../../../agent/tests/runs/harness.rs"]
mod harness;
