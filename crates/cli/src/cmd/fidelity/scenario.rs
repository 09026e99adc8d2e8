//! The cases of the benchmark, each a scripted conversation.

use throughline_sim::PARALLEL_CALLS;

/// A kind of conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scenario {
    ToolLoop,
    ParallelCalls,
    LossyClient,
    ModelSwitch,
    PrefixChange,
    Compaction,
}

const QUESTIONS: [&str; 3] = [
    "Is the checkout in Zürich slow today?",
    "And what changed since Monday — naïvely asked?",
    "Which service should we look at first?",
];

impl Scenario {
    pub(super) const ALL: [Self; 6] = [
        Self::ToolLoop,
        Self::ParallelCalls,
        Self::LossyClient,
        Self::ModelSwitch,
        Self::PrefixChange,
        Self::Compaction,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ToolLoop => "tool-loop",
            Self::ParallelCalls => "parallel-calls",
            Self::LossyClient => "lossy-client",
            Self::ModelSwitch => "model-switch",
            Self::PrefixChange => "prefix-change",
            Self::Compaction => "compaction",
        }
    }

    /// Returns whether the client removes all reasoning from each response.
    pub(super) fn is_lossy(self) -> bool {
        self == Self::LossyClient
    }

    /// Returns the text of each user message. The tag makes the conversation unique, so that no
    /// case uses the cache of another.
    pub(super) fn messages(self, tag: &str) -> [String; 3] {
        let marker = if self == Self::ParallelCalls { PARALLEL_CALLS } else { "" };
        let [first, second, third] = QUESTIONS;
        [format!("[{tag}] {first}"), second.to_owned(), third.to_owned()]
            .map(|text| format!("{text} {marker}").trim_end().to_owned())
    }
}
