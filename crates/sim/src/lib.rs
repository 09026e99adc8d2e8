//! Simulates the providers of reasoning models. Like the real providers, the simulators issue and
//! verify Seals and reject invalid requests.
//!
//! One process serves all five wires at their real paths. Tests can therefore check the replay of
//! reasoning without an API key or network access:
//!
//! ```no_run
//! # async fn example() -> std::io::Result<()> {
//! use throughline_sim::{Options, start};
//!
//! let simulator = start(Options::default()).await?;
//! let base_url = simulator.url(); // the base URL for any official client
//! // … send requests …
//! assert!(simulator.ledger().all_verified());
//! simulator.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! Generated values such as texts, ids and Seals depend only on the seed, the request, and the
//! number of identical earlier requests. Concurrent requests do not change them. The path prefix
//! `/at/{row}` selects the provider named `row` in the catalog. Without the prefix, the wire and
//! the model name select the provider.
//!
//! | header | effect on one request |
//! |---|---|
//! | `x-sim-parallel: true` | the model calls all tools at once |
//! | `x-sim-fallback: true` | another Claude model continues the reply after the first thought |
//! | `x-sim-fault: cut@200` | injects a failure: see [`Fault`] |
//! | `x-sim-account-created: 2026-01-31` | sets the creation date of the account |
//!
//! `GET /sim/ledger` returns the ledger of issued and returned Seals; see [`Ledger`]. With
//! `?after=N`, it returns only the entries after request number N. `PUT /sim/script` replaces the
//! [`Script`].

mod account;
mod agent_tools;
mod cache;
mod digest;
mod faults;
mod keys;
mod ledger;
mod options;
mod placeholder;
mod planner;
mod prompt_values;
mod route;
mod schema;
mod schema_merge;
mod schema_text;
mod script;
mod script_keys;
mod server;
mod state;
mod stored;
mod stream;
mod turn;
mod websocket;
mod wires;

pub use crate::faults::{Fault, FaultKind, InvalidFault};
pub use crate::ledger::{IssuedSeal, Ledger, LedgerEntry, ReturnedSeal, Verdict};
pub use crate::options::{Options, PARALLEL_CALLS};
pub use crate::script::{Script, ScriptError};
pub use crate::server::{LedgerReader, Simulator, start};
