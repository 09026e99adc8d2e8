//! The texts of the Claude rules, shared by all wires: title, reason, advice and evidence. Each
//! wire adds its rule ids, provider errors and examples.

use crate::audit::{Source, SourceKind};

/// The text of a rule.
pub(crate) struct RuleText {
    pub(crate) title: &'static str,
    pub(crate) why: &'static str,
    pub(crate) fix: &'static str,
    pub(crate) evidence: &'static [Source],
}

pub(crate) const TOOL_LOOP_NEEDS_THINKING: RuleText = RuleText {
    title: "The open tool loop does not begin with thinking.",
    why: "With `thinking.type` `enabled`, tool calls and their results form one assistant turn, \
          and that turn must include the thinking it began with. While the last message contains \
          tool results, the assistant message before it must start with a `thinking` or \
          `redacted_thinking` block. Typical causes: a framework whose message type has no field \
          for thinking, a database that stores only texts and calls, or a compaction that keeps \
          the call and drops the thinking before it.",
    fix: "Send the assistant message with its original thinking blocks before the tool call. If \
          they are lost, disable thinking until the loop ends.",
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

pub(crate) const SIGNATURE_MISSING: RuleText = RuleText {
    title: "A thinking block has no signature.",
    why: "Claude signs every thinking block and rejects unsigned ones: `signature` is a required \
          field of a `thinking` block, and `data` of a `redacted_thinking` block. The field is \
          lost when a client stores only the readable text, when a stream ends before its \
          `signature_delta`, or when the visible reasoning of another model is sent as a thinking \
          block.",
    fix: "Send the block with its original signature, or omit the block.",
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

pub(crate) const SIGNATURE_INVALID: RuleText = RuleText {
    title: "The signature of a thinking block is invalid.",
    why: "A signature proves that Claude produced exactly this block. It fails to verify when it \
          is empty, truncated, re-encoded in another base64 alphabet, removed by a redactor, or \
          issued by another vendor. Signatures do not expire; they only break when they are \
          changed. Thinking of finished turns may be omitted, but every block that is sent is \
          verified.",
    fix: "Send the signature byte for byte as received, and only to Claude models. If it is lost, \
          omit the block.",
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

pub(crate) const THINKING_MODIFIED: RuleText = RuleText {
    title: "A thinking block differs from the one that was issued.",
    why: "Signed content must be replayed unchanged: the exact text including white space, each \
          block separate, in the same order and the same message. Typical causes: a transcript \
          that clears the text but keeps the signature, a sanitiser that rewrites characters, a \
          store that joins or duplicates blocks, and a client that sorts blocks by type.",
    fix: "Send the blocks of the response as received: same text, same order, same message, each \
          once.",
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

pub(crate) const THINKING_DROPPED: RuleText = RuleText {
    title: "A thinking block of the open tool loop is missing.",
    why: "Until a tool loop ends, the model continues from its thinking in that loop. With a \
          thinking budget, a last assistant message that lost some of its thinking counts as \
          modified. With adaptive thinking the request is accepted, but the model no longer has \
          its reasons for calling the tool. Thinking of finished turns may be omitted.",
    fix: "Send every thinking block of the open tool loop at its original position.",
    evidence: &[
        Source {
            kind: SourceKind::Issue,
            at: "https://github.com/openai/openai-agents-python/pull/2880",
        },
        Source { kind: SourceKind::Issue, at: "https://github.com/openclaw/openclaw/issues/19524" },
        Source {
            kind: SourceKind::Recorded,
            at: "thinking of an earlier turn omitted under `enabled`: accepted",
        },
    ],
};

pub(crate) const PREFIX_CHANGED: RuleText = RuleText {
    title: "The content before a thinking block changed after the block was issued.",
    why: "Since Fable 5.1 and the 5.5 models, a signature also covers the tools, the system \
          prompt and all earlier messages, including their thinking blocks. If any of these \
          differ, this block and every later one become invalid. `cache_control` does not count. \
          Accounts created since 31 August 2026 are always checked; older accounts only if the \
          request sets `block_binding.prefix_mismatch_behavior` to `error` or `drop_block`. \
          Typical causes: a date in the system prompt, tools that are added or removed, and \
          compaction within a turn.",
    fix: "Keep the system prompt, the tools and earlier messages unchanged and only append. \
          Otherwise omit this and all later thinking blocks, or request `drop_block`.",
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

pub(crate) const MODE_NOT_SUPPORTED: RuleText = RuleText {
    title: "The model does not support this thinking mode.",
    why: "Thinking modes depend on the model generation. Models up to 4.5 accept only `enabled` \
          with a budget; 4.6 accepts `enabled` and `adaptive`; from 4.7 on `enabled` is rejected. \
          Opus 5 accepts `disabled` up to effort `high`, Opus 5.5 and the Fable models do not \
          accept it, and Sonnet 5.5 has `between_tools` instead. Requests fail when the model is \
          changed but the setting is not.",
    fix: "Use a thinking mode that the model supports: `adaptive` from 4.6 on, `enabled` with a \
          budget for older models.",
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

pub(crate) const BUDGET_TOO_SMALL: RuleText = RuleText {
    title: "The thinking budget is missing or too small.",
    why: "Manual thinking requires a budget of at least 1024 tokens. Clients that derive the \
          budget from `max_tokens` fall below this minimum for short responses.",
    fix: "Set `budget_tokens` to at least 1024, or omit `thinking`.",
    evidence: &[
        Source { kind: SourceKind::Issue, at: "https://github.com/themaximalist/llm.js/issues/30" },
        Source { kind: SourceKind::Types, at: "anthropic 2.8.0, thinking_config_param.py" },
    ],
};

pub(crate) const BUDGET_NOT_BELOW_MAX_TOKENS: RuleText = RuleText {
    title: "The thinking budget leaves no tokens for the answer.",
    why: "Thinking is part of the response and counts towards `max_tokens`, so the budget must be \
          smaller. It may be larger only with tools and the beta for interleaved thinking, where \
          the budget covers the whole turn.",
    fix: "Raise `max_tokens` above the budget, or lower the budget.",
    evidence: &[
        Source { kind: SourceKind::Types, at: "anthropic 2.8.0, thinking_config_param.py" },
        Source { kind: SourceKind::Issue, at: "https://github.com/awsl-project/maxx/pull/765" },
        Source { kind: SourceKind::Issue, at: "https://github.com/LionSR/TeXRA/pull/2515" },
    ],
};

pub(crate) const FORCED_TOOL_CHOICE: RuleText = RuleText {
    title: "The model does not support a forced tool choice here.",
    why: "A model that is forced to call a tool cannot think first about whether to call it. A \
          forced `tool_choice` is therefore rejected with a thinking budget, and always by Opus \
          5.5, Sonnet 5.5 and Fable 5.1, even if the request does not mention thinking. The other \
          models accept it with adaptive thinking. Clients that force a tool for structured \
          output fail when thinking is enabled.",
    fix: "Use `auto` as the tool choice, or disable thinking if the model allows it.",
    evidence: &[
        Source { kind: SourceKind::Issue, at: "https://github.com/mastra-ai/mastra/issues/7507" },
        Source { kind: SourceKind::Issue, at: "https://github.com/can1357/oh-my-pi/issues/12939" },
        Source {
            kind: SourceKind::Recorded,
            at: "four forced requests under adaptive thinking on Opus 4.6: accepted",
        },
    ],
};

pub(crate) const EFFORT_NOT_SUPPORTED: RuleText = RuleText {
    title: "The model does not support this effort.",
    why: "`output_config.effort` was added with Opus 4.5 (`low`, `medium`, `high`), `max` with \
          4.6 and `xhigh` with 4.7. Other models of those generations have no effort setting and \
          reject it.",
    fix: "Use an effort that the model supports, or omit the effort.",
    evidence: &[
        Source { kind: SourceKind::Recorded, at: "a rejection of `xhigh` on Opus 4.6" },
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

pub(crate) const SAMPLING_FIXED: RuleText = RuleText {
    title: "The model does not support this sampling setting.",
    why: "Since 4.7, `temperature`, `top_p` and `top_k` are fixed and every value except the \
          default is rejected. Older models reject a temperature other than 1 while thinking is \
          on. Clients that always set a temperature fail.",
    fix: "Omit `temperature`, `top_p` and `top_k`.",
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

pub(crate) const PREFILL_REFUSED: RuleText = RuleText {
    title: "The request ends with an assistant message.",
    why: "Older models continue the text of a last assistant message. Newer models reject it: \
          their requests must end with a user message. Typical causes: an interrupted stream, a \
          loop that continues after `max_tokens`, and a hint that is added as an assistant \
          message.",
    fix: "End with a user message: omit the last assistant message, or add a user message that \
          requests the continuation.",
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

pub(crate) const ENDS_IN_THINKING: RuleText = RuleText {
    title: "An assistant message ends with thinking.",
    why: "A complete assistant message ends with text or a tool call, never with thinking. A \
          message that ends with thinking is incomplete: the stream was interrupted, a compaction \
          kept the thinking and dropped the answer, or the response reached `max_tokens` while \
          thinking.",
    fix: "Omit the trailing thinking, or the whole message if nothing else is left.",
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

pub(crate) const BLOCK_UNREADABLE: RuleText = RuleText {
    title: "The model cannot read this thinking block and drops it.",
    why: "Each Claude model reads the thinking of some other Claude models and silently drops the \
          rest: Opus 5 and 5.5 cannot read Fable 5.1, and Haiku 5.5 reads only its own blocks. \
          Blocks of Sonnet 5.5 and Haiku 5.5 are readable only in the account they were issued \
          to. The request is accepted without a warning, and the model continues without the \
          dropped blocks.",
    fix: "Finish a tool loop with the model and account that began it. Switch between turns, when \
          thinking may be omitted.",
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

pub(crate) const THOUGHT_AS_TEXT: RuleText = RuleText {
    title: "A thought is sent as plain text.",
    why: "The model's thinking is sent back as plain text, often in `<think>` tags. The request \
          is accepted, but it resembles an attempt to extract the model's reasoning, and the \
          model may refuse to answer: `stop_reason` `refusal`, category `reasoning_extraction`. \
          Clients do this to preserve unsigned thinking after an interrupted stream or a model \
          switch.",
    fix: "Omit a thought that cannot be replayed as a thinking block. Never turn it into text.",
    evidence: &[
        Source { kind: SourceKind::Issue, at: "https://github.com/can1357/oh-my-pi/issues/7241" },
        Source { kind: SourceKind::Issue, at: "https://github.com/dcdpr/jp/issues/829" },
    ],
};

pub(crate) const TOOL_CALL_UNANSWERED: RuleText = RuleText {
    title: "A tool call has no result, or a result has no call.",
    why: "Every `tool_use` block must be answered by a `tool_result` with its id in the next \
          message, and every result needs such a call. Compaction and sliding windows separate \
          the two, an aborted tool leaves its call unanswered, and clients that rewrite ids break \
          the link. Tools that the provider runs itself do not count.",
    fix: "Answer every call in the next message, or omit the call and its result together.",
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
