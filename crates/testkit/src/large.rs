//! Request shapes that can be built in any size, for tests that measure how time and memory grow.

use std::fmt::Write as _;

/// A request shape that can be built with any number of repeated elements.
pub struct LargeRequest {
    /// The endpoint and the repeated element, for test output.
    pub name: &'static str,
    /// Wire of the request, such as `openai-responses`.
    pub wire: &'static str,
    /// Provider and model that the request is addressed to.
    pub target: (&'static str, &'static str),
    /// Builds the request body with this number of repeated elements.
    pub body: fn(usize) -> String,
}

/// Builds `count` elements from their indexes and joins them with commas.
fn list(count: usize, element: impl Fn(usize, &mut String)) -> String {
    let mut out = String::new();
    for number in 0..count {
        if number > 0 {
            out.push(',');
        }
        element(number, &mut out);
    }
    out
}

/// Repeats an element `count` times, separated by commas. In each copy, `#` is replaced by the
/// copy's index.
fn repeated(count: usize, element: &str) -> String {
    let pieces: Vec<&str> = element.split('#').collect();
    let mut out = String::with_capacity(count * (element.len() + 6));
    for number in 0..count {
        if number > 0 {
            out.push(',');
        }
        let number = number.to_string();
        for (index, piece) in pieces.iter().enumerate() {
            if index > 0 {
                out.push_str(&number);
            }
            out.push_str(piece);
        }
    }
    out
}

