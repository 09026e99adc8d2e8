//! External tools: MCP servers and HTTP endpoints, declared as data.
//!
//! External tools implement [`Tool`](throughline_agent::Tool), like tools written in Rust. Models
//! see names that every provider accepts. Secrets are sent only to the server that they are
//! configured for, and never appear in errors. Dropping the future of a call cancels the call at
//! the server. If the outcome of a call is unknown, the tool result states this.

mod answer;
pub mod client;
mod declare;
mod http;
mod mcp;
mod name;
pub mod reader;
mod secret;
pub mod suggest;

pub use crate::declare::{OpenError, ToolDeclarations};
pub use crate::http::{HttpBody, HttpConfig, HttpTool, InvalidTool};
pub use crate::mcp::{Approval, McpConfig, McpError, McpErrorKind, McpServer, Transport};
pub use crate::reader::{Problem, Problems, Variables};
