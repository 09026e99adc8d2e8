//! A run's memory: structured summaries and single facts. The specification only names these two
//! records; their members follow the system that the specification is based on.

use throughline_json::{Name, Nullable, Number, record, words};

words! {
    /// The scope of a fact.
    MemoryScope {
        /// The fact applies to this conversation.
        Session = "session",
        /// The fact applies to all conversations of this user.
        User = "user",
        /// The fact applies to all users of this workspace.
        Workspace = "workspace",
        /// The fact applies to all workspaces of this tenant.
        Tenant = "tenant",
    }
}

record! {
    /// A fact that the agent remembers across turns.
    MemoryFact {
        /// The subject of the fact.
        "key" => key: Name,
        /// The content of the fact.
        "value" => value: Name,
        /// The turn in which the fact was learned.
        "sourceTurn" => source_turn?: u64,
        /// The confidence, from 0 to 1.
        "confidence" => confidence?: Number,
        /// The lifetime of the fact; `null` means unlimited.
        "ttl" => ttl?: Nullable<Number>,
        /// Whether the fact is obsolete.
        "obsolete" => obsolete?: bool,
        /// When the fact last changed.
        "lastUpdatedAt" => last_updated_at?: Name,
        /// The scope of the fact.
        "scope" => scope?: MemoryScope,
        /// Search tags.
        "tags" => tags?: Vec<Name>,
    }

    /// A fact in a summary.
    SummaryFactItem {
        /// The subject of the fact.
        "key" => key: Name,
        /// The content of the fact.
        "value" => value: Name,
        /// The confidence, from 0 to 1.
        "confidence" => confidence?: Number,
        /// The source of the fact.
        "source" => source?: Name,
    }

    /// The result of checking whether a summary kept the required facts.
    SummaryIntegrityCheck {
        /// Whether the check passed.
        "passed" => passed: bool,
        /// Whether a critical fact was lost.
        "criticalFactLoss" => critical_fact_loss?: bool,
        /// Whether the summary presents an obsolete fact as valid.
        "obsoleteFactRevived" => obsolete_fact_revived?: bool,
        /// Notes on the check.
        "notes" => notes?: Vec<Name>,
    }

    /// A structured summary of older messages.
    #[derive(Default)]
    SummaryRecord {
        /// Facts that are valid.
        "stable_facts" => stable_facts?: Vec<SummaryFactItem>,
        /// Goals in progress.
        "active_goals" => active_goals?: Vec<Name>,
        /// Questions without an answer.
        "open_questions" => open_questions?: Vec<Name>,
        /// Facts that are obsolete.
        "discarded_obsolete" => discarded_obsolete?: Vec<Name>,
        /// The summary's original text, as the model wrote it.
        "rawSummary" => raw_summary?: Name,
        /// The result of the integrity check.
        "integrity" => integrity?: SummaryIntegrityCheck,
        /// When the summary was made.
        "createdAt" => created_at?: Name,
    }
}
