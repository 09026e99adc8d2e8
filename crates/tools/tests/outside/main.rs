//! Tests for external tools with real servers: MCP over pipes and HTTP, raw sockets, and an agent
//! run.

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

#[expect(dead_code, reason = "the agent tests use more of this module")]
#[path = "../../../agent/tests/runs/harness.rs"]
mod harness;
