//! The plan of a run: what is to be done, by whom, and when it counts as done.

use crate::document::{record, words};
use crate::name::Name;
use crate::number::Number;

words! {
    /// How far a step is.
    PlanStepStatus {
        /// Nobody has begun.
        NotStarted = "not-started",
        /// Somebody is at it.
        InProgress = "in-progress",
        /// It is done.
        Completed = "completed",
        /// It cannot go on.
        Blocked = "blocked",
    }
}

record! {
    /// One step of a plan.
    PlanStepRecord {
        /// Its number in the plan.
        "id" => id: u64,
        /// What is to be done.
        "step" => step: Name,
        /// Who does it: `agent`, `user`, `tool`, or any other name.
        "owner" => owner: Name,
        /// When it counts as done.
        "exitCriteria" => exit_criteria: Name,
        /// What shows that it is done.
        "evidence" => evidence?: Name,
        /// How far it is.
        "status" => status: PlanStepStatus,
        /// A short name for it.
        "title" => title?: Name,
        /// More about it.
        "description" => description?: Name,
    }
}

record! {
    /// The current plan.
    Plan {
        /// Its version, which grows with every change.
        "version" => version: u64,
        /// What is to be done, in order.
        "steps" => steps: Vec<PlanStepRecord>,
        /// When it last changed.
        "lastUpdated" => last_updated?: Name,
        /// How much of it is done, from 0 to 1.
        "adherenceScore" => adherence_score?: Number,
    }
}
