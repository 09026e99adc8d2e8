//! Gateway tests with real clients, in one binary so that shared code is built and linked once.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::missing_panics_doc,
    reason = "a test fails by panicking, and may read the clock"
)]

mod append;
mod budgets;
mod call_records;
mod catalog;
mod chain;
mod claims;
mod clouds;
mod common;
mod compaction;
mod compressed;
mod content;
mod continuation;
mod count;
mod dialects;
mod door;
mod fidelity;
mod growing;
mod harness;
mod hold;
mod house;
mod isolation;
mod letta;
mod lossy;
mod minds;
mod model_lists;
mod models;
mod namespaces;
mod native_items;
mod outage;
mod outage_load;
mod plain;
mod pools;
mod prefix;
mod provider_headers;
mod provider_keys;
mod recordings;
mod responses;
mod restore;
mod sdk;
mod steps;
mod usage;
mod visible;
mod websocket;
mod websocket_limits;
