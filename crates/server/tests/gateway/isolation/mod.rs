//! Tests that two tenants that share one account at each provider cannot use each other's objects.

mod account;
mod cases;
mod doors;
mod hidden;

use std::collections::BTreeMap;

use serde_json::{Value, json};
use throughline_codec::DecodeContext;
use throughline_core::{
    Append, Batch, LogId, LogOpening, NewRecord, NewVaultTurn, Store as _, Tenant, TurnId,
    VaultKey, kind, store_items,
};
use throughline_server::{ReplayMode, object_members, object_routes};
use throughline_testkit::figure;

use crate::common::{codec_of, target};
use crate::isolation::account::{AccountGateway, SharedAccount};
use crate::isolation::cases::{CALLS, CREATIONS, MEMBERS};

/// The ids of the first objects that a tenant created, by kind.
type Objects = BTreeMap<String, String>;

/// Creates an object of every kind that the gateway can create.
async fn create(gateway: &AccountGateway, tenant: &str) -> Objects {
    let mut objects = Objects::new();
    for (dialect, path, body, ids) in CREATIONS {
        let (status, answer) = gateway.request_in(dialect, tenant, "POST", path, body).await;
        assert_eq!(status, 200, "POST {path}: {answer}");
        for (pointer, kind) in *ids {
            let id = answer.pointer(pointer).and_then(Value::as_str);
            let id = id.unwrap_or_else(|| panic!("{path} has no {pointer}: {answer}"));
            objects.insert(format!("{dialect} {kind}"), id.to_owned());
        }
    }
    objects
}

/// Fills a tenant's ids into a path template. A placeholder remains if the tenant has no object of
/// that kind.
fn filled(dialect: &str, template: &str, objects: &Objects) -> String {
    let path = template.replace("{**}", "gemini-3-pro-preview").replace("{*}", "any");
    objects.iter().fold(path, |path, (kind, id)| {
        let Some(kind) = kind.strip_prefix(dialect).map(str::trim) else { return path };
        let id = id.rsplit('/').next().unwrap_or(id);
        path.replace(&format!("{{{kind}}}"), id)
    })
}

/// Requests every forwarded path with the ids of tenant `alpha`, and checks that only `alpha` gets
/// a response.
async fn check_every_path(gateway: &AccountGateway, alpha: &Objects) -> usize {
    let mut cases = 0;
    for (dialect, method, template) in object_routes() {
        let path = filled(dialect, template, alpha);
        assert!(!path.contains('{'), "{path}: no creation gives such an id");
        let names_object =
            template.split('/').any(|step| step.starts_with('{') && !step.starts_with("{*"));
        let body = if method == "GET" || method == "DELETE" { "" } else { "{}" };
        gateway.account.take();
        if names_object {
            let (status, answer) = gateway.request_in(dialect, "beta", method, &path, body).await;
            assert_eq!(status, 404, "{dialect} {method} {path}: {answer}");
            let arrived = gateway.account.take();
            assert!(arrived.is_empty(), "{dialect} {method} {path} arrived: {arrived:?}");
            assert!(answer.get("error").is_some(), "in the dialect's shape: {answer}");
        } else if method == "GET" {
            let (status, answer) = gateway.request_in(dialect, "beta", method, &path, body).await;
            assert_eq!(status, 200, "{dialect} {method} {path}: {answer}");
            let text = answer.to_string();
            for id in alpha.values() {
                assert!(!text.contains(id.as_str()), "{dialect} {path} shows {id}: {text}");
            }
            let lists = ["data", "files", "cachedContents", "operations"];
            let list = lists.iter().find_map(|list| answer[list].as_array());
            assert_eq!(list.map(Vec::len), Some(0), "{dialect} {path}: {answer}");
        }
        // A deletion would remove the object, so the owner tries only the other methods.
        if method != "DELETE" {
            let (status, answer) = gateway.request_in(dialect, "alpha", method, &path, body).await;
            assert_eq!(status, 200, "{dialect} {method} {path} for its owner: {answer}");
        }
        cases += 1;
    }
    cases
}

