//! HTTP tools before a raw socket.

use std::time::Duration;

use throughline_agent::{Tool, ToolAnswer};
use throughline_core::{Credential, Media, Outcome, Part};
use throughline_tools::{Declared, HttpBody, HttpConfig, HttpTool};

use crate::world::{Does, Raw, SECRET, redirect, reply, run, texts};

fn tool(config: HttpConfig) -> HttpTool {
    HttpTool::new(config).unwrap()
}

fn lines(request: &str) -> Vec<&str> {
    request.split("\r\n").collect()
}

#[tokio::test]
async fn arguments_go_where_the_declaration_puts_them() {
    let server = Raw::start(|_| reply("200 OK", "application/json", r#"{"sun":1}"#)).await;
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
    let heard = server.heard();
    let told = lines(&heard[0]);
    assert_eq!(told[0], "GET /v1/S%C3%A3o%20Paulo%2F..?unit=C%26x%3D1&days=3 HTTP/1.1");
    assert!(told.contains(&format!("x-key: {SECRET}").as_str()), "{told:?}");
    assert!(!format!("{weather:?}").contains(SECRET));
}

#[tokio::test]
async fn a_body_is_what_is_left_of_the_arguments() {
    let server = Raw::start(|_| reply("201 Created", "text/plain", "")).await;
    let args = r#"{"id":"7","note":{"a": 1e2},"tags":["x"]}"#;
    let url = format!("{}/notes/{{id}}", server.url);
    let mut config = HttpConfig::post("note", url);
    assert!(!config.spec.idempotent);
    for body in [HttpBody::Json, HttpBody::Form, HttpBody::Argument("note".into()), HttpBody::None]
    {
        config.body = body;
        assert_eq!(run(&tool(config.clone()), args).await, ToolAnswer::text(""));
    }
    let heard = server.heard();
    let bodies: Vec<&str> = heard.iter().map(|request| *lines(request).last().unwrap()).collect();
    let form = "note=%7B%22a%22%3A+1e2%7D&tags=%5B%22x%22%5D";
    assert_eq!(bodies, [r#"{"note":{"a": 1e2},"tags":["x"]}"#, form, r#"{"a": 1e2}"#, ""]);
    assert!(heard[0].starts_with("POST /notes/7 HTTP/1.1"));
    assert!(heard[0].contains("content-type: application/json"));
    assert!(heard[1].contains("content-type: application/x-www-form-urlencoded"));
}

#[tokio::test]
async fn statuses_are_errors_as_declared_and_no_error_tells_a_secret() {
    let server = Raw::start(|request| match request.split(' ').nth(1).unwrap() {
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
    let elsewhere = Raw::start(|_| reply("200 OK", "text/plain", "elsewhere")).await;
    let to = elsewhere.url.clone();
    let server = Raw::start(move |request| match request.split(' ').nth(1).unwrap() {
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
        (r#"{"page":"round"}"#, "again and again"),
    ] {
        let answer = run(&page, name).await;
        assert_eq!(answer.outcome, Outcome::Error);
        assert!(answer.said().contains(reason), "{answer:?}");
    }
    assert_eq!(elsewhere.heard().len(), 0);
}

#[tokio::test]
async fn a_slow_server_is_given_up() {
    let server =
        Raw::start(|_| Does::Stalls("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nha")).await;
    let mut config = HttpConfig::get("page", server.url.clone());
    config.timeout = Duration::from_millis(300);
    let answer = run(&tool(config.clone()), "{}").await;
    assert_eq!(answer, ToolAnswer::error("There was no answer within 300 ms."));
    config.spec.idempotent = false;
    let answer = run(&tool(config), "{}").await;
    assert_eq!(answer.outcome, Outcome::Unknown);
    assert!(answer.said().contains("Whether it took effect is unknown"), "{answer:?}");
}

#[tokio::test]
async fn a_request_that_was_not_sent_has_failed_and_one_that_broke_off_is_unknown() {
    let server =
        Raw::start(|_| Does::Breaks("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nha")).await;
    let broke = run(&tool(HttpConfig::post("note", server.url.clone())), "{}").await;
    assert_eq!(broke.outcome, Outcome::Unknown, "{broke:?}");
    assert_eq!(server.heard().len(), 1, "nothing is sent twice");
    let silent = Raw::start(|_| Does::Breaks("")).await;
    let broke = run(&tool(HttpConfig::post("note", silent.url.clone())), "{}").await;
    assert_eq!(broke.outcome, Outcome::Unknown, "{broke:?}");
    assert_eq!(silent.heard().len(), 1, "nothing is sent twice");
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let refused = run(&tool(HttpConfig::post("note", format!("http://{closed}/"))), "{}").await;
    assert_eq!(refused.outcome, Outcome::Error, "{refused:?}");
    assert!(refused.said().contains("onnection refused"), "{refused:?}");
}

#[tokio::test]
async fn a_huge_answer_is_cut_and_the_rest_is_not_read() {
    let server = Raw::start(|_| {
        let body = "é".repeat(1000);
        Does::Stalls(Box::leak(
            format!("HTTP/1.1 200 OK\r\ncontent-length: 999999999\r\n\r\n{body}").into_boxed_str(),
        ))
    })
    .await;
    let mut config = HttpConfig::get("page", server.url.clone());
    config.largest_answer = 101;
    let answer = run(&tool(config), "{}").await;
    let note = "[The answer is longer than 101 bytes and was cut here.]";
    assert_eq!(texts(&answer), ["é".repeat(50).as_str(), note]);
    assert_eq!(answer.outcome, Outcome::Ok);
}

#[tokio::test]
async fn pictures_are_shown_and_other_bytes_are_not() {
    let server = Raw::start(|request| match request.split(' ').nth(1).unwrap() {
        "/picture" => reply("200 OK", "Image/PNG", b"hello"),
        _ => reply("200 OK", "application/octet-stream", [0, 159, 146, 150]),
    })
    .await;
    let page = tool(HttpConfig::get("page", format!("{}/{{page}}", server.url)));
    let image = Media::Inline { mime: "image/png".into(), base64: "aGVsbG8=".into() };
    let picture = run(&page, r#"{"page":"picture"}"#).await;
    assert_eq!(picture, ToolAnswer { outcome: Outcome::Ok, parts: vec![Part::Media(image)] });
    let bytes = run(&page, r#"{"page":"bytes"}"#).await;
    let note = "[The answer is bytes of `application/octet-stream`, which cannot be shown.]";
    assert_eq!(bytes, ToolAnswer::text(note), "it is there all the same");
}

#[tokio::test]
async fn nothing_is_sent_to_a_metadata_service() {
    for url in [
        "http://169.254.169.254/latest/{a}",
        "http://metadata.google.internal/",
        "http://[fd00:ec2::254]/",
    ] {
        let refused = HttpTool::new(HttpConfig::get("a", url)).unwrap_err().to_string();
        assert!(refused.contains("is link-local or a metadata service"), "{refused}");
    }
}

#[tokio::test]
async fn declared_tools_are_opened_together_and_have_names_of_their_own() {
    let server = Raw::start(|_| reply("200 OK", "text/plain", "hello")).await;
    let text = format!("[http.greet]\nurl = \"{}/{{name}}\"\n", server.url);
    let nothing = |_: &str| None;
    let declared = Declared::toml(&text, &[], &nothing).unwrap();
    let tools = declared.clone().open().await.unwrap();
    assert_eq!(run(&*tools[0], r#"{"name":"Ann"}"#).await, ToolAnswer::text("hello"));
    let line = Declared::line(&format!("http:greet={}", server.url), &nothing).unwrap();
    let twice = declared.and(line).open().await.err().unwrap().to_string();
    assert_eq!(twice, "there are two tools of the name `greet`: call one of them otherwise");
}
