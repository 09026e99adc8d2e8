//! Tests of catalog files: their rows, their signatures, and what is refused.

use proptest::prelude::*;
use throughline_testkit::proptest_config;

use super::{
    Catalog, CatalogProblem, CatalogSecret, CatalogUpdate, CatalogVersion, PROFILES, PROVIDERS,
    SharedCatalog, SignatureError, sign_catalog, verify_catalog,
};

/// Returns a signing key of 64 equal digits.
fn secret(digit: &str) -> CatalogSecret {
    digit.repeat(64).parse().unwrap()
}

const FILE: &str = r#"[catalog]
version = "2027-01-05"

[[provider]]
name = "example"
wire = "openai-chat"
base-url = "https://llm.example/v1"
key-env = "EXAMPLE_API_KEY"
dialect = { channel = "reasoning-content", pairs-calls = true }

[[profile]]
name = "example-thinker"
models = ["*example-thinker*"]
efforts = ["low", "high"]

[[profile]]
name = "gpt-5"
models = ["*gpt-5-mini*"]
efforts = ["low", "huge"]
"#;

fn version(text: &str) -> CatalogVersion {
    text.parse().unwrap()
}

fn problems(text: &str) -> Vec<String> {
    let problems = CatalogUpdate::parse(text).unwrap_err();
    problems.iter().map(CatalogProblem::to_string).collect()
}

#[test]
fn built_in_catalog_states_the_date_of_its_newest_row() {
    assert_eq!(Catalog::builtin().version(), Some(version("2026-11-17")));
}

#[test]
fn update_adds_and_replaces_rows_by_name() {
    let update = CatalogUpdate::parse(FILE).unwrap();
    let builtin = Catalog::builtin();
    let updated = builtin.with_update(&update);
    assert_eq!(updated.version(), Some(version("2027-01-05")));
    assert_eq!(updated.providers().len(), builtin.providers().len() + 1);
    assert_eq!(updated.profiles().len(), builtin.profiles().len() + 1);
    assert_eq!(updated.provider("example").as_ref(), update.providers().first());
    assert_eq!(updated.profile("vendor/example-thinker-2").name, "example-thinker");
    assert_eq!(updated.profile("gpt-5-mini").efforts, ["low", "huge"]);
    // The other rows are those of the built-in catalog.
    assert_eq!(updated.profile("gemini-3-pro"), builtin.profile("gemini-3-pro"));
    assert_eq!(builtin.profile("vendor/example-thinker-2").name, "unknown");
}

#[test]
fn built_in_files_are_a_valid_catalog_file() {
    let rows = PROFILES.replacen("\nversion = ", "\n#", 1);
    let text = format!("[catalog]\nversion = \"2026-11-17.2\"\n{PROVIDERS}\n{rows}");
    let update = CatalogUpdate::parse(&text).unwrap();
    assert_eq!(update.profiles().len(), Catalog::builtin().profiles().len());
    assert_eq!(Catalog::builtin().with_update(&update).providers(), Catalog::builtin().providers());
}

#[test]
fn later_versions_are_greater() {
    let all = ["2026-11-17", "2026-11-17.2", "2026-11-17.10", "2026-12-01"];
    assert!(all.iter().map(|text| version(text)).is_sorted());
    assert!(all.iter().all(|text| version(text).to_string() == *text));
    for text in ["", "12", "2026-11-17.", "2026-11-17.0", "2026-11-17.+2", "2026-13-01", "26-1-1"] {
        assert!(text.parse::<CatalogVersion>().is_err(), "{text}");
    }
}

