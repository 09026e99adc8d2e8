//! Options of a simulator.

use std::net::{Ipv4Addr, SocketAddr};

use jiff::civil::Date;
use throughline_codec::Catalog;

use crate::faults::Fault;
use crate::script::Script;

/// Configures a simulator. The default listens on a free loopback port.
#[derive(Clone, Debug)]
pub struct Options {
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Seed of all keys, ids and choices.
    pub seed: u64,
    /// Scripted replies, which take precedence over generated ones.
    pub script: Script,
    /// Faults to inject into responses.
    pub faults: Vec<Fault>,
    /// Whether models call all tools at once if the request does not specify it.
    pub parallel: bool,
    /// Creation date of the accounts. Claude checks prefixes for accounts created on or after
    /// 2026-08-31.
    pub account_created: Date,
    /// The provider endpoints and model families.
    pub catalog: Catalog,
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
            catalog: Catalog::builtin().clone(),
        }
    }
}
