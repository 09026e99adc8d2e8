//! One connection to an MCP server.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Client;
use reqwest::header::{HeaderName, HeaderValue};
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
use throughline_core::Credential;
use throughline_json::Name;
use tokio::io::AsyncReadExt;
use tokio::process::{ChildStderr, Command};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, watch};
use tokio::time::timeout;

use crate::client;
use crate::mcp::{McpConfig, McpError, McpErrorKind, Transport};

/// Number of bytes to keep from the end of a process's standard error.
const STDERR_BYTES: usize = 2048;

/// Maximum time to wait for the remaining standard error of a process that exited.
const STDERR_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) type ProgressCallback = Arc<dyn Fn(&str) + Send + Sync>;

pub(super) struct Session {
    service: RunningService<RoleClient, ProgressHandler>,
    stderr: Option<watch::Receiver<Vec<u8>>>,
}

/// Opens a connection within the start timeout. The first handshake uses the common `initialize`
/// protocol. If the server rejects this handshake, the handshake of protocol version 2026-07-28 is
/// tried.
pub(super) async fn open(config: &McpConfig) -> Result<Session, McpError> {
    let opening = async {
        match open_with(config, ClientLifecycleMode::Initialize).await {
            Err(error) if error.trouble == McpErrorKind::Refused => {
                let preferred_versions = vec![ProtocolVersion::LATEST];
                let newer = ClientLifecycleMode::Discover { preferred_versions };
                let opened = open_with(config, newer).await;
                opened.map_err(|_| McpError { trouble: McpErrorKind::Unreachable, ..error })
            }
            result => result,
        }
    };
    let limit = config.start_timeout;
    let opened = timeout(limit, opening).await;
    opened.unwrap_or_else(|_| {
        let reason = format!("it did not respond within {} ms", limit.as_millis());
        Err(config.error(McpErrorKind::Unreachable, &reason))
    })
}

async fn open_with(config: &McpConfig, mode: ClientLifecycleMode) -> Result<Session, McpError> {
    let unreachable = |reason: &str| config.error(McpErrorKind::Unreachable, reason);
    let mut tail = None;
    let handler = ProgressHandler::default();
    let service = match &config.reach {
        Transport::Process { command: program, args, env, usual, directory } => {
            let mut command = Command::new(program);
            command.args(args).env_clear().kill_on_drop(true);
            command.envs(usual.iter().map(|(name, value)| (&**name, &**value)));
            command.envs(env.iter().map(|(name, value)| (&**name, value.reveal())));
            if let Some(directory) = directory {
                command.current_dir(directory);
            }
            // Put the process into its own group, so that Ctrl+C in the terminal does not reach it.
            // Throughline stops the process itself.
            #[cfg(unix)]
            command.process_group(0);
            let process = TokioChildProcess::builder(command).stderr(Stdio::piped()).spawn();
            let (process, stderr) = process.map_err(|error| {
                let advice = "is it installed and in PATH?";
                unreachable(&format!("cannot start `{program}`: {error}; {advice}"))
            })?;
            tail = stderr.map(capture_stderr);
            handler.serve_with_lifecycle(process, mode).await
        }
        Transport::Http { url, headers } => {
            let (client, headers) =
                http_client(url, headers).map_err(|reason| unreachable(&reason))?;
            let transport = StreamableHttpClientTransportConfig::with_uri(url.as_str())
                .custom_headers(headers)
                .max_sse_event_size(2 * config.largest_answer + (1 << 20))
                .reinit_on_expired_session(true);
            let transport = StreamableHttpClientTransport::with_client(client, transport);
            handler.serve_with_lifecycle(transport, mode).await
        }
    };
    match service {
        Ok(service) => Ok(Session { service, stderr: tail }),
        Err(error @ ClientInitializeError::JsonRpcError(_)) => {
            Err(config.error(McpErrorKind::Refused, &open_error(&error)))
        }
        Err(error) => {
            let output = last_output(tail.as_ref()).await;
            Err(unreachable(&format!("{}{output}", open_error(&error))))
        }
    }
}

/// Creates an HTTP client for the endpoint, and converts the configured headers.
fn http_client(
    url: &str,
    headers: &[(Name, Credential)],
) -> Result<(Client, HashMap<HeaderName, HeaderValue>), String> {
    client::parse(url).map_err(|problem| format!("`url` {problem}"))?;
    let headers = client::headers(headers).map_err(|problem| format!("`headers` {problem}"))?;
    let headers = headers.into_iter().filter_map(|(name, value)| Some((name?, value)));
    Ok((client::client()?, headers.collect()))
}

/// Explains why a connection could not be opened.
fn open_error(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::TransportError { error, .. } => client::error_message(&*error.error),
        ClientInitializeError::JsonRpcError(error) => refusal(error),
        ClientInitializeError::ConnectionClosed(_) => {
            "it closed the connection before it responded".to_owned()
        }
        ClientInitializeError::ExpectedInitResponse(_)
        | ClientInitializeError::ExpectedInitResult(_) => {
            "its response does not follow the MCP protocol".to_owned()
        }
        other => client::error_message(other),
    }
}

