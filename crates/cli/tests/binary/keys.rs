//! Tests of creating, printing, listing and revoking API keys.

use serde_json::{Value, json};
use throughline_store::Options;

use crate::support::kept::TestStore;
use crate::support::serving::GatewayProcess;

const ALL: [&str; 14] = [
    "keys",
    "create",
    "--tenant",
    "acme",
    "--label",
    "ci",
    "--models",
    "claude-*,fast",
    "--budget-usd",
    "20.5",
    "--budget-tokens",
    "5000000",
    "--rate",
    "60/min",
];

#[test]
fn key_is_shown_once_and_valid_until_revoked() {
    let store = TestStore::without_database("keys");
    let created = store.json(&ALL);
    let members: Vec<&String> = created.as_object().unwrap().keys().collect();
    assert_eq!(members, ["id", "tenant", "label", "limits", "key"]);
    let limits = json!({
        "models": ["claude-*", "fast"],
        "budget_micro_usd": 20_500_000,
        "budget_tokens": 5_000_000,
        "requests_per_minute": 60,
    });
    assert_eq!((&created["tenant"], &created["label"]), (&json!("acme"), &json!("ci")));
    assert_eq!(created["limits"], limits);
    let (id, secret) = (created["id"].as_str().unwrap(), created["key"].as_str().unwrap());
    store.with_journal(&Options::default(), async |journal| {
        let known = journal.api_key(secret).await.unwrap().unwrap();
        assert_eq!((&*known.id, &*known.tenant.0), (id, "acme"));
        assert!(known.limits.allows("claude-sonnet-5") && !known.limits.allows("gpt-5"));
    });

    let listed = store.json(&["keys", "list", "--tenant", "acme"]);
    assert_eq!(listed["keys"][0]["id"], id);
    assert_eq!(listed["keys"][0]["limits"], limits);
    assert_eq!(listed["keys"][0]["revoked"], Value::Null);
    assert!(!listed.to_string().contains(secret));
    let output = store.run(&["keys", "list", "--tenant", "acme"]);
    assert!(!output.out.contains(secret));
    let row = output.out.lines().nth(1).unwrap();
    assert!(row.starts_with(id), "{row}");
    assert!(row.ends_with("claude-* fast, $20.50, 5000000 tokens, 60/min"), "{row}");

    // Another tenant cannot revoke the key.
    let output = store.run(&["keys", "revoke", id]);
    assert_eq!(output.code, 2);
    let expected = "error: the tenant default has no valid key with that id; `throughline keys list` \
                lists the keys\n";
    assert_eq!(output.err, expected);
    let output = store.run(&["keys", "list"]);
    assert_eq!(output.out, "the tenant default has no keys\nother tenants of this store: acme\n");

    let output = store.run(&["keys", "revoke", id, "--tenant", "acme"]);
    assert_eq!(output.out, format!("✓ {id} is revoked and no longer accepted\n"));
    assert_eq!(store.run(&["keys", "revoke", id, "--tenant", "acme"]).code, 2);
    let listed = store.json(&["keys", "list", "--tenant", "acme"]);
    assert!(listed["keys"][0]["revoked"].is_string());
    let output = store.run(&["keys", "list", "--tenant", "acme"]);
    assert!(output.out.contains("revoked 20"), "{}", output.out);
    store.with_journal(&Options::default(), async |journal| {
        assert_eq!(journal.api_key(secret).await.unwrap(), None);
    });
}

#[test]
fn limits_are_raised_lowered_removed_and_budgets_reset() {
    let store = TestStore::without_database("keys-update");
    let created = store.json(&["keys", "create", "--budget-usd", "20", "--rate", "60/min"]);
    let id = created["id"].as_str().unwrap();
    let limits = |arguments: &[&str]| {
        let updated = store.json(&[&["keys", "update", id][..], arguments].concat());
        assert_eq!(updated["id"], id);
        assert_eq!(store.json(&["keys", "list"])["keys"][0]["limits"], updated["limits"]);
        updated["limits"].clone()
    };
    let raised = ["--budget-usd", "50", "--per", "month", "--soft-limit", "80"];
    assert_eq!(
        limits(&raised),
        json!({"budget_micro_usd": 50_000_000, "requests_per_minute": 60,
               "soft_limit_percent": 80, "budget_period": "month"})
    );
    let output = store.run(&["keys", "list"]);
    assert!(output.out.contains("$50.00 per month, message at 80%, 60/min"), "{}", output.out);
    let lowered = ["--budget-usd", "5", "--per", "total", "--remove", "rate,soft-limit"];
    assert_eq!(limits(&lowered), json!({"budget_micro_usd": 5_000_000}));
    assert_eq!(
        limits(&["--tokens-per-minute", "900", "--remove", "budget-usd"]),
        json!({"tokens_per_minute": 900})
    );
    assert_eq!(store.json(&["keys", "reset", id]), json!({"reset": id}));
    assert_eq!(store.json(&["keys", "reset", id]), json!({"reset": id}));
    // Another tenant can neither change nor reset the key, and a pasted key is not printed.
    let secret = created["key"].as_str().unwrap();
    for arguments in [
        &["keys", "update", id, "--tenant", "acme", "--rate", "1/min"][..],
        &["keys", "reset", id, "--tenant", "acme"],
        &["keys", "reset", secret],
    ] {
        let output = store.run(arguments);
        assert_eq!(output.code, 2, "{arguments:?}");
        assert!(output.err.contains("has no valid key with that id"), "{}", output.err);
        assert!(!output.err.contains(secret), "{}", output.err);
    }
    for arguments in [["--per", "minute"], ["--soft-limit", "101"], ["--remove", "all"]] {
        let output = store.run(&[&["keys", "update", id][..], &arguments].concat());
        assert_eq!(output.code, 2, "{arguments:?}");
    }
}

