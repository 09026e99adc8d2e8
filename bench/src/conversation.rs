//! Simulates an agent's conversation: each request repeats the previous request and adds its reply
//! and a tool result.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use memchr::memmem;

use crate::reply::Model;

/// API dialect that the client uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Messages,
    Chat,
}

impl Dialect {
    pub(crate) fn path(self) -> &'static str {
        match self {
            Dialect::Messages => "/v1/messages",
            Dialect::Chat => "/v1/chat/completions",
        }
    }
}

/// Average request size in a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// Requests of 2 KB on average: three turns, up to 4 KB.
    Small,
    /// Requests of 200 KB on average: fifty turns, up to 400 KB.
    Large,
    /// Requests of 800 KB on average: fifty turns, up to 1.6 MB.
    Huge,
}

impl Size {
    pub(crate) fn turns(self) -> usize {
        match self {
            Size::Small => 3,
            Size::Large | Size::Huge => 50,
        }
    }

    /// Returns the size of a tool result in bytes.
    fn result(self) -> usize {
        match self {
            Size::Small => 100,
            Size::Large => 6400,
            Size::Huge => 30_800,
        }
    }
}

const MESSAGES: &str = r#""max_tokens":8192,"thinking":{"type":"enabled","budget_tokens":2048},"system":"You read source files and answer questions about them.","tools":[{"name":"read_file","description":"Reads a file.","input_schema":{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}}],"messages":["#;
const CHAT: &str = r#""reasoning_effort":"low","tools":[{"type":"function","function":{"name":"read_file","description":"Reads a file.","parameters":{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}}}],"messages":[{"role":"system","content":"You read source files and answer questions about them."},"#;
const LINE: &str = "    let found = rows.iter().find(|row| row.name == wanted); // as before\\n";

static CONVERSATION: AtomicU64 = AtomicU64::new(1);

pub(crate) struct Conversation {
    dialect: Dialect,
    model: Model,
    size: Size,
    /// Whether the client drops the model's reasoning.
    lossy: bool,
    /// The conversation's messages, encoded as JSON.
    history: Vec<u8>,
    /// Size of the previous request in bytes.
    previous: usize,
}

impl Conversation {
    pub(crate) fn new(dialect: Dialect, model: Model, size: Size, lossy: bool) -> Self {
        let number = CONVERSATION.fetch_add(1, Ordering::Relaxed);
        let process = std::process::id();
        let question = format!(
            r#"{{"role":"user","content":"Question {process}-{number}: which function finds the row, and what does it do where there is none?"}}"#
        );
        Self { dialect, model, size, lossy, history: question.into_bytes(), previous: 0 }
    }

    pub(crate) fn path(&self) -> &'static str {
        self.dialect.path()
    }

    /// Returns the next request, and how many bytes it has more than the previous request.
    pub(crate) fn next_request(&mut self) -> (Bytes, usize) {
        let body = self.request(false);
        let added = body.len().saturating_sub(self.previous);
        self.previous = body.len();
        (body, added)
    }

    pub(crate) fn request(&self, stream: bool) -> Bytes {
        let head = match self.dialect {
            Dialect::Messages => MESSAGES,
            Dialect::Chat => CHAT,
        };
        let model = self.model.name();
        let mut body = Vec::with_capacity(self.history.len() + 700);
        body.extend_from_slice(format!(r#"{{"model":"{model}","stream":{stream},"#).as_bytes());
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(&self.history);
        body.extend_from_slice(b"]}");
        body.into()
    }

    /// Appends a complete reply and a result for its tool call. Returns `None` if the reply cannot
    /// be parsed.
    pub(crate) fn add_reply(&mut self, reply: &[u8]) -> Option<()> {
        let result = LINE.repeat(self.size.result() / LINE.len() + 1);
        let pieces: Vec<&[u8]> = match self.dialect {
            Dialect::Messages => {
                let mut content = value_of(reply, b"\"content\":")?;
                if self.lossy {
                    content = content.get(memmem::find(content, br#"{"type":"text""#)?..)?;
                }
                vec![
                    br#",{"role":"assistant","content":"#,
                    if self.lossy { b"[" } else { b"" },
                    content,
                    br#"},{"role":"user","content":[{"type":"tool_result","tool_use_id":""#,
                    text_of(content, br#""type":"tool_use","id":"#)?,
                    br#"","content":""#,
                    result.as_bytes(),
                    br#""}]}"#,
                ]
            }
            Dialect::Chat => {
                let message = value_of(reply, b"\"message\":")?;
                let calls = value_of(message, b"\"tool_calls\":")?;
                vec![
                    b",",
                    message,
                    br#",{"role":"tool","tool_call_id":""#,
                    text_of(calls, b"\"id\":")?,
                    br#"","content":""#,
                    result.as_bytes(),
                    br#""}"#,
                ]
            }
        };
        self.history.extend(pieces.concat());
        Some(())
    }
}

/// Returns the JSON array or object after the first occurrence of `key` in the text.
fn value_of<'a>(text: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    let rest = text.get(memmem::find(text, key)? + key.len()..)?;
    let (mut depth, mut is_string, mut is_escaped) = (0_usize, false, false);
    for (at, byte) in rest.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_string => is_escaped = true,
            b'"' => is_string = !is_string,
            b'[' | b'{' if !is_string => depth += 1,
            b']' | b'}' if !is_string => {
                depth -= 1;
                if depth == 0 {
                    return rest.get(..=at);
                }
            }
            _ => {}
        }
    }
    None
}

/// Returns the JSON string after the first occurrence of `key` in the text.
fn text_of<'a>(text: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    let rest = text.get(memmem::find(text, key)? + key.len()..)?;
    let rest = rest.strip_prefix(b"\"")?;
    rest.get(..memchr::memchr(b'"', rest)?)
}
