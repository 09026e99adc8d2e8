//! Run events: one event for each thing that happens in a run.
//!
//! Each event is an object with a `type`; events of unknown types are kept raw. Events of another
//! agent's run are marked by members that no event declares (`subagentId`, `subagentName`,
//! `delegatedTo`), which are kept like all unknown members.

mod events;

pub use crate::run_event::events::{
    CancelledEvent, EventError, FinalAnswerEvent, GateEvent, GatePhase, GuardrailDisposition,
    GuardrailEvent, GuardrailPhase, HandoffEvent, LimitEvent, MessageEvent, MetadataEvent,
    PlanEvent, PlanOperation, PlanSource, ProgressEvent, ReflectionEvent, ReplayEvent,
    RunStatusEvent, StreamEvent, SubagentEvent, SubagentMode, SubagentPhase, SummarizationEvent,
    ThoughtEvent, ThoughtPhase, ToolApprovalEvent, ToolApprovalEventStatus, ToolCallEvent,
    ToolCallPhase, TurnEvent, TurnPhase, UsageEvent, UserQuestionEvent, UserQuestionEventStatus,
};

use std::borrow::Cow;

use throughline_json::{self as json, Definitions, DocumentRecord, Fields, InvalidDocument, Json};

/// One event of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum RunEvent {
    /// A tool started, returned, failed or was skipped.
    ToolCall(ToolCallEvent),
    /// A tool call waits for a person's approval, or was decided.
    ToolApproval(ToolApprovalEvent),
    /// The model asked the user a question, or the user answered.
    UserQuestion(UserQuestionEvent),
    /// The plan was read or changed.
    Plan(PlanEvent),
    /// Older messages were summarised.
    Summarization(Box<SummarizationEvent>),
    /// The agent gave its final answer.
    FinalAnswer(FinalAnswerEvent),
    /// Usage and limits of the run.
    Metadata(MetadataEvent),
    /// Another agent takes over.
    Handoff(HandoffEvent),
    /// A guardrail reported a violation.
    Guardrail(GuardrailEvent),
    /// Progress of the run.
    Progress(ProgressEvent),
    /// A piece of streamed text.
    Stream(StreamEvent),
    /// The run was cancelled.
    Cancelled(CancelledEvent),
    /// A subagent started, returned, failed or paused.
    Subagent(SubagentEvent),
    /// The agent recorded a reflection.
    Reflection(ReflectionEvent),
    /// A run started, waits, resumed or ended.
    Run(RunStatusEvent),
    /// A model call started or ended.
    Turn(TurnEvent),
    /// A message was sent to the model.
    Message(MessageEvent),
    /// A Thought is streamed or complete.
    Thought(ThoughtEvent),
    /// A limit of the run was reached.
    Limit(LimitEvent),
    /// An answer failed a gate check, or passed after a retry.
    Gate(GateEvent),
    /// The Fates of a request's Items and Seals.
    Replay(ReplayEvent),
    /// Usage and cost of a turn and of the run so far.
    Usage(Box<UsageEvent>),
    /// An event of another type, verbatim.
    Unknown(Json),
}

