//! Defines usage and prices, and encodes usage for the store.
//!
//! All nodes append to one log of an internal tenant. The records therefore outlive the
//! conversations that caused the usage, and one commit covers all tenants. Each record contains the
//! usage of one node since that node's previous record.

use std::collections::BTreeMap;

use bytes::Bytes;
use throughline_core::{LogId, Tenant, Usage};
use throughline_json::{self as json, Json, Name, Node, Tree};

/// A price table for models.
pub trait Prices: Send + Sync {
    /// Returns the current price of a model at a provider; `None` if unknown. The gateway requests
    /// the price for each call, so implementations cache it.
    fn price(&self, provider: &str, model: &str) -> Option<Price>;

    /// Returns the version of the current prices. The version is stored with the usage.
    fn version(&self) -> Name;
}

/// A price table without prices.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPrices;

impl Prices for NoPrices {
    fn price(&self, _: &str, _: &str) -> Option<Price> {
        None
    }

    fn version(&self) -> Name {
        "none".into()
    }
}

/// The price of a model: the price of a token, which may be higher for requests with much input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Price {
    /// The prices of requests whose input is in no tier.
    pub base: TokenPrices,
    /// The prices of larger requests, smallest first. A tier applies to all tokens of a request.
    pub tiers: [Option<PriceTier>; 2],
}

/// The prices of requests with more than a number of input tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriceTier {
    /// The tier applies to requests with more input tokens than this.
    pub above: u64,
    /// The prices of all tokens of these requests.
    pub prices: TokenPrices,
}

/// Prices by kind of token, in millionths of a dollar per million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenPrices {
    /// Input tokens that were not cached.
    pub input: u64,
    /// Input tokens that were read from a cache.
    pub cached: u64,
    /// Input tokens that were written to a cache.
    pub written: u64,
    /// Output tokens.
    pub output: u64,
}

impl Price {
    /// Returns a price that does not depend on the size of the request.
    pub fn flat(base: TokenPrices) -> Self {
        Self { base, tiers: [None; 2] }
    }

    /// Returns the cost of this usage in trillionths of a dollar, which is exact even for a single
    /// token.
    pub fn of(&self, usage: &Usage) -> u64 {
        let mut tiers = self.tiers.iter().flatten().filter(|tier| usage.input > tier.above);
        let prices = tiers.next_back().map_or(self.base, |tier| tier.prices);
        let parts = [
            (prices.input, usage.uncached_input()),
            (prices.cached, usage.cached),
            (prices.written, usage.written),
            (prices.output, usage.output),
        ];
        parts
            .iter()
            .fold(0, |sum: u64, (price, tokens)| sum.saturating_add(price.saturating_mul(*tokens)))
    }

    /// Estimates how much prompt caches reduced the cost of this usage, at the base prices and in
    /// trillionths of a dollar. The estimate is negative if writing to the caches cost more.
    pub(crate) fn cache_savings(&self, usage: &Usage) -> i128 {
        let TokenPrices { input, cached, written, .. } = self.base;
        let saved = |price: u64, tokens: u64| {
            (i128::from(input) - i128::from(price)).saturating_mul(i128::from(tokens))
        };
        saved(cached, usage.cached).saturating_add(saved(written, usage.written))
    }
}

/// The tenant, key, provider and model to which usage is charged.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UsageKey {
    /// The tenant that owns the conversation.
    pub tenant: Tenant,
    /// The id of the key; `None` if the gateway has no keys.
    pub key: Option<Name>,
    /// The provider that returned the reply.
    pub provider: Name,
    /// The provider's name for the model.
    pub model: Name,
}

/// The number of replies, their tokens and their cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageAmount {
    /// Number of replies.
    pub calls: u64,
    /// Number of replies whose price is unknown.
    pub unpriced: u64,
    /// Tokens by kind, such as input, cached input and output.
    pub tokens: Usage,
    /// Cost in trillionths of a dollar.
    pub pico_usd: u64,
}

impl UsageAmount {
    /// Returns the usage of one reply.
    pub(crate) fn for_one_call(tokens: Usage, price: Option<Price>) -> Self {
        let pico_usd = price.map_or(0, |price| price.of(&tokens));
        Self { calls: 1, unpriced: u64::from(price.is_none()), tokens, pico_usd }
    }

    /// Returns the cost in millionths of a dollar, rounded down.
    pub fn micro_usd(&self) -> u64 {
        self.pico_usd / 1_000_000
    }

    /// Adds the replies, tokens and cost of `other` to this amount.
    pub fn add(&mut self, other: &Self) {
        let mine = self.amounts_mut();
        for (mine, theirs) in mine.into_iter().zip(other.amounts()) {
            *mine.1 = mine.1.saturating_add(theirs.1);
        }
    }

    /// Returns all amounts, each with its field name in stored records.
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

/// An entry of the usage ledger: an amount, and the tenant, key, provider and model that the amount
/// is charged to.
pub type UsageRow = (UsageKey, UsageAmount);

pub(crate) const KIND: &str = "usage";

/// Returns the tenant and the log that contain the usage ledger.
pub fn usage_log() -> (Tenant, LogId) {
    (Tenant::from("throughline-usage"), LogId::from("usage"))
}

/// Encodes ledger entries and the version of the price table as a usage record.
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
    /// Decodes the ledger entries of a usage record; empty for any other record.
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
