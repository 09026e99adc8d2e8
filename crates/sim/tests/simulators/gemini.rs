//! Tests for Gemini's generateContent: accepted requests, and rejected requests with their error
//! messages.

use crate::common::{HttpResponse, get, post, simulator};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use serde_json::{Value, json};
use throughline_sim::{Simulator, Verdict};

const KEY: [(&str, &str); 1] = [("x-goog-api-key", "one")];
const OTHER_KEY: [(&str, &str); 1] = [("x-goog-api-key", "two")];

fn declaration(name: &str) -> Value {
    let parameters = json!({
        "type": "OBJECT",
        "properties": {"city": {"type": "STRING"}},
        "required": ["city"],
    });
    json!({"name": name, "parameters": parameters})
}

fn request(contents: &[Value]) -> Value {
    json!({
        "contents": contents,
        "tools": [{"functionDeclarations": [declaration("weather"), declaration("news")]}],
        "generationConfig": {"thinkingConfig": {"includeThoughts": true}},
    })
}

fn thinking(config: &Value) -> Value {
    let contents = [user("Hi")];
    json!({"contents": contents, "generationConfig": {"thinkingConfig": config}})
}

fn user(text: &str) -> Value {
    json!({"role": "user", "parts": [{"text": text}]})
}

async fn submit(simulator: &Simulator, model: &str, request: &Value) -> HttpResponse {
    post(simulator, &format!("/v1beta/models/{model}:generateContent"), &KEY, request).await
}

async fn stream(simulator: &Simulator, model: &str, query: &str, request: &Value) -> HttpResponse {
    let path = format!("/v1beta/models/{model}:streamGenerateContent{query}");
    post(simulator, &path, &KEY, request).await
}

fn content(answer: &Value) -> Value {
    answer["candidates"][0]["content"].clone()
}

/// Appends the content and the results of its calls to `contents`; returns the number of calls.
fn append_reply(contents: &mut Vec<Value>, content: Value) -> usize {
    let calls: Vec<Value> = content["parts"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|part| part.get("functionCall").cloned())
        .collect();
    contents.push(content);
    if calls.is_empty() {
        return 0;
    }
    let results: Vec<Value> = calls
        .iter()
        .map(|call| {
            let response = json!({"result": "sunny ☀"});
            json!({"functionResponse": {"name": call["name"], "id": call["id"], "response": response}})
        })
        .collect();
    contents.push(json!({"role": "user", "parts": results}));
    calls.len()
}

/// Assembles the content from the chunks of a stream, and joins adjacent texts.
fn assembled(chunks: &[Value]) -> Value {
    let mut parts: Vec<Value> = Vec::new();
    for part in chunks.iter().flat_map(|chunk| content(chunk)["parts"].as_array().cloned().unwrap())
    {
        let is_bare =
            |part: &Value| part.get("text").is_some() && part.get("thoughtSignature").is_none();
        match parts.last_mut() {
            Some(last)
                if is_bare(last)
                    && is_bare(&part)
                    && last.get("thought") == part.get("thought") =>
            {
                let text =
                    last["text"].as_str().unwrap().to_owned() + part["text"].as_str().unwrap();
                last["text"] = json!(text);
            }
            _ => parts.push(part),
        }
    }
    json!({"role": "model", "parts": parts})
}

async fn one_step(simulator: &Simulator, model: &str) -> Vec<Value> {
    let mut contents = vec![user("What is the weather?")];
    let answer = submit(simulator, model, &request(&contents)).await.expect_ok();
    assert_eq!(append_reply(&mut contents, content(&answer)), 1);
    contents
}

/// Returns the first `functionCall` part of a content object.
fn call(content: &mut Value) -> &mut Value {
    let parts = content["parts"].as_array_mut().unwrap();
    parts.iter_mut().find(|part| part.get("functionCall").is_some()).unwrap()
}

const MODELS: [&str; 3] = ["gemini-2.5-flash", "gemini-3-pro-preview", "gemini-3-flash-preview"];

