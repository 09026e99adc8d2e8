//! Tests of requests that the gateway and a provider could parse differently. Also tests responses
//! that contain ids chosen by a caller.

use serde_json::json;
use throughline_server::ReplayMode;

use crate::harness::begin;
use crate::isolation::account::{AccountGateway, SharedAccount};
use crate::isolation::create;

/// A path, a body, headers, and the expected status.
type Case<'c> = (&'c str, String, &'c [(&'c str, &'c str)], u16);

/// Sends a request as tenant `beta` and returns the status.
async fn status(gateway: &AccountGateway, path: &str, body: &str, headers: &[(&str, &str)]) -> u16 {
    let headers = [&[("x-api-key", "tl_beta")], headers].concat();
    begin(&gateway.url, "POST", path, body.into(), &headers).await.status().as_u16()
}

const JSON: (&str, &str) = ("content-type", "application/json");
const GZIP: &[(&str, &str)] = &[JSON, ("content-encoding", "gzip")];
const FORM: (&str, &str) = ("content-type", "multipart/form-data; boundary=b");

#[tokio::test(flavor = "multi_thread")]
async fn ids_echoed_by_a_model_do_not_become_owned() {
    let gateway = AccountGateway::open(ReplayMode::Repair, SharedAccount::operators()).await;
    let alpha = create(&gateway, "alpha").await;
    for (dialect, path, model) in
        [("anthropic", "/v1/messages", "claude-sonnet-4-5"), ("openai", "/v1/responses", "gpt-5.2")]
    {
        let (file, container) =
            (&alpha[&format!("{dialect} file")], &alpha[&format!("{dialect} container")]);
        for id in [file, container] {
            let text = format!("Call the tool with forge({id}).");
            let body = json!({"model": model, "max_tokens": 64, "input": text,
                "messages": [{"role": "user", "content": text}]});
            let (status, answer) =
                gateway.request_in(dialect, "beta", "POST", path, &body.to_string()).await;
            assert_eq!(status, 200, "{answer}");
            assert!(answer.to_string().contains(&**id), "{answer}");
        }
        gateway.account.take();
        let content = format!("/v1/files/{file}/content");
        assert_eq!(
            gateway.request_in(dialect, "beta", "GET", &content, "").await.0,
            404,
            "{dialect}"
        );
        if dialect == "openai" {
            let path = format!("/v1/containers/{container}");
            assert_eq!(gateway.request_in(dialect, "beta", "GET", &path, "").await.0, 404);
        }
        assert!(gateway.account.take().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn path_spellings_cannot_bypass_checks() {
    let gateway = AccountGateway::open(ReplayMode::Repair, SharedAccount::operators()).await;
    let beta = create(&gateway, "beta").await;
    let container = &beta["openai container"];
    gateway.account.take();
    for path in [
        "/v1beta/models/gemini%2F..%2Fbatches%2FA:cancel%3Fx=:embedContent",
        "/v1beta/models/gemini-3/../batches/A:cancel:embedContent",
        "/v1beta/models/gemini-3%3Fx=:embedContent",
        "/v1beta/models/gemini-3%5C..:embedContent",
        &format!("/v1/containers/{container}/files/..%2F..%2FA%2Ffiles"),
        &format!("/v1/containers/{container}/files/%2e%2e"),
    ] {
        assert_eq!(status(&gateway, path, "{}", &[JSON]).await, 404, "{path}");
    }
    assert_eq!(gateway.account.take(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn unparsable_bodies_are_not_forwarded() {
    let gateway = AccountGateway::open(ReplayMode::Repair, SharedAccount::operators()).await;
    let (alpha, beta) = (create(&gateway, "alpha").await, create(&gateway, "beta").await);
    let store = format!("/v1/vector_stores/{}/files", beta["openai vector_store"]);
    let container = format!("/v1/containers/{}/files", beta["openai container"]);
    let file = &alpha["openai file"];
    let named = json!({"file_id": file}).to_string();
    let form = format!(
        "--b\r\ncontent-disposition: form-data; name=\"file_id\"\r\n\r\n{file}\r\n--b--\r\n"
    );
    let batch = |line: &str| {
        format!(
            "--b\r\ncontent-disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--b\r\n\
             content-disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n{line}\r\n--b--\r\n"
        )
    };
    let response = &alpha["openai response"];
    let lax = format!(r#"{{"body":{{"previous_response_id":"{response}","x":NaN}}}}"#);
    let after_return = format!(r#"{{}}{}{{"body":{{"previous_response_id":"{response}"}}}}"#, '\r');
    let interaction = json!({"previous_interaction_id": alpha["gemini interaction"]}).to_string();
    let escaped = "/upload/v1beta/files?upload%5Fid=A";
    let twice = "/upload/v1beta/files?upload_id=B&upload_id=A";
    gateway.account.take();
    let cases: Vec<Case<'_>> = vec![
        (&store, named.clone(), &[JSON], 404),
        (&store, named.clone(), GZIP, 400),
        (&store, format!(r#"{{"file_id":"{file}","x":NaN}}"#), &[JSON], 400),
        (
            &store,
            format!("file_id={file}"),
            &[("content-type", "application/x-www-form-urlencoded")],
            400,
        ),
        (&container, form.clone(), &[FORM], 404),
        (&container, form.replace("--b", "--c"), &[FORM], 400),
        ("/v1/files", batch(&lax), &[FORM], 400),
        ("/v1/files", batch(&after_return), &[FORM], 404),
        ("/v1beta/interactions", interaction.clone(), &[JSON], 404),
        ("/v1beta/interactions", interaction, GZIP, 400),
        ("/v1beta/interactions?$httpMethod=GET", "{}".to_owned(), &[JSON], 400),
        ("/v1beta/files", r#"{"file":{"name":"files/report"}}"#.to_owned(), &[JSON], 400),
        (escaped, "x".to_owned(), &[], 404),
        (twice, "x".to_owned(), &[], 404),
    ];
    for (path, body, headers, expected) in cases {
        assert_eq!(status(&gateway, path, &body, headers).await, expected, "{path} {body}");
    }
    assert_eq!(gateway.account.take(), [""; 0]);
    let own = form.replace(&**file, &beta["openai file"]);
    assert_eq!(status(&gateway, &container, &own, &[FORM]).await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn passthrough_bodies_may_name_only_own_objects() {
    let gateway = AccountGateway::open_with_passthrough(&["/v1/evals*"]).await;
    let (alpha, beta) = (create(&gateway, "alpha").await, create(&gateway, "beta").await);
    for (file, expected) in [(&alpha["openai file"], 404), (&beta["openai file"], 200)] {
        let body = json!({"data_source": {"file_id": file}}).to_string();
        assert_eq!(status(&gateway, "/v1/evals", &body, &[JSON]).await, expected);
    }
}

/// A path that names one of the caller's objects and one of another tenant's objects is refused.
#[tokio::test(flavor = "multi_thread")]
async fn every_id_in_a_path_is_checked() {
    let gateway = AccountGateway::open(ReplayMode::Repair, SharedAccount::operators()).await;
    let (alpha, beta) = (create(&gateway, "alpha").await, create(&gateway, "beta").await);
    gateway.account.take();
    for (own, foreign, template) in [
        ("vector_store", "file", "/v1/vector_stores/OWN/files/FOREIGN"),
        ("vector_store", "file", "/v1/vector_stores/OWN/files/FOREIGN/content"),
        ("conversation", "item", "/v1/conversations/OWN/items/FOREIGN"),
    ] {
        let path = template.replace("OWN", &beta[&format!("openai {own}")]);
        let path = path.replace("FOREIGN", &alpha[&format!("openai {foreign}")]);
        assert_eq!(gateway.request("beta", "GET", &path, "").await.0, 404, "{path}");
    }
    assert_eq!(gateway.account.take(), [""; 0]);
}

/// The gateway refuses a request with content that is stored only at another provider.
#[tokio::test(flavor = "multi_thread")]
async fn content_stored_at_another_provider_is_rejected() {
    for mode in [ReplayMode::Repair, ReplayMode::Off] {
        let gateway = AccountGateway::open(mode, SharedAccount::operators()).await;
        let beta = create(&gateway, "beta").await;
        let own = |kind: &str| beta[kind].clone();
        let question = json!([{"role": "user", "content": "Go on"}]);
        let contents = json!([{"role": "user", "parts": [{"text": "Go on"}]}]);
        let generate = "/v1beta/models/claude-sonnet-4-5:generateContent";
        gateway.account.take();
        for (dialect, path, body) in [
            (
                "openai",
                "/v1/responses",
                json!({"model": "claude-sonnet-4-5", "input": "Go on",
                    "conversation": own("openai conversation")}),
            ),
            (
                "openai",
                "/v1/responses",
                json!({"model": "claude-sonnet-4-5", "input": "Go on", "prompt": {"id": "pmpt_1"}}),
            ),
            (
                "gemini",
                generate,
                json!({"contents": contents, "cachedContent": own("gemini cached_content")}),
            ),
            (
                "anthropic",
                "/v1/messages",
                json!({"model": "gpt-5.2", "max_tokens": 9, "messages": question,
                    "thread": {"type": "continue", "previous_message_id": own("anthropic thread")}}),
            ),
        ] {
            let (status, answer) =
                gateway.request_in(dialect, "beta", "POST", path, &body.to_string()).await;
            assert_eq!(status, 400, "{mode:?} {path}: {answer}");
            assert!(answer.to_string().contains("send the content itself"), "{answer}");
        }
        if mode == ReplayMode::Off {
            let body = json!({"model": "claude-sonnet-4-5", "input": "Go on",
                "previous_response_id": own("openai response")});
            let (status, answer) =
                gateway.request("beta", "POST", "/v1/responses", &body.to_string()).await;
            assert!(status >= 400, "{answer}");
        }
        assert_eq!(gateway.account.take(), [""; 0]);
    }
}
