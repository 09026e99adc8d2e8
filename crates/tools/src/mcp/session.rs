//! One connection with a server, from its first word to its last.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::{Arc, Mutex as Lock, PoisonError};
use std::time::Duration;

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CancelledNotificationParam, ClientCapabilities,
    ClientConfig, ClientRequest, ErrorData, Implementation, ProgressNotificationParam,
    ProgressToken, ProtocolVersion, RequestId, ServerResult,
};
use rmcp::service::{
    ClientInitializeError, NotificationContext, PeerRequestOptions, RunningService,
};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt, Peer, RoleClient, ServiceError};
use throughline_core::{Credential, Name};
use tokio::io::AsyncReadExt;
use tokio::process::{ChildStderr, Command};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, watch};
use tokio::time::timeout;

use crate::client;
use crate::mcp::{McpConfig, McpError, McpTrouble, Reach};

/// How much is kept of what a process complains about: its last words.
const LAST_WORDS: usize = 2048;

/// How long a process that is gone may take to have its last words read.
const PARTING: Duration = Duration::from_secs(1);

/// What is called with each word of progress.
pub(super) type Tell = Arc<dyn Fn(&str) + Send + Sync>;

/// A connection.
pub(super) struct Session {
    service: RunningService<RoleClient, Listener>,
    complaints: Option<Complaints>,
}

/// Opens a connection, within the time that there is for it. A server is greeted as most expect it, and one that refuses that
/// as the protocol has it since 2026-07-28.
pub(super) async fn open(config: &McpConfig) -> Result<Session, McpError> {
    let opening = async {
        match greet(config, ClientLifecycleMode::Initialize).await {
            Err(error) if error.trouble == McpTrouble::Refused => {
                let preferred_versions = vec![ProtocolVersion::LATEST];
                let newer =
                    greet(config, ClientLifecycleMode::Discover { preferred_versions }).await;
                newer.map_err(|_| McpError { trouble: McpTrouble::Unreachable, ..error })
            }
            greeted => greeted,
        }
    };
    let limit = config.start_timeout;
    let opened = timeout(limit, opening).await;
    opened.unwrap_or_else(|_| {
        let reason = format!("it did not answer within {} ms", limit.as_millis());
        Err(config.error(McpTrouble::Unreachable, &reason))
    })
}

async fn greet(config: &McpConfig, how: ClientLifecycleMode) -> Result<Session, McpError> {
    match &config.reach {
        Reach::Process { .. } => spawn(config, how).await,
        Reach::Http { url, headers } => connect(config, url, headers, how).await,
    }
}

async fn spawn(config: &McpConfig, how: ClientLifecycleMode) -> Result<Session, McpError> {
    let unreachable = |reason: &str| config.error(McpTrouble::Unreachable, reason);
    let Reach::Process { command: program, args, env, usual, directory } = &config.reach else {
        return Err(unreachable("it is no process"));
    };
    let mut command = Command::new(program);
    command.args(args).env_clear().kill_on_drop(true);
    command.envs(usual.iter().map(|(name, value)| (&**name, &**value)));
    command.envs(env.iter().map(|(name, value)| (&**name, value.reveal())));
    if let Some(directory) = directory {
        command.current_dir(directory);
    }
    // An interrupt at the terminal is for us. We end the process when we are done.
    #[cfg(unix)]
    command.process_group(0);
    let process = TokioChildProcess::builder(command).stderr(Stdio::piped()).spawn();
    let (process, stderr) = process.map_err(|error| {
        unreachable(&format!("`{program}` does not start: {error}; is it installed, and in PATH?"))
    })?;
    let complaints = stderr.map(Complaints::hear);
    match Listener::default().serve_with_lifecycle(process, how).await {
        Ok(service) => Ok(Session { service, complaints }),
        Err(error @ ClientInitializeError::JsonRpcError(_)) => {
            Err(config.error(McpTrouble::Refused, &not_opened(&error)))
        }
        Err(error) => {
            let said = last_words(complaints.as_ref()).await;
            Err(unreachable(&format!("{}{said}", not_opened(&error))))
        }
    }
}

async fn connect(
    config: &McpConfig,
    url: &str,
    headers: &[(Name, Credential)],
    how: ClientLifecycleMode,
) -> Result<Session, McpError> {
    let unreachable = |reason: &str| config.error(McpTrouble::Unreachable, reason);
    let parsed = reqwest::Url::parse(url).map_err(|error| error.to_string());
    let checked = parsed.and_then(|url| client::check(&url).map_err(|why| format!("`url` {why}")));
    checked.map_err(|reason| unreachable(&reason))?;
    let client = client::client().map_err(|reason| unreachable(&reason))?;
    let headers =
        client::headers(headers).map_err(|why| unreachable(&format!("`headers` {why}")))?;
    let headers = headers.into_iter().filter_map(|(name, value)| Some((name?, value))).collect();
    let transport = StreamableHttpClientTransportConfig::with_uri(url)
        .custom_headers(headers)
        .max_sse_event_size(2 * config.largest_answer + (1 << 20))
        .reinit_on_expired_session(true);
    let transport = StreamableHttpClientTransport::with_client(client, transport);
    match Listener::default().serve_with_lifecycle(transport, how).await {
        Ok(service) => Ok(Session { service, complaints: None }),
        Err(error @ ClientInitializeError::JsonRpcError(_)) => {
            Err(config.error(McpTrouble::Refused, &not_opened(&error)))
        }
        Err(error) => Err(unreachable(&not_opened(&error))),
    }
}