#[tokio::test]
async fn two_turns_with_tools_are_accepted_if_everything_is_returned() {
    for model in MODELS {
        for query in [None, Some("?alt=sse"), Some("")] {
            let simulator = simulator().await;
            let mut contents = vec![user("What is the weather in Zürich?")];
            let mut steps = 0;
            for turn in 0..2 {
                loop {
                    let body = request(&contents);
                    let reply = match query {
                        None => content(&submit(&simulator, model, &body).await.expect_ok()),
                        Some("") => {
                            let answer = stream(&simulator, model, "", &body).await;
                            let kind = &answer.headers["content-type"];
                            assert_eq!(kind, "application/json");
                            assembled(answer.expect_ok().as_array().unwrap())
                        }
                        Some(query) => {
                            assembled(&stream(&simulator, model, query, &body).await.events())
                        }
                    };
                    assert_eq!(reply["parts"][0]["thought"], true, "{reply}");
                    steps += 1;
                    if append_reply(&mut contents, reply) == 0 {
                        break;
                    }
                }
                contents.push(user(&format!("And then? {turn}")));
            }
            assert_eq!(steps, 6);
            let ledger = simulator.ledger();
            assert!(ledger.all_verified(), "{model} {query:?} {ledger:#?}");
            assert_eq!(
                (ledger.issued().count(), ledger.entries.last().unwrap().returned.len()),
                (6, 5)
            );
            simulator.stop().await;
        }
    }
}

#[tokio::test]
async fn first_parallel_call_is_signed_and_text_signature_streams_last() {
    let simulator = simulator().await;
    let mut contents = vec![user("What is the weather?")];
    let path = "/v1beta/models/gemini-3-pro-preview:generateContent";
    let headers = [KEY[0], ("x-sim-parallel", "true")];
    let answer = post(&simulator, path, &headers, &request(&contents)).await.expect_ok();
    let parts = content(&answer)["parts"].as_array().cloned().unwrap();
    let signed: Vec<bool> =
        parts.iter().map(|part| part.get("thoughtSignature").is_some()).collect();
    assert_eq!(signed, [false, true, false], "{parts:?}");
    assert_eq!(append_reply(&mut contents, content(&answer)), 2);
    let chunks =
        stream(&simulator, "gemini-3-pro-preview", "?alt=sse", &request(&contents)).await.events();
    let last = chunks.last().unwrap();
    assert_eq!(last["candidates"][0]["finishReason"], "STOP");
    let ending = content(last)["parts"].as_array().unwrap().last().cloned().unwrap();
    assert_eq!(ending["text"], "");
    assert!(!ending["thoughtSignature"].as_str().unwrap().is_empty());
    assert!(chunks.len() > 3);
    assert!(simulator.ledger().all_verified());
}

#[tokio::test]
async fn only_gemini_3_requires_the_first_call_signature() {
    let simulator = simulator().await;
    for model in MODELS {
        let contents = one_step(&simulator, model).await;
        for broken in [None, Some(json!(""))] {
            let mut unsigned = contents.clone();
            let part = call(&mut unsigned[1]).as_object_mut().unwrap();
            part.remove("thoughtSignature");
            part.extend(broken.map(|value| ("thoughtSignature".to_owned(), value)));
            let answer = submit(&simulator, model, &request(&unsigned)).await;
            if model.contains("2.5") {
                answer.expect_ok();
                assert_eq!(simulator.ledger().entries.last().unwrap().lost, 1);
                continue;
            }
            assert_eq!(
                answer.expect_error(400),
                "Function call is missing a thought_signature in functionCall parts. This is required for tools to work correctly, and missing thought_signature may lead to degraded model performance. Additional data, function call `default_api:weather` , position 2. Please refer to https://ai.google.dev/gemini-api/docs/thought-signatures for more details."
            );
            assert_eq!(answer.json()["error"]["status"], "INVALID_ARGUMENT");
            // Only the current turn is checked for signatures.
            unsigned
                .extend([json!({"role": "model", "parts": [{"text": "Sunny."}]}), user("And?")]);
            submit(&simulator, model, &request(&unsigned)).await.expect_ok();
        }
    }
    let contents = one_step(&simulator, "gemini-3-pro-preview").await;
    // Parallel calls that were split into separate contents count as separate steps.
    let mut split = contents.clone();
    let mut second = contents[1].clone();
    call(&mut second).as_object_mut().unwrap().remove("thoughtSignature");
    split.extend([second, contents[2].clone()]);
    let error =
        submit(&simulator, "gemini-3-pro-preview", &request(&split)).await.expect_error(400);
    assert!(error.contains("position 4"), "{error}");
    let path = "/v1/projects/p/locations/global/publishers/google/models/gemini-3-pro-preview:generateContent";
    let mut vertex = vec![user("Weather?")];
    let answer = post(&simulator, path, &KEY, &request(&vertex)).await.expect_ok();
    append_reply(&mut vertex, content(&answer));
    call(&mut vertex[1]).as_object_mut().unwrap().remove("thoughtSignature");
    let error = post(&simulator, path, &KEY, &request(&vertex)).await.expect_error(400);
    assert_eq!(
        error,
        "Function call `weather` in the `1.` content block is missing a `thought_signature`."
    );
    let count_path = "/v1beta/models/gemini-3-pro-preview:countTokens";
    let mut unsigned = contents.clone();
    call(&mut unsigned[1]).as_object_mut().unwrap().remove("thoughtSignature");
    post(&simulator, count_path, &KEY, &request(&unsigned)).await.expect_error(400);
    let wrapped = json!({"generateContentRequest": request(&contents)});
    let count = post(&simulator, count_path, &KEY, &wrapped).await.expect_ok();
    assert!(count["totalTokens"].as_u64() > Some(0));
}

