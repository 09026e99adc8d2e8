//! The agent's plan, which the model manages with the tool `manage_todo_list`.
//!
//! `write` replaces the plan, `update` changes existing steps, and `read` returns the plan. Each
//! change creates a new version. A change based on an outdated version is rejected.

use throughline_json::{self as json, Json, Name, Node, Number, StringEnum as _};
use throughline_spec::{
    Plan, PlanEvent, PlanOperation, PlanSource, PlanStepRecord, PlanStepStatus,
};

use crate::tool::ToolSpec;

/// Name of the tool that manages the plan.
pub const MANAGE_TODO_LIST: &str = "manage_todo_list";

/// Maximum length of a step's evidence, in characters.
const MAX_EVIDENCE: usize = 300;

pub(crate) fn spec() -> ToolSpec {
    let schema = serde_json::json!({
        "type": "object",
        "properties": {
            "operation": {"type": "string", "enum": ["read", "write", "update"]},
            "todoList": {
                "type": "array",
                "description": "All steps for write; the changed ones for update.",
                "items": {
                    "type": "object",
                    "properties": {
                        "id": {"type": "integer", "minimum": 1},
                        "step": {"type": "string"},
                        "title": {"type": "string"},
                        "description": {"type": "string"},
                        "owner": {"type": "string"},
                        "exitCriteria": {"type": "string"},
                        "evidence": {"type": "string"},
                        "status": {"type": "string", "enum": ["not-started", "in-progress", "completed", "blocked"]}
                    },
                    "required": ["id"],
                    "additionalProperties": false
                }
            },
            "expectedVersion": {"type": "integer", "minimum": 0}
        },
        "required": ["operation"],
        "additionalProperties": false
    });
    ToolSpec::new(MANAGE_TODO_LIST)
        .description(
            "Keeps the plan of this conversation. Write it once for work of several steps, keep at most one step \
             in-progress, and update a step as soon as its status changes.",
        )
        .schema(Json::from(&schema))
}

/// Result of a `manage_todo_list` call.
pub(crate) struct PlanOutcome {
    pub(crate) answer: Json,
    /// The new plan; `None` if the call did not change the plan.
    pub(crate) plan: Option<Plan>,
    pub(crate) event: PlanEvent,
}

/// Executes a `manage_todo_list` call whose arguments match the schema. The error text is sent to
/// the model.
pub(crate) fn manage(
    args: Node<'_>,
    current: Option<&Plan>,
    version: u64,
    now: Name,
) -> Result<PlanOutcome, &'static str> {
    let operation = match args.text_of("operation").as_deref() {
        Some("write") => PlanOperation::Write,
        Some("update") => PlanOperation::Update,
        Some(_) | None => {
            let event = event(PlanOperation::Read, current, version);
            let answer = json::object(|out| {
                out.string("status", "ok").number("version", version);
                out.array("todoList", |list| {
                    for step in current.into_iter().flat_map(|plan| &plan.steps) {
                        list.raw(&step.json());
                    }
                });
            });
            return Ok(PlanOutcome { answer, plan: None, event });
        }
    };
    let mut plan = Plan::new(version + 1, apply_change(args, operation, current, version)?);
    plan.last_updated = Some(now);
    plan.adherence_score = Number::from_f64(adherence(&plan.steps));
    let answer = json::object(|out| {
        out.string("status", "ok").number("version", plan.version);
        if let Some(score) = &plan.adherence_score {
            out.raw("adherenceScore", &score.json());
        }
    });
    let event = event(operation, Some(&plan), plan.version);
    Ok(PlanOutcome { answer, event, plan: Some(plan) })
}

