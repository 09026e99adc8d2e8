//! Tests of the HTTP client against raw sockets, and of models against the simulators.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod answers;
mod clouds;
mod credentials;
mod models;
mod retries;
mod rotation;
mod secrets;
mod server;
