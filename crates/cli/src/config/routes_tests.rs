//! Tests of resolving model names to providers.

use proptest::prelude::*;
use throughline_codec::Catalog;
use throughline_testkit::proptest_config;

use super::builtin::{providers, row_of};
use super::file::read;
use super::routes::{Credential, Destination, Endpoint, Routes};

const FILE: &str = r#"
[providers.work-claude]
kind = "anthropic"
models = ["claude-*"]
[providers.opus]
kind = "anthropic"
models = ["claude-opus-*", "meta/llama-*", "exactly-this"]
[[routes]]
model = "fast"
targets = ["openai/gpt-5.6", "work-claude/claude-sonnet-5", "sim/claude-sonnet-5"]
[[routes]]
model = "openai/gpt-5"
targets = ["openai/gpt-5", "azure/gpt-5"]
[providers.azure]
base_url = "https://mine.openai.azure.com/openai/v1"
"#;

fn routes(text: &str) -> Routes {
    let parsed = read(text, Catalog::builtin(), &|_| None);
    assert_eq!(parsed.errors, []);
    parsed.config.routes
}

fn resolve_names(routes: &Routes, model: &str) -> Vec<String> {
    routes.resolve(model).unwrap().iter().map(ToString::to_string).collect()
}

fn resolve_error(routes: &Routes, model: &str) -> String {
    routes.resolve(model).unwrap_err().to_string()
}

#[test]
fn names_resolve_by_alias_provider_or_claim() {
    let routes = routes(FILE);
    for (model, expected) in [
        ("fast", &["openai/gpt-5.6", "work-claude/claude-sonnet-5", "sim/claude-sonnet-5"][..]),
        ("openai/gpt-5", &["openai/gpt-5", "azure/gpt-5"]),
        ("openai/gpt-5-mini", &["openai/gpt-5-mini"]),
        ("openrouter/anthropic/claude-sonnet-5", &["openrouter/anthropic/claude-sonnet-5"]),
        ("anthropic/claude-sonnet-5", &["anthropic/claude-sonnet-5"]),
        ("claude-sonnet-5", &["work-claude/claude-sonnet-5"]),
        ("claude-opus-5", &["opus/claude-opus-5"]),
        ("Claude-Opus-5", &["opus/Claude-Opus-5"]),
        ("meta/llama-4", &["opus/meta/llama-4"]),
        ("exactly-this", &["opus/exactly-this"]),
        ("gpt-5", &["openai/gpt-5"]),
        ("o3-mini", &["openai/o3-mini"]),
        ("gemini-3-pro", &["gemini/gemini-3-pro"]),
        ("deepseek-reasoner", &["deepseek/deepseek-reasoner"]),
        ("grok-4", &["xai/grok-4"]),
        ("us.anthropic.claude-sonnet-4-5-v1:0", &["bedrock/us.anthropic.claude-sonnet-4-5-v1:0"]),
        ("sim/gpt-5", &["sim/gpt-5"]),
    ] {
        assert_eq!(resolve_names(&routes, model), expected, "{model}");
    }
}

/// If the file redefines a vendor's first catalog entry, the change also applies to the vendor's
/// entries for other wires.
#[test]
fn redefined_provider_moves_all_its_rows() {
    let routes = routes(
        "[providers.openai]\nbase_url = \"http://house:4501/v1\"\napi_key = \"sk-house\"\n\
         [providers.deepseek]\nbase_url = \"http://house:4502\"\napi_key = \"sk-house\"\n",
    );
    for (name, expected) in [
        ("openai", "http://house:4501/v1"),
        ("openai-chat", "http://house:4501/v1"),
        ("deepseek-responses", "http://house:4502"),
        ("deepseek-anthropic", "http://house:4502/anthropic"),
        ("xai-chat", "https://api.x.ai/v1"),
    ] {
        let provider = routes.provider(name).unwrap();
        let Endpoint::Remote(row) = &provider.endpoint else { panic!("{name} is elsewhere") };
        assert_eq!(&*row.base_url, expected, "{name}");
        let is_own = matches!(provider.credential, Credential::Own { .. });
        assert_eq!(is_own, name != "xai-chat", "{name}");
    }
}

#[test]
fn provider_declares_accepted_tags() {
    let routes =
        routes("[providers.mine]\nkind = \"anthropic\"\naccepted_tags = [\"my-handle-v1\"]");
    let mine = routes.providers().iter().find(|provider| &*provider.name == "mine").unwrap();
    let Endpoint::Remote(row) = &mine.endpoint else { panic!("{:?}", mine.endpoint) };
    assert_eq!(row.dialect.accepted_tags, ["my-handle-v1"]);
}

#[test]
fn unknown_names_get_suggestions() {
    let routes = routes(FILE);
    for (model, expected) in [
        ("fats", "there is no model `fats`; did you mean `fast`?"),
        ("claud-opus-5", "there is no model `claud-opus-5`; did you mean `claude-opus-5`?"),
        (
            "opnai/gpt-6",
            "there is no model `opnai/gpt-6`; did you mean `openai/gpt-6` or `openai/gpt-5`?",
        ),
        ("sin/claude-x", "there is no model `sin/claude-x`; did you mean `sim/claude-x`?"),
    ] {
        assert_eq!(resolve_error(&routes, model), expected);
    }
    for model in ["sim/", "sim/llama-4"] {
        let message = resolve_error(&routes, model);
        let begin = format!(
            "there is no model `{model}`; use sim/MODEL, where MODEL matches one of claude-*, gpt-*, "
        );
        assert!(message.starts_with(&begin), "{message}");
    }
    for model in ["", "/", "openai/", "unknown/x", "whatever it is"] {
        let message = resolve_error(&routes, model);
        let begin = format!(
            "there is no model `{model}`; use PROVIDER/model with one of work-claude, opus, \
             azure, sim, anthropic, openai,"
        );
        assert!(message.starts_with(&begin), "{message}");
    }
    let long = "ü".repeat(10_000);
    assert_eq!(routes.resolve(&long).unwrap_err().model, "ü".repeat(100));
}

