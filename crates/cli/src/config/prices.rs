//! Model prices: the published prices of `genai-prices`, own rows for other models, and the
//! configuration, which overrides both.
//!
//! The crate computes costs but does not expose prices. [`published`] therefore derives the price
//! per token, and the input sizes at which a higher price starts, from the costs of single calls.
//! Some prices depend on the time of day or start on a date, so a derived price is cached for the
//! current hour only.

use std::sync::{Arc, PoisonError, RwLock};

use genai_prices::{Calculator, PriceRequest, Usage, UsageKey};
use jiff::Timestamp;
use throughline_core::Memoized;
use throughline_json::Name;
use throughline_server::{Price as Known, PriceTier, TokenPrices};

use crate::clock;
use crate::config::{Price, Prices, price_table};

#[cfg(test)]
#[path = "prices_tests.rs"]
mod prices_tests;

const BUILTIN: &str = include_str!("prices.toml");

/// Names of the catalog's providers in the published data, where they differ.
const PUBLISHED_NAMES: [(&str, &str); 16] = [
    ("openai-chat", "openai"),
    ("azure-chat", "azure"),
    ("gemini", "google"),
    ("vertex", "google"),
    ("bedrock", "aws"),
    ("bedrock-mantle", "aws"),
    ("azure-anthropic", "anthropic"),
    ("vertex-anthropic", "google"),
    ("bedrock-mantle-anthropic", "aws"),
    ("anthropic-aws", "anthropic"),
    ("anthropic-google", "anthropic"),
    ("deepseek-responses", "deepseek"),
    ("deepseek-anthropic", "deepseek"),
    ("xai", "x-ai"),
    ("xai-chat", "x-ai"),
    ("moonshot", "moonshotai"),
];

/// The provider name of the simulators.
const SIMULATORS: &str = "sim";

/// An input size above the size of every request.
const LARGEST_INPUT: u64 = 1 << 30;

pub(crate) struct PriceTable {
    version: Name,
    builtin: Prices,
    own: Prices,
    cached: Memoized<Option<Known>>,
}

impl PriceTable {
    /// Combines the built-in prices with the configured prices.
    pub(crate) fn with(own: Prices) -> Self {
        let (version, builtin) = price_table(BUILTIN);
        let version =
            if own.0.is_empty() { version } else { format!("{version} and throughline.toml") };
        let version = Name::from(version);
        Self { version, builtin, own, cached: Memoized::default() }
    }

    /// Returns the prices of a model for requests with little input. Each unknown price is `None`.
    pub(crate) fn known_price(&self, provider: &str, model: &str) -> Price {
        let own = self.own_price(provider, model);
        let builtin = self.builtin_price(provider, model, clock::now());
        merged(own, builtin.map(|price| price.base))
    }

    /// Returns the configured prices of a model. A pattern for models of a vendor, such as
    /// `claude-*`, does not apply to the simulators.
    fn own_price(&self, provider: &str, model: &str) -> Price {
        let applies = |pattern: &str| provider != SIMULATORS || pattern.contains('/');
        self.own.price_where(provider, model, applies).unwrap_or_default()
    }

    /// Returns the price of a model at a time, without the configured prices.
    fn builtin_price(&self, provider: &str, model: &str, at: Timestamp) -> Option<Known> {
        match self.builtin.price_for(provider, model) {
            Some(row) => complete(row).map(Known::flat),
            None => published(provider, model, at),
        }
    }

    fn price_at(&self, provider: &str, model: &str, at: Timestamp) -> Option<Known> {
        let own = self.own_price(provider, model);
        let builtin = self.builtin_price(provider, model, at);
        let base = complete(merged(own, builtin.map(|price| price.base)))?;
        let mut price = Known::flat(base);
        if let Some(builtin) = builtin {
            price.tiers = builtin.tiers.map(|tier| {
                let tier = tier?;
                let prices = complete(merged(own, Some(tier.prices)))?;
                Some(PriceTier { prices, ..tier })
            });
        }
        Some(price)
    }
}

impl throughline_server::Prices for PriceTable {
    fn price(&self, provider: &str, model: &str) -> Option<Known> {
        let at = clock::now();
        let hour = at.as_second().div_euclid(3600).to_string();
        let name = [provider, "\n", model, "\n", &hour].concat();
        self.cached.get_or_insert_with(&name, || self.price_at(provider, model, at))
    }

    fn version(&self) -> Name {
        self.version.clone()
    }
}

/// The prices in effect. A reload of the configuration replaces them for new calls.
pub(crate) struct SharedPrices(RwLock<Arc<PriceTable>>);

