//! What the rules of the Claudes say, on whichever wire: the title, the reason, the advice and the evidence. The wires add
//! their names for them, the provider's words, and examples.

use crate::audit::{Source, SourceKind};

/// What a rule says.
pub(crate) struct Lore {
    pub(crate) title: &'static str,
    pub(crate) why: &'static str,
    pub(crate) fix: &'static str,
    pub(crate) evidence: &'static [Source],
}

pub(crate) const TOOL_LOOP_NEEDS_THINKING: Lore = Lore {
    title: "The open tool loop does not begin with thinking.",
    why: "With `thinking.type` `enabled`, the calls of a tool and their results are one turn of the model's, and that \
          turn is only complete with the thinking it began with. So while the last message brings tool results, the \
          assistant message before it must start with a `thinking` or `redacted_thinking` block. Frameworks break this \
          when their message type has no field for thinking, when a database keeps texts and calls only, or when a \
          compaction keeps the call and drops what led to it.",
    fix: "Send the assistant message back with the thinking blocks it was received with, before the tool call. Where \
          they are lost, switch thinking off until the loop ends.",
    evidence: &[
        Source {
            kind: SourceKind::Recorded,
            at: "six tool loops under `enabled`, all of which begin with thinking",
        },
        Source {
            kind: SourceKind::Issue,
            at: "https://github.com/lbjlaq/Antigravity-Manager/issues/139",
        },
        Source { kind: SourceKind::Issue, at: "https://github.com/anomalyco/opencode/issues/3077" },
    ],
};

pub(crate) const SIGNATURE_MISSING: Lore = Lore {
    title: "A thinking block comes back without its signature.",
    why: "A Claude signs every thought it hands out and takes back none that is not signed: `signature` is a required \
          field of a `thinking` block, as `data` is of a `redacted_thinking` one. The field gets lost where a client \
          keeps the readable text only, where a stream was cut before its `signature_delta`, or where thinking that \
          another model said in the open is passed off as a block.",
    fix: "Send the block with the signature it was received with, or leave the block out.",
    evidence: &[
        Source {
            kind: SourceKind::Issue,
            at: "https://github.com/anomalyco/opencode/issues/25005",
        },
        Source {
            kind: SourceKind::Issue,
            at: "https://github.com/openclaw/openclaw/issues/120596",
        },
        Source { kind: SourceKind::Types, at: "anthropic 2.8.0, the types of thinking blocks" },
    ],
};

pub(crate) const SIGNATURE_INVALID: Lore = Lore {
    title: "The signature of a thinking block does not verify.",
    why: "A signature proves that a Claude said exactly this. An empty one, one that was cut, put into another base64 \
          alphabet or scrubbed by a redactor proves nothing, and neither does the ciphertext of another vendor. \
          Signatures do not expire; what breaks them is what happens to them on the way. Thinking of turns that are \
          over may be left out, but what is sent is checked.",
    fix: "Send the signature byte for byte as it was received, and only to Claudes. Where it is lost, leave the block \
          out.",
    evidence: &[
        Source {
            kind: SourceKind::Issue,
            at: "https://github.com/ding113/claude-code-hub/issues/518",
        },
        Source {
            kind: SourceKind::Issue,
            at: "https://github.com/anthropics/anthropic-sdk-python/issues/1598",
        },
        Source { kind: SourceKind::Issue, at: "https://github.com/entireio/cli/pull/1866" },
        Source {
            kind: SourceKind::Issue,
            at: "https://github.com/router-for-me/CLIProxyAPI/issues/1584",
        },
    ],
};

pub(crate) const THINKING_MODIFIED: Lore = Lore {
    title: "A thinking block is not as it was issued.",
    why: "What a signature covers must come back untouched: the text to the last space, every block on its own, in the \
          order and in the message it was issued in. Transcripts break this when they blank the text and keep the \
          signature, when a sanitiser rewrites characters, when a store joins neighbouring blocks or writes them \
          twice, and when a client sorts blocks by kind.",
    fix: "Send the blocks of the answer as they were received: same text, same order, same message, each once.",
    evidence: &[
        Source {
            kind: SourceKind::Issue,
            at: "https://github.com/anthropics/claude-code/issues/19539",
        },
        Source {
            kind: SourceKind::Issue,
            at: "https://github.com/anthropics/anthropic-sdk-python/issues/1598",
        },
        Source {
            kind: SourceKind::Issue,
            at: "https://github.com/anthropics/claude-code/issues/63147",
        },
        Source {
            kind: SourceKind::Issue,
            at: "https://github.com/openclaw/openclaw/issues/103587",
        },
        Source { kind: SourceKind::Types, at: "anthropic 2.8.0, the types of thinking blocks" },
    ],
};

