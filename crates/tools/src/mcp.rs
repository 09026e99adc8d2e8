//! MCP servers, run as child processes over standard streams or reached over streamable HTTP.
//!
//! A server is opened once and stays open. If the connection is lost, pending calls fail, and the
//! next call reopens the server.

mod call;
mod result;
mod session;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::PaginatedRequestParams;
use throughline_agent::Tool;
use throughline_core::Credential;
use throughline_json::{Name, words};
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::mcp::call::McpTool;
use crate::mcp::session::Session;
use crate::secret::{Mask, Secrets, without_query};

/// Maximum number of pages in a server's tool list, as a guard against servers whose list never
/// ends.
const MAX_PAGES: usize = 1000;

/// Transport over which a server is reached.
#[derive(Clone)]
#[non_exhaustive]
pub enum Transport {
    /// A child process that exchanges messages over standard input and output.
    Process {
        /// Name or path of the executable.
        command: String,
        /// Command-line arguments.
        args: Vec<String>,
        /// Environment variables for the process. Only these variables and `usual` are passed on.
        env: Vec<(Name, Credential)>,
        /// Non-secret system variables, such as `PATH`, that are passed on.
        usual: Vec<(Name, Name)>,
        /// Working directory of the child process; defaults to the current directory of this
        /// process.
        directory: Option<PathBuf>,
    },
    /// A streamable HTTP endpoint.
    Http {
        /// URL that receives all requests.
        url: String,
        /// Headers sent with every request.
        headers: Vec<(Name, Credential)>,
    },
}

impl std::fmt::Debug for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Transport::Process { command, args, env, .. } => {
                let mut process = f.debug_struct("Process");
                process.field("command", command).field("args", args).field("env", env);
                process.finish_non_exhaustive()
            }
            Transport::Http { url, headers } => {
                let url = without_query(url);
                f.debug_struct("Http").field("url", &url).field("headers", headers).finish()
            }
        }
    }
}

/// Selects the tools of a server that need approval for each call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Approval {
    /// No tool needs approval.
    #[default]
    Never,
    /// Tools that may destroy data need approval: all except those that the server declares as
    /// read-only or non-destructive.
    Destructive,
    /// Every tool needs approval.
    Always,
}

/// Declaration of an MCP server: how to reach it, and which of its tools to offer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct McpConfig {
    /// Name of the server, used as the prefix of its tool names.
    pub name: Name,
    /// Transport over which the server is reached.
    pub reach: Transport,
    /// Names of the tools to offer; `None` offers all tools of the server.
    pub only: Option<Vec<Name>>,
    /// Which tools need a person's approval for each call.
    pub approval: Approval,
    /// Timeout for starting the server and listing its tools.
    pub start_timeout: Duration,
    /// Time to wait for the result of a call.
    pub timeout: Duration,
    /// Maximum size of a result in bytes; longer results are truncated.
    pub largest_answer: usize,
}

impl McpConfig {
    /// Declares a server that runs as a child process with these environment variables.
    pub fn process<'a>(
        name: impl Into<Name>,
        command: impl Into<String>,
        args: impl IntoIterator<Item = &'a str>,
        env: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        Self::new(
            name.into(),
            Transport::Process {
                command: command.into(),
                args: args.into_iter().map(str::to_owned).collect(),
                env: secrets(env),
                usual: Vec::new(),
                directory: None,
            },
        )
    }

    /// Declares a server at an HTTP endpoint, with headers to send with every request.
    pub fn http<'a>(
        name: impl Into<Name>,
        url: impl Into<String>,
        headers: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        Self::new(name.into(), Transport::Http { url: url.into(), headers: secrets(headers) })
    }

    pub(crate) fn new(name: Name, reach: Transport) -> Self {
        Self {
            name,
            reach,
            only: None,
            approval: Approval::Never,
            start_timeout: Duration::from_secs(30),
            timeout: Duration::from_mins(5),
            largest_answer: 1 << 20,
        }
    }

    /// Returns the mask that removes the server's secrets from error messages.
    fn mask(&self) -> Mask {
        match &self.reach {
            Transport::Process { env, .. } => {
                Mask::new(env.iter().map(|(_, value)| value.reveal()))
            }
            Transport::Http { url, headers } => {
                let query = url.split_once('?').map(|(_, query)| query);
                let in_query = query.into_iter().flat_map(|query| query.split(['&', '=']));
                Mask::new(headers.iter().map(|(_, value)| value.reveal()).chain(in_query))
            }
        }
    }

    fn error(&self, trouble: McpErrorKind, reason: &str) -> McpError {
        McpError { server: self.name.clone(), trouble, reason: self.mask().apply(reason) }
    }
}

fn secrets<'a>(values: impl IntoIterator<Item = (&'a str, &'a str)>) -> Secrets {
    let secret = |(name, value)| (Name::from(name), Credential::new(value));
    values.into_iter().map(secret).collect()
}

