//! One tool of an MCP server.

use std::sync::Arc;

use rmcp::model::{CallToolRequestParams, JsonObject, ServerResult, Tool as Listed};
use throughline_agent::{Tool, ToolAnswer, ToolContext, ToolFuture, ToolSpec};
use throughline_json::{self as json, Json, Name};
use tokio::time::timeout;

use crate::answer;
use crate::mcp::{Approval, McpErrorKind, ServerState, result};
use crate::name;

/// A tool that an MCP server runs.
pub(super) struct McpTool {
    server: Arc<ServerState>,
    /// Name of the tool at the server.
    name: Name,
    spec: ToolSpec,
}

impl McpTool {
    pub(super) fn new(server: &Arc<ServerState>, listed: &Listed) -> Arc<Self> {
        let spec = spec(server, listed);
        Arc::new(Self { server: Arc::clone(server), name: Name::from(&*listed.name), spec })
    }

    async fn call(&self, args: &Json, about: &ToolContext) -> ToolAnswer {
        let arguments = match serde_json::from_slice::<JsonObject>(args.bytes()) {
            Ok(arguments) => arguments,
            Err(error) => {
                return ToolAnswer::error(format!("The arguments are not an object: {error}"));
            }
        };
        let session = match self.server.session().await {
            Ok(session) => session,
            Err(error) => return ToolAnswer::error(error.to_string()),
        };
        let params = CallToolRequestParams::new(self.name.to_string()).with_arguments(arguments);
        let limit = self.server.config.timeout;
        let called = timeout(limit, session.call(params, Arc::clone(&about.progress))).await;
        match called {
            Ok(Ok(ServerResult::CallToolResult(said))) => {
                result::answer(said, self.server.config.largest_answer)
            }
            Ok(Ok(_)) => ToolAnswer::error(format!(
                "The MCP server `{}` requested input that this client does not support.",
                self.server.config.name
            )),
            Ok(Err(error)) => {
                let error = self.server.call_error(&session, &error).await;
                match error.trouble {
                    McpErrorKind::Lost | McpErrorKind::Slow => self.lost(&error.to_string()),
                    McpErrorKind::Unreachable | McpErrorKind::Refused => {
                        ToolAnswer::error(error.to_string())
                    }
                }
            }
            Err(_) => self.lost(&self.server.timeout_error("answer", limit).to_string()),
        }
    }

    fn lost(&self, reason: &str) -> ToolAnswer {
        answer::lost_call(&format!("{reason}."), self.spec.idempotent)
    }
}

impl Tool for McpTool {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn run<'a>(&'a self, args: &'a Json, about: &'a ToolContext) -> ToolFuture<'a> {
        Box::pin(
            async move { answer::mask_errors(self.call(args, about).await, &self.server.mask) },
        )
    }
}

/// Builds the specification of a tool. The server's hints are trusted.
fn spec(server: &ServerState, listed: &Listed) -> ToolSpec {
    let mut spec = ToolSpec::new(name::tool_name(&server.config.name, &listed.name));
    spec.description = listed.description.as_deref().or(listed.title.as_deref()).map(Name::from);
    spec.schema = Some(schema(&listed.input_schema));
    let hints = listed.annotations.as_ref();
    let reads_only = hints.and_then(|hints| hints.read_only_hint) == Some(true);
    let once_is_enough = hints.and_then(|hints| hints.idempotent_hint) == Some(true);
    // The protocol's default is that a tool may be destructive.
    let destroys = hints.and_then(|hints| hints.destructive_hint) != Some(false);
    spec.idempotent = reads_only || once_is_enough;
    spec.needs_approval = match server.config.approval {
        Approval::Never => false,
        Approval::Destructive => destroys && !reads_only,
        Approval::Always => true,
    };
    spec
}

fn schema(schema: &JsonObject) -> Json {
    let text = serde_json::to_vec(schema).unwrap_or_default();
    // Some servers omit members that all providers require.
    match Json::parse(text) {
        Ok(written) if schema.contains_key("type") => written,
        Ok(written) => {
            let tree = written.tree();
            json::object(|object| {
                object.string("type", "object");
                for (name, value) in tree.root().members() {
                    object.node(&name.text().unwrap_or_default(), value);
                }
            })
        }
        Err(_) => json::object(|object| {
            object.string("type", "object");
        }),
    }
}