impl RunEvent {
    /// Parses the document: an object with a `type`. An invalid event of a known type is an error;
    /// unknown types are kept.
    pub fn parse(document: &Json) -> Result<Self, InvalidDocument> {
        let tree = document.tree();
        let kind = Fields::from_node(tree.root(), "RunEvent")?.required_text("type")?;
        let fields = |name: &str| Fields::from_node(tree.root(), name);
        Ok(match &*kind {
            ToolCallEvent::TYPE => Self::ToolCall(DocumentRecord::read(&fields("ToolCallEvent")?)?),
            ToolApprovalEvent::TYPE => {
                Self::ToolApproval(DocumentRecord::read(&fields("ToolApprovalEvent")?)?)
            }
            UserQuestionEvent::TYPE => {
                Self::UserQuestion(DocumentRecord::read(&fields("UserQuestionEvent")?)?)
            }
            PlanEvent::TYPE => Self::Plan(DocumentRecord::read(&fields("PlanEvent")?)?),
            SummarizationEvent::TYPE => {
                Self::Summarization(Box::new(DocumentRecord::read(&fields("SummarizationEvent")?)?))
            }
            FinalAnswerEvent::TYPE => {
                Self::FinalAnswer(DocumentRecord::read(&fields("FinalAnswerEvent")?)?)
            }
            MetadataEvent::TYPE => Self::Metadata(DocumentRecord::read(&fields("MetadataEvent")?)?),
            HandoffEvent::TYPE => Self::Handoff(DocumentRecord::read(&fields("HandoffEvent")?)?),
            GuardrailEvent::TYPE => {
                Self::Guardrail(DocumentRecord::read(&fields("GuardrailEvent")?)?)
            }
            ProgressEvent::TYPE => Self::Progress(DocumentRecord::read(&fields("ProgressEvent")?)?),
            StreamEvent::TYPE => Self::Stream(DocumentRecord::read(&fields("StreamEvent")?)?),
            CancelledEvent::TYPE => {
                Self::Cancelled(DocumentRecord::read(&fields("CancelledEvent")?)?)
            }
            SubagentEvent::TYPE => Self::Subagent(DocumentRecord::read(&fields("SubagentEvent")?)?),
            ReflectionEvent::TYPE => {
                Self::Reflection(DocumentRecord::read(&fields("ReflectionEvent")?)?)
            }
            RunStatusEvent::TYPE => Self::Run(DocumentRecord::read(&fields("RunStatusEvent")?)?),
            TurnEvent::TYPE => Self::Turn(DocumentRecord::read(&fields("TurnEvent")?)?),
            MessageEvent::TYPE => Self::Message(DocumentRecord::read(&fields("MessageEvent")?)?),
            ThoughtEvent::TYPE => Self::Thought(DocumentRecord::read(&fields("ThoughtEvent")?)?),
            LimitEvent::TYPE => Self::Limit(DocumentRecord::read(&fields("LimitEvent")?)?),
            GateEvent::TYPE => Self::Gate(DocumentRecord::read(&fields("GateEvent")?)?),
            ReplayEvent::TYPE => Self::Replay(DocumentRecord::read(&fields("ReplayEvent")?)?),
            UsageEvent::TYPE => {
                Self::Usage(Box::new(DocumentRecord::read(&fields("UsageEvent")?)?))
            }
            _ => Self::Unknown(document.clone()),
        })
    }

    /// Returns the document as JSON.
    pub fn json(&self) -> Json {
        match self {
            Self::ToolCall(event) => event.json(),
            Self::ToolApproval(event) => event.json(),
            Self::UserQuestion(event) => event.json(),
            Self::Plan(event) => event.json(),
            Self::Summarization(event) => event.json(),
            Self::FinalAnswer(event) => event.json(),
            Self::Metadata(event) => event.json(),
            Self::Handoff(event) => event.json(),
            Self::Guardrail(event) => event.json(),
            Self::Progress(event) => event.json(),
            Self::Stream(event) => event.json(),
            Self::Cancelled(event) => event.json(),
            Self::Subagent(event) => event.json(),
            Self::Reflection(event) => event.json(),
            Self::Run(event) => event.json(),
            Self::Turn(event) => event.json(),
            Self::Message(event) => event.json(),
            Self::Thought(event) => event.json(),
            Self::Limit(event) => event.json(),
            Self::Gate(event) => event.json(),
            Self::Replay(event) => event.json(),
            Self::Usage(event) => event.json(),
            Self::Unknown(event) => event.clone(),
        }
    }

