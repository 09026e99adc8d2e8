//! Options of a simulator.

use std::net::{Ipv4Addr, SocketAddr};

use jiff::civil::Date;
use throughline_codec::SharedCatalog;

use crate::faults::Fault;
use crate::script::Script;

/// Text in a user message that makes the simulated model call all tools at once, unless the request
/// disables parallel calls. Unlike the header `x-sim-parallel`, the text reaches the simulator
/// through every gateway.
pub const PARALLEL_CALLS: &str = "SIM_PARALLEL_CALLS";

/// Options for a simulator. By default, the simulator listens on a free loopback port.
#[derive(Clone, Debug)]
pub struct Options {
    /// Address to listen on; port 0 selects a free port.
    pub listen: SocketAddr,
    /// Seed for all keys, ids and random choices.
    pub seed: u64,
    /// Scripted replies. The simulator generates a reply only if no scripted reply matches.
    pub script: Script,
    /// Faults to inject into responses.
    pub faults: Vec<Fault>,
    /// Whether models call all tools in parallel if the request does not set its own option for
    /// parallel calls.
    pub parallel: bool,
    /// Creation date of all accounts. Claude checks prefix binding for accounts created on or after
    /// 2026-08-31.
    pub account_created: Date,
    /// Providers and model families to simulate.
    pub catalog: SharedCatalog,
    /// Whether to keep the body of every request for
    /// [`Simulator::request_body`](crate::Simulator::request_body).
    pub keep_bodies: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            seed: 0,
            script: Script::default(),
            faults: Vec::new(),
            parallel: false,
            account_created: jiff::civil::date(2026, 9, 1),
            catalog: SharedCatalog::default(),
            keep_bodies: false,
        }
    }
}
