//! Serves durable agents over HTTP under Letta's paths and in Letta's formats, so that unmodified
//! Letta clients work.
//!
//! An agent's messages form one Thread with the agent's id. Each conversation is a further Thread
//! with the conversation's id. A definition log next to each Thread stores the fields of the agent
//! or conversation. A task of this process drives a run. Clients follow the run through the store,
//! so any process can serve a client.
//!
//! | file | contents |
//! |---|---|
//! | `agent_store.rs` | storage of agents and conversations |
//! | `agents.rs`, `conversations.rs`, `messages.rs`, `runs.rs` | handlers for each resource |
//! | `extensions.rs` | handlers under `/v1/throughline/` that Letta does not have |
//! | `message_request.rs`, `decisions.rs` | incoming messages: user input, and decisions for waiting runs |
//! | `history.rs` | an earlier conversation that a message adds to its Thread |
//! | `agent_config.rs` | conversion of a Letta agent definition to an `AgentConfig` |
//! | `resource_json.rs` | JSON of agents, conversations, runs, steps and pages |
//! | `projector.rs`, `message.rs` | conversion of run events to Letta messages; the message types |
//! | `item_reader.rs` | lookup of the Items that run events refer to |
//! | `message_list.rs` | paged messages of a Thread |
//! | `stored_objects.rs` | checks of references to objects that providers store |
//! | `run_stream.rs` | following a run as server-sent events or until it stops |
//!
//! The route table is in `routes.rs`; errors and run tasks are in `api`.

mod agent_config;
mod agent_store;
pub(crate) mod agents;
pub(crate) mod conversations;
mod decisions;
pub(crate) mod extensions;
mod history;
pub(crate) mod item_reader;
pub(crate) mod message;
mod message_list;
mod message_request;
pub(crate) mod messages;
mod projector;
#[cfg(test)]
#[path = "letta/request_size_tests.rs"]
mod request_size_tests;
pub(crate) mod resource_json;
pub(crate) mod run_stream;
pub(crate) mod runs;
mod stored_objects;

pub use crate::letta::agent_store::agent_threads;

use throughline_core::{LogHead, LogId};

use crate::api::{ApiRequest, ApiResult};

impl ApiRequest<'_> {
    /// Finds the newest run of a Thread; `None` if the Thread has no run or was erased.
    async fn newest_run(&self, thread: &LogId) -> ApiResult<Option<LogHead>> {
        let found = runs::run_heads(self, thread, None, 1).await?;
        Ok(found.into_iter().next().filter(|head| head.gone.is_none()))
    }
}