#[test]
fn simulators_use_the_row_of_the_vendor() {
    let routes = routes("");
    let sim = routes.provider("sim").unwrap();
    assert_eq!((&sim.endpoint, &sim.credential), (&Endpoint::Simulators, &Credential::Open));
    for (model, row, wire) in [
        ("claude-sonnet-5", "anthropic", "anthropic-messages"),
        ("gpt-5", "openai", "openai-responses"),
        ("gemini-3-pro", "gemini", "gemini"),
        ("deepseek-reasoner", "deepseek", "openai-chat"),
    ] {
        let provider = sim.row_for(model, Catalog::builtin()).unwrap();
        assert_eq!((&*provider.name, provider.wire.as_str()), (row, wire));
        assert_eq!(&*provider.base_url, "", "no vendor is called instead of a simulator");
    }
    assert_eq!(sim.row_for("llama", Catalog::builtin()), None);
}

#[test]
fn builtin_claims_are_unique_and_name_existing_rows() {
    let (all, _) = providers(Catalog::builtin(), &|_| None);
    for provider in &all {
        for pattern in &provider.models {
            let name = pattern.replace('*', "x");
            let row = row_of(&name).unwrap();
            assert_eq!(row, &*provider.name, "{name}");
            let claiming = all.iter().filter(|other| {
                other.models.iter().any(|pattern| throughline_core::matches_pattern(pattern, &name))
            });
            assert_eq!(claiming.count(), 1, "{name}");
        }
    }
    assert!(all.iter().filter(|provider| !provider.models.is_empty()).count() > 9);
}

#[test]
fn usual_variables_provide_keys() {
    let parsed = read("", Catalog::builtin(), &|name| {
        (name == "ANTHROPIC_API_KEY").then(|| "sk-ant-canary".to_owned())
    });
    let routes = parsed.config.routes;
    let Credential::Own { key, variable } = &routes.provider("anthropic").unwrap().credential
    else {
        panic!("a key")
    };
    assert_eq!((key.reveal(), variable.as_deref()), ("sk-ant-canary", Some("ANTHROPIC_API_KEY")));
    assert_eq!(routes.provider("openai").unwrap().credential, Credential::Callers);
    assert!(!format!("{routes:?}").contains("canary"));
}

/// Generates model names that clients send, and invalid names.
fn names() -> impl Strategy<Value = String> {
    let parts = prop::sample::select(vec![
        "claude-",
        "gpt-",
        "opus",
        "sim",
        "openai",
        "fast",
        "/",
        "*",
        "-5",
        "o3",
        "meta/llama-",
        "work-claude",
        ".",
        "ü",
        "azure",
        " ",
    ]);
    prop_oneof![prop::collection::vec(parts, 0..6).prop_map(|parts| parts.concat()), ".{0,30}",]
}

proptest! {
    #![proptest_config(proptest_config(512))]

    #[test]
    fn resolve_returns_or_suggests_only_valid_names(model in names()) {
        let routes = routes(FILE);
        match routes.resolve(&model) {
            Ok(found) => {
                prop_assert!(!found.is_empty());
                for Destination { provider, model: target } in &found {
                    let provider = routes.provider(provider);
                    let row = provider.and_then(|one| one.row_for(target, Catalog::builtin()));
                    prop_assert!(row.is_some());
                    prop_assert!(!target.is_empty());
                }
            }
            Err(error) => {
                for close in &error.close {
                    prop_assert!(routes.resolve(close).is_ok(), "{close} was suggested");
                }
            }
        }
    }

    #[test]
    fn provider_prefix_selects_that_provider(
        index in 0_usize..64,
        model in "[a-z0-9][a-z0-9./:-]{0,20}",
    ) {
        let routes = routes("");
        let remote: Vec<_> = routes
            .providers()
            .iter()
            .filter(|one| one.endpoint != Endpoint::Simulators)
            .collect();
        let name = &remote[index % remote.len()].name;
        let found = routes.resolve(&format!("{name}/{model}")).unwrap();
        prop_assert_eq!(found, [Destination { provider: name.clone(), model: model.into() }]);
    }

    #[test]
    fn longer_pattern_wins_in_any_order(
        tail in "[a-z]{1,8}",
        first in any::<bool>(),
    ) {
        let short = "[providers.short]\nkind = \"openai\"\nmodels = [\"x-*\"]\n";
        let long = "[providers.long]\nkind = \"openai\"\nmodels = [\"x-long-*\"]\n";
        let text = if first { [short, long].concat() } else { [long, short].concat() };
        let routes = routes(&text);
        let (longer, shorter) = (format!("x-long-{tail}"), format!("x-{tail}"));
        prop_assert_eq!(resolve_names(&routes, &longer), [format!("long/{longer}")]);
        prop_assert_eq!(resolve_names(&routes, &shorter), [format!("short/{shorter}")]);
    }
}