pub(crate) const THINKING_DROPPED: Lore = Lore {
    title: "A thinking block of the open tool loop does not come back.",
    why: "Until a tool loop ends, the model goes on from what it thought in it. Under a budget, a last assistant \
          message that lost some of its thinking counts as modified. Under adaptive thinking the request is taken, and \
          the model goes on without knowing why it called the tool. Thinking of turns that are over may be left out.",
    fix: "Send every thinking block of the open tool loop back in its place.",
    evidence: &[
        Source {
            kind: SourceKind::Issue,
            at: "https://github.com/openai/openai-agents-python/pull/2880",
        },
        Source { kind: SourceKind::Issue, at: "https://github.com/openclaw/openclaw/issues/19524" },
        Source {
            kind: SourceKind::Recorded,
            at: "thinking of an earlier turn left out under `enabled`: accepted",
        },
    ],
};

pub(crate) const PREFIX_CHANGED: Lore = Lore {
    title: "What stood before a thinking block has changed since it was issued.",
    why: "From Fable 5.1 and the 5.5 models on, a signature also records the tools, the system prompt and all messages \
          that stood before the block, thinking blocks included. If any of that differs now, this block and every \
          later one no longer fit. `cache_control` does not count. Accounts made since 31 August 2026 are checked \
          unasked; older ones only where the request sets `block_binding.prefix_mismatch_behavior`, to `error` or to \
          `drop_block`. System prompts with a date in them, tools that come and go, and compactions in the middle of a \
          turn break it.",
    fix: "Keep system prompt, tools and earlier messages as they were sent, and add only at the end. Otherwise leave \
          this and all later thinking blocks out, or ask for `drop_block`.",
    evidence: &[
        Source {
            kind: SourceKind::Documentation,
            at: "https://platform.claude.com/docs/en/build-with-claude/preserved-thinking",
        },
        Source {
            kind: SourceKind::Issue,
            at: "https://github.com/anomalyco/opencode/issues/48637",
        },
        Source { kind: SourceKind::Issue, at: "https://github.com/kirodotdev/KiroCrew/pull/11513" },
        Source {
            kind: SourceKind::Types,
            at: "anthropic 2.8.0, the beta types of `block_binding` and `input_transformations`",
        },
    ],
};

pub(crate) const MODE_NOT_SUPPORTED: Lore = Lore {
    title: "The model does not take this kind of thinking.",
    why: "The kinds of thinking changed with the generations. Up to 4.5 there is only `enabled` with a budget; 4.6 \
          takes `enabled` and `adaptive`; from 4.7 on `enabled` is refused. Opus 5 takes `disabled` up to effort \
          `high`, Opus 5.5 and the Fables not at all, and Sonnet 5.5 has `between_tools` instead. Requests break this \
          when the model is changed and the setting is not.",
    fix: "Ask for the kind of thinking that the model takes: `adaptive` from 4.6 on, `enabled` with a budget before.",
    evidence: &[
        Source {
            kind: SourceKind::Documentation,
            at: "https://platform.claude.com/docs/zh-CN/models/opus-5-5/whats-new-opus-5-5",
        },
        Source {
            kind: SourceKind::Issue,
            at: "https://github.com/openclaw/openclaw/issues/117871",
        },
        Source { kind: SourceKind::Issue, at: "https://github.com/lidge-jun/opencodex/pull/65" },
        Source { kind: SourceKind::Issue, at: "https://github.com/BerriAI/litellm/pull/35211" },
        Source { kind: SourceKind::Types, at: "anthropic 2.8.0, thinking_types.py" },
    ],
};

