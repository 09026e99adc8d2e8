//! Tests for HTTP tools against a raw socket server.

use std::time::Duration;

use throughline_agent::{Tool, ToolAnswer};
use throughline_core::{Credential, Media, Outcome, Part};
use throughline_tools::{HttpBody, HttpConfig, HttpTool, ToolDeclarations};

use crate::world::{RawServer, Reaction, SECRET, redirect, reply, run, texts};

fn tool(config: HttpConfig) -> HttpTool {
    HttpTool::new(config).unwrap()
}

fn lines(request: &str) -> Vec<&str> {
    request.split("\r\n").collect()
}

#[tokio::test]
async fn arguments_fill_url_and_query_as_declared() {
    let server = RawServer::start(|_| reply("200 OK", "application/json", r#"{"sun":1}"#)).await;
    let mut config =
        HttpConfig::get("weather", format!("{}/v1/{{city}}?unit={{unit}}", server.url));
    config.query = vec!["days".into(), "hours".into()];
    config.headers = vec![("X-Key".into(), Credential::new(SECRET))];
    let weather = tool(config);
    let spec = weather.spec();
    assert!(spec.idempotent);
    let schema = r#"{"type":"object","properties":{"city":{"type":"string"},"unit":{"type":"string"},"days":{"type":"string"},"hours":{"type":"string"}},"required":["city","unit"],"additionalProperties":false}"#;
    assert_eq!(spec.schema.unwrap().as_str(), schema);
    let answer = run(&weather, r#"{"city":"São Paulo/..","unit":"C&x=1","days":3}"#).await;
    assert_eq!(answer, ToolAnswer::text(r#"{"sun":1}"#));
    let requests = server.requests();
    let request_lines = lines(&requests[0]);
    assert_eq!(request_lines[0], "GET /v1/S%C3%A3o%20Paulo%2F..?unit=C%26x%3D1&days=3 HTTP/1.1");
    assert!(request_lines.contains(&format!("x-key: {SECRET}").as_str()), "{request_lines:?}");
    assert!(!format!("{weather:?}").contains(SECRET));
}

#[tokio::test]
async fn body_contains_the_remaining_arguments() {
    let server = RawServer::start(|_| reply("201 Created", "text/plain", "")).await;
    let args = r#"{"id":"7","note":{"a": 1e2},"tags":["x"]}"#;
    let url = format!("{}/notes/{{id}}", server.url);
    let mut config = HttpConfig::post("note", url);
    assert!(!config.spec.idempotent);
    for body in [HttpBody::Json, HttpBody::Form, HttpBody::Argument("note".into()), HttpBody::None]
    {
        config.body = body;
        assert_eq!(run(&tool(config.clone()), args).await, ToolAnswer::text(""));
    }
    let requests = server.requests();
    let bodies: Vec<&str> =
        requests.iter().map(|request| *lines(request).last().unwrap()).collect();
    let form = "note=%7B%22a%22%3A+1e2%7D&tags=%5B%22x%22%5D";
    assert_eq!(bodies, [r#"{"note":{"a": 1e2},"tags":["x"]}"#, form, r#"{"a": 1e2}"#, ""]);
    assert!(requests[0].starts_with("POST /notes/7 HTTP/1.1"));
    assert!(requests[0].contains("content-type: application/json"));
    assert!(requests[1].contains("content-type: application/x-www-form-urlencoded"));
}

#[tokio::test]
async fn declared_statuses_are_errors_without_secrets() {
    let server = RawServer::start(|request| match request.split(' ').nth(1).unwrap() {
        "/missing" => reply("404 Not Found", "text/plain", format!("not with {SECRET}")),
        _ => reply("500 Internal Server Error", "text/plain", "oh"),
    })
    .await;
    let url = format!("{}/{{page}}", server.url);
    let mut config = HttpConfig::get("page", url);
    config.headers = vec![("Authorization".into(), Credential::new(format!("Bearer {SECRET}")))];
    let page = tool(config.clone());
    let missing = run(&page, r#"{"page":"missing"}"#).await;
    assert_eq!(missing.outcome, Outcome::Error);
    assert_eq!(texts(&missing), ["HTTP 404 Not Found", "not with …"]);
    config.errors = vec![500..=599];
    let page = tool(config);
    assert_eq!(run(&page, r#"{"page":"missing"}"#).await.outcome, Outcome::Ok);
    assert_eq!(run(&page, r#"{"page":"broken"}"#).await.outcome, Outcome::Error);
    let without = run(&page, "{}").await;
    assert_eq!(without, ToolAnswer::error("The argument `page` is missing."));
}

#[tokio::test]
async fn a_redirect_is_followed_within_the_same_origin_only() {
    let elsewhere = RawServer::start(|_| reply("200 OK", "text/plain", "elsewhere")).await;
    let to = elsewhere.url.clone();
    let server = RawServer::start(move |request| match request.split(' ').nth(1).unwrap() {
        "/old" => redirect("301 Moved Permanently", "/new"),
        "/round" => redirect("302 Found", "/round"),
        "/away" => redirect("302 Found", &format!("{to}/")),
        "/metadata" => redirect("307 Temporary Redirect", "http://169.254.169.254/latest"),
        _ => reply("200 OK", "text/plain", "here"),
    })
    .await;
    let page = tool(HttpConfig::get("page", format!("{}/{{page}}", server.url)));
    assert_eq!(run(&page, r#"{"page":"old"}"#).await, ToolAnswer::text("here"));
    for (name, reason) in [
        (r#"{"page":"away"}"#, "it redirects to 127.0.0.1"),
        (r#"{"page":"metadata"}"#, "it redirects to 169.254.169.254"),
        (r#"{"page":"round"}"#, "too often"),
    ] {
        let answer = run(&page, name).await;
        assert_eq!(answer.outcome, Outcome::Error);
        assert!(answer.to_text().contains(reason), "{answer:?}");
    }
    assert_eq!(elsewhere.requests().len(), 0);
}

#[tokio::test]
async fn slow_server_times_out() {
    let server =
        RawServer::start(|_| Reaction::Stalls("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nha"))
            .await;
    let mut config = HttpConfig::get("page", server.url.clone());
    config.timeout = Duration::from_millis(300);
    let answer = run(&tool(config.clone()), "{}").await;
    assert_eq!(answer, ToolAnswer::error("There was no response within 300 ms."));
    config.spec.idempotent = false;
    let answer = run(&tool(config), "{}").await;
    assert_eq!(answer.outcome, Outcome::Unknown);
    assert!(answer.to_text().contains("It is unknown whether the call took effect"), "{answer:?}");
}

#[tokio::test]
async fn unsent_request_fails_and_broken_request_is_unknown() {
    let server =
        RawServer::start(|_| Reaction::Breaks("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nha"))
            .await;
    let broke = run(&tool(HttpConfig::post("note", server.url.clone())), "{}").await;
    assert_eq!(broke.outcome, Outcome::Unknown, "{broke:?}");
    assert_eq!(server.requests().len(), 1, "requests are never repeated");
    let silent = RawServer::start(|_| Reaction::Breaks("")).await;
    let broke = run(&tool(HttpConfig::post("note", silent.url.clone())), "{}").await;
    assert_eq!(broke.outcome, Outcome::Unknown, "{broke:?}");
    assert_eq!(silent.requests().len(), 1, "requests are never repeated");
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let refused = run(&tool(HttpConfig::post("note", format!("http://{closed}/"))), "{}").await;
    assert_eq!(refused.outcome, Outcome::Error, "{refused:?}");
    assert!(refused.to_text().contains("onnection refused"), "{refused:?}");
}

#[tokio::test]
async fn large_response_is_truncated_and_not_read_further() {
    let server = RawServer::start(|_| {
        let body = "é".repeat(1000);
        Reaction::Stalls(Box::leak(
            format!("HTTP/1.1 200 OK\r\ncontent-length: 999999999\r\n\r\n{body}").into_boxed_str(),
        ))
    })
    .await;
    let mut config = HttpConfig::get("page", server.url.clone());
    config.largest_answer = 101;
    let answer = run(&tool(config), "{}").await;
    let note = "[The result is longer than 101 bytes and was truncated here.]";
    assert_eq!(texts(&answer), ["é".repeat(50).as_str(), note]);
    assert_eq!(answer.outcome, Outcome::Ok);
}

#[tokio::test]
async fn images_are_returned_and_other_binary_data_is_not() {
    let server = RawServer::start(|request| match request.split(' ').nth(1).unwrap() {
        "/picture" => reply("200 OK", "Image/PNG", b"hello"),
        _ => reply("200 OK", "application/octet-stream", [0, 159, 146, 150]),
    })
    .await;
    let page = tool(HttpConfig::get("page", format!("{}/{{page}}", server.url)));
    let image = Media::Inline { mime: "image/png".into(), base64: "aGVsbG8=".into() };
    let picture = run(&page, r#"{"page":"picture"}"#).await;
    assert_eq!(picture, ToolAnswer { outcome: Outcome::Ok, parts: vec![Part::Media(image)] });
    let bytes = run(&page, r#"{"page":"bytes"}"#).await;
    let note =
        "[The response is binary data of type `application/octet-stream`, which cannot be shown.]";
    assert_eq!(bytes, ToolAnswer::text(note), "the result is still a success");
}

#[tokio::test]
async fn metadata_services_are_blocked() {
    for url in [
        "http://169.254.169.254/latest/{a}",
        "http://metadata.google.internal/",
        "http://[fd00:ec2::254]/",
    ] {
        let error = HttpTool::new(HttpConfig::get("a", url)).unwrap_err().to_string();
        assert!(error.contains("is a link-local or cloud metadata address"), "{error}");
    }
}

#[tokio::test]
async fn declared_tools_open_together_with_unique_names() {
    let server = RawServer::start(|_| reply("200 OK", "text/plain", "hello")).await;
    let text = format!("[http.greet]\nurl = \"{}/{{name}}\"\n", server.url);
    let nothing = |_: &str| None;
    let declared = ToolDeclarations::toml(&text, &[], &nothing).unwrap();
    let tools = declared.clone().open().await.unwrap();
    assert_eq!(run(&*tools[0], r#"{"name":"Ann"}"#).await, ToolAnswer::text("hello"));
    let line = ToolDeclarations::line(&format!("http:greet={}", server.url), &nothing).unwrap();
    let twice = declared.merge(line).open().await.err().unwrap().to_string();
    assert_eq!(twice, "two tools have the name `greet`; rename one of them");
}