words! {
    /// Kind of a server failure. Each string is the verb phrase used in error messages.
    #[non_exhaustive]
    McpErrorKind {
        /// The server could not be opened, and no request was sent.
        Unreachable = "is unavailable",
        /// The connection was lost.
        Lost = "disconnected",
        /// The server did not respond in time.
        Slow = "timed out",
        /// The server rejected the request.
        Refused = "failed",
    }
}

/// Failure of a server. The message contains no secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("The MCP server `{server}` {trouble}: {reason}")]
pub struct McpError {
    /// Configured name of the server.
    pub server: Name,
    /// Kind of the failure. It determines whether the call may have taken effect.
    pub trouble: McpErrorKind,
    /// Message from the server or the connection, with secrets masked.
    pub reason: String,
}

/// A connected MCP server. It is reopened automatically after a lost connection.
#[derive(Clone)]
pub struct McpServer(Arc<ServerState>);

/// State shared by all tools of a server.
struct ServerState {
    config: McpConfig,
    mask: Mask,
    session: Mutex<Option<Arc<Session>>>,
}

impl McpServer {
    /// Starts a child process with exactly these environment variables, and connects to it.
    pub async fn spawn<'a>(
        name: impl Into<Name>,
        command: impl Into<String>,
        args: impl IntoIterator<Item = &'a str>,
        env: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, McpError> {
        Self::open(McpConfig::process(name, command, args, env)).await
    }

    /// Connects to a streamable HTTP endpoint, with headers to send with every request.
    pub async fn connect<'a>(
        name: impl Into<Name>,
        url: impl Into<String>,
        headers: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, McpError> {
        Self::open(McpConfig::http(name, url, headers)).await
    }

    /// Starts the process or connects to the endpoint, and completes the MCP handshake.
    pub async fn open(config: McpConfig) -> Result<Self, McpError> {
        let mask = config.mask();
        let server = Self(Arc::new(ServerState { config, mask, session: Mutex::default() }));
        server.0.session().await?;
        Ok(server)
    }

    /// Requests the server's current tools and returns those that the configuration offers.
    pub async fn tools(&self) -> Result<Vec<Arc<dyn Tool>>, McpError> {
        let config = &self.0.config;
        let limit = config.start_timeout;
        let listed = timeout(limit, self.list_tools()).await;
        let mut tools = listed.map_err(|_| self.0.timeout_error("list its tools", limit))??;
        if let Some(only) = &config.only {
            let names: Vec<&str> = tools.iter().map(|tool| &*tool.name).collect();
            if let Some(name) = only.iter().find(|name| !names.contains(&&***name)) {
                let reason = format!("it has no tool `{name}`; its tools are {}", names.join(", "));
                return Err(config.error(McpErrorKind::Refused, &reason));
            }
            tools.retain(|tool| only.iter().any(|name| **name == *tool.name));
        }
        let tools = tools.iter().map(|tool| McpTool::new(&self.0, tool) as Arc<dyn Tool>);
        Ok(tools.collect())
    }

    async fn list_tools(&self) -> Result<Vec<rmcp::model::Tool>, McpError> {
        let session = self.0.session().await?;
        let (mut tools, mut cursor) = (Vec::new(), None);
        for _ in 0..MAX_PAGES {
            let params = PaginatedRequestParams::default().with_cursor(cursor);
            let page = match session.peer().list_tools(Some(params)).await {
                Ok(page) => page,
                Err(error) => return Err(self.0.call_error(&session, &error).await),
            };
            tools.extend(page.tools);
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(tools);
            }
        }
        Err(self.0.config.error(McpErrorKind::Refused, "its tool list has more than 1,000 pages"))
    }
}

impl std::fmt::Debug for McpServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McpServer").field("config", &self.0.config).finish_non_exhaustive()
    }
}

impl ServerState {
    /// Returns the open session, or opens a new session if there is none.
    async fn session(&self) -> Result<Arc<Session>, McpError> {
        let mut open = self.session.lock().await;
        if let Some(session) = open.as_ref().filter(|session| !session.is_over()) {
            return Ok(Arc::clone(session));
        }
        // Close the old session before opening a new one.
        *open = None;
        let session = Arc::new(session::open(&self.config).await?);
        *open = Some(Arc::clone(&session));
        Ok(session)
    }

    fn timeout_error(&self, action: &str, limit: Duration) -> McpError {
        let reason = format!("it did not {action} within {} ms", limit.as_millis());
        self.config.error(McpErrorKind::Slow, &reason)
    }

    async fn call_error(&self, session: &Session, error: &rmcp::ServiceError) -> McpError {
        let (trouble, reason) = session.classify(error).await;
        self.config.error(trouble, &reason)
    }
}