pub(crate) const BUDGET_TOO_SMALL: Lore = Lore {
    title: "The thinking budget is missing or too small.",
    why: "Manual thinking needs a budget, and the least is 1024 tokens. Clients that take a share of `max_tokens` for \
          it fall below when the answer is short.",
    fix: "Ask for at least 1024 tokens in `budget_tokens`, or leave `thinking` out.",
    evidence: &[
        Source { kind: SourceKind::Issue, at: "https://github.com/themaximalist/llm.js/issues/30" },
        Source { kind: SourceKind::Types, at: "anthropic 2.8.0, thinking_config_param.py" },
    ],
};

pub(crate) const BUDGET_NOT_BELOW_MAX_TOKENS: Lore = Lore {
    title: "The thinking budget leaves no tokens for the answer.",
    why: "Thinking is part of the answer and counts towards `max_tokens`, so the budget must be smaller. Only with \
          tools and the beta for interleaved thinking, where the budget is for the whole turn, may it be larger.",
    fix: "Raise `max_tokens` above the budget, or lower the budget.",
    evidence: &[
        Source { kind: SourceKind::Types, at: "anthropic 2.8.0, thinking_config_param.py" },
        Source { kind: SourceKind::Issue, at: "https://github.com/awsl-project/maxx/pull/765" },
        Source { kind: SourceKind::Issue, at: "https://github.com/LionSR/TeXRA/pull/2515" },
    ],
};

pub(crate) const FORCED_TOOL_CHOICE: Lore = Lore {
    title: "A tool is forced on a model that does not allow it.",
    why: "A model that must call a tool cannot think first about whether to. So a forced `tool_choice` is refused \
          beside a thinking budget, and by Opus 5.5, Sonnet 5.5 and Fable 5.1 always, even where nothing is said of \
          thinking. Beside adaptive thinking the others take it. Clients that force a tool to get structured output \
          break this when thinking is switched on.",
    fix: "Leave the choice to the model (`auto`), or switch thinking off where the model allows it.",
    evidence: &[
        Source { kind: SourceKind::Issue, at: "https://github.com/mastra-ai/mastra/issues/7507" },
        Source { kind: SourceKind::Issue, at: "https://github.com/can1357/oh-my-pi/issues/12939" },
        Source {
            kind: SourceKind::Recorded,
            at: "four forced requests under adaptive thinking on Opus 4.6: accepted",
        },
    ],
};

pub(crate) const EFFORT_NOT_SUPPORTED: Lore = Lore {
    title: "The model does not take this effort.",
    why: "`output_config.effort` began with Opus 4.5 (`low`, `medium`, `high`), got `max` with 4.6 and `xhigh` with \
          4.7. Other models of those generations have no such knob and refuse it.",
    fix: "Ask for one of the efforts that the model takes, or leave the effort out.",
    evidence: &[
        Source { kind: SourceKind::Recorded, at: "a refusal of `xhigh` on Opus 4.6" },
        Source {
            kind: SourceKind::Issue,
            at: "https://github.com/anthropics/claude-code/issues/30795",
        },
        Source {
            kind: SourceKind::Documentation,
            at: "https://platform.claude.com/docs/en/build-with-claude/effort",
        },
    ],
};

pub(crate) const SAMPLING_FIXED: Lore = Lore {
    title: "The model does not take this sampling setting.",
    why: "From 4.7 on `temperature`, `top_p` and `top_k` are gone, and every value but the default is refused. Before, \
          a temperature other than 1 is refused while the model thinks. Clients with a default temperature of their \
          own break it.",
    fix: "Leave `temperature`, `top_p` and `top_k` out.",
    evidence: &[
        Source {
            kind: SourceKind::Issue,
            at: "https://github.com/UKGovernmentBEIS/inspect_ai/issues/3721",
        },
        Source { kind: SourceKind::Issue, at: "https://github.com/eliotlim/OpenBook/issues/140" },
        Source { kind: SourceKind::Issue, at: "https://github.com/MartialBE/one-hub/issues/529" },
        Source { kind: SourceKind::Issue, at: "https://github.com/MayDay-wpf/snow-app/issues/42" },
    ],
};

