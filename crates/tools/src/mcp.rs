//! MCP servers: processes that are spoken with over their standard streams, and endpoints of streamable HTTP.
//!
//! A server is opened once and kept. When it is lost, the calls that were on their way are answered with that, and the next
//! call opens it again.

mod call;
mod result;
mod session;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::PaginatedRequestParams;
use throughline_agent::Tool;
use throughline_core::{Credential, Name};
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::mcp::call::McpTool;
use crate::mcp::session::Session;
use crate::secret::{Mask, Secrets, without_query};

/// How many pages of tools a server may have. One that goes on for ever is not listened to for ever.
const MOST_PAGES: usize = 1000;

/// How a server is reached.
#[derive(Clone)]
#[non_exhaustive]
pub enum Reach {
    /// A process of ours.
    Process {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// The variables that it has, and no others: not one of ours is handed on by itself.
        env: Vec<(Name, Credential)>,
        /// The usual variables of the machine, as `PATH`, which are no secret.
        usual: Vec<(Name, Name)>,
        /// The folder in which it starts, if not ours.
        directory: Option<PathBuf>,
    },
    /// An endpoint of streamable HTTP.
    Http {
        /// Its address.
        url: String,
        /// What goes along with each request.
        headers: Vec<(Name, Credential)>,
    },
}

impl std::fmt::Debug for Reach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Reach::Process { command, args, env, .. } => {
                let mut process = f.debug_struct("Process");
                process.field("command", command).field("args", args).field("env", env);
                process.finish_non_exhaustive()
            }
            Reach::Http { url, headers } => {
                let url = without_query(url);
                f.debug_struct("Http").field("url", &url).field("headers", headers).finish()
            }
        }
    }
}

/// Which tools of a server a person must allow each time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Approval {
    /// None.
    #[default]
    Never,
    /// Those that may destroy something: all but those of which the server says that they only read, or only add.
    Destructive,
    /// All.
    Always,
}

/// A server as it is declared.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct McpConfig {
    /// What it is called: the first part of its tools' names.
    pub name: Name,
    /// How it is reached.
    pub reach: Reach,
    /// The tools of it that are offered; all of them where nothing is said.
    pub only: Option<Vec<Name>>,
    /// Which of them a person must allow.
    pub approval: Approval,
    /// How long it may take to start.
    pub start_timeout: Duration,
    /// How long a call may take.
    pub timeout: Duration,
    /// How many bytes of an answer are kept.
    pub largest_answer: usize,
}

impl McpConfig {
    /// A process, with these variables.
    pub fn process<'a>(
        name: impl Into<Name>,
        command: impl Into<String>,
        args: impl IntoIterator<Item = &'a str>,
        env: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        Self::new(
            name.into(),
            Reach::Process {
                command: command.into(),
                args: args.into_iter().map(str::to_owned).collect(),
                env: secrets(env),
                usual: Vec::new(),
                directory: None,
            },
        )
    }

    /// An endpoint, with these headers.
    pub fn http<'a>(
        name: impl Into<Name>,
        url: impl Into<String>,
        headers: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        Self::new(name.into(), Reach::Http { url: url.into(), headers: secrets(headers) })
    }

    pub(crate) fn new(name: Name, reach: Reach) -> Self {
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

    /// What no error tells.
    fn mask(&self) -> Mask {
        match &self.reach {
            Reach::Process { env, .. } => Mask::of(env.iter().map(|(_, value)| value.reveal())),
            Reach::Http { url, headers } => {
                let query = url.split_once('?').map(|(_, query)| query);
                let in_query = query.into_iter().flat_map(|query| query.split(['&', '=']));
                Mask::of(headers.iter().map(|(_, value)| value.reveal()).chain(in_query))
            }
        }
    }

    fn error(&self, trouble: McpTrouble, reason: &str) -> McpError {
        McpError { server: self.name.clone(), trouble, reason: self.mask().over(reason) }
    }
}

fn secrets<'a>(values: impl IntoIterator<Item = (&'a str, &'a str)>) -> Secrets {
    let secret = |(name, value)| (Name::from(name), Credential::new(value));
    values.into_iter().map(secret).collect()
}

/// What kind of trouble there is with a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum McpTrouble {
    /// It could not be opened: nothing was asked of it.
    Unreachable,
    /// It was there, and is not any more.
    Lost,
    /// It took too long.
    Slow,
    /// It answered, and refused.
    Refused,
}

