//! Tests of the pools of accounts in the configuration.

use std::sync::Arc;
use std::time::Duration;

use throughline_codec::{Catalog, SharedCatalog};
use throughline_core::{Credential as Key, Wire};
use throughline_server::{Balance, BoundPolicy, ModelRouter as _, PoolOptions};

use super::super::file::{ParsedConfig, read};
use super::super::routes::{AccountSettings, Credential};
use crate::credentials::SharedCredentials;
use crate::router::{ConfigRouter, endpoints};

const TWO: &str = r#"
[providers.openai]
base_url = "https://openai.example/v1"
pool = [
    { name = "openai", api_key_env = "KEY_A", weight = 2 },
    { name = "b", api_key = "sk-b" },
    { name = "unset", api_key_env = "NO_KEY" },
]
balance = "least-busy"
when_unavailable = "stay"
cooldown = "1m"
"#;

fn parse(text: &str) -> ParsedConfig {
    read(text, Catalog::builtin(), &|name| (name == "KEY_A").then(|| "sk-a".to_owned()))
}

fn errors(text: &str) -> Vec<String> {
    parse(text).errors.iter().map(ToString::to_string).collect()
}

#[test]
fn accounts_and_settings_are_parsed() {
    let ParsedConfig { config, errors, warnings, .. } = parse(TWO);
    assert_eq!(errors, []);
    let warnings: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(warnings, ["7:37: $NO_KEY is not set; this account cannot be used without it"]);
    let openai = config.routes.provider("openai").unwrap();
    let pool = openai.pool.as_ref().unwrap();
    let account =
        |name: &str, credential, weight| AccountSettings { name: name.into(), credential, weight };
    let own = |key: &str, variable: Option<&str>| Credential::Own {
        key: Key::new(key),
        variable: variable.map(Into::into),
    };
    assert_eq!(
        pool.accounts,
        [
            account("openai", own("sk-a", Some("KEY_A")), 2),
            account("b", own("sk-b", None), 1),
            account("unset", Credential::Missing { variable: "NO_KEY".into() }, 1),
        ]
    );
    let options = PoolOptions {
        balance: Balance::LeastBusy,
        bound: BoundPolicy::Stay,
        cooldown: Duration::from_mins(1),
    };
    assert_eq!(pool.options, options);
    assert_eq!(openai.credential, own("sk-a", Some("KEY_A")));
    // The vendor's other entry uses the same accounts.
    assert_eq!(config.routes.provider("openai-chat").unwrap().pool, openai.pool);
}

#[test]
fn each_usable_account_has_a_target_and_an_endpoint() {
    let config = parse(TWO).config;
    let catalog = SharedCatalog::default();
    let router = ConfigRouter::new(config.routes.clone(), catalog);
    let names = |model: &str| -> Vec<(String, String, String)> {
        let target = router.reach(model).unwrap().remove(0);
        let pool = router.pool(&target).unwrap();
        let accounts = target.at_accounts(&pool).into_iter();
        accounts
            .map(|one| {
                let charged = one.charged_provider().to_string();
                (one.endpoint.to_string(), one.account.to_string(), charged)
            })
            .collect()
    };
    let row = |endpoint: &str, account: &str, charged: &str| {
        (endpoint.to_owned(), account.to_owned(), charged.to_owned())
    };
    assert_eq!(
        names("gpt-5.2"),
        [row("openai#openai", "openai", "openai"), row("openai#b", "openai#b", "openai")]
    );
    assert_eq!(
        names("openai-chat/gpt-5.2"),
        [
            row("openai-chat#openai", "openai-chat", "openai-chat"),
            row("openai-chat#b", "openai#b", "openai-chat"),
        ]
    );
    let of_wire = router.of_wire(&Wire::OPENAI_RESPONSES).unwrap();
    assert_eq!(&*of_wire.endpoint, "openai#openai");
    let all = endpoints(&config, "http://127.0.0.1:1", &SharedCredentials::default()).unwrap();
    let pooled: Vec<&str> =
        all.iter().map(|one| &*one.name).filter(|name| name.starts_with("openai#")).collect();
    assert_eq!(pooled, ["openai#openai", "openai#b", "openai#unset"]);
    let b = all.iter().find(|one| &*one.name == "openai#b").unwrap();
    assert_eq!(b.base_url(), "https://openai.example/v1");
}

