//! The client against servers on raw sockets: what goes out, what comes back, what is sent again, and what is never told;
//! and models behind it, as the simulators are.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that meets the unexpected should stop"
)]

mod answers;
mod credentials;
mod models;
mod retries;
mod secrets;
mod server;