/// What went wrong with a server. It tells no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("The MCP server `{server}` {}: {reason}", self.verb())]
pub struct McpError {
    /// The server.
    pub server: Name,
    /// What kind of trouble it is.
    pub trouble: McpTrouble,
    /// What is known of it.
    pub reason: String,
}

impl McpError {
    fn verb(&self) -> &'static str {
        match self.trouble {
            McpTrouble::Unreachable => "cannot be opened",
            McpTrouble::Lost => "was lost",
            McpTrouble::Slow => "took too long",
            McpTrouble::Refused => "refused",
        }
    }
}

/// A server that is open, or will be when it is needed again.
#[derive(Clone)]
pub struct McpServer(Arc<Shared>);

/// What the tools of a server share.
struct Shared {
    config: McpConfig,
    mask: Mask,
    session: Mutex<Option<Arc<Session>>>,
}

impl McpServer {
    /// Starts a process, with these variables and no others, and speaks with it over its standard streams.
    pub async fn spawn<'a>(
        name: impl Into<Name>,
        command: impl Into<String>,
        args: impl IntoIterator<Item = &'a str>,
        env: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, McpError> {
        Self::open(McpConfig::process(name, command, args, env)).await
    }

    /// Connects to an endpoint of streamable HTTP.
    pub async fn connect<'a>(
        name: impl Into<Name>,
        url: impl Into<String>,
        headers: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, McpError> {
        Self::open(McpConfig::http(name, url, headers)).await
    }

    /// Opens a server as it is declared.
    pub async fn open(config: McpConfig) -> Result<Self, McpError> {
        let mask = config.mask();
        let server = Self(Arc::new(Shared { config, mask, session: Mutex::default() }));
        server.0.session().await?;
        Ok(server)
    }

    /// Its tools, as they are now.
    pub async fn tools(&self) -> Result<Vec<Arc<dyn Tool>>, McpError> {
        let config = &self.0.config;
        let listing = timeout(config.start_timeout, self.listed());
        let listed = listing.await.map_err(|_| self.0.slow("list its tools", config.start_timeout));
        let wanted = |name: &str| match &config.only {
            Some(only) => only.iter().any(|known| &**known == name),
            None => true,
        };
        let listed = listed??;
        let missing = config.only.iter().flatten();
        if let Some(name) =
            missing.into_iter().find(|name| listed.iter().all(|t| t.name != ***name))
        {
            let known: Vec<&str> = listed.iter().map(|tool| &*tool.name).collect();
            let reason = format!("it has no tool `{name}`, but {}", known.join(", "));
            return Err(config.error(McpTrouble::Refused, &reason));
        }
        let tools = listed.into_iter().filter(|tool| wanted(&tool.name));
        Ok(tools.map(|tool| McpTool::new(&self.0, &tool) as Arc<dyn Tool>).collect())
    }

    async fn listed(&self) -> Result<Vec<rmcp::model::Tool>, McpError> {
        let session = self.0.session().await?;
        let (mut tools, mut cursor) = (Vec::new(), None);
        for _ in 0..MOST_PAGES {
            let params = PaginatedRequestParams::default().with_cursor(cursor);
            let page = session.peer().list_tools(Some(params)).await;
            let page = match page {
                Ok(page) => page,
                Err(error) => return Err(self.0.failed(&session, &error).await),
            };
            tools.extend(page.tools);
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(tools);
            }
        }
        Err(self.0.config.error(McpTrouble::Refused, "its list of tools does not end"))
    }
}

impl std::fmt::Debug for McpServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McpServer").field("config", &self.0.config).finish_non_exhaustive()
    }
}

impl Shared {
    /// The connection: the one that is open, or a new one.
    async fn session(&self) -> Result<Arc<Session>, McpError> {
        let mut open = self.session.lock().await;
        if let Some(session) = open.as_ref().filter(|session| !session.is_over()) {
            return Ok(Arc::clone(session));
        }
        // What is left of the old one goes before the new one comes.
        *open = None;
        let session = Arc::new(session::open(&self.config).await?);
        *open = Some(Arc::clone(&session));
        Ok(session)
    }

    fn slow(&self, what: &str, limit: Duration) -> McpError {
        let reason = format!("it did not {what} within {} ms", limit.as_millis());
        self.config.error(McpTrouble::Slow, &reason)
    }

    async fn failed(&self, session: &Session, error: &rmcp::ServiceError) -> McpError {
        let (trouble, reason) = session.told(error).await;
        self.config.error(trouble, &reason)
    }
}
