//! What was used, for whom, at which price; and how that is kept.
//!
//! All nodes append to one log of a tenant of our own: so the account outlives the conversations that it was for, and costs one
//! commit however many tenants there are. A record holds what was used since the last one.

use std::collections::BTreeMap;

use bytes::Bytes;
use throughline_core::{Json, LogId, Name, Node, Tenant, Tree, Usage, json};

/// What tokens cost.
pub trait Prices: Send + Sync {
    /// What that provider takes for that model; nothing where nobody knows. It is asked once, and must always say the same.
    fn price(&self, provider: &str, model: &str) -> Option<Price>;

    /// The version of the table.
    fn version(&self) -> &str;
}

/// Nothing has a price.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unpriced;

impl Prices for Unpriced {
    fn price(&self, _: &str, _: &str) -> Option<Price> {
        None
    }

    fn version(&self) -> &'static str {
        "none"
    }
}

/// What a model costs, in millionths of a dollar per million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Price {
    /// Input that no cache knew.
    pub input: u64,
    /// Input that was read from a cache.
    pub cached: u64,
    /// Input that was written to a cache.
    pub written: u64,
    /// Output.
    pub output: u64,
}

impl Price {
    /// What that costs, in millionths of a millionth of a dollar: exact for a single token.
    pub fn of(&self, usage: &Usage) -> u64 {
        let parts = [
            (self.input, usage.fresh()),
            (self.cached, usage.cached),
            (self.written, usage.written),
            (self.output, usage.output),
        ];
        parts
            .iter()
            .fold(0, |sum: u64, (price, tokens)| sum.saturating_add(price.saturating_mul(*tokens)))
    }
}

/// For whom and for what something was used.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UsedFor {
    /// Whose conversation it was.
    pub tenant: Tenant,
    /// The id of the key; none where the gateway is open.
    pub key: Option<Name>,
    /// Who answered.
    pub provider: Name,
    /// The model as it is called there.
    pub model: Name,
}

/// What was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Answers.
    pub calls: u64,
    /// Answers whose price nobody knows.
    pub unpriced: u64,
    /// Tokens.
    pub tokens: Usage,
    /// Money, in millionths of a millionth of a dollar.
    pub pico_usd: u64,
}

impl Used {
    /// One answer.
    pub(crate) fn once(tokens: Usage, price: Option<Price>) -> Self {
        Self::of(1, tokens, price)
    }

    /// So many answers at one price.
    pub(crate) fn of(calls: u64, tokens: Usage, price: Option<Price>) -> Self {
        let pico_usd = price.map_or(0, |price| price.of(&tokens));
        Self { calls, unpriced: if price.is_none() { calls } else { 0 }, tokens, pico_usd }
    }

    /// Money, in millionths of a dollar. What is less than one is none.
    pub fn micro_usd(&self) -> u64 {
        self.pico_usd / 1_000_000
    }

    /// Adds the other to it.
    pub fn add(&mut self, other: &Self) {
        let mine = self.numbers_mut();
        for (mine, theirs) in mine.into_iter().zip(other.numbers()) {
            *mine.1 = mine.1.saturating_add(theirs.1);
        }
    }

    /// All of it, by the names that programs are told.
    fn numbers(&self) -> [(&'static str, u64); 8] {
        let mut copy = *self;
        copy.numbers_mut().map(|(name, number)| (name, *number))
    }

    fn numbers_mut(&mut self) -> [(&'static str, &mut u64); 8] {
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

/// Sums, by for whom and for what.
pub(crate) type Rows = BTreeMap<UsedFor, Used>;

/// One line of the account.
pub type UsageRow = (UsedFor, Used);

/// The kind of a record.
pub(crate) const KIND: &str = "usage";

/// Where the account is kept.
pub fn usage_log() -> (Tenant, LogId) {
    (Tenant::from("throughline-usage"), LogId::from("usage"))
}

/// The lines as a record keeps them.
pub(crate) fn record(rows: &Rows, prices: &str) -> Json {
    json::object(|o| {
        o.number("v", 1).string("prices", prices).array("rows", |a| {
            for (whom, used) in rows {
                a.object(|o| {
                    o.string("tenant", &whom.tenant.0).maybe_string("key", whom.key.as_deref());
                    o.string("provider", &whom.provider).string("model", &whom.model);
                    for (name, number) in used.numbers().iter().filter(|(_, number)| *number > 0) {
                        o.number(name, *number);
                    }
                });
            }
        });
    })
}

impl UsedFor {
    /// The lines of a record; none where it holds something else.
    pub fn lines(record: &Bytes) -> Vec<UsageRow> {
        let Ok(tree) = Tree::parse(record.clone()) else { return Vec::new() };
        let Some(rows) = tree.root().get("rows") else { return Vec::new() };
        rows.elements().filter_map(line).collect()
    }
}

fn line(row: Node<'_>) -> Option<UsageRow> {
    let whom = UsedFor {
        tenant: Tenant(row.name_of("tenant")?),
        key: row.name_of("key"),
        provider: row.name_of("provider")?,
        model: row.name_of("model")?,
    };
    let mut used = Used::default();
    for (name, number) in used.numbers_mut() {
        *number = row.get(name).and_then(Node::u64).unwrap_or_default();
    }
    Some((whom, used))
}