fn refusal(error: &ErrorData) -> String {
    let more = error.data.as_ref().map_or_else(String::new, |data| format!(" {data}"));
    format!("{} (code {}){more}", error.message, error.code.0)
}

impl Session {
    pub(super) fn is_over(&self) -> bool {
        self.service.peer().is_transport_closed()
    }

    pub(super) fn peer(&self) -> &Peer<RoleClient> {
        self.service.peer()
    }

    /// Calls a tool and reports its progress. Dropping the returned future cancels the call at the
    /// server.
    pub(super) async fn call(
        &self,
        params: CallToolRequestParams,
        report: ProgressCallback,
    ) -> Result<ServerResult, ServiceError> {
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let listener = self.service.service();
        let handle = {
            // Hold the lock until the callback is registered, so that early progress notifications
            // are not lost.
            let mut callbacks = listener.0.lock().await;
            let options = PeerRequestOptions::no_options();
            let handle = self.peer().send_request_with_option(request, options).await?;
            callbacks.insert(handle.progress_token.clone(), report);
            handle
        };
        let mut pending = PendingCall {
            peer: self.peer().clone(),
            listener: listener.clone(),
            token: handle.progress_token.clone(),
            id: Some(handle.id.clone()),
        };
        let answer = handle.await_response().await;
        pending.id = None;
        answer
    }

    /// Returns the kind and the message of a failed call's error.
    pub(super) async fn classify(&self, error: &ServiceError) -> (McpErrorKind, String) {
        match error {
            ServiceError::McpError(error) => (McpErrorKind::Refused, refusal(error)),
            ServiceError::TransportSend(error) => {
                let is_lost = !client::was_not_sent(&*error.error);
                let kind = if is_lost { McpErrorKind::Lost } else { McpErrorKind::Unreachable };
                (kind, client::error_message(&*error.error))
            }
            ServiceError::TransportClosed => {
                let output = last_output(self.stderr.as_ref()).await;
                (
                    McpErrorKind::Lost,
                    format!("it closed the connection before it responded{output}"),
                )
            }
            other => (McpErrorKind::Refused, other.to_string()),
        }
    }
}

/// Guard for a call. If the guard is dropped before the response arrives, the call is cancelled at
/// the server.
struct PendingCall {
    peer: Peer<RoleClient>,
    listener: ProgressHandler,
    token: ProgressToken,
    /// Id of the request to cancel; `None` after the response arrived.
    id: Option<RequestId>,
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        let (peer, listener) = (self.peer.clone(), self.listener.clone());
        let (token, id) = (self.token.clone(), self.id.take());
        let Ok(runtime) = Handle::try_current() else { return };
        runtime.spawn(async move {
            listener.0.lock().await.remove(&token);
            if id.is_some() {
                let reason = Some("the caller stopped waiting".to_owned());
                // The notification fails if the server is closed; nothing is left to cancel then.
                drop(peer.notify_cancelled(CancelledNotificationParam::new(id, reason)).await);
            }
        });
    }
}

/// Passes progress notifications to the callbacks of their calls.
#[derive(Clone, Default)]
struct ProgressHandler(Arc<Mutex<HashMap<ProgressToken, ProgressCallback>>>);

impl ClientHandler for ProgressHandler {
    fn get_info(&self) -> ClientConfig {
        let us = Implementation::new("throughline", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), us)
    }

    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let report = self.0.lock().await.get(&params.progress_token).cloned();
        if let Some(report) = report {
            report(&progress(&params));
        }
    }
}

fn progress(params: &ProgressNotificationParam) -> String {
    let done = params.progress;
    match (&params.message, params.total) {
        (Some(message), Some(total)) => format!("{message} ({done}/{total})"),
        (Some(message), None) => message.clone(),
        (None, Some(total)) => format!("{done}/{total}"),
        (None, None) => done.to_string(),
    }
}

/// Reads the standard error of a process, so that the process does not block on a full pipe. The
/// returned channel contains the end of this output and closes when the process exits.
fn capture_stderr(mut stderr: ChildStderr) -> watch::Receiver<Vec<u8>> {
    let (tail, receiver) = watch::channel(Vec::new());
    tokio::spawn(async move {
        let mut piece = [0; 1024];
        while let Ok(length @ 1..) = stderr.read(&mut piece).await {
            tail.send_modify(|tail| {
                tail.extend_from_slice(piece.get(..length).unwrap_or_default());
                tail.drain(..tail.len().saturating_sub(STDERR_BYTES));
            });
        }
    });
    receiver
}

/// Returns the last error output of an exited process, formatted to append to a message.
async fn last_output(stderr: Option<&watch::Receiver<Vec<u8>>>) -> String {
    let Some(mut stderr) = stderr.cloned() else { return String::new() };
    // The condition never holds, so this waits until the channel closes.
    drop(timeout(STDERR_TIMEOUT, stderr.wait_for(|_| false)).await);
    match String::from_utf8_lossy(&stderr.borrow()).trim() {
        "" => String::new(),
        output => format!("; its last error output was: {output}"),
    }
}
