//! Requests that create objects, model calls, and requests whose body contains an object id.

/// A dialect, a path, a body, and the kinds of ids in the response, each with its JSON pointer.
type Creation = (&'static str, &'static str, &'static str, &'static [(&'static str, &'static str)]);

/// Requests that together create one object of each kind.
pub(crate) const CREATIONS: &[Creation] = &[
    (
        "openai",
        "/v1/responses",
        r#"{"model":"gpt-5.2","input":"Hi"}"#,
        &[("/id", "response"), ("/output/1/id", "item"), ("/output/0/container_id", "container")],
    ),
    (
        "openai",
        "/v1/chat/completions",
        r#"{"model":"chat-5","store":true,"messages":[{"role":"user","content":"Hi"}]}"#,
        &[("/id", "completion")],
    ),
    (
        "anthropic",
        "/v1/messages",
        r#"{"model":"claude-sonnet-4-5","max_tokens":9,"thread":{"type":"create"},"messages":[{"role":"user","content":"Hi"}]}"#,
        &[("/thread/id", "thread"), ("/container/id", "container")],
    ),
    ("openai", "/v1/conversations", "{}", &[("/id", "conversation")]),
    ("openai", "/v1/files", "--b--", &[("/id", "file")]),
    ("openai", "/v1/batches", "{}", &[("/id", "batch"), ("/output_file_id", "file")]),
    ("openai", "/v1/vector_stores", "{}", &[("/id", "vector_store")]),
    ("anthropic", "/v1/messages/batches", r#"{"requests":[]}"#, &[("/id", "batch")]),
    ("anthropic", "/v1/files", "--b--", &[("/id", "file")]),
    ("gemini", "/v1beta/files", "{}", &[("/file/name", "file")]),
    ("gemini", "/v1beta/cachedContents", "{}", &[("/name", "cached_content")]),
    ("gemini", "/v1beta/interactions", r#"{"input":"Hi"}"#, &[("/id", "interaction")]),
    (
        "gemini",
        "/v1beta/models/gemini-3-pro-preview:batchGenerateContent",
        "{}",
        &[("/name", "batch")],
    ),
];

/// Model calls for each dialect.
pub(crate) const CALLS: &[(&str, &str, &str)] = &[
    ("openai", "/v1/responses", r#"{"model":"gpt-5.2","input":"Hi"}"#),
    (
        "openai",
        "/v1/chat/completions",
        r#"{"model":"chat-5","messages":[{"role":"user","content":"Hi"}]}"#,
    ),
    (
        "anthropic",
        "/v1/messages",
        r#"{"model":"claude-sonnet-4-5","max_tokens":9,"messages":[{"role":"user","content":"Hi"}]}"#,
    ),
    (
        "gemini",
        "/v1beta/models/gemini-3-pro-preview:generateContent",
        r#"{"contents":[{"role":"user","parts":[{"text":"Hi"}]}]}"#,
    ),
];

const RESPONSES: &str = "/v1/responses";
const CHAT: &str = "/v1/chat/completions";
const MESSAGES: &str = "/v1/messages";
const GENERATE: &str = "/v1beta/models/gemini-3-pro-preview:generateContent";

/// A dialect, a body field in the gateway's notation, a path, and a body with an object id in that
/// field.
pub(crate) const MEMBERS: &[(&str, &str, &str, &str)] = &[
    (
        "openai",
        "previous_response_id",
        RESPONSES,
        r#"{"model":"gpt-5.2","input":"On","previous_response_id":"ID"}"#,
    ),
    (
        "openai",
        "previous_response_id",
        "/v1/responses/input_tokens",
        r#"{"model":"gpt-5.2","input":"On","previous_response_id":"ID"}"#,
    ),
    (
        "openai",
        "conversation",
        RESPONSES,
        r#"{"model":"gpt-5.2","input":"On","conversation":"ID"}"#,
    ),
    (
        "openai",
        "conversation",
        RESPONSES,
        r#"{"model":"gpt-5.2","input":"On","conversation":{"id":"ID"}}"#,
    ),
    (
        "openai",
        "file_id",
        RESPONSES,
        r#"{"model":"gpt-5.2","input":[{"role":"user","content":[{"type":"input_file","file_id":"ID"}]}]}"#,
    ),
    (
        "openai",
        "file_id",
        RESPONSES,
        r#"{"model":"gpt-5.2","input":[{"role":"user","content":[{"type":"input_image","file_id":"ID","detail":"auto"}]}]}"#,
    ),
    (
        "openai",
        "file_id",
        CHAT,
        r#"{"model":"chat-5","messages":[{"role":"user","content":[{"type":"file","file":{"file_id":"ID"}}]}]}"#,
    ),
    (
        "openai",
        "file_id",
        "/v1/conversations",
        r#"{"items":[{"type":"message","role":"user","content":[{"type":"input_file","file_id":"ID"}]}]}"#,
    ),
    (
        "openai",
        "file_ids",
        RESPONSES,
        r#"{"model":"gpt-5.2","input":"On","tools":[{"type":"code_interpreter","container":{"type":"auto","file_ids":["ID"]}}]}"#,
    ),
    ("openai", "file_ids", "/v1/vector_stores", r#"{"file_ids":["ID"]}"#),
    (
        "openai",
        "input_file_id",
        "/v1/batches",
        r#"{"input_file_id":"ID","endpoint":"/v1/responses","completion_window":"24h"}"#,
    ),
    (
        "openai",
        "container_id",
        RESPONSES,
        r#"{"model":"gpt-5.2","input":[{"role":"user","content":"Hi"},{"type":"code_interpreter_call","id":"ci_0123456789abcdef","code":"1","container_id":"ID","status":"completed","outputs":[]},{"role":"user","content":"On"}]}"#,
    ),
    (
        "openai",
        "container",
        RESPONSES,
        r#"{"model":"gpt-5.2","input":"On","tools":[{"type":"code_interpreter","container":"ID"}]}"#,
    ),
    (
        "openai",
        "vector_store_ids",
        RESPONSES,
        r#"{"model":"gpt-5.2","input":"On","tools":[{"type":"file_search","vector_store_ids":["ID"]}]}"#,
    ),
    ("openai", "prompt", RESPONSES, r#"{"model":"gpt-5.2","input":"On","prompt":{"id":"ID"}}"#),
    (
        "openai",
        "skill_id",
        RESPONSES,
        r#"{"model":"gpt-5.2","input":"On","tools":[{"type":"shell","environment":{"type":"container_auto","skills":[{"type":"skill_reference","skill_id":"ID"}]}}]}"#,
    ),
    (
        "openai",
        "audio",
        CHAT,
        r#"{"model":"chat-5","messages":[{"role":"user","content":"Hi"},{"role":"assistant","audio":{"id":"ID"}},{"role":"user","content":"On"}]}"#,
    ),
    (
        "openai",
        "item_reference",
        RESPONSES,
        r#"{"model":"gpt-5.2","input":[{"type":"item_reference","id":"ID"},{"role":"user","content":"On"}]}"#,
    ),
    (
        "openai",
        "item_reference",
        RESPONSES,
        r#"{"model":"gpt-5.2","input":[{"id":"ID"},{"role":"user","content":"On"}]}"#,
    ),
    (
        "openai",
        "reasoning",
        "/v1/conversations",
        r#"{"items":[{"type":"reasoning","id":"ID","summary":[]}]}"#,
    ),
    ("openai", "compaction", "/v1/conversations", r#"{"items":[{"type":"compaction","id":"ID"}]}"#),
    (
        "openai",
        "compaction_summary",
        "/v1/conversations",
        r#"{"items":[{"type":"compaction_summary","id":"ID"}]}"#,
    ),
    (
        "openai",
        "context_compaction",
        "/v1/conversations",
        r#"{"items":[{"type":"context_compaction","id":"ID"}]}"#,
    ),
    (
        "openai",
        "image_generation_call",
        RESPONSES,
        r#"{"model":"gpt-5.2","input":[{"role":"user","content":"Hi"},{"type":"image_generation_call","id":"ID"},{"role":"user","content":"On"}]}"#,
    ),
    (
        "anthropic",
        "file_id",
        MESSAGES,
        r#"{"model":"claude-sonnet-4-5","max_tokens":9,"messages":[{"role":"user","content":[{"type":"document","source":{"type":"file","file_id":"ID"}}]}]}"#,
    ),
    (
        "anthropic",
        "file_id",
        MESSAGES,
        r#"{"model":"claude-sonnet-4-5","max_tokens":9,"messages":[{"role":"user","content":[{"type":"container_upload","file_id":"ID"}]}]}"#,
    ),
    (
        "anthropic",
        "file_id",
        "/v1/messages/count_tokens",
        r#"{"model":"claude-sonnet-4-5","messages":[{"role":"user","content":[{"type":"document","source":{"type":"file","file_id":"ID"}}]}]}"#,
    ),
    (
        "anthropic",
        "file_id",
        "/v1/messages/batches",
        r#"{"requests":[{"custom_id":"1","params":{"model":"claude-sonnet-4-5","max_tokens":9,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"file","file_id":"ID"}}]}]}}]}"#,
    ),
    (
        "anthropic",
        "container",
        MESSAGES,
        r#"{"model":"claude-sonnet-4-5","max_tokens":9,"container":"ID","messages":[{"role":"user","content":"On"}]}"#,
    ),
    (
        "anthropic",
        "container",
        MESSAGES,
        r#"{"model":"claude-sonnet-4-5","max_tokens":9,"container":{"id":"ID"},"messages":[{"role":"user","content":"On"}]}"#,
    ),
    (
        "anthropic",
        "skill_id",
        MESSAGES,
        r#"{"model":"claude-sonnet-4-5","max_tokens":9,"container":{"skills":[{"type":"custom","skill_id":"ID"}]},"messages":[{"role":"user","content":"On"}]}"#,
    ),
    (
        "anthropic",
        "thread",
        MESSAGES,
        r#"{"model":"claude-sonnet-4-5","max_tokens":9,"thread":{"type":"continue","previous_message_id":"ID"},"messages":[{"role":"user","content":"On"}]}"#,
    ),
    (
        "gemini",
        "cachedcontent",
        GENERATE,
        r#"{"cachedContent":"ID","contents":[{"role":"user","parts":[{"text":"On"}]}]}"#,
    ),
    (
        "gemini",
        "cachedcontent",
        GENERATE,
        r#"{"cached_content":"ID","contents":[{"role":"user","parts":[{"text":"On"}]}]}"#,
    ),
    (
        "gemini",
        "fileuri",
        GENERATE,
        r#"{"contents":[{"role":"user","parts":[{"fileData":{"mimeType":"application/pdf","fileUri":"https://generativelanguage.googleapis.com/v1beta/ID"}}]}]}"#,
    ),
    (
        "gemini",
        "fileuri",
        GENERATE,
        r#"{"contents":[{"role":"user","parts":[{"file_data":{"mime_type":"application/pdf","file_uri":"https://generativelanguage.googleapis.com/v1beta/ID"}}]}]}"#,
    ),
    (
        "gemini",
        "fileuri",
        "/v1beta/cachedContents",
        r#"{"contents":[{"role":"user","parts":[{"fileData":{"fileUri":"ID"}}]}]}"#,
    ),
    (
        "gemini",
        "uri",
        "/v1beta/interactions",
        r#"{"input":[{"type":"document","uri":"https://generativelanguage.googleapis.com/v1beta/ID"}]}"#,
    ),
    (
        "gemini",
        "filename",
        "/v1beta/models/gemini-3-pro-preview:batchGenerateContent",
        r#"{"batch":{"inputConfig":{"fileName":"ID"}}}"#,
    ),
    (
        "gemini",
        "filesearchstorenames",
        GENERATE,
        r#"{"tools":[{"fileSearch":{"fileSearchStoreNames":["fileSearchStores/ID"]}}],"contents":[{"role":"user","parts":[{"text":"On"}]}]}"#,
    ),
    (
        "gemini",
        "previousinteractionid",
        "/v1beta/interactions",
        r#"{"input":"On","previous_interaction_id":"ID"}"#,
    ),
];
