//! Usage and prices, and how usage is stored.
//!
//! All nodes append to one log of an internal tenant. So the records outlive the conversations they
//! are for, and cost one commit however many tenants there are. A record contains the usage since
//! the previous one.

use std::collections::BTreeMap;

use bytes::Bytes;
use throughline_core::{LogId, Tenant, Usage};
use throughline_json::{self as json, Json, Name, Node, Tree};

/// The prices of models.
pub trait Prices: Send + Sync {
    /// The price of that model at that provider; `None` if it is unknown. The result is cached, so
    /// it must never change.
    fn price(&self, provider: &str, model: &str) -> Option<Price>;

    /// The version of the price table.
    fn version(&self) -> &str;
}

/// A price table without prices.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPrices;

impl Prices for NoPrices {
    fn price(&self, _: &str, _: &str) -> Option<Price> {
        None
    }

    fn version(&self) -> &'static str {
        "none"
    }
}

/// The price of a model in millionths of a dollar per million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Price {
    /// Input that was not cached.
    pub input: u64,
    /// Input that was read from a cache.
    pub cached: u64,
    /// Input that was written to a cache.
    pub written: u64,
    /// Output.
    pub output: u64,
}

impl Price {
    /// The cost of that usage in millionths of a millionth of a dollar, exact for a single token.
    pub fn of(&self, usage: &Usage) -> u64 {
        let parts = [
            (self.input, usage.uncached_input()),
            (self.cached, usage.cached),
            (self.written, usage.written),
            (self.output, usage.output),
        ];
        parts
            .iter()
            .fold(0, |sum: u64, (price, tokens)| sum.saturating_add(price.saturating_mul(*tokens)))
    }
}

/// The tenant, key, provider and model that usage is charged to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UsageKey {
    /// The tenant that owns the conversation.
    pub tenant: Tenant,
    /// The id of the key; `None` if the gateway is open.
    pub key: Option<Name>,
    /// The provider that answered.
    pub provider: Name,
    /// The provider's name for the model.
    pub model: Name,
}

/// An amount of usage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageAmount {
    /// Number of replies.
    pub calls: u64,
    /// Number of replies whose price is unknown.
    pub unpriced: u64,
    /// Tokens by kind.
    pub tokens: Usage,
    /// Cost in millionths of a millionth of a dollar.
    pub pico_usd: u64,
}

impl UsageAmount {
    /// The usage of one reply.
    pub(crate) fn for_one_call(tokens: Usage, price: Option<Price>) -> Self {
        let pico_usd = price.map_or(0, |price| price.of(&tokens));
        Self { calls: 1, unpriced: u64::from(price.is_none()), tokens, pico_usd }
    }

    /// Cost in millionths of a dollar, rounded down.
    pub fn micro_usd(&self) -> u64 {
        self.pico_usd / 1_000_000
    }

    /// Adds another amount.
    pub fn add(&mut self, other: &Self) {
        let mine = self.amounts_mut();
        for (mine, theirs) in mine.into_iter().zip(other.amounts()) {
            *mine.1 = mine.1.saturating_add(theirs.1);
        }
    }

    /// All amounts, with their names in stored records.
    fn amounts(&self) -> [(&'static str, u64); 8] {
        let mut copy = *self;
        copy.amounts_mut().map(|(name, number)| (name, *number))
    }

    fn amounts_mut(&mut self) -> [(&'static str, &mut u64); 8] {
        [
            ("calls", &mut self.calls),
            ("unpriced", &mut self.unpriced),
            ("input", &mut self.tokens.input),
            ("cached", &mut self.tokens.cached),
            ("written", &mut self.tokens.written),
            ("output", &mut self.tokens.output),
            ("thought", &mut self.tokens.thought),
            ("pico_usd", &mut self.pico_usd),
        ]
    }
}

/// Usage by tenant, key, provider and model.
pub(crate) type UsageRows = BTreeMap<UsageKey, UsageAmount>;

/// One row of the usage ledger.
pub type UsageRow = (UsageKey, UsageAmount);

/// The kind of a usage record.
pub(crate) const KIND: &str = "usage";

/// The tenant and the log that contain the usage ledger.
pub fn usage_log() -> (Tenant, LogId) {
    (Tenant::from("throughline-usage"), LogId::from("usage"))
}

/// Encodes rows as the content of a record.
pub(crate) fn record(rows: &UsageRows, prices: &str) -> Json {
    json::object(|o| {
        o.number("v", 1).string("prices", prices).array("rows", |a| {
            for (line, used) in rows {
                a.object(|o| {
                    o.string("tenant", &line.tenant.0).maybe_string("key", line.key.as_deref());
                    o.string("provider", &line.provider).string("model", &line.model);
                    for (name, number) in used.amounts().iter().filter(|(_, number)| *number > 0) {
                        o.number(name, *number);
                    }
                });
            }
        });
    })
}

impl UsageKey {
    /// Decodes the rows of a record; empty if the record contains something else.
    pub fn lines(record: &Bytes) -> Vec<UsageRow> {
        let Ok(tree) = Tree::parse(record.clone()) else { return Vec::new() };
        let Some(rows) = tree.root().get("rows") else { return Vec::new() };
        rows.elements().filter_map(line).collect()
    }
}

fn line(row: Node<'_>) -> Option<UsageRow> {
    let line = UsageKey {
        tenant: Tenant(row.name_of("tenant")?),
        key: row.name_of("key"),
        provider: row.name_of("provider")?,
        model: row.name_of("model")?,
    };
    let mut used = UsageAmount::default();
    for (name, number) in used.amounts_mut() {
        *number = row.get(name).and_then(Node::u64).unwrap_or_default();
    }
    Some((line, used))
}
