//! End-to-end tests with the real coding agents and the AI SDK.
//!
//! `scripts/clients` installs the programs. Each program runs in a scratch folder with its own home
//! folder, reads and edits files with its own tools, and reaches only the gateway, whose built-in
//! simulators follow a script. The simulators' ledger proves that no request was refused and that
//! no Seal was lost or altered.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod ai_sdk;
mod claude_code;
mod codex;
mod fixture;
mod gemini_cli;
mod libraries;
mod matrix;
mod opencode;
mod program;
#[path = "../binary/support/serving.rs"]
#[allow(dead_code, reason = "the tests of the binary use the other functions")]
mod serving;
mod session;
