//! Strict stand-ins for the providers of reasoning models: they think, sign, verify and refuse as the real ones do.
//!
//! One process answers on all five wires at their real paths, so that anyone's tests can check how reasoning is sent
//! back, with no key and no network:
//!
//! ```no_run
//! # async fn example() -> std::io::Result<()> {
//! use throughline_sim::{Options, start};
//!
//! let simulator = start(Options::default()).await?;
//! let base_url = simulator.url(); // give it to any official client as its base URL
//! // … talk to it …
//! assert!(simulator.ledger().is_content());
//! simulator.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! Everything follows from the seed and the requests: the same requests get the same answers, byte for byte, whatever
//! else is asked meanwhile. A path may begin with `/at/{row}`, where `row` is a provider of the catalog; otherwise the wire
//! and the model's name decide whose stand-in answers.
//!
//! | header | effect on one request |
//! |---|---|
//! | `x-sim-parallel: true` | all tools are called at once |
//! | `x-sim-fault: cut@200` | the answer is spoiled: see [`Fault`] |
//! | `x-sim-account-created: 2026-01-31` | the account is that old |
//!
//! `GET /sim/ledger` tells what was sealed and what came back: see [`Ledger`].

mod account;
mod cache;
mod digest;
mod faults;
mod keys;
mod ledger;
mod mind;
mod options;
mod route;
mod schema;
mod script;
mod server;
mod stream;
mod turn;
mod wires;
mod world;

pub use crate::faults::{Fault, FaultKind, InvalidFault};
pub use crate::ledger::{Entry, Issued, Ledger, Returned, Verdict};
pub use crate::options::Options;
pub use crate::script::{Script, ScriptError};
pub use crate::server::{Simulator, start};
