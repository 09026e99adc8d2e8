//! The expected verdicts for mutated requests: the rules that refuse a request, or none.

use serde::Deserialize as _;
use serde_json::Value;
use throughline_core::{Contract, Mode, Target};
use throughline_testkit::Shape;

use crate::sent::RecordedRequest;
use crate::spoiled::{MutatedRequest, WHOLE_REQUEST};

pub(crate) enum ExpectedVerdict {
    /// One of these rules refuses the request.
    Refused(&'static [&'static str]),
    /// The provider accepts the request, or is not known to refuse it, so no rule may refuse it.
    Accepted,
    /// The provider's reaction is unknown, so either verdict is correct.
    Nothing,
}

/// The ids of the rules that apply to Claude blocks on one wire, grouped by the kind of violation.
struct ClaudeRuleIds {
    missing: &'static [&'static str],
    invalid: &'static [&'static str],
    modified: &'static [&'static str],
    dropped: &'static [&'static str],
    unanswered: &'static [&'static str],
    prefix: &'static [&'static str],
    earlier: &'static [&'static str],
    mode: &'static [&'static str],
}

const ANTHROPIC: ClaudeRuleIds = ClaudeRuleIds {
    missing: &["anthropic/signature-missing", "anthropic/thinking-empty"],
    invalid: &[
        "anthropic/signature-invalid",
        "anthropic/signature-missing",
        "anthropic/thinking-empty",
    ],
    modified: &[
        "anthropic/thinking-modified",
        "anthropic/signature-invalid",
        "anthropic/tool-loop-needs-thinking",
    ],
    dropped: &[
        "anthropic/tool-loop-needs-thinking",
        "anthropic/thinking-dropped",
        "anthropic/thinking-modified",
    ],
    unanswered: &["anthropic/tool-call-unanswered"],
    prefix: &["anthropic/prefix-changed"],
    earlier: &["anthropic/earlier-thinking-missing"],
    mode: &["anthropic/mode-not-supported"],
};

const BEDROCK: ClaudeRuleIds = ClaudeRuleIds {
    missing: &["bedrock/signature-missing"],
    invalid: &["bedrock/signature-invalid", "bedrock/signature-missing"],
    modified: &[
        "bedrock/thinking-modified",
        "bedrock/signature-invalid",
        "bedrock/tool-loop-needs-thinking",
    ],
    dropped: &[
        "bedrock/tool-loop-needs-thinking",
        "bedrock/thinking-dropped",
        "bedrock/thinking-modified",
    ],
    unanswered: &["bedrock/tool-call-unanswered"],
    prefix: &["bedrock/prefix-changed"],
    earlier: &["bedrock/earlier-thinking-missing"],
    mode: &["bedrock/mode-not-supported"],
};