#[tokio::test]
async fn invalid_signatures_are_rejected_as_corrupted() {
    let simulator = simulator().await;
    let model = "gemini-3-pro-preview";
    let contents = one_step(&simulator, model).await;
    let good = call(&mut contents[1].clone())["thoughtSignature"].as_str().unwrap().to_owned();
    let bytes = STANDARD.decode(&good).unwrap();
    let signed = |signature: &str| {
        let mut changed = contents.clone();
        call(&mut changed[1])["thoughtSignature"] = json!(signature);
        request(&changed)
    };
    // Signatures are valid in both base64 alphabets.
    submit(&simulator, model, &signed(&URL_SAFE.encode(&bytes))).await.expect_ok();
    assert!(simulator.ledger().all_verified());
    let mut flipped = bytes.clone();
    flipped[40] ^= 1;
    let cases = [
        STANDARD.encode(&flipped),
        STANDARD.encode(&bytes[..bytes.len() - 3]),
        "EqQBCgIYAhIk".to_owned(),
    ];
    for bad in cases {
        let answer = submit(&simulator, model, &signed(&bad)).await;
        assert_eq!(answer.expect_error(400), "Corrupted thought signature.");
    }
    let error = submit(&simulator, model, &signed("not base64!")).await.expect_error(400);
    assert!(error.starts_with("Invalid value at 'contents[1].parts[1].thought_signature'"));
    let path = format!("/v1beta/models/{model}:generateContent");
    let elsewhere = post(&simulator, &path, &OTHER_KEY, &signed(&good)).await;
    assert_eq!(elsewhere.expect_error(400), "Corrupted thought signature.");
    let vertex = format!("/at/vertex{path}");
    let elsewhere = post(&simulator, &vertex, &KEY, &signed(&good)).await;
    assert_eq!(elsewhere.expect_error(400), "Corrupted thought signature.");
    // Other Gemini models accept the signature, because no documentation states otherwise.
    submit(&simulator, "gemini-3-flash-preview", &signed(&good)).await.expect_ok();
    let last = simulator.ledger().entries.last().cloned().unwrap();
    assert_eq!(last.returned[0].verdict, Verdict::Accepted);
}

#[tokio::test]
async fn documented_placeholder_signatures_are_accepted() {
    let simulator = simulator().await;
    let contents = one_step(&simulator, "gemini-3-pro-preview").await;
    for placeholder in ["skip_thought_signature_validator", "context_engineering_is_the_way_to_go"]
    {
        for spelling in [placeholder.to_owned(), STANDARD.encode(placeholder)] {
            let mut changed = contents.clone();
            call(&mut changed[1])["thoughtSignature"] = json!(spelling);
            submit(&simulator, "gemini-3-pro-preview", &request(&changed)).await.expect_ok();
            let last = simulator.ledger().entries.last().cloned().unwrap();
            assert_eq!(last.returned[0].verdict, Verdict::Dropped("stand_in".to_owned()));
        }
    }
}

#[tokio::test]
async fn edited_text_is_accepted_and_recorded() {
    let simulator = simulator().await;
    let model = "gemini-3-pro-preview";
    let mut contents = vec![user("Hi")];
    let body = json!({"contents": contents});
    append_reply(&mut contents, content(&submit(&simulator, model, &body).await.expect_ok()));
    contents[1]["parts"][0]["text"] = json!("Something else.");
    contents.push(user("And then?"));
    submit(&simulator, model, &json!({"contents": contents})).await.expect_ok();
    let last = simulator.ledger().entries.last().cloned().unwrap();
    assert_eq!(last.returned[0].verdict, Verdict::Dropped("text_edited".to_owned()));
}

