//! Tests of the binary. All modules form one test executable, so that shared code is built and
//! linked once.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod agents;
mod book;
mod callers;
mod catalog;
mod check;
mod commands;
mod config;
mod connect;
mod connect_run;
mod console;
mod demo;
mod docs;
mod doctor;
mod documents;
mod fidelity;
mod keys;
mod listen;
mod master_key;
mod nodes;
mod packaging;
mod redaction;
mod reload;
mod reports;
mod retention;
mod rotation;
mod secrets;
mod serve;
mod sign_in;
mod sim;
mod store;
mod support;
mod terminal;
mod traces;