pub(crate) const PREFILL_REFUSED: Lore = Lore {
    title: "The request ends with an assistant message.",
    why: "Older models go on with the text that a last assistant message begins. Newer ones refuse it: their request \
          must end with a user message. A stream that broke off, a loop that continues after `max_tokens`, or a hint \
          that is added as an assistant message brings it about.",
    fix: "End with a user message: leave the last assistant message out, or ask as the user for what should be \
          continued.",
    evidence: &[
        Source {
            kind: SourceKind::Issue,
            at: "https://github.com/smallmain/vscode-unify-chat-provider/issues/249",
        },
        Source {
            kind: SourceKind::Issue,
            at: "https://github.com/router-for-me/CLIProxyAPI/issues/5279",
        },
        Source {
            kind: SourceKind::Documentation,
            at: "https://platform.claude.com/docs/en/release-notes/overview",
        },
    ],
};

pub(crate) const ENDS_IN_THINKING: Lore = Lore {
    title: "An assistant message ends with thinking.",
    why: "A message of the model's ends with what it says or calls, never with what it thinks. One that does was cut: \
          a stream broke off, a compaction kept the thought and dropped the answer, or the answer hit `max_tokens` \
          while thinking.",
    fix: "Leave the trailing thinking out, and the whole message where it holds nothing else.",
    evidence: &[
        Source {
            kind: SourceKind::Issue,
            at: "https://github.com/tailcallhq/forgecode/issues/2107",
        },
        Source {
            kind: SourceKind::Issue,
            at: "https://github.com/NousResearch/hermes-agent/pull/11098",
        },
        Source { kind: SourceKind::Client, at: "anthropic 2.8.0, lib/middleware/_fallbacks.py" },
    ],
};

pub(crate) const BLOCK_UNREADABLE: Lore = Lore {
    title: "The model cannot read this thinking block and drops it.",
    why: "A Claude reads what some other Claudes thought and silently drops the rest: Opus 5 and 5.5 do not read Fable \
          5.1, and Haiku 5.5 reads nobody but itself. Blocks of Sonnet 5.5 and Haiku 5.5 are read in the account that \
          they were issued to only. Nothing is refused, and nothing is said: the model just goes on without them.",
    fix: "Finish a tool loop with the model and the account that began it. Switch between turns, where thinking may be \
          left out.",
    evidence: &[
        Source {
            kind: SourceKind::Documentation,
            at: "https://platform.claude.com/docs/en/build-with-claude/preserved-thinking",
        },
        Source {
            kind: SourceKind::Types,
            at: "anthropic 2.8.0, the beta type of `input_transformations`",
        },
    ],
};

pub(crate) const THOUGHT_AS_TEXT: Lore = Lore {
    title: "A thought is sent as if it had been said.",
    why: "What the model thought comes back as plain text, often in `<think>` tags. The request is taken, but to the \
          model it looks like an attempt to extract its reasoning, and it may refuse to answer: `stop_reason` \
          `refusal`, category `reasoning_extraction`. Clients do this to unsigned thinking that they do not want to \
          lose, after a cut stream or a change of models.",
    fix: "Leave out a thought that cannot be replayed as a thinking block. Never turn it into text.",
    evidence: &[
        Source { kind: SourceKind::Issue, at: "https://github.com/can1357/oh-my-pi/issues/7241" },
        Source { kind: SourceKind::Issue, at: "https://github.com/dcdpr/jp/issues/829" },
    ],
};

pub(crate) const TOOL_CALL_UNANSWERED: Lore = Lore {
    title: "A tool call has no result, or a result no call.",
    why: "Every `tool_use` of a message must be answered by a `tool_result` of its id in the next message, and nothing \
          else may be. Compactions and sliding windows split the two, an aborted tool leaves its call unanswered, and \
          clients that rewrite ids lose the pair. Tools that the provider runs itself do not count.",
    fix: "Answer every call in the very next message, or leave the call and its result out together.",
    evidence: &[
        Source {
            kind: SourceKind::Issue,
            at: "https://github.com/anthropics/claude-code/issues/5060",
        },
        Source {
            kind: SourceKind::Issue,
            at: "https://github.com/anthropics/claude-code/issues/13460",
        },
        Source { kind: SourceKind::Issue, at: "https://github.com/omnigent-ai/omnigent/pull/2449" },
    ],
};