#[tokio::test]
async fn unsupported_levels_and_budgets_are_rejected() {
    let simulator = simulator().await;
    let cases = [
        (
            "gemini-2.5-flash",
            json!({"thinkingLevel": "LOW"}),
            "Thinking level is not supported for this model.",
        ),
        (
            "gemini-3-pro-preview",
            json!({"thinkingLevel": "minimal"}),
            "Thinking level MINIMAL is not supported for this model. Please retry with other thinking level.",
        ),
        (
            "gemini-2.5-pro",
            json!({"thinkingBudget": 52428}),
            "The thinking budget (52428) is invalid. Please choose a value between 128 and 32768.",
        ),
        (
            "gemini-2.5-pro",
            json!({"thinkingBudget": 0}),
            "The thinking budget (0) is invalid. Please choose a value between 128 and 32768.",
        ),
        (
            "gemini-2.5-flash",
            json!({"thinkingBudget": 0, "includeThoughts": true}),
            "Unable to submit request because Thinking_config.include_thoughts is only enabled when thinking is enabled.",
        ),
    ];
    for (model, config, expected) in cases {
        let answer = submit(&simulator, model, &thinking(&config)).await;
        assert_eq!(answer.expect_error(400), expected, "{model}");
    }
    let accepted = [
        ("gemini-3-pro-preview", json!({"thinkingLevel": "low"})),
        ("gemini-2.5-flash", json!({"thinkingBudget": 0})),
        ("gemini-2.5-pro", json!({"thinkingBudget": -1})),
        ("gemini-2.5-pro", json!({"thinking_budget": 128, "include_thoughts": true})),
    ];
    for (model, config) in accepted {
        submit(&simulator, model, &thinking(&config)).await.expect_ok();
    }
}

#[tokio::test]
async fn mismatched_result_counts_are_rejected() {
    let simulator = simulator().await;
    for model in MODELS {
        let mut contents = one_step(&simulator, model).await;
        let twice = contents[2]["parts"][0].clone();
        contents[2]["parts"].as_array_mut().unwrap().push(twice);
        let error = submit(&simulator, model, &request(&contents)).await.expect_error(400);
        assert_eq!(
            error,
            "Please ensure that the number of function response parts is equal to the number of function call parts of the function call turn."
        );
        contents[2] = user("Well?");
        submit(&simulator, model, &request(&contents)).await.expect_error(400);
    }
}

#[tokio::test]
async fn models_are_listed() {
    let simulator = simulator().await;
    let list = get(&simulator, "/v1beta/models", &KEY).await.expect_ok();
    assert!(list["models"].as_array().unwrap().len() > 3);
    // Google's client also lists models at the path that other providers use.
    assert_eq!(get(&simulator, "/v1/models", &KEY).await.expect_ok(), list);
    let one = get(&simulator, "/v1beta/models/gemini-2.5-pro", &KEY).await.expect_ok();
    assert_eq!(one["name"], "models/gemini-2.5-pro");
}

/// A token continues an interrupted reply only with the same contents and for the same account.
#[tokio::test]
async fn token_continues_an_interrupted_reply() {
    let script = r#"[{"texts": ["One, "], "stop": "continuation"}, {"texts": ["two."]}]"#;
    let options =
        throughline_sim::Options { script: script.parse().unwrap(), ..Default::default() };
    let simulator = throughline_sim::start(options).await.unwrap();
    let model = "gemini-3-pro-preview";
    let mut body = request(&[user("Count")]);
    let first = submit(&simulator, model, &body).await.expect_ok();
    let candidate = &first["candidates"][0];
    assert_eq!(candidate["finishReason"], "CONTINUATION");
    body["continuationToken"] = candidate["continuationToken"].clone();
    let mut other = body.clone();
    other["contents"] = json!([user("Something else")]);
    let expected = "The continuation token is invalid or does not belong to these contents.";
    assert_eq!(submit(&simulator, model, &other).await.expect_error(400), expected);
    let path = format!("/v1beta/models/{model}:generateContent");
    let answer = post(&simulator, &path, &OTHER_KEY, &body).await;
    assert_eq!(answer.expect_error(400), expected);
    let second = submit(&simulator, model, &body).await.expect_ok();
    assert_eq!(second["candidates"][0]["content"]["parts"][0]["text"], "two.");
    assert_eq!(second["candidates"][0]["finishReason"], "STOP");
}
