//! How a simulator is started.

use std::net::{Ipv4Addr, SocketAddr};

use jiff::civil::Date;
use throughline_codec::Catalog;

use crate::faults::Fault;
use crate::script::Script;

/// How a simulator is started. The default listens on any free port of this machine only.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to listen.
    pub listen: SocketAddr,
    /// Where all keys, ids and choices follow from.
    pub seed: u64,
    /// What to answer, instead of what the simulator would think of.
    pub script: Script,
    /// How to spoil answers.
    pub faults: Vec<Fault>,
    /// Whether all tools are called at once when the request does not say.
    pub parallel: bool,
    /// When the accounts were created. Claude checks prefixes for those created from 2026-08-31 on.
    pub account_created: Date,
    /// The endpoints and model families.
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
