//! Rejects replies that call a tool which the client removed during the conversation.
//!
//! If the gateway keeps the signed prefix, the prefix still contains the definitions of removed
//! tools. The provider no longer offers these tools, but a model may call one anyway. The client
//! cannot run the tool, so it gets an error that it can retry instead of the call.

use throughline_core::{Body, Event, Item, Reply};
use throughline_json::Name;

use crate::error::GatewayError;

/// The tools that were offered earlier in a conversation and that the client removed.
#[derive(Clone, Debug, Default)]
pub(crate) struct RemovedTools(pub(crate) Vec<Name>);

impl RemovedTools {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Refuses a complete reply that calls a removed tool.
    pub(crate) fn check(&self, reply: &Reply) -> Result<(), GatewayError> {
        let mut names = reply.items.iter().filter_map(Item::call).map(|call| &call.name);
        match names.find(|name| self.0.contains(name)) {
            Some(name) => Err(GatewayError::new(502, refusal(name))),
            None => Ok(()),
        }
    }

    /// Returns the error for the first call to a removed tool that starts in these events.
    pub(crate) fn find_call(&self, events: &[Event]) -> Option<String> {
        if self.is_empty() {
            return None;
        }
        events.iter().find_map(|event| match event {
            Event::Opened { body: Body::Call(call), .. } if self.0.contains(&call.name) => {
                Some(refusal(&call.name))
            }
            _ => None,
        })
    }
}

fn refusal(name: &str) -> String {
    format!(
        "the model called the tool `{name}`, which this conversation no longer offers; send the \
         request again"
    )
}
