//! What a run tells while it goes on: one event for each thing that happened.
//!
//! Each event is an object with a `type`. An event of a type that nobody knows is kept raw. What came from another agent's run
//! says so in members that no event declares (`subagentId`, `subagentName`, `delegatedTo`); they are kept like any other.

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

use crate::document::{Definitions, Fields, InvalidDocument, Record};
use crate::json::{self, Json};

/// One thing that happened in a run.
#[derive(Clone, Debug, PartialEq)]
pub enum RunEvent {
    /// A tool began, answered, failed or was left out.
    ToolCall(ToolCallEvent),
    /// A tool call waits for a person, or the person decided.
    ToolApproval(ToolApprovalEvent),
    /// The model asked a person, or the person answered.
    UserQuestion(UserQuestionEvent),
    /// The plan was read or changed.
    Plan(PlanEvent),
    /// Older messages were summarised.
    Summarization(Box<SummarizationEvent>),
    /// The agent answered.
    FinalAnswer(FinalAnswerEvent),
    /// What the run cost, and which limits it has.
    Metadata(MetadataEvent),
    /// Another agent goes on.
    Handoff(HandoffEvent),
    /// A guardrail objected.
    Guardrail(GuardrailEvent),
    /// How far the run is.
    Progress(ProgressEvent),
    /// A piece of text that the model is writing.
    Stream(StreamEvent),
    /// The run was stopped.
    Cancelled(CancelledEvent),
    /// An agent that works for this one began, answered, failed or paused.
    Subagent(SubagentEvent),
    /// The agent noted something.
    Reflection(ReflectionEvent),
    /// A run began, waits, goes on or ended.
    Run(RunStatusEvent),
    /// A model was asked, and answered.
    Turn(TurnEvent),
    /// Something was said to the model.
    Message(MessageEvent),
    /// The model thinks, or has thought.
    Thought(ThoughtEvent),
    /// A limit of the run was reached.
    Limit(LimitEvent),
    /// An answer did not pass the gate, or passed after all.
    Gate(GateEvent),
    /// What became of the Items and Seals of a request.
    Replay(ReplayEvent),
    /// What a turn cost, and the run so far.
    Usage(Box<UsageEvent>),
    /// An event of another type, verbatim.
    Unknown(Json),
}

impl RunEvent {
    /// Reads the document: an object with a `type`. What is wrong with an event of a known type is an error; what is unknown
    /// is kept.
    pub fn parse(document: &Json) -> Result<Self, InvalidDocument> {
        let tree = document.tree();
        let kind = Fields::of(tree.root(), "RunEvent")?.required_text("type")?;
        let fields = |name: &str| Fields::of(tree.root(), name);
        Ok(match &*kind {
            ToolCallEvent::TYPE => Self::ToolCall(Record::read(&fields("ToolCallEvent")?)?),
            ToolApprovalEvent::TYPE => {
                Self::ToolApproval(Record::read(&fields("ToolApprovalEvent")?)?)
            }
            UserQuestionEvent::TYPE => {
                Self::UserQuestion(Record::read(&fields("UserQuestionEvent")?)?)
            }
            PlanEvent::TYPE => Self::Plan(Record::read(&fields("PlanEvent")?)?),
            SummarizationEvent::TYPE => {
                Self::Summarization(Box::new(Record::read(&fields("SummarizationEvent")?)?))
            }
            FinalAnswerEvent::TYPE => {
                Self::FinalAnswer(Record::read(&fields("FinalAnswerEvent")?)?)
            }
            MetadataEvent::TYPE => Self::Metadata(Record::read(&fields("MetadataEvent")?)?),
            HandoffEvent::TYPE => Self::Handoff(Record::read(&fields("HandoffEvent")?)?),
            GuardrailEvent::TYPE => Self::Guardrail(Record::read(&fields("GuardrailEvent")?)?),
            ProgressEvent::TYPE => Self::Progress(Record::read(&fields("ProgressEvent")?)?),
            StreamEvent::TYPE => Self::Stream(Record::read(&fields("StreamEvent")?)?),
            CancelledEvent::TYPE => Self::Cancelled(Record::read(&fields("CancelledEvent")?)?),
            SubagentEvent::TYPE => Self::Subagent(Record::read(&fields("SubagentEvent")?)?),
            ReflectionEvent::TYPE => Self::Reflection(Record::read(&fields("ReflectionEvent")?)?),
            RunStatusEvent::TYPE => Self::Run(Record::read(&fields("RunStatusEvent")?)?),
            TurnEvent::TYPE => Self::Turn(Record::read(&fields("TurnEvent")?)?),
            MessageEvent::TYPE => Self::Message(Record::read(&fields("MessageEvent")?)?),
            ThoughtEvent::TYPE => Self::Thought(Record::read(&fields("ThoughtEvent")?)?),
            LimitEvent::TYPE => Self::Limit(Record::read(&fields("LimitEvent")?)?),
            GateEvent::TYPE => Self::Gate(Record::read(&fields("GateEvent")?)?),
            ReplayEvent::TYPE => Self::Replay(Record::read(&fields("ReplayEvent")?)?),
            UsageEvent::TYPE => Self::Usage(Box::new(Record::read(&fields("UsageEvent")?)?)),
            _ => Self::Unknown(document.clone()),
        })
    }

    /// The document.
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

    /// The JSON Schema of all events.
    pub fn schema() -> Json {
        let mut definitions = Definitions::default();
        let known = [
            (ToolCallEvent::TYPE, definitions.refer::<ToolCallEvent>()),
            (ToolApprovalEvent::TYPE, definitions.refer::<ToolApprovalEvent>()),
            (UserQuestionEvent::TYPE, definitions.refer::<UserQuestionEvent>()),
            (PlanEvent::TYPE, definitions.refer::<PlanEvent>()),
            (SummarizationEvent::TYPE, definitions.refer::<SummarizationEvent>()),
            (FinalAnswerEvent::TYPE, definitions.refer::<FinalAnswerEvent>()),
            (MetadataEvent::TYPE, definitions.refer::<MetadataEvent>()),
            (HandoffEvent::TYPE, definitions.refer::<HandoffEvent>()),
            (GuardrailEvent::TYPE, definitions.refer::<GuardrailEvent>()),
            (ProgressEvent::TYPE, definitions.refer::<ProgressEvent>()),
            (StreamEvent::TYPE, definitions.refer::<StreamEvent>()),
            (CancelledEvent::TYPE, definitions.refer::<CancelledEvent>()),
            (SubagentEvent::TYPE, definitions.refer::<SubagentEvent>()),
            (ReflectionEvent::TYPE, definitions.refer::<ReflectionEvent>()),
            (RunStatusEvent::TYPE, definitions.refer::<RunStatusEvent>()),
            (TurnEvent::TYPE, definitions.refer::<TurnEvent>()),
            (MessageEvent::TYPE, definitions.refer::<MessageEvent>()),
            (ThoughtEvent::TYPE, definitions.refer::<ThoughtEvent>()),
            (LimitEvent::TYPE, definitions.refer::<LimitEvent>()),
            (GateEvent::TYPE, definitions.refer::<GateEvent>()),
            (ReplayEvent::TYPE, definitions.refer::<ReplayEvent>()),
            (UsageEvent::TYPE, definitions.refer::<UsageEvent>()),
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
        let about = "One thing that happened in a run. Members that are not declared are kept.";
        definitions.document("RunEvent", about, |out| {
            out.array("oneOf", |list| {
                for (_, schema) in &known {
                    list.raw(schema);
                }
                list.raw(&other);
            });
        })
    }

    /// The event's `type`, by which sinks choose and policies redact.
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