#[test]
fn all_problems_are_reported_with_their_lines() {
    let text = r#"[catalog]
version = "yesterday"
colour = "red"
[[provider]]
name = "a"
wire = "telegraph"
base-url = "ftp://a"
[[profile]]
name = "b"
models = []
[[profile]]
name = "b"
models = ["b*"]
effort = ["low"]
[[profile]]
name = "b"
models = ["c*"]
[[model]]
"#;
    let all = problems(text);
    let expected = [
        "3: unknown field `colour`, expected `version`",
        "4: the provider `a` has the unknown wire `telegraph`: use one of anthropic-messages, \
         openai-responses, gemini, bedrock-converse, openai-chat",
        "4: the base-url of `a` is not an http or https URL",
        "8: the profile `b` needs patterns of model names: write models = [\"name*\"]",
        "14: unknown field `effort`",
        "15: there are two profile rows named `b`: remove one",
        "18: unknown key `model`: a catalog file has [catalog], [[provider]] and [[profile]]",
    ];
    assert_eq!(all.len(), expected.len(), "{all:#?}");
    for (problem, expected) in all.iter().zip(expected) {
        assert!(problem.starts_with(expected), "{problem}\n{expected}");
    }
    assert_eq!(
        problems(""),
        ["1: the file has no version: write [catalog] and version = \"2026-11-17\""]
    );
    let [problem] = &problems("[catalog]\nversion = \"today\"")[..] else { panic!() };
    assert!(problem.starts_with("2: `today` is not a version"), "{problem}");
    assert_eq!(
        problems("[catalog]\nversion = 2027-01-15 # today"),
        ["2: put the version in quotes: write version = \"2027-01-15\""]
    );
    assert!(problems("[catalog")[0].starts_with("1: "));
    assert!(problems("profile = 1")[0].starts_with("1: "));
}

#[test]
fn unusable_names_and_efforts_are_reported() {
    let provider = |name: &str, key: &str| {
        problems(&format!(
            "[catalog]\nversion = \"2027-01-05\"\n[[provider]]\nname = \"{name}\"\n\
             wire = \"openai-chat\"\nbase-url = \"https://x.example\"\nkey-env = \"{key}\"\n"
        ))
    };
    let long = "a".repeat(101);
    for (name, key, expected) in [
        ("bad provider/x", "NEW_KEY", "3: the provider name `bad provider/x` is invalid"),
        (&*long, "NEW_KEY", "3: the provider name `aaa"),
        ("sim", "NEW_KEY", "3: the provider `sim` is built in"),
        ("new", "A B", "3: the key-env of `new` is not the name of an environment variable"),
        ("new", "", "3: the key-env of `new` is not"),
        ("new", "7UP", "3: the key-env of `new` is not"),
    ] {
        let all = provider(name, key);
        assert!(matches!(&all[..], [only] if only.starts_with(expected)), "{name} {key}: {all:?}");
    }
    let secret = provider("new", "sk-ant-secret");
    assert!(!secret.concat().contains("sk-ant"), "the value is not repeated: {secret:?}");
    let efforts = FILE.replace("\"huge\"", "\"\", \"very high\"");
    assert_eq!(problems(&efforts).len(), 2, "{:?}", problems(&efforts));
    assert!(problems(&efforts)[1].contains("the effort `very high` of `gpt-5` is invalid"));
}

#[test]
fn provider_rows_cannot_redirect_keys() {
    let row = |name: &str, url: &str, key: &str| {
        format!(
            "[catalog]\nversion = \"2027-01-05\"\n[[provider]]\nname = \"{name}\"\n\
             wire = \"anthropic-messages\"\nbase-url = '{url}'\nkey-env = \"{key}\"\n"
        )
    };
    let key = "ANTHROPIC_API_KEY";
    for (name, url, key, expected) in [
        ("anthropic", "https://x.example", key, "the host of the built-in provider `anthropic`"),
        ("anthropic", "https://api.anthropic.com:444", key, "the host of the built-in"),
        ("anthropic", "https://api.anthropic.com", "HOME", "which is ANTHROPIC_API_KEY"),
        ("anthropic", "", key, "configure it in [providers.anthropic] instead"),
        ("anthropic", "http://api.anthropic.com", key, "is not encrypted"),
        ("new", "http://x.example", "NEW_KEY", "is not encrypted"),
        ("new", "http://localhost.x.example/v1", "NEW_KEY", "is not encrypted"),
        ("anthropic", r"https://x.example\@api.anthropic.com", key, "is not an http or https URL"),
        ("anthropic", "https://user@api.anthropic.com", key, "is not an http or https URL"),
        ("new", "https:///x.example", "NEW_KEY", "is not an http or https URL"),
        ("new", "https://x.example/ ", "NEW_KEY", "is not an http or https URL"),
    ] {
        let all = problems(&row(name, url, key));
        assert!(matches!(&all[..], [only] if only.contains(expected)), "{url}: {all:?}");
    }
    // With another wire, another provider would be the default of the first wire.
    let moved = row("anthropic", "https://api.anthropic.com", key);
    let all = problems(&moved.replace("anthropic-messages", "openai-chat"));
    assert!(matches!(&all[..], [only] if only.contains("the wire of the built-in")), "{all:?}");
    for (name, url, key) in [
        ("anthropic", "https://API.anthropic.com/v2", key),
        ("new", "https://x.example", "NEW_KEY"),
        ("new", "http://localhost:8000/v1", "NEW_KEY"),
        ("new", "http://127.0.0.1", "NEW_KEY"),
        ("new", "http://[::1]:80/v1", "NEW_KEY"),
    ] {
        let update = CatalogUpdate::parse(&row(name, url, key)).unwrap();
        assert_eq!(update.added_providers().count(), usize::from(name == "new"), "{url}");
    }
}