fn apply_change(
    args: Node<'_>,
    operation: PlanOperation,
    current: Option<&Plan>,
    version: u64,
) -> Result<Vec<PlanStepRecord>, &'static str> {
    if args.get("expectedVersion").and_then(Node::u64).is_some_and(|expected| expected != version) {
        return Err("Plan version mismatch. Read the latest plan and retry.");
    }
    let list = args.present("todoList");
    let list = list.ok_or("todoList is required for write and update operations.")?;
    let id_of = |step: Node<'_>| step.get("id").and_then(Node::u64);
    let mut changes: Vec<_> =
        list.elements().filter_map(|step| Some((id_of(step)?, step))).collect();
    changes.sort_by_key(|(id, _)| *id);
    let is_repeated = changes.windows(2).any(|pair| matches!(pair, [one, two] if one.0 == two.0));
    let steps: Result<Vec<_>, _> = if operation == PlanOperation::Write {
        if is_repeated {
            return Err("Todo ids must be unique.");
        }
        if changes.iter().zip(1..).any(|((id, _), expected)| *id != expected) {
            return Err("Todo ids must be sequential starting from 1 for write operations.");
        }
        changes.into_iter().map(|(id, step)| merge_step(None, id, step)).collect()
    } else {
        let plan = current.ok_or("No existing plan to update. Use write first.")?;
        if is_repeated {
            return Err("Update payload contains duplicate todo ids.");
        }
        if changes.iter().any(|(id, _)| !plan.steps.iter().any(|step| step.id == *id)) {
            return Err("Cannot update a missing todo id. Use write to replace the plan.");
        }
        let step =
            |existing: &PlanStepRecord| match changes.iter().find(|(id, _)| *id == existing.id) {
                Some((id, step)) => merge_step(Some(existing), *id, *step),
                None => Ok(existing.clone()),
            };
        plan.steps.iter().map(step).collect()
    };
    let steps = steps?;
    let in_progress = steps.iter().filter(|step| step.status == PlanStepStatus::InProgress).count();
    if in_progress > 1 {
        return Err("Only one todo item may be in-progress at a time.");
    }
    Ok(steps)
}

/// Builds the step `id` from the `given` fields. Missing fields are taken from the `known` step, if
/// any.
fn merge_step(
    existing: Option<&PlanStepRecord>,
    id: u64,
    change: Node<'_>,
) -> Result<PlanStepRecord, &'static str> {
    let text = |key: &str| change.name_of(key);
    let title = text("step").or_else(|| text("title")).or_else(|| text("description"));
    let title = title.or_else(|| Some(existing?.step.clone())).filter(|title| !title.is_empty());
    let title = title.ok_or("Every step needs a text: set `step`.")?;
    let mut statuses = PlanStepStatus::ALL.iter().copied();
    let status = change.get("status").and_then(|value| statuses.find(|s| value.is(s.as_str())));
    let status = status.or_else(|| Some(existing?.status)).unwrap_or(PlanStepStatus::NotStarted);
    let description = text("description").or_else(|| existing?.description.clone());
    let owner = text("owner").or_else(|| Some(existing?.owner.clone()));
    let exit = text("exitCriteria").or_else(|| Some(existing?.exit_criteria.clone()));
    let exit = exit.or_else(|| description.clone()).unwrap_or_else(|| title.clone());
    let owner = owner.unwrap_or_else(|| Name::from("agent"));
    let mut step = PlanStepRecord::new(id, title, owner, exit, status);
    let evidence = text("evidence").or_else(|| existing?.evidence.clone());
    step.evidence = evidence.map(|text| text.chars().take(MAX_EVIDENCE).collect::<String>().into());
    step.title = text("title").or_else(|| existing?.title.clone());
    step.description = description;
    Ok(step)
}

/// Builds the event with which the runtime reports the plan that a run continues.
pub(crate) fn continued_plan_event(plan: &Plan) -> PlanEvent {
    let event = event(PlanOperation::Read, Some(plan), plan.version);
    PlanEvent { source: PlanSource::System, ..event }
}

fn event(operation: PlanOperation, plan: Option<&Plan>, version: u64) -> PlanEvent {
    let mut event = PlanEvent::new(PlanSource::ManageTodoList);
    event.operation = Some(operation);
    event.todo_list = plan.map(|plan| plan.steps.clone());
    event.version = Some(version);
    event.adherence_score = plan.and_then(|plan| plan.adherence_score.clone());
    event
}

/// Returns the fraction of completed steps, rounded to two decimals. An empty plan counts as
/// complete.
fn adherence(steps: &[PlanStepRecord]) -> f64 {
    if steps.is_empty() {
        return 1.0;
    }
    let completed = steps.iter().filter(|step| step.status == PlanStepStatus::Completed).count();
    let (completed, all) =
        (u32::try_from(completed).unwrap_or(0), u32::try_from(steps.len()).unwrap_or(1));
    (f64::from(completed) / f64::from(all) * 100.0).round() / 100.0
}
