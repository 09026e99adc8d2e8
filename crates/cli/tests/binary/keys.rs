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
    let changed = store.json(&["keys", "update", id, "--remove", "role"]);
    assert_eq!(changed["limits"], json!({}));
    let output = store.run(&["keys", "create", "--role", "admin"]);
    assert_eq!(output.code, 2);
    assert!(output.err.contains("expected operator, app or viewer"), "{}", output.err);
}

#[test]
fn limits_without_effect_are_refused() {
    let store = TestStore::without_database("keys-no-effect");
    let label = "x".repeat(300);
    for (arguments, problem) in [
        (["--per", "month"], "--per needs a budget: add --budget-usd or --budget-tokens"),
        (["--soft-limit", "80"], "--soft-limit needs a budget"),
        (["--budget-tokens", "0"], "expected a whole number greater than 0"),
        (["--tokens-per-minute", "0"], "expected a whole number greater than 0"),
        (["--budget-usd", "0"], "dollars greater than 0"),
        (["--rate", "0/min"], "per minute greater than 0"),
        (["--label", &label], "--label is not valid: use at most 200 bytes"),
    ] {
        let output = store.run(&[&["keys", "create"][..], &arguments].concat());
        assert_eq!((output.code, output.out.as_str()), (2, ""), "{arguments:?}");
        assert!(output.err.contains(problem), "{problem}: {}", output.err);
        assert!(!output.err.contains(&label), "the label is printed");
    }
    assert!(!store.file("a.db").exists());

    let create = ["keys", "create", "--budget-usd", "20", "--per", "month", "--soft-limit", "80"];
    let created = store.json(&create);
    let id = created["id"].as_str().unwrap();
    let update = |arguments: &[&str]| {
        store.run(&[&["keys", "update", id, "--format", "json"][..], arguments].concat())
    };
    assert_eq!(update(&["--per", "day"]).code, 0);
    // The period and the soft limit belong to the budget.
    let removed = update(&["--remove", "budget-usd"]);
    assert_eq!(removed.out, format!("{{\"id\":\"{id}\",\"limits\":{{}}}}\n"));
    for option in [["--per", "day"], ["--soft-limit", "80"]] {
        let refused = update(&option);
        assert_eq!((refused.code, refused.out.as_str()), (2, ""), "{option:?}");
        assert!(refused.err.contains("needs a budget"), "{}", refused.err);
    }
    let reset = store.run(&["keys", "reset", id]);
    assert_eq!((reset.code, reset.err.as_str()), (0, ""));
    assert!(reset.out.starts_with(&format!("{id} has no budget")), "{}", reset.out);
}

#[test]
fn help_of_update_names_no_defaults_of_new_keys() {
    let help = |command: &str| {
        let store = TestStore::without_database("keys-help");
        let help = store.run(&["keys", command, "--help"]).out;
        help.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let (create, update) = (help("create"), help("update"));
    assert_eq!(create.matches("[default: unlimited]").count(), 4, "{create}");
    assert_eq!(update.matches("[default: unchanged]").count(), 8, "{update}");
    for default in ["unlimited", "everything", "all models", "no message", "total"] {
        assert!(!update.contains(&format!("[default: {default}")), "{default}: {update}");
    }
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

#[test]
fn first_key_file_replaces_no_file() {
    let store = TestStore::without_database("keys-first-file");
    std::fs::write(store.file("notes.txt"), "precious").unwrap();
    let serve = ["serve", "--listen", "127.0.0.1:0", "--first-key-file", "notes.txt"];
    let output = store.run(&serve);
    assert_eq!(output.code, 2, "{}", output.err);
    assert!(output.err.contains("notes.txt exists already"), "{}", output.err);
    assert_eq!(std::fs::read_to_string(store.file("notes.txt")).unwrap(), "precious");
    // An empty file contains nothing to keep.
    std::fs::write(store.file("empty.key"), "").unwrap();
    let mut gateway = GatewayProcess::start(&store.folder, &[], &["--first-key-file", "empty.key"]);
    assert_eq!(gateway.stop(), 0);
    assert!(std::fs::read_to_string(store.file("empty.key")).unwrap().starts_with("tl_"));
}

/// The log names the key and the reason, but never the key itself.
#[test]
fn refused_requests_are_logged_with_their_reason() {
    let store = TestStore::without_database("keys-refused");
    let create = |role: &str, models: &str| {
        let create = ["keys", "create", "--label", role, "--role", role, "--models", models];
        let created = store.json(&create);
        let text = |name: &str| created[name].as_str().unwrap().to_owned();
        (text("id"), text("key"))
    };
    let ((viewer, viewer_key), (app, app_key)) = (create("viewer", "*"), create("app", "gpt-*"));
    let mut gateway = GatewayProcess::start(&store.folder, &[], &[]);
    let call = |key: &str| {
        let body = r#"{"model":"sim/claude-sonnet-4-5","max_tokens":9,"messages":[{"role":"user","content":"Hello"}]}"#;
        gateway.send("POST", "/v1/messages", &format!("x-api-key: {key}\r\n"), body)
    };
    for (key, status) in [("tl_unknown", "401"), (&*viewer_key, "403"), (&*app_key, "403")] {
        let response = call(key);
        assert!(response.starts_with(&format!("HTTP/1.1 {status}")), "{response}");
    }
    // A route of the agent API, and a path that the gateway forwards.
    for path in ["/v1/throughline/keys", "/v1/files"] {
        let response = gateway.send("GET", path, &format!("x-api-key: {app_key}\r\n"), "");
        assert!(response.starts_with("HTTP/1.1 403"), "{path}: {response}");
    }
    assert_eq!(gateway.stop(), 0);
    let errors = gateway.errors();
    let lines = errors.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let lines: Vec<Value> = lines.filter(|line| !line["problem"].is_null()).collect();
    let shown = |line: &Value| (line["event"].clone(), line["key"].clone(), line["status"].clone());
    let expected = [
        (json!("refused"), json!(null), json!(401)),
        (json!("refused"), json!(viewer), json!(403)),
        (json!("call"), json!(app), json!(403)),
        (json!("refused"), json!(app), json!(403)),
        (json!("call"), json!(app), json!(403)),
    ];
    assert_eq!(lines.iter().map(shown).collect::<Vec<_>>(), expected, "{errors}");
    let reasons = ["unknown or was revoked", "may not", "may not use", "may not", "certain models"];
    for (line, reason) in lines.iter().zip(reasons) {
        assert!(line["problem"].as_str().unwrap().contains(reason), "{line}");
    }
    assert!(!errors.contains(&viewer_key) && !errors.contains(&app_key), "a key is in the log");
}