#[test]
fn pool_is_kept_after_a_reload_if_its_settings_stay_the_same() {
    let router =
        |text: &str| ConfigRouter::new(parse(text).config.routes.clone(), SharedCatalog::default());
    let pool = |router: &ConfigRouter| {
        let target = router.reach("gpt-5.2").unwrap().remove(0);
        router.pool(&target).unwrap()
    };
    let first = router(TWO);
    let route = "[[routes]]\nmodel = \"fast\"\ntargets = [\"sim/gpt-5.6-sol\"]";
    let second = router(&format!("{TWO}\n{route}")).with_pools_of(&first);
    assert!(Arc::ptr_eq(&pool(&first), &pool(&second)));
    let changed = TWO.replacen("name = \"b\"", "name = \"c\"", 1);
    assert_ne!(changed, TWO);
    let third = router(&changed).with_pools_of(&second);
    assert!(!Arc::ptr_eq(&pool(&second), &pool(&third)));
}

#[test]
fn pool_without_a_key_is_unusable_but_has_an_endpoint() {
    let text = "[[providers.openai.pool]]\nname = \"a\"\napi_key_env = \"NO_KEY\"";
    let config = parse(text).config;
    let router = ConfigRouter::new(config.routes.clone(), SharedCatalog::default());
    let target = router.reach("gpt-5.2").unwrap().remove(0);
    assert_eq!(&*target.endpoint, "openai#a");
    assert!(router.pool(&target).is_none());
    let all = endpoints(&config, "http://127.0.0.1:1", &SharedCredentials::default()).unwrap();
    assert!(all.iter().any(|one| &*one.name == "openai#a"));
}

#[test]
fn invalid_pools_are_reported() {
    let pool = |accounts: &str| format!("[providers.openai]\npool = [{accounts}]");
    let a = "{ name = \"a\", api_key = \"k\" }";
    for (text, expected) in [
        (
            pool(""),
            "2:8: `pool` needs at least one account: write pool = [{ name = \"a\", api_key_env = \"KEY_A\" }]",
        ),
        (pool(&format!("{a}, {a}")), "2:49: the pool has two accounts with the name `a`"),
        (
            pool("{ name = \"a#b\", api_key = \"k\" }"),
            "2:18: an account's name may contain only letters, digits, `-`, `_` and `.`",
        ),
        (
            pool("{ name = \"a\", api_key = \"k\", weight = 0 }"),
            "2:47: `weight` must be a whole number of at least 1: write weight = 2",
        ),
        (
            pool("{ name = \"a\", api_key = \"k\", weight = 1001 }"),
            "2:47: `weight` must be at most 1000: write weight = 2",
        ),
        (
            format!("{}\nbalance = \"random\"", pool(a)),
            "3:11: `balance` must be one of weighted, least-busy",
        ),
        (
            format!("{}\nwhen_unavailable = \"wait\"", pool(a)),
            "3:20: `when_unavailable` must be one of move, stay",
        ),
        (
            format!("{}\ncooldown = \"2h\"", pool(a)),
            "3:12: `cooldown` is longer than one hour: write cooldown = \"30s\"",
        ),
        (
            "[providers.openai]\nbalance = \"weighted\"".to_owned(),
            "2:1: `balance` applies to a pool only: add [[providers.openai.pool]]",
        ),
        (
            format!("{}\napi_key = \"k\"", pool(a)),
            "3:1: `api_key` cannot be combined with `pool`: move the key to an account of the pool; \
             an account with the name `openai` continues its conversations",
        ),
    ] {
        assert_eq!(errors(&text), [expected], "{text}");
    }
    for (accounts, end) in [
        ("{ api_key = \"k\" }", "an account needs a name: write name = \"team-a\""),
        ("{ name = \"a\" }", "an account needs a key: write api_key_env = \"KEY_A\""),
        (
            "{ name = \"a\", api_key = \"k\", wieght = 1 }",
            "in [[providers.openai.pool]]; did you mean `weight`?",
        ),
    ] {
        let found = errors(&pool(accounts));
        assert!(found.len() == 1 && found[0].ends_with(end), "{found:?}");
    }
}

#[test]
fn keys_of_accounts_are_not_printed() {
    let pool = parse(TWO).config.routes.provider("openai").unwrap().pool.clone().unwrap();
    let debug = format!("{pool:?}");
    assert!(!debug.contains("sk-"), "{debug}");
}