#[test]
fn key_without_limits_is_reported_as_unlimited() {
    let store = TestStore::without_database("keys-plain");
    let output = store.run(&["keys", "create"]);
    assert_eq!(output.code, 0, "{}", output.err);
    // Standard output contains the key alone.
    let key = output.out.strip_suffix('\n').unwrap();
    assert!(key.starts_with("tl_") && key.len() == 51, "{key}");
    assert!(key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'), "{key}");
    assert!(output.err.starts_with("note: created key_"), "{}", output.err);
    assert!(output.err.contains(" for the tenant default: no limits. This key is shown only once"));
    assert!(!output.err.contains(key));
    assert_eq!(store.json(&["keys", "list"])["keys"][0]["limits"], json!({}));
}

#[test]
fn reserved_tenant_names_are_rejected() {
    let store = TestStore::without_database("keys-reserved");
    for tenant in ["throughline-usage", "throughline-other", "caller-0123"] {
        let output = store.run(&["keys", "create", "--tenant", tenant]);
        assert_eq!(output.code, 2, "{tenant}: {}", output.err);
        assert!(output.err.contains("choose another --tenant"), "{}", output.err);
    }
}

#[test]
fn revoke_does_not_print_a_pasted_key() {
    let store = TestStore::without_database("keys-secret");
    let created = store.json(&["keys", "create"]);
    let secret = created["key"].as_str().unwrap();
    let output = store.run(&["keys", "revoke", secret]);
    assert_eq!(output.code, 2);
    assert!(!output.err.contains(secret), "{}", output.err);
}

#[test]
fn key_commands_fail_without_a_store() {
    let store = TestStore::without_database("keys-none");
    for arguments in [&["keys", "list"][..], &["keys", "revoke", "key_1"]] {
        let output = store.run(arguments);
        assert_eq!(output.code, 69, "{arguments:?}");
        assert!(output.err.contains("there is no store at"), "{}", output.err);
    }
    assert!(!store.file("a.db").exists());
}

#[test]
fn roles_are_set_changed_and_listed() {
    let store = TestStore::without_database("keys-roles");
    let created = store.json(&["keys", "create", "--role", "viewer"]);
    assert_eq!(created["limits"], json!({"role": "viewer"}));
    let id = created["id"].as_str().unwrap();
    let changed = store.json(&["keys", "update", id, "--role", "app", "--rate", "9/min"]);
    assert_eq!(changed["limits"], json!({"requests_per_minute": 9, "role": "app"}));
    // A change of another limit keeps the role.
    let changed = store.json(&["keys", "update", id, "--remove", "rate"]);
    assert_eq!(changed["limits"], json!({"role": "app"}));
    let output = store.run(&["keys", "list"]);
    assert!(output.out.lines().nth(1).unwrap().ends_with("app"), "{}", output.out);
    let output = store.run(&["keys", "create", "--role", "admin"]);
    assert_eq!(output.code, 2);
    assert!(output.err.contains("expected operator, app or viewer"), "{}", output.err);
}

#[test]
fn first_key_cannot_be_created_over_http() {
    let store = TestStore::without_database("keys-first");
    let gateway = GatewayProcess::start(&store.folder, &[], &[]);
    let create = |headers: &str| {
        let body = r#"{"label": "a", "role": "operator"}"#;
        gateway.send("POST", "/v1/throughline/keys", headers, body)
    };
    let refused = create("");
    assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");
    assert!(refused.contains("throughline keys create --role operator"), "{refused}");
    // The gateway still has no keys, so it serves this machine.
    let runs = gateway.send("GET", "/v1/throughline/runs", "", "");
    assert!(runs.starts_with("HTTP/1.1 200"), "{runs}");
    let key = store.json(&["keys", "create", "--role", "operator"]);
    let created = create(&format!("authorization: Bearer {}\r\n", key["key"].as_str().unwrap()));
    assert!(created.starts_with("HTTP/1.1 200"), "{created}");
}