fn messages(model: &str, messages: &str) -> String {
    format!(r#"{{"model":"{model}","max_tokens":64,"messages":[{messages}]}}"#)
}

fn claude(elements: &str) -> String {
    messages(CLAUDE.1, elements)
}

fn chat(elements: &str) -> String {
    messages(CHAT.1, elements)
}

fn input(elements: &str) -> String {
    format!(r#"{{"model":"{}","input":[{elements}]}}"#, RESPONSES.1)
}

fn contents(contents: &str) -> String {
    format!(r#"{{"contents":[{contents}]}}"#)
}

const CLAUDE: (&str, &str) = ("anthropic", "claude-sonnet-4-5");
const CHAT: (&str, &str) = ("openai-chat", "gpt-4o");
const RESPONSES: (&str, &str) = ("openai", "gpt-5");
const GEMINI: (&str, &str) = ("gemini", "gemini-3-pro-preview");

const USER: &str = r#"{"role":"user","content":"Hi"}"#;

/// All request shapes that the growth tests measure.
pub const LARGE_REQUESTS: &[LargeRequest] = &[
    LargeRequest {
        name: "responses: lone reasoning items",
        wire: "openai-responses",
        target: RESPONSES,
        body: |n| input(&repeated(n, r#"{"type":"reasoning","id":"rs_#","summary":[]}"#)),
    },
    LargeRequest {
        name: "responses: reasoning items before messages",
        wire: "openai-responses",
        target: RESPONSES,
        body: |n| {
            let thoughts = repeated(
                n / 2,
                r#"{"type":"reasoning","id":"rs_#","summary":[],"encrypted_content":"@"}"#,
            );
            let message = r#"{"type":"message","id":"msg_#","role":"assistant","content":[{"type":"output_text","text":"a","annotations":[]}]}"#;
            input(&format!("{thoughts},{}", repeated(n / 2, message)))
        },
    },
    LargeRequest {
        name: "responses: lone function_call_output",
        wire: "openai-responses",
        target: RESPONSES,
        body: |n| {
            let output = r#"{"type":"function_call_output","call_id":"call_#","output":"x"}"#;
            input(&repeated(n, output))
        },
    },
    LargeRequest {
        name: "responses: lone function_call",
        wire: "openai-responses",
        target: RESPONSES,
        body: |n| {
            let call = r#"{"type":"function_call","call_id":"call_#","name":"f","arguments":"{}"}"#;
            input(&repeated(n, call))
        },
    },
    LargeRequest {
        name: "responses: empty elements",
        wire: "openai-responses",
        target: RESPONSES,
        body: |n| input(&repeated(n, "{}")),
    },
    LargeRequest {
        name: "chat: lone tool messages",
        wire: "openai-chat",
        target: CHAT,
        body: |n| chat(&repeated(n, r#"{"role":"tool","tool_call_id":"call_#","content":"x"}"#)),
    },
    LargeRequest {
        name: "chat: unanswered calls of one message",
        wire: "openai-chat",
        target: CHAT,
        body: |n| chat(&format!("{USER},{}", chat_calls(n, ""))),
    },
    LargeRequest {
        name: "chat: parallel calls, all answered",
        wire: "openai-chat",
        target: CHAT,
        body: |n| {
            let answer = r#"{"role":"tool","tool_call_id":"call_#","content":"x"}"#;
            chat(&format!("{USER},{},{}", chat_calls(n / 2, ""), repeated(n / 2, answer)))
        },
    },
    LargeRequest {
        name: "chat: encrypted details and calls",
        wire: "openai-chat",
        target: ("openrouter", "google/gemini-3-pro-preview"),
        body: |n| {
            let detail = r#"{"type":"reasoning.encrypted","data":"QUJDRA==","id":"call_#","format":"google-gemini-v1","index":#}"#;
            let details = format!(r#""reasoning_details":[{}],"#, repeated(n / 2, detail));
            chat(&format!("{USER},{}", chat_calls(n / 2, &details)))
        },
    },
    LargeRequest {
        name: "chat: replies between empty user messages",
        wire: "openai-chat",
        target: CHAT,
        body: |n| {
            let pair = r#"{"role":"assistant","content":"a #"},{"role":"user","content":""}"#;
            chat(&repeated(n / 2, pair))
        },
    },
    LargeRequest {
        name: "chat: empty messages",
        wire: "openai-chat",
        target: CHAT,
        body: |n| chat(&repeated(n, "{}")),
    },
    LargeRequest {
        name: "anthropic: lone tool results",
        wire: "anthropic-messages",
        target: CLAUDE,
        body: |n| {
            let results = repeated(n, r#"{"type":"tool_result","tool_use_id":"toolu_#"}"#);
            claude(&format!(r#"{{"role":"user","content":[{results}]}}"#))
        },
    },
    LargeRequest {
        name: "anthropic: unanswered calls",
        wire: "anthropic-messages",
        target: CLAUDE,
        body: |n| claude(&format!("{USER},{}", claude_calls(n))),
    },
    LargeRequest {
        name: "anthropic: parallel calls, all answered",
        wire: "anthropic-messages",
        target: CLAUDE,
        body: |n| {
            let results =
                repeated(n / 2, r#"{"type":"tool_result","tool_use_id":"toolu_#","content":"x"}"#);
            let calls = claude_calls(n / 2);
            claude(&format!(r#"{USER},{calls},{{"role":"user","content":[{results}]}}"#))
        },
    },
    LargeRequest {
        name: "anthropic: plain turns",
        wire: "anthropic-messages",
        target: CLAUDE,
        body: |n| {
            claude(&list(n, |number, out| {
                let role = if number % 2 == 0 { "user" } else { "assistant" };
                write!(out, r#"{{"role":"{role}","content":"word {number}"}}"#).unwrap_or_default();
            }))
        },
    },
    LargeRequest {
        name: "anthropic: unsigned thinking blocks",
        wire: "anthropic-messages",
        target: CLAUDE,
        body: |n| {
            let blocks = repeated(n, r#"{"type":"thinking","thinking":"hm #"}"#);
            claude(&format!(r#"{USER},{{"role":"assistant","content":[{blocks}]}},{USER}"#))
        },
    },
    LargeRequest {
        name: "anthropic: empty messages",
        wire: "anthropic-messages",
        target: CLAUDE,
        body: |n| claude(&repeated(n, "{}")),
    },
    LargeRequest {
        name: "anthropic: empty parts",
        wire: "anthropic-messages",
        target: CLAUDE,
        body: |n| claude(&format!(r#"{{"role":"user","content":[{}]}}"#, repeated(n, "{}"))),
    },
    LargeRequest {
        name: "anthropic: images",
        wire: "anthropic-messages",
        target: CLAUDE,
        body: |n| {
            let image = r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":"QUJD"}}"#;
            claude(&format!(r#"{{"role":"user","content":[{}]}}"#, repeated(n, image)))
        },
    },
    LargeRequest {
        name: "anthropic: arguments with many members",
        wire: "anthropic-messages",
        target: CLAUDE,
        body: |n| {
            let arguments = repeated(n, r#""k#":#"#);
            let call = format!(
                r#"{{"type":"tool_use","id":"toolu_1","name":"f","input":{{{arguments}}}}}"#
            );
            let result = r#"{"type":"tool_result","tool_use_id":"toolu_1","content":"x"}"#;
            claude(&format!(
                r#"{USER},{{"role":"assistant","content":[{call}]}},{{"role":"user","content":[{result}]}}"#
            ))
        },
    },
    LargeRequest {
        name: "anthropic: a request with many members",
        wire: "anthropic-messages",
        target: CLAUDE,
        body: |n| {
            let members = repeated(n, r#""k#":#"#);
            format!(r#"{{"model":"{}","messages":[{USER}],{members}}}"#, CLAUDE.1)
        },
    },
    LargeRequest {
        name: "anthropic: tools",
        wire: "anthropic-messages",
        target: CLAUDE,
        body: |n| {
            let tools =
                repeated(n, r#"{"name":"f#","description":"d","input_schema":{"type":"object"}}"#);
            format!(r#"{{"model":"{}","messages":[{USER}],"tools":[{tools}]}}"#, CLAUDE.1)
        },
    },
    LargeRequest {
        name: "gemini: parallel calls, all answered",
        wire: "gemini",
        target: GEMINI,
        body: |n| {
            let calls = repeated(n / 2, r#"{"functionCall":{"name":"f#","args":{}}}"#);
            let answers =
                repeated(n / 2, r#"{"functionResponse":{"name":"f#","response":{"a":1}}}"#);
            contents(&format!(
                r#"{GEMINI_USER},{{"role":"model","parts":[{calls}]}},{{"role":"user","parts":[{answers}]}}"#
            ))
        },
    },
    LargeRequest {
        name: "gemini: steps without signatures",
        wire: "gemini",
        target: GEMINI,
        body: |n| {
            let step = r#"{"role":"model","parts":[{"functionCall":{"name":"f","args":{}}}]},{"role":"user","parts":[{"functionResponse":{"name":"f","response":{}}}]}"#;
            contents(&format!("{GEMINI_USER},{}", repeated(n / 2, step)))
        },
    },
    LargeRequest {
        name: "gemini: lone answers",
        wire: "gemini",
        target: GEMINI,
        body: |n| {
            let answer =
                r#"{"role":"user","parts":[{"functionResponse":{"name":"f","response":{}}}]}"#;
            contents(&repeated(n, answer))
        },
    },
];

const GEMINI_USER: &str = r#"{"role":"user","parts":[{"text":"Hi"}]}"#;

/// Returns an assistant message with `count` tool calls. The JSON fields in `members` are inserted
/// before the tool calls.
fn chat_calls(count: usize, members: &str) -> String {
    let calls = repeated(
        count,
        r#"{"id":"call_#","type":"function","function":{"name":"f","arguments":"{}"}}"#,
    );
    format!(r#"{{"role":"assistant","content":null,{members}"tool_calls":[{calls}]}}"#)
}

fn claude_calls(count: usize) -> String {
    let calls = repeated(count, r#"{"type":"tool_use","id":"toolu_#","name":"f","input":{}}"#);
    format!(r#"{{"role":"assistant","content":[{calls}]}}"#)
}
