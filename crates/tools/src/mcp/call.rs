//! One tool of an MCP server.

use std::sync::Arc;

use rmcp::model::{CallToolRequestParams, JsonObject, ServerResult, Tool as Listed};
use throughline_agent::{Tool, ToolAnswer, ToolContext, ToolFuture, ToolSpec};
use throughline_json::{Json, Name};
use tokio::time::timeout;

use crate::answer;
use crate::mcp::{Approval, McpErrorKind, ServerState, result};
use crate::name;

/// A tool that is executed by an MCP server.
pub(super) struct McpTool {
    server: Arc<ServerState>,
    /// Name of the tool on the server.
    name: Name,
    spec: ToolSpec,
}

impl McpTool {
    pub(super) fn new(server: &Arc<ServerState>, listed: &Listed) -> Arc<Self> {
        let spec = spec(server, listed);
        Arc::new(Self { server: Arc::clone(server), name: Name::from(&*listed.name), spec })
    }

    /// Calls the tool. Fails if the call was not sent or the server rejected it. If the call may
    /// have taken effect, returns a result with an unknown outcome instead.
    async fn call(&self, args: &Json, context: &ToolContext) -> Result<ToolAnswer, String> {
        let config = &self.server.config;
        let arguments: JsonObject = serde_json::from_slice(args.bytes())
            .map_err(|error| format!("The arguments are not an object: {error}"))?;
        let session = self.server.session().await.map_err(|error| error.to_string())?;
        let params = CallToolRequestParams::new(self.name.to_string()).with_arguments(arguments);
        let response = session.call(params, Arc::clone(&context.progress));
        let error = match timeout(config.timeout, response).await {
            Ok(Ok(ServerResult::CallToolResult(result))) => {
                return Ok(result::answer(result, config.largest_answer));
            }
            Ok(Ok(_)) => {
                let server = &config.name;
                let problem = "requested input that this client does not support";
                return Err(format!("The MCP server `{server}` {problem}."));
            }
            Ok(Err(error)) => self.server.call_error(&session, &error).await,
            Err(_) => self.server.timeout_error("respond", config.timeout),
        };
        match error.trouble {
            McpErrorKind::Lost | McpErrorKind::Slow => {
                Ok(answer::lost_call(&format!("{error}."), self.spec.idempotent))
            }
            McpErrorKind::Unreachable | McpErrorKind::Refused => Err(error.to_string()),
        }
    }
}

impl Tool for McpTool {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn run<'a>(&'a self, args: &'a Json, context: &'a ToolContext) -> ToolFuture<'a> {
        Box::pin(async move {
            let answer = self.call(args, context).await.unwrap_or_else(ToolAnswer::error);
            answer::mask_errors(answer, &self.server.mask)
        })
    }
}

/// Builds the specification of a listed tool. The server's hints about side effects are trusted.
fn spec(server: &ServerState, listed: &Listed) -> ToolSpec {
    let mut spec = ToolSpec::new(name::tool_name(&server.config.name, &listed.name));
    spec.description = listed.description.as_deref().or(listed.title.as_deref()).map(Name::from);
    spec.schema = Some(schema(&listed.input_schema));
    let hints = listed.annotations.as_ref();
    let reads_only = hints.and_then(|hints| hints.read_only_hint) == Some(true);
    let once_is_enough = hints.and_then(|hints| hints.idempotent_hint) == Some(true);
    // By default, the protocol considers a tool destructive.
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
    // Some servers omit the `type`, which all providers require.
    let usual = (!schema.contains_key("type")).then(|| ("type".to_owned(), "object".into()));
    Json::from(&serde_json::Value::Object(usual.into_iter().chain(schema.clone()).collect()))
}
