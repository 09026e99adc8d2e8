//! Tools that come from elsewhere: MCP servers, and HTTP endpoints that are declared as data.
//!
//! Each becomes a [`Tool`](throughline_agent::Tool) like one that is written in Rust. Models see names that every provider
//! takes; secrets go to the server that they are for, and into no error; a call that is dropped is cancelled over there.
//! Where nobody can know whether a call took effect, the answer says so.

mod answer;
pub mod client;
mod declare;
mod http;
mod mcp;
mod name;
mod secret;

pub use crate::declare::{Declared, OpenError, Problem, Problems, Variables};
pub use crate::http::{HttpBody, HttpConfig, HttpTool, InvalidTool};
pub use crate::mcp::{Approval, McpConfig, McpError, McpServer, McpTrouble, Reach};