impl RecordedRequest<'_> {
    /// Returns the expected verdict for a mutation of this request.
    pub(crate) fn expected_verdict(&self, spoiled: &MutatedRequest) -> ExpectedVerdict {
        match self.shape {
            Shape::Anthropic => self.expected_claude(spoiled, &ANTHROPIC),
            Shape::Converse => self.expected_claude(spoiled, &BEDROCK),
            Shape::Responses => self.expected_responses(spoiled),
            Shape::Chat => self.expected_chat(spoiled),
            Shape::Gemini => self.expected_gemini(spoiled),
        }
    }

    fn expected_claude(&self, spoiled: &MutatedRequest, rules: &ClaudeRuleIds) -> ExpectedVerdict {
        let place = &spoiled.place;
        match spoiled.operator {
            "drop seal" | "move seal" => ExpectedVerdict::Refused(rules.missing),
            "blank seal" | "truncate seal" | "flip seal" | "re-encode seal" => {
                ExpectedVerdict::Refused(rules.invalid)
            }
            "edit sealed text"
            | "merge sealed parts"
            | "swap two seals"
            | "duplicate sealed part"
            | "reorder sealed part" => ExpectedVerdict::Refused(rules.modified),
            "drop sealed part" | "say thought aloud"
                if self.is_in_loop(place)
                    && self.thinking().is_some_and(|mode| mode == "enabled") =>
            {
                ExpectedVerdict::Refused(rules.dropped)
            }
            "drop sealed part" | "say thought aloud" if !self.is_current(place) => {
                ExpectedVerdict::Accepted
            }
            "drop a call" | "drop a result" => ExpectedVerdict::Refused(rules.unanswered),
            "empty a thought" => ExpectedVerdict::Refused(&["anthropic/thinking-empty"]),
            "edit system" | "edit a tool" | "edit first question" => {
                ExpectedVerdict::Refused(rules.prefix)
            }
            "drop an earlier thought" => ExpectedVerdict::Refused(rules.earlier),
            "add a system message" if self.target.profile.name.starts_with("claude") => {
                ExpectedVerdict::Refused(&["anthropic/system-message-order"])
            }
            "change model family" if !self.supports_mode(&spoiled.target) => {
                ExpectedVerdict::Refused(rules.mode)
            }
            // Claude endpoints drop blocks that the target model cannot read, and accept each
            // other's signatures.
            "change account" | "change endpoint" | "change model family" => {
                ExpectedVerdict::Accepted
            }
            _ => ExpectedVerdict::Nothing,
        }
    }

    fn supports_mode(&self, target: &Target) -> bool {
        let mode = self.thinking().map(|mode| Mode::deserialize(mode).unwrap());
        mode.is_none_or(|mode| target.profile.supports_mode(mode))
    }

    fn expected_responses(&self, spoiled: &MutatedRequest) -> ExpectedVerdict {
        const INVALID: ExpectedVerdict =
            ExpectedVerdict::Refused(&["openai/encrypted-content-invalid"]);
        const WITHOUT_REASONING: ExpectedVerdict =
            ExpectedVerdict::Refused(&["openai/item-without-its-reasoning"]);
        const WITHOUT_FOLLOWER: ExpectedVerdict =
            ExpectedVerdict::Refused(&["openai/reasoning-without-following-item"]);
        let provider = &*self.target.provider.name;
        match spoiled.operator {
            "drop a call" | "drop a result" => {
                return ExpectedVerdict::Refused(&[
                    "openai/tool-call-unanswered",
                    "deepseek/calls-interrupted",
                ]);
            }
            "drop ids of followers" if self.has_pairs() => return WITHOUT_FOLLOWER,
            "change account" if provider == "openai" => return INVALID,
            "change endpoint" if matches!(provider, "openai" | "bedrock-mantle") => return INVALID,
            "change account" | "change endpoint" => return ExpectedVerdict::Nothing,
            "drop ids of followers"
            | "edit system"
            | "edit a tool"
            | "edit first question"
            | "change model family" => return ExpectedVerdict::Accepted,
            _ => {}
        }
        let place = &spoiled.place;
        let is_openais = self.target.provider.dialect.pairs;
        let has_id = self.part(place).get("id").is_some();
        let is_paired = self.is_paired(Self::message(place));
        match spoiled.operator {
            "blank seal" | "truncate seal" | "flip seal" | "re-encode seal" => INVALID,
            "drop seal" | "move seal" if has_id && is_openais && !self.is_stored() => {
                ExpectedVerdict::Refused(&["openai/item-not-found"])
            }
            "drop seal" if has_id => ExpectedVerdict::Accepted,
            "edit sealed text" => ExpectedVerdict::Accepted,
            "drop sealed part" | "say thought aloud" if is_paired => WITHOUT_REASONING,
            "drop follower" if is_paired => WITHOUT_FOLLOWER,
            "reorder sealed part" if is_paired => ExpectedVerdict::Refused(&[
                "openai/reasoning-without-following-item",
                "openai/item-without-its-reasoning",
            ]),
            "duplicate sealed part" if has_id && self.is_stored() => {
                ExpectedVerdict::Refused(&["openai/item-duplicated"])
            }
            _ => ExpectedVerdict::Nothing,
        }
    }

    /// Returns whether the item at this index is reasoning that a stored id pairs with the next
    /// item.
    fn is_paired(&self, at: usize) -> bool {
        let has_id = |item: &&Value| item.get("id").is_some();
        let (item, follower) = (self.messages().get(at), self.messages().get(at + 1));
        self.is_stored()
            && item.filter(has_id).is_some_and(|item| item["type"] == "reasoning")
            && follower.filter(has_id).is_some_and(|item| item["type"] != "reasoning")
    }

    /// Returns whether any message or call is paired with reasoning.
    fn has_pairs(&self) -> bool {
        let is_named =
            |item: &Value| matches!(item["type"].as_str(), Some("function_call" | "message"));
        (1..self.messages().len())
            .any(|at| self.is_paired(at - 1) && is_named(&self.messages()[at]))
    }

    fn expected_chat(&self, spoiled: &MutatedRequest) -> ExpectedVerdict {
        const INVALID: ExpectedVerdict = ExpectedVerdict::Refused(&[
            "openrouter/signature-invalid",
            "openrouter/signature-missing",
            "openrouter/first-call-needs-signature",
        ]);
        let dialect = &self.target.provider.dialect;
        match spoiled.operator {
            "drop a call" | "drop a result" if dialect.pairs_calls => {
                return ExpectedVerdict::Refused(&["chat/tool-call-unanswered"]);
            }
            "change model family" if spoiled.target.provider.name.starts_with("openai") => {
                let reasons =
                    self.body.get("reasoning_effort").is_none_or(|effort| effort != "none");
                return if reasons && self.body.get("tools").is_some() {
                    ExpectedVerdict::Refused(&["openai-chat/tools-need-responses"])
                } else {
                    ExpectedVerdict::Nothing
                };
            }
            "change model family" | "change endpoint" if self.has_foreign_detail(spoiled) => {
                return ExpectedVerdict::Refused(&["openrouter/foreign-details"]);
            }
            _ if self.lacks_relayed_signature(spoiled) => {
                return ExpectedVerdict::Refused(&["openrouter/first-call-needs-signature"]);
            }
            "drop a call" | "drop a result" => return ExpectedVerdict::Nothing,
            _ if spoiled.place == WHOLE_REQUEST => return ExpectedVerdict::Accepted,
            _ => {}
        }
        let place = &spoiled.place;
        let detail = self.body.pointer(&place.parent).unwrap();
        let is_claude = detail["format"] == "anthropic-claude-v1" && dialect.relays;
        let is_detail = place.parent.contains("/reasoning_details/");
        match spoiled.operator {
            "drop seal" if self.demands(place) => ExpectedVerdict::Refused(&[
                "deepseek/reasoning-content-missing",
                "kimi/reasoning-content-missing",
            ]),
            "truncate seal" | "flip seal" if is_detail && dialect.relays => INVALID,
            "edit sealed text" if is_claude => INVALID,
            "blank seal" | "drop seal" if is_claude && self.is_in_loop(place) => INVALID,
            // No other endpoint is known to verify Seals.
            _ if !dialect.relays => ExpectedVerdict::Accepted,
            _ => ExpectedVerdict::Nothing,
        }
    }

    /// Returns whether a router would forward a reasoning detail that another vendor or endpoint
    /// sealed. Claude signatures are exempt, because any Claude model accepts them.
    fn has_foreign_detail(&self, spoiled: &MutatedRequest) -> bool {
        let (from, to) = (&self.target.origin, &spoiled.target);
        let vendor = match to.profile.name.as_str() {
            name if name.starts_with("claude") => "anthropic",
            name if name.starts_with("gemini") && from.endpoint == to.origin.endpoint => "google",
            name if name.starts_with("gpt") && from.endpoint == to.origin.endpoint => "openai",
            _ => "unknown",
        };
        let details =
            self.messages().iter().filter_map(|message| message["reasoning_details"].as_array());
        to.provider.dialect.relays
            && details.flatten().any(|detail| {
                let is_sealed = detail.get("data").or_else(|| detail.get("signature")).is_some();
                is_sealed
                    && detail["format"].as_str().is_some_and(|format| !format.starts_with(vendor))
            })
    }

    /// Returns whether a router would send Gemini 3 a current-turn step whose first call is
    /// unsigned.
    fn lacks_relayed_signature(&self, spoiled: &MutatedRequest) -> bool {
        let target = &spoiled.target;
        let is_demanded = target.provider.dialect.relays
            && target.profile.name.starts_with("gemini")
            && target.profile.contract != Contract::Stateless;
        let is_signed = |message: &Value| {
            let details = message["reasoning_details"].as_array().into_iter().flatten();
            details.filter_map(|detail| detail["data"].as_str()).any(|data| !data.is_empty())
        };
        let mut steps = self.current_of(&spoiled.body).iter();
        is_demanded
            && steps.any(|message| message.get("tool_calls").is_some() && !is_signed(message))
    }

    fn expected_gemini(&self, spoiled: &MutatedRequest) -> ExpectedVerdict {
        const CORRUPTED: ExpectedVerdict =
            ExpectedVerdict::Refused(&["gemini/signature-corrupted"]);
        let is_open = || {
            let messages = self.messages_of(&spoiled.body);
            messages.last().is_some_and(|last| last["role"] == "model")
        };
        let has_level = self
            .body
            .pointer("/generationConfig/thinkingConfig/thinkingLevel")
            .or_else(|| self.body.pointer("/generationConfig/thinkingConfig/thinking_level"))
            .is_some();
        match spoiled.operator {
            // A request to Gemini may end with a call that has no result.
            "drop a result" if is_open() => ExpectedVerdict::Nothing,
            "drop a call" | "drop a result" => {
                ExpectedVerdict::Refused(&["gemini/answers-do-not-match"])
            }
            "change account" | "change endpoint" => CORRUPTED,
            _ if self.lacks_signature(spoiled) => {
                ExpectedVerdict::Refused(&["gemini/first-call-needs-signature"])
            }
            "change model family" if has_level && spoiled.target.profile.levels.is_empty() => {
                ExpectedVerdict::Refused(&["gemini/level-not-supported"])
            }
            "truncate seal" | "flip seal" => CORRUPTED,
            "duplicate sealed part" if self.part(&spoiled.place).get("text").is_none() => {
                ExpectedVerdict::Nothing
            }
            _ => ExpectedVerdict::Accepted,
        }
    }

    /// Returns whether the first call of a current-turn step lacks a signature that the model
    /// requires.
    fn lacks_signature(&self, spoiled: &MutatedRequest) -> bool {
        let either =
            |part: &Value, names: [&str; 2]| names.iter().find_map(|name| part.get(name).cloned());
        let is_unsigned = |message: &Value| {
            let mut parts = message["parts"].as_array().into_iter().flatten();
            let is_call = |part: &&Value| either(part, ["functionCall", "function_call"]).is_some();
            parts.find(is_call).is_some_and(|call| {
                let signature = either(call, ["thoughtSignature", "thought_signature"]);
                signature.is_none_or(|signature| signature == "")
            })
        };
        spoiled.target.profile.contract != Contract::Stateless
            && self.current_of(&spoiled.body).iter().any(is_unsigned)
    }
}
