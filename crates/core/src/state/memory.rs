//! What a run remembers: summaries taken apart, and single facts. The document names both records only; their members are
//! those of the system that wrote it.

use crate::document::{Nullable, record, words};
use crate::name::Name;
use crate::number::Number;

words! {
    /// How far a fact reaches.
    MemoryScope {
        /// This conversation.
        Session = "session",
        /// All conversations of this user.
        User = "user",
        /// All users of this workspace.
        Workspace = "workspace",
        /// All workspaces of this tenant.
        Tenant = "tenant",
    }
}

record! {
    /// One thing that is worth remembering.
    MemoryFact {
        /// What it is about.
        "key" => key: Name,
        /// What is so.
        "value" => value: Name,
        /// The turn in which it came up.
        "sourceTurn" => source_turn?: u64,
        /// How sure it is, from 0 to 1.
        "confidence" => confidence?: Number,
        /// How long it holds; `null` is for ever.
        "ttl" => ttl?: Nullable<Number>,
        /// Whether it holds no longer.
        "obsolete" => obsolete?: bool,
        /// When it last changed.
        "lastUpdatedAt" => last_updated_at?: Name,
        /// How far it reaches.
        "scope" => scope?: MemoryScope,
        /// Words to find it by.
        "tags" => tags?: Vec<Name>,
    }
}

record! {
    /// A fact as a summary states it.
    SummaryFactItem {
        /// What it is about.
        "key" => key: Name,
        /// What is so.
        "value" => value: Name,
        /// How sure it is, from 0 to 1.
        "confidence" => confidence?: Number,
        /// Where it comes from.
        "source" => source?: Name,
    }
}

record! {
    /// Whether a summary kept what it had to keep.
    SummaryIntegrityCheck {
        /// Whether it did.
        "passed" => passed: bool,
        /// Whether it lost a fact that matters.
        "criticalFactLoss" => critical_fact_loss?: bool,
        /// Whether it brought back a fact that no longer held.
        "obsoleteFactRevived" => obsolete_fact_revived?: bool,
        /// What was noticed.
        "notes" => notes?: Vec<Name>,
    }
}

record! {
    /// What stands for older messages, taken apart.
    #[derive(Default)]
    SummaryRecord {
        /// What holds.
        "stable_facts" => stable_facts?: Vec<SummaryFactItem>,
        /// What is being worked on.
        "active_goals" => active_goals?: Vec<Name>,
        /// What is not known yet.
        "open_questions" => open_questions?: Vec<Name>,
        /// What no longer holds.
        "discarded_obsolete" => discarded_obsolete?: Vec<Name>,
        /// The summary as the model wrote it.
        "rawSummary" => raw_summary?: Name,
        /// Whether it kept what it had to keep.
        "integrity" => integrity?: SummaryIntegrityCheck,
        /// When it was made.
        "createdAt" => created_at?: Name,
    }
}