impl SharedPrices {
    pub(crate) fn new(own: Prices) -> Self {
        Self(RwLock::new(Arc::new(PriceTable::with(own))))
    }

    /// Replaces the configured prices.
    pub(crate) fn replace(&self, own: Prices) {
        let table = Arc::new(PriceTable::with(own));
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = table;
    }

    fn current(&self) -> Arc<PriceTable> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl throughline_server::Prices for SharedPrices {
    fn price(&self, provider: &str, model: &str) -> Option<Known> {
        self.current().price(provider, model)
    }

    fn version(&self) -> Name {
        self.current().version()
    }
}

/// Returns the configured prices, and the built-in price where none is configured.
fn merged(own: Price, builtin: Option<TokenPrices>) -> Price {
    Price {
        input: own.input.or(builtin.map(|price| price.input)),
        output: own.output.or(builtin.map(|price| price.output)),
        cached: own.cached.or(builtin.map(|price| price.cached)),
        written: own.written.or(builtin.map(|price| price.written)),
    }
}

/// Fills in the cache prices; `None` if the input or the output price is unknown.
fn complete(Price { input, output, cached, written }: Price) -> Option<TokenPrices> {
    let (input, output) = (input?, output?);
    let (cached, written) = (cached.unwrap_or(input), written.unwrap_or(input));
    Some(TokenPrices { input, cached, written, output })
}

/// Returns the published price of a model at a time. A provider that the data does not know charges
/// the vendor's price.
fn published(provider: &str, model: &str, at: Timestamp) -> Option<Known> {
    let named = PUBLISHED_NAMES.iter().find(|(name, _)| *name == provider);
    let named = named.map_or(provider, |(_, published)| published);
    let short_name = model.rsplit('/').next().unwrap_or(model);
    let known = Calculator::bundled().find_provider(Some(named), None).ok().flatten();
    let named = known.map(|_| named);
    let mut lookups = [(named, model), (named, short_name)].into_iter();
    let lookup = lookups.find(|lookup| token_prices(*lookup, 1, at).is_some())?;
    let base = token_prices(lookup, 1, at)?;
    let mut price = Known::flat(base);
    let (mut last, mut above) = (base, 1);
    for tier in &mut price.tiers {
        if token_prices(lookup, LARGEST_INPUT, at)? == last {
            break;
        }
        // The largest input at which the last prices still apply.
        let mut beyond = LARGEST_INPUT;
        while above + 1 < beyond {
            let middle = above.midpoint(beyond);
            if token_prices(lookup, middle, at)? == last {
                above = middle;
            } else {
                beyond = middle;
            }
        }
        last = token_prices(lookup, beyond, at)?;
        *tier = Some(PriceTier { above, prices: last });
        above = beyond;
    }
    Some(price)
}

/// Returns the prices per token of a call with `input` input tokens.
fn token_prices(
    (provider, model): (Option<&str>, &str),
    input: u64,
    at: Timestamp,
) -> Option<TokenPrices> {
    // Output tokens are priced at the tier of the call's input.
    const OUTPUT: u64 = 1000;
    let cost = |cached: u64, written: u64, output: u64| {
        let counts = [
            (UsageKey::INPUT_TOKENS, input),
            (UsageKey::CACHE_READ_TOKENS, cached),
            (UsageKey::CACHE_WRITE_TOKENS, written),
            (UsageKey::OUTPUT_TOKENS, output),
        ];
        #[expect(clippy::cast_precision_loss, reason = "the counts are small")]
        let counts = counts.into_iter().filter(|(_, count)| *count > 0).map(|(k, n)| (k, n as f64));
        let usage: Usage = counts.collect();
        let mut request = PriceRequest::new(model, &usage).with_timestamp(at);
        if let Some(provider) = provider {
            request = request.with_provider_id(provider);
        }
        Calculator::bundled().calculate(&request).ok()
    };
    let plain = cost(0, 0, OUTPUT)?;
    Some(TokenPrices {
        input: per_million(plain.input_price, input)?,
        cached: per_million(cost(input, 0, 0)?.input_price, input)?,
        written: per_million(cost(0, input, 0)?.input_price, input)?,
        output: per_million(plain.output_price, OUTPUT)?,
    })
}

/// Returns the price in millionths of a dollar per million tokens, if `tokens` tokens cost so many
/// dollars.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the price is checked to be in the range"
)]
fn per_million(dollars: f64, tokens: u64) -> Option<u64> {
    let price = (dollars * 1e12 / tokens as f64).round();
    (0.0..1e15).contains(&price).then_some(price as u64)
}