#[test]
fn signature_covers_all_content() {
    let key = secret("7").public_key();
    let signed = sign_catalog(FILE, &secret("7"));
    assert_eq!(verify_catalog(signed.as_bytes(), &[key]), Ok(key));
    assert_eq!(CatalogUpdate::parse(&signed), CatalogUpdate::parse(FILE));
    assert_eq!(sign_catalog(&signed, &secret("7")), signed, "signing again changes nothing");
    assert_eq!(key.to_string().parse(), Ok(key));

    // A byte order mark in the second line would not be valid TOML.
    assert_eq!(sign_catalog(&format!("\u{feff}{FILE}"), &secret("7")), signed);
    assert_eq!(sign_catalog(&format!("\u{feff}{signed}"), &secret("7")), signed);

    let verify = |file: &str| verify_catalog(file.as_bytes(), &[key]).unwrap_err();
    assert_eq!(verify(FILE), SignatureError::Unsigned);
    assert_eq!(verify(&signed.replace("huge", "tiny")), SignatureError::Mismatch);
    assert_eq!(verify(&format!("{signed}\n")), SignatureError::Mismatch);
    for length in 0..signed.len() {
        assert!(verify_catalog(&signed.as_bytes()[..length], &[key]).is_err(), "{length}");
    }
    let other = secret("8").public_key();
    let error = verify_catalog(signed.as_bytes(), &[other]).unwrap_err();
    assert_eq!(error, SignatureError::Untrusted(key));
    assert_eq!(verify_catalog(signed.as_bytes(), &[]), Err(SignatureError::Untrusted(key)));
    // A file that names a trusted key but was signed with another key.
    let forged = sign_catalog(FILE, &secret("8")).replace(&other.to_string(), &key.to_string());
    assert_eq!(verify(&forged), SignatureError::Mismatch);
}

#[test]
fn shared_catalog_is_replaced_for_all_clones() {
    let shared = SharedCatalog::default();
    let (clone, before) = (shared.clone(), shared.current());
    shared.replace(before.with_update(&CatalogUpdate::parse(FILE).unwrap()));
    assert_eq!(clone.current().version(), Some(version("2027-01-05")));
    assert_eq!(before.version(), Catalog::builtin().version(), "a reader keeps its catalog");
}

/// Returns lines of a catalog file in any order, with any characters in between.
fn mixed_file() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        proptest::sample::select(FILE.lines().collect::<Vec<_>>()).prop_map(str::to_owned),
        "[a-z]{1,8} = [\\[{\"0-9a-z.,}\\]-]{0,12}",
        "\\[\\[?[a-z.]{0,8}\\]?\\]?",
        "\\PC{0,20}",
    ];
    proptest::collection::vec(line, 0..20).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #![proptest_config(proptest_config(256))]

    #[test]
    fn no_input_panics(text in mixed_file(), bytes in any::<Vec<u8>>(), cut in any::<usize>()) {
        let key = secret("7").public_key();
        if let Err(problems) = CatalogUpdate::parse(&text) {
            prop_assert!(!problems.is_empty());
            let lines = text.lines().count().max(1) + 1;
            prop_assert!(problems.iter().all(|problem| (1..=lines).contains(&problem.line)));
        }
        let signed = sign_catalog(&text, &secret("7"));
        prop_assert_eq!(verify_catalog(signed.as_bytes(), &[key]), Ok(key));
        let cut = cut % signed.len();
        prop_assert!(verify_catalog(&signed.as_bytes()[..cut], &[key]).is_err());
        prop_assert!(verify_catalog(&bytes, &[key]).is_err());
        drop(CatalogUpdate::parse(&String::from_utf8_lossy(&bytes)));
    }
}
