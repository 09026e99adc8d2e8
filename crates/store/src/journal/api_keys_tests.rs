//! Tests of API key limits.

use throughline_core::{BudgetPeriod, KeyRole};
use throughline_json::Json;

use super::KeyLimits;

fn full_limits() -> KeyLimits {
    KeyLimits {
        role: Some(KeyRole::Viewer),
        models: vec!["claude-*".into(), "gpt-5".into()],
        budget_micro_usd: Some(2_500_000),
        budget_tokens: Some(1_000),
        budget_period: Some(BudgetPeriod::Month),
        soft_limit_percent: Some(80),
        requests_per_minute: Some(60),
        tokens_per_minute: Some(500),
    }
}

#[test]
fn limits_round_trip_through_json() {
    for limits in [KeyLimits::default(), full_limits()] {
        assert_eq!(KeyLimits::read(limits.json().as_str()), Some(limits));
    }
    assert_eq!(KeyLimits::default().json().as_str(), "{}");
    assert_eq!(
        full_limits().json().as_str(),
        r#"{"models":["claude-*","gpt-5"],"budget_micro_usd":2500000,"budget_tokens":1000,"requests_per_minute":60,"tokens_per_minute":500,"soft_limit_percent":80,"budget_period":"month","role":"viewer"}"#
    );
}

#[test]
fn limits_of_earlier_versions_are_total_budgets() {
    let stored = r#"{"budget_micro_usd":5,"budget_tokens":7,"requests_per_minute":9}"#;
    let expected = KeyLimits {
        budget_micro_usd: Some(5),
        budget_tokens: Some(7),
        requests_per_minute: Some(9),
        ..KeyLimits::default()
    };
    assert_eq!(KeyLimits::read(stored), Some(expected.clone()));
    // Limits without the new members are stored as before.
    assert_eq!(expected.json().as_str(), stored);
}

#[test]
fn unknown_limit_is_rejected() {
    for text in [
        r#"{"region":"eu"}"#,
        r#"{"budget_tokens":-1}"#,
        r#"{"budget_tokens":null}"#,
        r#"{"models":[1]}"#,
        r#"{"models":"gpt-5"}"#,
        r#"{"requests_per_minute":4294967296}"#,
        r#"{"budget_period":"year"}"#,
        r#"{"budget_period":"minute"}"#,
        r#"{"role":"admin"}"#,
        r#"{"role":null}"#,
        "[]",
        "",
    ] {
        assert_eq!(KeyLimits::read(text), None, "{text}");
    }
}

#[test]
fn models_are_allowed_by_pattern() {
    let limits = full_limits();
    assert!(limits.allows("claude-sonnet-5") && limits.allows("gpt-5"));
    assert!(!limits.allows("gpt-5-mini") && !limits.allows("work/claude-sonnet-5"));
    assert!(KeyLimits::default().allows("anything"));
}

#[test]
fn changes_replace_and_remove_limits() {
    let changed = |text: &str| full_limits().changed(&Json::parse(text.to_owned()).unwrap());
    let expected = KeyLimits {
        role: Some(KeyRole::Operator),
        models: Vec::new(),
        budget_tokens: None,
        budget_period: None,
        ..full_limits()
    };
    let text = r#"{"role":"operator","models":null,"budget_tokens":null,"budget_period":"total"}"#;
    assert_eq!(changed(text).unwrap(), expected);
    assert_eq!(changed(r#"{"role":null}"#).unwrap().role, None);
    assert_eq!(changed("{}").unwrap(), full_limits());
    for text in [
        r#"{"role":"admin"}"#,
        r#"{"region":"eu"}"#,
        r#"{"region":null}"#,
        r#"{"budget_tokens":"many"}"#,
        r#"{"soft_limit_percent":101}"#,
        r#"{"requests_per_minute":0}"#,
        r#"{"budget_tokens":0}"#,
        "[]",
    ] {
        assert!(changed(text).is_err(), "{text}");
    }
}

#[test]
fn period_and_soft_limit_need_a_budget() {
    let changed =
        |known: &KeyLimits, text: &str| known.changed(&Json::parse(text.to_owned()).unwrap());
    let none = KeyLimits::default();
    for (text, name) in [
        (r#"{"budget_period":"day"}"#, "budget_period"),
        (r#"{"soft_limit_percent":80,"models":["gpt-5"]}"#, "soft_limit_percent"),
    ] {
        let refused = changed(&none, text).unwrap_err().to_string();
        assert!(refused.contains(&format!("`{name}` needs a budget")), "{refused}");
    }
    assert_eq!(changed(&none, r#"{"budget_period":"total"}"#).unwrap(), none);
    let limited = changed(&none, r#"{"budget_tokens":9,"budget_period":"day"}"#).unwrap();
    assert_eq!(limited.budget_period, Some(BudgetPeriod::Day));
    let with_soft_limit = changed(&limited, r#"{"soft_limit_percent":80}"#).unwrap();
    let without_budget = changed(&with_soft_limit, r#"{"budget_tokens":null}"#).unwrap();
    assert_eq!(without_budget, none);
    // A client that sends all limits repeats the soft limit.
    let repeated = r#"{"budget_tokens":null,"soft_limit_percent":80,"requests_per_minute":9}"#;
    let expected = KeyLimits { requests_per_minute: Some(9), ..none };
    assert_eq!(changed(&with_soft_limit, repeated).unwrap(), expected);
}