/// Checks every body field that can name an object, at any nesting depth.
async fn check_every_member(gateway: &AccountGateway, alpha: &Objects) -> usize {
    let mut cases = 0;
    for (dialect, member, kind) in object_members() {
        let bodies: Vec<_> =
            MEMBERS.iter().filter(|case| (case.0, case.1) == (dialect, member)).collect();
        assert!(!bodies.is_empty(), "{dialect} {member} is not tried");
        let own = alpha.get(&format!("{dialect} {kind}"));
        let id = own.cloned().unwrap_or_else(|| format!("{kind}_of_the_operator"));
        for (_, _, path, body) in bodies {
            let body = body.replace("ID", &id);
            assert!(serde_json::from_str::<Value>(&body).is_ok(), "{body}");
            let spelled = body.replacen(&format!("\"{member}\""), &escaped(member), 1);
            for body in [&body, &spelled] {
                gateway.account.take();
                let (status, answer) =
                    gateway.request_in(dialect, "beta", "POST", path, body).await;
                assert_eq!(status, 404, "{dialect} {path} {body}: {answer}");
                assert!(answer.get("error").is_some(), "in the dialect's shape: {answer}");
                let arrived = gateway.account.take();
                assert!(arrived.is_empty(), "{dialect} {path} {body} arrived: {arrived:?}");
                cases += 1;
            }
            if own.is_some() {
                let (status, answer) =
                    gateway.request_in(dialect, "alpha", "POST", path, &body).await;
                assert_eq!(status, 200, "{dialect} {path} {body} for its owner: {answer}");
                assert!(!gateway.account.take().is_empty(), "{path} {body} did not arrive");
            }
        }
    }
    cases
}

