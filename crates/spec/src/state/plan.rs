//! A run's plan: its steps, with their owners and exit criteria.

use throughline_json::{Name, Number, record, words};

words! {
    /// The status of a plan step.
    PlanStepStatus {
        /// Work on the step has not started.
        NotStarted = "not-started",
        /// Work on the step is in progress.
        InProgress = "in-progress",
        /// The step's exit criterion is met.
        Completed = "completed",
        /// The step cannot continue until an obstacle is removed.
        Blocked = "blocked",
    }
}

record! {
    /// One step of a plan.
    PlanStepRecord {
        /// The position of the step in the plan.
        "id" => id: u64,
        /// The task.
        "step" => step: Name,
        /// The owner of the step: `agent`, `user`, `tool`, or any other name.
        "owner" => owner: Name,
        /// The criterion that must be met to complete the step.
        "exitCriteria" => exit_criteria: Name,
        /// The evidence that the step is complete.
        "evidence" => evidence?: Name,
        /// The status of the step.
        "status" => status: PlanStepStatus,
        /// A short title.
        "title" => title?: Name,
        /// A longer description.
        "description" => description?: Name,
    }

    /// A plan with its version and its steps.
    Plan {
        /// The version, which grows with every change.
        "version" => version: u64,
        /// The steps in order.
        "steps" => steps: Vec<PlanStepRecord>,
        /// When the plan last changed.
        "lastUpdated" => last_updated?: Name,
        /// The completed share of the plan, from 0 to 1.
        "adherenceScore" => adherence_score?: Number,
    }
}
