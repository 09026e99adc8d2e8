//! The plan of an agent, which the model manages with the tool `manage_todo_list`.
//!
//! `write` replaces the plan, `update` changes existing steps, and `read` returns it. Each change
//! creates a new version. A change that names an outdated version is rejected.

use throughline_json::{self as json, Json, Name, Node, Number};
use throughline_spec::{
    Plan, PlanEvent, PlanOperation, PlanSource, PlanStepRecord, PlanStepStatus,
};

use crate::tool::ToolSpec;

/// Name of the tool that manages the plan.
pub const MANAGE_TODO_LIST: &str = "manage_todo_list";

/// Maximum length of a step's evidence.
const MAX_EVIDENCE: usize = 300;

/// Returns the tool's specification for the model.
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

/// Result of a tool call that manages the plan.
pub(crate) struct PlanOutcome {
    /// Result for the model.
    pub(crate) answer: Result<Json, &'static str>,
    /// The new plan, if it changed.
    pub(crate) plan: Option<Plan>,
    pub(crate) event: Option<PlanEvent>,
}

/// Executes a tool call whose arguments fit the schema.
pub(crate) fn manage(
    args: Node<'_>,
    current: Option<&Plan>,
    version: u64,
    now: &str,
) -> PlanOutcome {
    match args.text_of("operation").as_deref() {
        Some("write") => change(args, PlanOperation::Write, current, version, now),
        Some("update") => change(args, PlanOperation::Update, current, version, now),
        Some(_) | None => {
            let event = event(PlanOperation::Read, current, version);
            let answer = json::object(|out| {
                out.string("status", "ok");
                out.number("version", version);
                out.array("todoList", |list| {
                    for step in current.into_iter().flat_map(|plan| &plan.steps) {
                        list.raw(&step.json());
                    }
                });
            });
            PlanOutcome { answer: Ok(answer), plan: None, event: Some(event) }
        }
    }
}

fn change(
    args: Node<'_>,
    operation: PlanOperation,
    current: Option<&Plan>,
    version: u64,
    now: &str,
) -> PlanOutcome {
    match apply_change(args, operation, current, version) {
        Err(problem) => PlanOutcome { answer: Err(problem), plan: None, event: None },
        Ok(steps) => {
            let mut plan = Plan::new(version + 1, steps);
            plan.last_updated = Some(Name::from(now));
            plan.adherence_score = Number::from_f64(adherence(&plan.steps));
            let answer = json::object(|out| {
                out.string("status", "ok");
                out.number("version", plan.version);
                if let Some(score) = &plan.adherence_score {
                    out.raw("adherenceScore", &score.json());
                }
            });
            let event = event(operation, Some(&plan), plan.version);
            PlanOutcome { answer: Ok(answer), event: Some(event), plan: Some(plan) }
        }
    }
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
    let given: Vec<(u64, Node<'_>)> = list
        .elements()
        .filter_map(|step| Some((step.get("id").and_then(Node::u64)?, step)))
        .collect();
    let mut ids: Vec<u64> = given.iter().map(|(id, _)| *id).collect();
    ids.sort_unstable();
    let is_repeated = ids.windows(2).any(|pair| matches!(pair, [one, two] if one == two));
    let steps = if operation == PlanOperation::Write {
        if is_repeated {
            return Err("Todo ids must be unique.");
        }
        if !ids.iter().copied().eq(1..=u64::try_from(ids.len()).unwrap_or(u64::MAX)) {
            return Err("Todo ids must be sequential starting from 1 for write operations.");
        }
        let mut given = given;
        given.sort_by_key(|(id, _)| *id);
        given
            .into_iter()
            .map(|(id, step)| merge_step(None, id, step))
            .collect::<Result<Vec<_>, _>>()?
    } else {
        let plan = current.ok_or("No existing plan to update. Use write first.")?;
        if is_repeated {
            return Err("Update payload contains duplicate todo ids.");
        }
        if given.iter().any(|(id, _)| !plan.steps.iter().any(|step| step.id == *id)) {
            return Err("Cannot update a missing todo id. Use write to replace the plan.");
        }
        let step = |known: &PlanStepRecord| match given.iter().find(|(id, _)| *id == known.id) {
            Some((id, step)) => merge_step(Some(known), *id, *step),
            None => Ok(known.clone()),
        };
        plan.steps.iter().map(step).collect::<Result<Vec<_>, _>>()?
    };
    let at_work = steps.iter().filter(|step| step.status == PlanStepStatus::InProgress).count();
    if at_work > 1 {
        return Err("Only one todo item may be in-progress at a time.");
    }
    Ok(steps)
}

/// Merges a given step with the existing one.
fn merge_step(
    known: Option<&PlanStepRecord>,
    id: u64,
    given: Node<'_>,
) -> Result<PlanStepRecord, &'static str> {
    let text = |key: &str| given.name_of(key);
    let said = text("step").or_else(|| text("title")).or_else(|| text("description"));
    let said = said.or_else(|| known.map(|known| known.step.clone()));
    let said =
        said.filter(|said| !said.is_empty()).ok_or("Every step needs a text: set `step`.")?;
    let status = given.text_of("status").map_or(
        known.map_or(PlanStepStatus::NotStarted, |known| known.status),
        |word| match &*word {
            "in-progress" => PlanStepStatus::InProgress,
            "completed" => PlanStepStatus::Completed,
            "blocked" => PlanStepStatus::Blocked,
            _ => PlanStepStatus::NotStarted,
        },
    );
    let description = text("description").or_else(|| known?.description.clone());
    let owner = text("owner").or_else(|| Some(known?.owner.clone()));
    let exit = text("exitCriteria").or_else(|| Some(known?.exit_criteria.clone()));
    let exit = exit.or_else(|| description.clone()).unwrap_or_else(|| said.clone());
    let mut step =
        PlanStepRecord::new(id, said, owner.unwrap_or_else(|| Name::from("agent")), exit, status);
    step.evidence =
        text("evidence").or_else(|| known?.evidence.clone()).map(|long| truncate_evidence(&long));
    step.title = text("title").or_else(|| known?.title.clone());
    step.description = description;
    Ok(step)
}

fn truncate_evidence(text: &Name) -> Name {
    match text.char_indices().nth(MAX_EVIDENCE) {
        Some((end, _)) => Name::from(text.get(..end).unwrap_or_default()),
        None => text.clone(),
    }
}

fn event(operation: PlanOperation, plan: Option<&Plan>, version: u64) -> PlanEvent {
    let mut event = PlanEvent::new(PlanSource::ManageTodoList);
    event.operation = Some(operation);
    event.todo_list = plan.map(|plan| plan.steps.clone());
    event.version = Some(version);
    event.adherence_score = plan.and_then(|plan| plan.adherence_score.clone());
    event
}

/// Returns the share of completed steps, rounded to two digits. A plan without steps counts as
/// complete.
fn adherence(steps: &[PlanStepRecord]) -> f64 {
    if steps.is_empty() {
        return 1.0;
    }
    let done = steps.iter().filter(|step| step.status == PlanStepStatus::Completed).count();
    let (done, all) = (u32::try_from(done).unwrap_or(0), u32::try_from(steps.len()).unwrap_or(1));
    (f64::from(done) / f64::from(all) * 100.0).round() / 100.0
}
