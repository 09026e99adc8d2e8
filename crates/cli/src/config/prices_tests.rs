//! Tests of the price table.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use throughline_codec::KnownModel;
use throughline_core::Usage;
use throughline_json::Name;
use throughline_server::Prices as _;

use super::*;

#[derive(Deserialize)]
struct PriceFile {
    version: String,
    unpriced: BTreeMap<String, String>,
}

fn table() -> PriceTable {
    PriceTable::with(Prices::default())
}

fn input(provider: &str, model: &str) -> Option<u64> {
    table().price(provider, model).map(|price| price.base.input)
}

#[test]
fn every_catalog_model_is_priced_or_listed_as_unpriced() {
    let file: PriceFile = toml::from_str(BUILTIN).unwrap();
    let table = table();
    for model in KnownModel::all() {
        let provider = model.provider.as_deref().unwrap_or("");
        let is_priced = table.price(provider, &model.name).is_some();
        let is_listed = file.unpriced.contains_key(&model.name);
        assert_ne!(is_priced, is_listed, "{}: add a price or a date under [unpriced]", model.name);
    }
    for (name, date) in &file.unpriced {
        assert!(KnownModel::all().iter().any(|model| model.name == *name), "{name}");
        assert!(date.parse::<jiff::civil::Date>().is_ok(), "{name} = {date:?}");
    }
}

#[test]
fn version_names_the_published_data() {
    let file: PriceFile = toml::from_str(BUILTIN).unwrap();
    let lock = include_str!("../../../../Cargo.lock");
    let (_, entry) = lock.split_once("name = \"genai-prices\"\nversion = \"").unwrap();
    let (version, _) = entry.split_once('"').unwrap();
    let expected = format!("genai-prices {version}, own rows of ");
    assert!(file.version.starts_with(&expected), "{:?}: write {expected:?}", file.version);
}

#[test]
fn longest_pattern_wins_and_overrides_take_precedence() {
    assert_eq!(input("openai", "gpt-5.2-2025-12-11"), Some(1_750_000));
    assert_eq!(input("openai", "gpt-5-mini"), Some(250_000));
    assert_eq!(input("anthropic", "claude-opus-4-1-20250805"), Some(15_000_000));
    assert_eq!(input("openrouter", "anthropic/claude-haiku-4.5"), Some(1_000_000));
    assert_eq!(input("anthropic", "claude-fable-5-2"), Some(8_000_000), "an own row");
    assert_eq!(input("openai", "gpt-99"), None);
    let own = Price { input: Some(7), ..Price::default() };
    let table = PriceTable::with(Prices(vec![(Name::from("gpt-5*"), own)]));
    let price = table.price("openai", "gpt-5.2").unwrap().base;
    assert_eq!((price.input, price.output, price.cached), (7, 14_000_000, 175_000));
    assert_eq!(table.price("openai", "gpt-5-9"), None, "its output price is unknown");
    assert!(table.version().ends_with("and throughline.toml"));
}

#[test]
fn simulators_and_local_servers_cost_nothing() {
    let usage = Usage { input: 900_000, cached: 5, written: 7, output: 1000, thought: 10 };
    for provider in ["sim", "ollama", "vllm", "llamacpp"] {
        for model in ["claude-sonnet-4-5", "gpt-5.2", "gemini-2.5-pro", "unknown"] {
            let price = table().price(provider, model).unwrap();
            assert_eq!(price.of(&usage), 0, "{provider}/{model}");
        }
    }
    // A configured price of a vendor's models does not apply to the simulators.
    let own = |pattern: &str| {
        let own = Price { input: Some(7), output: Some(7), ..Price::default() };
        let table = PriceTable::with(Prices(vec![(Name::from(pattern), own)]));
        table.price("sim", "claude-sonnet-4-5").unwrap().base.output
    };
    assert_eq!((own("claude-*"), own("sim/*"), own("sim/claude-*")), (0, 7, 7));
}

#[test]
fn prices_of_clouds_are_found_under_their_names() {
    assert_eq!(
        input("bedrock", "us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
        Some(3_300_000),
        "a regional profile has a surcharge"
    );
    assert_eq!(input("vertex-anthropic", "claude-sonnet-4-5@20250929"), Some(3_000_000));
    assert_eq!(input("vertex", "publishers/google/models/gemini-2.5-pro"), Some(1_250_000));
    assert_eq!(input("azure", "gpt-5"), Some(1_250_000));
    assert_eq!(input("my-gateway", "claude-opus-5-5"), Some(4_000_000), "the vendor's price");
}

#[test]
fn long_requests_cost_the_price_of_their_tier() {
    let price = table().price("gemini", "gemini-2.5-pro").unwrap();
    let tier = price.tiers[0].unwrap();
    assert_eq!(tier.above, 200_000);
    assert_eq!((price.base.input, price.base.output), (1_250_000, 10_000_000));
    assert_eq!((tier.prices.input, tier.prices.output), (2_500_000, 15_000_000));
    assert_eq!((price.base.cached, tier.prices.cached), (125_000, 250_000));
    assert_eq!(price.tiers[1], None);
    let cost = |input| price.of(&Usage { input, output: 1000, ..Usage::default() });
    assert_eq!(cost(200_000), 200_000 * 1_250_000 + 1000 * 10_000_000);
    assert_eq!(cost(200_001), 200_001 * 2_500_000 + 1000 * 15_000_000);
}

#[test]
fn price_follows_the_time_of_day() {
    let price = |at: &str| {
        let at: Timestamp = at.parse().unwrap();
        published("deepseek", "deepseek-v4-flash", at).unwrap().base.input
    };
    assert_eq!(price("2026-11-18T00:59:59Z"), 150_000);
    assert_eq!(price("2026-11-18T01:00:00Z"), 300_000);
    assert_eq!(price("2026-11-18T04:00:00Z"), 150_000);
}

#[test]
fn call_cost_is_the_sum_of_its_tokens() {
    let price = table().price("anthropic", "claude-sonnet-4-5");
    let usage = Usage { input: 1000, cached: 500, written: 100, output: 10, thought: 5 };
    // 400 tokens at $3 per million, 500 at $0.30, 100 at $3.75 and 10 at $15.
    assert_eq!(price.unwrap().of(&usage), 1_200_000_000 + 150_000_000 + 375_000_000 + 150_000_000);
}
