//! Run events, which report everything that happens in a run.
//!
//! Each event is an object with a `type`. Events with unknown types are kept verbatim. Events from
//! a subagent's run also have `subagentId`, `subagentName` and `delegatedTo`. These members are not
//! declared, so they are kept as unknown members.

mod events;

pub use crate::run_event::events::*;

use std::borrow::Cow;

use throughline_json::{self as json, Definitions, DocumentRecord, Fields, InvalidDocument, Json};

/// Declares [`RunEvent`] with one variant per event type.
macro_rules! run_events {
    ($($(#[$about:meta])* $variant:ident($event:ident $(in $container:ident)?),)+) => {
        /// An event in a run.
        #[derive(Clone, Debug, PartialEq)]
        pub enum RunEvent {
            $($(#[$about])* $variant(run_events!(@payload $event $(in $container)?)),)+
            /// An event whose type is unknown, kept verbatim.
            Unknown(Json),
        }

        impl RunEvent {
            /// Parses an object with a `type`. An invalid event of a known type is an error; an
            /// event of an unknown type is kept verbatim.
            pub fn parse(document: &Json) -> Result<Self, InvalidDocument> {
                let tree = document.tree();
                let kind = Fields::from_node(tree.root(), "RunEvent")?.required_text("type")?;
                Ok(match &*kind {
                    $($event::TYPE => {
                        let fields = Fields::from_node(tree.root(), stringify!($event))?;
                        Self::$variant(<$event as DocumentRecord>::read(&fields)?.into())
                    })+
                    _ => Self::Unknown(document.clone()),
                })
            }

            /// Returns the event as JSON.
            pub fn json(&self) -> Json {
                match self {
                    $(Self::$variant(event) => event.json(),)+
                    Self::Unknown(event) => event.clone(),
                }
            }

            /// Returns the event's `type`. Sinks filter by this name, and redaction policies match
            /// it.
            pub fn name(&self) -> Cow<'static, str> {
                match self {
                    $(Self::$variant(_) => $event::TYPE.into(),)+
                    Self::Unknown(event) => {
                        let name = event.tree().root().text_of("type").map(Cow::into_owned);
                        name.unwrap_or_default().into()
                    }
                }
            }

            /// Returns the `type` and the schema reference of each known event.
            fn known(definitions: &mut Definitions) -> Vec<(&'static str, Json)> {
                vec![$(($event::TYPE, definitions.reference::<$event>()),)+]
            }
        }
    };
    (@payload $event:ident) => { $event };
    (@payload $event:ident in $container:ident) => { $container<$event> };
}

run_events! {
    /// A tool started, returned, failed or was skipped.
    ToolCall(ToolCallEvent),
    /// A tool call is waiting for a person's approval, or a person has decided.
    ToolApproval(ToolApprovalEvent),
    /// The model asked the user a question, or the user answered.
    UserQuestion(UserQuestionEvent),
    /// The plan was read or changed.
    Plan(PlanEvent),
    /// Older messages were summarised.
    Summarization(SummarizationEvent in Box),
    /// The agent gave its final answer.
    FinalAnswer(FinalAnswerEvent),
    /// The usage and limits of the run.
    Metadata(MetadataEvent),
    /// Another agent takes over the conversation.
    Handoff(HandoffEvent),
    /// A guardrail reported a violation.
    Guardrail(GuardrailEvent),
    /// The run reports progress.
    Progress(ProgressEvent),
    /// A piece of the answer's text was streamed.
    Stream(StreamEvent),
    /// The run was cancelled.
    Cancelled(CancelledEvent),
    /// A subagent started, returned, failed or paused.
    Subagent(SubagentEvent),
    /// The agent recorded a reflection.
    Reflection(ReflectionEvent),
    /// A run started, paused, resumed or ended.
    Run(RunStatusEvent),
    /// A model call started or ended.
    Turn(TurnEvent),
    /// A message was sent to the model.
    Message(MessageEvent),
    /// A piece of a Thought was streamed, or the Thought is complete.
    Thought(ThoughtEvent),
    /// A limit of the run was reached.
    Limit(LimitEvent),
    /// An answer failed a gate check, or passed after a retry.
    Gate(GateEvent),
    /// What happened to a request's Items and Seals, as their Fates.
    Replay(ReplayEvent),
    /// The usage and cost of a turn, and of the run so far.
    Usage(UsageEvent in Box),
}

impl RunEvent {
    /// Returns a JSON Schema that accepts all events.
    pub fn schema() -> Json {
        let mut definitions = Definitions::default();
        let known = Self::known(&mut definitions);
        let names = json::array(|list| list.extend(known.iter().map(|(name, _)| *name)));
        let unknown = json::object!("type": "string", "not": &json::object!("enum": &names));
        let other = json::object(|out| {
            out.string("description", "An event of another type, verbatim.");
            out.string("type", "object").raw("properties", &json::object!("type": &unknown));
            out.list("required", ["type"]);
        });
        let about = "One event of a run. Undeclared members are kept.";
        definitions.document("RunEvent", about, |out| {
            out.list("oneOf", known.iter().map(|(_, schema)| schema).chain([&other]));
        })
    }
}