    /// Returns the JSON Schema of all events.
    pub fn schema() -> Json {
        let mut definitions = Definitions::default();
        let known = [
            (ToolCallEvent::TYPE, definitions.reference::<ToolCallEvent>()),
            (ToolApprovalEvent::TYPE, definitions.reference::<ToolApprovalEvent>()),
            (UserQuestionEvent::TYPE, definitions.reference::<UserQuestionEvent>()),
            (PlanEvent::TYPE, definitions.reference::<PlanEvent>()),
            (SummarizationEvent::TYPE, definitions.reference::<SummarizationEvent>()),
            (FinalAnswerEvent::TYPE, definitions.reference::<FinalAnswerEvent>()),
            (MetadataEvent::TYPE, definitions.reference::<MetadataEvent>()),
            (HandoffEvent::TYPE, definitions.reference::<HandoffEvent>()),
            (GuardrailEvent::TYPE, definitions.reference::<GuardrailEvent>()),
            (ProgressEvent::TYPE, definitions.reference::<ProgressEvent>()),
            (StreamEvent::TYPE, definitions.reference::<StreamEvent>()),
            (CancelledEvent::TYPE, definitions.reference::<CancelledEvent>()),
            (SubagentEvent::TYPE, definitions.reference::<SubagentEvent>()),
            (ReflectionEvent::TYPE, definitions.reference::<ReflectionEvent>()),
            (RunStatusEvent::TYPE, definitions.reference::<RunStatusEvent>()),
            (TurnEvent::TYPE, definitions.reference::<TurnEvent>()),
            (MessageEvent::TYPE, definitions.reference::<MessageEvent>()),
            (ThoughtEvent::TYPE, definitions.reference::<ThoughtEvent>()),
            (LimitEvent::TYPE, definitions.reference::<LimitEvent>()),
            (GateEvent::TYPE, definitions.reference::<GateEvent>()),
            (ReplayEvent::TYPE, definitions.reference::<ReplayEvent>()),
            (UsageEvent::TYPE, definitions.reference::<UsageEvent>()),
        ];
        let other = json::object(|out| {
            out.string("description", "An event of another type, verbatim.");
            out.string("type", "object").object("properties", |out| {
                out.object("type", |out| {
                    out.string("type", "string").object("not", |out| {
                        out.array("enum", |list| {
                            for (name, _) in &known {
                                list.string(name);
                            }
                        });
                    });
                });
            });
            out.array("required", |list| {
                list.string("type");
            });
        });
        let about = "One event of a run. Undeclared members are kept.";
        definitions.document("RunEvent", about, |out| {
            out.array("oneOf", |list| {
                for (_, schema) in &known {
                    list.raw(schema);
                }
                list.raw(&other);
            });
        })
    }

    /// Returns the event's `type`, which sinks filter by and policies redact by.
    pub fn name(&self) -> Cow<'static, str> {
        let name = match self {
            Self::ToolCall(_) => ToolCallEvent::TYPE,
            Self::ToolApproval(_) => ToolApprovalEvent::TYPE,
            Self::UserQuestion(_) => UserQuestionEvent::TYPE,
            Self::Plan(_) => PlanEvent::TYPE,
            Self::Summarization(_) => SummarizationEvent::TYPE,
            Self::FinalAnswer(_) => FinalAnswerEvent::TYPE,
            Self::Metadata(_) => MetadataEvent::TYPE,
            Self::Handoff(_) => HandoffEvent::TYPE,
            Self::Guardrail(_) => GuardrailEvent::TYPE,
            Self::Progress(_) => ProgressEvent::TYPE,
            Self::Stream(_) => StreamEvent::TYPE,
            Self::Cancelled(_) => CancelledEvent::TYPE,
            Self::Subagent(_) => SubagentEvent::TYPE,
            Self::Reflection(_) => ReflectionEvent::TYPE,
            Self::Run(_) => RunStatusEvent::TYPE,
            Self::Turn(_) => TurnEvent::TYPE,
            Self::Message(_) => MessageEvent::TYPE,
            Self::Thought(_) => ThoughtEvent::TYPE,
            Self::Limit(_) => LimitEvent::TYPE,
            Self::Gate(_) => GateEvent::TYPE,
            Self::Replay(_) => ReplayEvent::TYPE,
            Self::Usage(_) => UsageEvent::TYPE,
            Self::Unknown(event) => {
                let name = event.tree().root().text_of("type").map(Cow::into_owned);
                return name.unwrap_or_default().into();
            }
        };
        name.into()
    }
}