/// Returns a field name in quotes with its first letter escaped. JSON parsers decode it to the
/// original name.
fn escaped(member: &str) -> String {
    let (first, rest) = member.split_at(1);
    format!("\"\\u{:04x}{rest}\"", u32::from(first.chars().next().unwrap()))
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_reach_only_their_own_objects() {
    let mut cases = 0;
    for mode in [ReplayMode::Repair, ReplayMode::Off] {
        let gateway = AccountGateway::open(mode, SharedAccount::operators()).await;
        let alpha = create(&gateway, "alpha").await;
        cases += check_every_path(&gateway, &alpha).await;
        let gateway = AccountGateway::open(mode, SharedAccount::operators()).await;
        let alpha = create(&gateway, "alpha").await;
        cases += check_every_member(&gateway, &alpha).await;
    }
    figure("forwarded paths and id-carrying members that another tenant cannot use", cases);
}

/// Two tenants send the same provider key; the tenant of the gateway key owns the conversation.
#[tokio::test(flavor = "multi_thread")]
async fn shared_provider_key_keeps_tenants_separate() {
    let gateway = AccountGateway::open(ReplayMode::Repair, SharedAccount::callers()).await;
    let alpha = create(&gateway, "alpha").await;
    for (dialect, path, body) in CALLS {
        let call = gateway.call(dialect, "alpha", path, body).await;
        for (tenant, expected) in [("alpha", 200), ("beta", 404)] {
            let path = format!("/v1/throughline/calls/{call}");
            let (status, answer) = gateway.request_in(dialect, tenant, "GET", &path, "").await;
            assert_eq!(status, expected, "{dialect} {tenant}: {answer}");
        }
    }
    let response = &alpha["openai response"];
    for (tenant, expected) in [("alpha", 200), ("beta", 404)] {
        let path = format!("/v1/responses/{response}");
        assert_eq!(gateway.request_in("openai", tenant, "GET", &path, "").await.0, expected);
        let body = json!({"model": "gpt-5.2", "input": "On", "previous_response_id": response});
        let body = body.to_string();
        let (status, answer) = gateway.request(tenant, "POST", "/v1/responses", &body).await;
        assert_eq!(status, expected, "{tenant}: {answer}");
    }
    // Objects of one account do not belong to another.
    let file = format!("/v1/files/{}", alpha["openai file"]);
    assert_eq!(gateway.request_in("openai", "alpha", "GET", &file, "").await.0, 200);
    let other = gateway.with_provider_key("sk-another");
    assert_eq!(other.request_in("openai", "alpha", "GET", &file, "").await.0, 404);
}

/// The provider's list pages contain all tenants' objects. A client that reads all pages finds all
/// of its own objects, however many objects other tenants have.
#[tokio::test(flavor = "multi_thread")]
async fn lists_skip_other_tenants_objects_until_the_end() {
    let gateway = AccountGateway::open(ReplayMode::Repair, SharedAccount::operators()).await;
    for (tenant, count) in [("beta", 2), ("alpha", 9), ("beta", 1)] {
        for _ in 0..count {
            assert_eq!(gateway.request(tenant, "POST", "/v1/files", "--b--").await.0, 200);
        }
    }
    let mut after = String::new();
    let mut found = Vec::new();
    loop {
        let path = format!("/v1/files?limit=2{after}");
        let (status, page) = gateway.request("beta", "GET", &path, "").await;
        assert_eq!(status, 200, "{page}");
        let ids: Vec<String> = page["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|file| file["id"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(page["last_id"].as_str(), ids.last().map(String::as_str), "{page}");
        found.extend(ids);
        if !page["has_more"].as_bool().unwrap() {
            break;
        }
        after = format!("&after={}", found.last().unwrap());
    }
    assert_eq!(found.len(), 3, "{found:?}");
}

/// Every line of an uploaded file may be a batch request, so the ids in each line are checked.
#[tokio::test(flavor = "multi_thread")]
async fn batch_files_cannot_name_foreign_objects() {
    let gateway = AccountGateway::open(ReplayMode::Repair, SharedAccount::operators()).await;
    let alpha = create(&gateway, "alpha").await;
    let line = json!({"custom_id": "1", "method": "POST", "url": "/v1/responses",
        "body": {"model": "gpt-5.2", "previous_response_id": alpha["openai response"]}});
    let upload = format!(
        "--b\r\ncontent-disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n\
         --b\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a.jsonl\"\r\n\r\n{line}\r\n--b--\r\n"
    );
    gateway.account.take();
    assert_eq!(gateway.request("beta", "POST", "/v1/files", &upload).await.0, 404);
    assert!(gateway.account.take().is_empty());
    assert_eq!(gateway.request("alpha", "POST", "/v1/files", &upload).await.0, 200);
}

/// Captured turns in stores of earlier versions have no owner keys, but still belong to their
/// tenant.
#[tokio::test(flavor = "multi_thread")]
async fn captured_ids_of_older_stores_keep_their_tenant() {
    let gateway = AccountGateway::open(ReplayMode::Off, SharedAccount::operators()).await;
    let target = target("openai", "openai-responses", "gpt-5.2");
    let answer = account::response("resp_old0123456789abcdef", "msg_old0123456789abcdef");
    let context = DecodeContext::of(target);
    let reply = codec_of("openai-responses").decode_reply(&answer.to_string().into(), &context);
    let reply = reply.unwrap();
    let (tenant, node) = (Tenant::from("alpha"), TurnId::from("old-node"));
    let log = LogId::from("conversation-old-node");
    let whose = json!({"v": 1, "turn": 0, "call": "old-node"}).to_string();
    let mut append = Append::new(log.clone()).opening(LogOpening::thread());
    append = append.record(NewRecord::new("turn", whose.into_bytes()));
    for stored in store_items(&reply.items) {
        append = append.record(NewRecord::new(kind::ITEM, stored.json.bytes().clone()));
    }
    let ids = ["resp_old0123456789abcdef", "msg_old0123456789abcdef"];
    let mut keys = vec![VaultKey::Claim(node.0.clone())];
    keys.extend(ids.map(|id| VaultKey::Id(id.into())));
    let mut batch = Batch::new(tenant).append(append);
    batch.vault.push(NewVaultTurn { id: node, parent: None, keys, log, prefix: None });
    gateway.journal.commit(batch).await.unwrap();
    let bodies = [
        json!({"model": "gpt-5.2", "input": "On", "previous_response_id": ids[0]}),
        json!({"model": "gpt-5.2", "input": [{"type": "item_reference", "id": ids[1]}]}),
    ];
    for body in bodies {
        for (tenant, expected) in [("beta", 404), ("alpha", 200)] {
            let (status, answer) =
                gateway.request(tenant, "POST", "/v1/responses", &body.to_string()).await;
            assert_eq!(status, expected, "{tenant} {body}: {answer}");
        }
    }
    for (tenant, expected) in [("beta", 404), ("alpha", 200)] {
        let path = format!("/v1/responses/{}", ids[0]);
        assert_eq!(gateway.request_in("openai", tenant, "GET", &path, "").await.0, expected);
    }
    // An id issued by one provider is not valid at another.
    let body = json!({"model": "house", "input": "On", "previous_response_id": ids[0]});
    assert_eq!(gateway.request("alpha", "POST", "/v1/responses", &body.to_string()).await.0, 404);
}

/// A background response has an owner even before it contains items.
#[tokio::test(flavor = "multi_thread")]
async fn responses_without_items_have_an_owner() {
    let gateway = AccountGateway::open(ReplayMode::Repair, SharedAccount::operators()).await;
    let body = json!({"model": "gpt-5.2", "input": "queued", "background": true}).to_string();
    let (status, answer) = gateway.request("alpha", "POST", "/v1/responses", &body).await;
    assert_eq!(status, 200, "{answer}");
    let path = format!("/v1/responses/{}/cancel", answer["id"].as_str().unwrap());
    assert_eq!(gateway.request_in("openai", "beta", "POST", &path, "").await.0, 404);
    assert_eq!(gateway.request_in("openai", "alpha", "POST", &path, "").await.0, 200);
}