/// Why a connection was not opened.
fn not_opened(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::TransportError { error, .. } => client::told(&*error.error),
        ClientInitializeError::JsonRpcError(error) => refusal(error),
        ClientInitializeError::ConnectionClosed(_) => "it ended before it answered".to_owned(),
        ClientInitializeError::ExpectedInitResponse(_)
        | ClientInitializeError::ExpectedInitResult(_) => {
            "it does not answer as an MCP server does".to_owned()
        }
        other => client::told(other),
    }
}

fn refusal(error: &ErrorData) -> String {
    let more = error.data.as_ref().map_or_else(String::new, |data| format!(" {data}"));
    format!("{} (code {}){more}", error.message, error.code.0)
}

impl Session {
    /// Whether there is nobody at the other end any more.
    pub(super) fn is_over(&self) -> bool {
        self.service.peer().is_transport_closed()
    }

    pub(super) fn peer(&self) -> &Peer<RoleClient> {
        self.service.peer()
    }

    /// Calls a tool, and tells of its progress. Whoever drops the future cancels the call over there.
    pub(super) async fn call(
        &self,
        params: CallToolRequestParams,
        tell: Tell,
    ) -> Result<ServerResult, ServiceError> {
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let listener = self.service.service();
        let handle = {
            // Whoever tells of progress waits until it is known whom to tell.
            let mut heard = listener.0.lock().await;
            let options = PeerRequestOptions::no_options();
            let handle = self.peer().send_request_with_option(request, options).await?;
            heard.insert(handle.progress_token.clone(), tell);
            handle
        };
        let mut calling = Calling {
            peer: self.peer().clone(),
            listener: listener.clone(),
            token: handle.progress_token.clone(),
            id: Some(handle.id.clone()),
        };
        let answer = handle.await_response().await;
        calling.id = None;
        answer
    }

    /// What an error of a call says, and what kind of trouble it is.
    pub(super) async fn told(&self, error: &ServiceError) -> (McpTrouble, String) {
        match error {
            ServiceError::McpError(error) => (McpTrouble::Refused, refusal(error)),
            ServiceError::TransportSend(error) if client::was_not_sent(&*error.error) => {
                (McpTrouble::Unreachable, client::told(&*error.error))
            }
            ServiceError::TransportSend(error) => (McpTrouble::Lost, client::told(&*error.error)),
            ServiceError::TransportClosed => {
                let said = last_words(self.complaints.as_ref()).await;
                (McpTrouble::Lost, format!("it ended before it answered{said}"))
            }
            other => (McpTrouble::Refused, other.to_string()),
        }
    }
}

/// A call on its way.
struct Calling {
    peer: Peer<RoleClient>,
    listener: Listener,
    token: ProgressToken,
    /// What is cancelled if nobody waits for the answer any more.
    id: Option<RequestId>,
}

impl Drop for Calling {
    fn drop(&mut self) {
        let (peer, listener, token) =
            (self.peer.clone(), self.listener.clone(), self.token.clone());
        let id = self.id.take();
        let Ok(runtime) = Handle::try_current() else { return };
        runtime.spawn(async move {
            listener.0.lock().await.remove(&token);
            if id.is_some() {
                let reason = Some("nobody waits for the answer".to_owned());
                // A server that is gone needs not be told.
                drop(peer.notify_cancelled(CancelledNotificationParam::new(id, reason)).await);
            }
        });
    }
}

/// Hears what a server says of its own accord: progress, by the calls that it is about.
#[derive(Clone, Default)]
struct Listener(Arc<Mutex<HashMap<ProgressToken, Tell>>>);

impl ClientHandler for Listener {
    fn get_info(&self) -> ClientConfig {
        let us = Implementation::new("throughline", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), us)
    }

    async fn on_progress(
        &self,
        about: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let tell = self.0.lock().await.get(&about.progress_token).cloned();
        if let Some(tell) = tell {
            tell(&progress(&about));
        }
    }
}

fn progress(about: &ProgressNotificationParam) -> String {
    let done = about.progress;
    match (&about.message, about.total) {
        (Some(message), Some(total)) => format!("{message} ({done}/{total})"),
        (Some(message), None) => message.clone(),
        (None, Some(total)) => format!("{done}/{total}"),
        (None, None) => done.to_string(),
    }
}

/// What a process writes to its standard error: it is read, so that the process is not held up, and its end is kept.
struct Complaints {
    last: Arc<Lock<Vec<u8>>>,
    ended: watch::Receiver<bool>,
}

impl Complaints {
    fn hear(mut stderr: ChildStderr) -> Self {
        let last = Arc::new(Lock::new(Vec::new()));
        let (end, ended) = watch::channel(false);
        let kept = Arc::clone(&last);
        // It ends with the process.
        tokio::spawn(async move {
            let mut piece = [0; 1024];
            while let Ok(length @ 1..) = stderr.read(&mut piece).await {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.extend_from_slice(piece.get(..length).unwrap_or_default());
                let spare = kept.len().saturating_sub(LAST_WORDS);
                kept.drain(..spare);
            }
            end.send_replace(true);
        });
        Self { last, ended }
    }
}

/// What a process that is gone said last, behind a sentence.
async fn last_words(complaints: Option<&Complaints>) -> String {
    let Some(complaints) = complaints else { return String::new() };
    let mut ended = complaints.ended.clone();
    drop(timeout(PARTING, ended.wait_for(|ended| *ended)).await);
    let last = complaints.last.lock().unwrap_or_else(PoisonError::into_inner);
    let said = String::from_utf8_lossy(&last);
    match said.trim() {
        "" => String::new(),
        said => format!("; its last words were: {said}"),
    }
}
