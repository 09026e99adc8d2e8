//! External tools: MCP servers, and HTTP endpoints that are declared as data.
//!
//! Each becomes a [`Tool`](throughline_agent::Tool) like one that is written in Rust. Models see
//! names that every provider accepts. Secrets reach only their server and never an error. Dropping
//! a call cancels it at the server. A result states when the effect of a call is unknown.

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
