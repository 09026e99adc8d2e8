//! The keys of a script, their types and their checks. `docs/simulators.md` documents them.

use std::fmt;

use serde::de::{self, Deserializer, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::agent_tools::{RoleValues, ToolRole};
use crate::placeholder;
use crate::turn::{Refusal, ThoughtDisplay};

/// A script as a TOML document. Each turn has its position, for errors.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TomlScript {
    #[serde(default)]
    pub(crate) turn: Vec<toml::Spanned<TurnKeys>>,
}

/// A script as a JSON object.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct JsonScript {
    #[serde(default)]
    pub(crate) turn: Vec<ScriptedTurn>,
}

/// A valid turn of a script.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(try_from = "TurnKeys")]
pub(crate) struct ScriptedTurn {
    /// Pattern that the requested model name must match.
    pub(crate) model: Option<String>,
    /// Number of earlier model replies that the conversation must contain.
    pub(crate) step: Option<CountRange>,
    /// Number of model replies that must follow the last user message.
    pub(crate) round: Option<CountRange>,
    /// Text that the last user message must contain.
    pub(crate) user: Option<String>,
    /// Whether the request must offer tools.
    pub(crate) tools: Option<bool>,
    /// Whether the request must be a compaction.
    pub(crate) compaction: Option<bool>,
    pub(crate) times: TurnLimit,
    pub(crate) parts: Vec<ScriptedPart>,
    pub(crate) stop: Option<ScriptedStop>,
    pub(crate) usage: ScriptedUsage,
    pub(crate) refuse: Option<Refusal>,
}

/// A part of a scripted reply.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ScriptedPart {
    Thought {
        text: String,
        display: ThoughtDisplay,
    },
    Text(String),
    /// A call of the tool with this name; without arguments, the arguments are generated.
    Call {
        name: String,
        arguments: Option<Value>,
    },
    /// A call of the client's tool for this role.
    Role {
        role: ToolRole,
        values: RoleValues,
    },
}

impl ScriptedPart {
    pub(crate) fn is_call(&self) -> bool {
        matches!(self, Self::Call { .. } | Self::Role { .. })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ScriptedStop {
    Done,
    Tools,
    Length,
    Sequence,
    Paused,
    Refused,
    Continuation,
}

/// Token counts of a reply. The simulator estimates the counts that the script does not set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ScriptedUsage {
    pub(crate) input: Option<u64>,
    pub(crate) cached: Option<u64>,
    pub(crate) written: Option<u64>,
    pub(crate) output: Option<u64>,
    pub(crate) thought: Option<u64>,
}

/// The keys of a turn as written in the script.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(crate) struct TurnKeys {
    model: Option<String>,
    step: Option<CountRange>,
    round: Option<CountRange>,
    user: Option<String>,
    tools: Option<bool>,
    compaction: Option<bool>,
    times: TurnLimit,
    thoughts: Vec<String>,
    telling: Option<ThoughtDisplay>,
    texts: Vec<String>,
    calls: Vec<CallEntry>,
    parts: Vec<PartEntry>,
    stop: Option<ScriptedStop>,
    usage: Option<ScriptedUsage>,
    refuse: Option<Refusal>,
}

/// Declares an entry of a script that can call a tool. The values of roles are keys of the entry.
macro_rules! call_entry {
    ($(#[$doc:meta])* $entry:ident { $($key:ident: $kind:ty),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Default, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        struct $entry {
            $($key: Option<$kind>,)+
            arguments: Option<Value>,
            role: Option<ToolRole>,
            path: Option<String>,
            old: Option<String>,
            new: Option<String>,
            content: Option<String>,
            command: Option<String>,
            pattern: Option<String>,
        }

        impl $entry {
            /// Removes the values of the role from the entry.
            fn take_values(&mut self) -> RoleValues {
                let values = [
                    ("path", self.path.take()),
                    ("old", self.old.take()),
                    ("new", self.new.take()),
                    ("content", self.content.take()),
                    ("command", self.command.take()),
                    ("pattern", self.pattern.take()),
                ];
                let present = values.into_iter().filter_map(|(name, value)| Some((name, value?)));
                present.map(|(name, value)| (name.to_owned(), value)).collect()
            }
        }
    };
}

call_entry!(
    /// An entry of `calls`.
    CallKeys { name: String }
);
call_entry!(
    /// An entry of `parts`.
    PartKeys { thought: String, telling: ThoughtDisplay, text: String, call: String }
);

impl TryFrom<TurnKeys> for ScriptedTurn {
    type Error = String;

    fn try_from(keys: TurnKeys) -> Result<Self, String> {
        let is_listed =
            !(keys.thoughts.is_empty() && keys.texts.is_empty() && keys.calls.is_empty());
        if is_listed && !keys.parts.is_empty() {
            return Err("a turn has either `parts`, or `thoughts`, `texts` and `calls`".to_owned());
        }
        if keys.telling.is_some() && keys.thoughts.is_empty() {
            return Err("`telling` applies to `thoughts`, but the turn has none".to_owned());
        }
        let display = keys.telling.unwrap_or_default();
        let thoughts =
            keys.thoughts.into_iter().map(|text| ScriptedPart::Thought { text, display });
        let texts = keys.texts.into_iter().map(ScriptedPart::Text);
        let calls = keys.calls.into_iter().map(|call| call.0);
        let parts = keys.parts.into_iter().map(|part| part.0);
        let parts: Vec<ScriptedPart> = thoughts.chain(texts).chain(calls).chain(parts).collect();
        parts.iter().try_for_each(check_placeholders)?;
        if let Some(refusal) = &keys.refuse {
            if !parts.is_empty() || keys.stop.is_some() || keys.usage.is_some() {
                return Err("a turn with `refuse` has no content, `stop` or `usage`".to_owned());
            }
            if !(400..=599).contains(&refusal.status) {
                let status = refusal.status;
                return Err(format!("`refuse.status` is {status}; use a status from 400 to 599"));
            }
        }
        let ends_normally = matches!(keys.stop, None | Some(ScriptedStop::Done));
        if keys.refuse.is_none() && parts.is_empty() && ends_normally {
            let message = "the turn has no content; add `texts`, `thoughts`, `calls`, `parts` or \
                           `refuse`, or remove the turn";
            return Err(message.to_owned());
        }
        if keys.stop == Some(ScriptedStop::Tools) && !parts.iter().any(ScriptedPart::is_call) {
            let message = "`stop = \"tools\"` needs a tool call; add an entry to `calls`, or \
                           remove `stop`";
            return Err(message.to_owned());
        }
        if keys.compaction == Some(true) && parts.iter().any(ScriptedPart::is_call) {
            return Err("a compaction contains no tool calls; use `texts`".to_owned());
        }
        Ok(Self {
            model: keys.model,
            step: keys.step,
            round: keys.round,
            user: keys.user,
            tools: keys.tools,
            compaction: keys.compaction,
            times: keys.times,
            parts,
            stop: keys.stop,
            usage: keys.usage.unwrap_or_default(),
            refuse: keys.refuse,
        })
    }
}

/// A valid entry of `calls`.
#[derive(Deserialize)]
#[serde(try_from = "CallKeys")]
struct CallEntry(ScriptedPart);

/// A valid entry of `parts`.
#[derive(Deserialize)]
#[serde(try_from = "PartKeys")]
struct PartEntry(ScriptedPart);

impl TryFrom<CallKeys> for CallEntry {
    type Error = String;

    fn try_from(mut keys: CallKeys) -> Result<Self, String> {
        let values = keys.take_values();
        let call = match (keys.name, keys.role) {
            (Some(name), None) => named_call(name, keys.arguments, &values),
            (None, Some(role)) => role_call(role, keys.arguments.as_ref(), values),
            (Some(_), Some(_)) => Err("a call has either `name` or `role`, not both".to_owned()),
            (None, None) => Err("a call needs `name` or `role`".to_owned()),
        };
        call.map(Self)
    }
}

impl TryFrom<PartKeys> for PartEntry {
    type Error = String;

    fn try_from(mut keys: PartKeys) -> Result<Self, String> {
        const CHOICE: &str = "a part has exactly one of `thought`, `text`, `call` and `role`";
        let values = keys.take_values();
        let is_call = keys.call.is_some() || keys.role.is_some();
        if keys.telling.is_some() && keys.thought.is_none() {
            return Err("`telling` applies to a part with `thought`".to_owned());
        }
        if !is_call && (keys.arguments.is_some() || !values.is_empty()) {
            return Err("arguments apply to a part with `call` or `role`".to_owned());
        }
        let part = match (keys.thought, keys.text, keys.call, keys.role) {
            (Some(text), None, None, None) => {
                Ok(ScriptedPart::Thought { text, display: keys.telling.unwrap_or_default() })
            }
            (None, Some(text), None, None) => Ok(ScriptedPart::Text(text)),
            (None, None, Some(name), None) => named_call(name, keys.arguments, &values),
            (None, None, None, Some(role)) => role_call(role, keys.arguments.as_ref(), values),
            _ => Err(CHOICE.to_owned()),
        };
        part.map(Self)
    }
}

fn named_call(
    name: String,
    arguments: Option<Value>,
    values: &RoleValues,
) -> Result<ScriptedPart, String> {
    if let Some(key) = values.keys().next() {
        return Err(format!("`{key}` belongs to a call by `role`; put it into `arguments`"));
    }
    let is_usable = |arguments: &Value| arguments.is_object() || arguments.is_string();
    if arguments.as_ref().is_some_and(|arguments| !is_usable(arguments)) {
        return Err("`arguments` is a table, or a text for a tool that takes text".to_owned());
    }
    Ok(ScriptedPart::Call { name, arguments })
}

fn role_call(
    role: ToolRole,
    arguments: Option<&Value>,
    mut values: RoleValues,
) -> Result<ScriptedPart, String> {
    let (name, known) = (role.as_str(), role.values());
    let listed: Vec<String> = known.iter().map(|(value, _)| format!("`{value}`")).collect();
    let listed = listed.join(", ");
    if arguments.is_some() {
        return Err(format!("a call by role has no `arguments`; role `{name}` takes {listed}"));
    }
    let is_known = |key: &String| known.iter().any(|(value, _)| value == key);
    if let Some(key) = values.keys().find(|key| !is_known(key)) {
        return Err(format!("role `{name}` has no key `{key}`; it takes {listed}"));
    }
    for (value, default) in known {
        match default {
            Some(default) => {
                values.entry((*value).to_owned()).or_insert_with(|| (*default).to_owned());
            }
            None if !values.contains_key(*value) => {
                return Err(format!("role `{name}` needs `{value}`"));
            }
            None => {}
        }
    }
    Ok(ScriptedPart::Role { role, values })
}

fn check_placeholders(part: &ScriptedPart) -> Result<(), String> {
    match part {
        ScriptedPart::Thought { text, .. } | ScriptedPart::Text(text) => placeholder::check(text),
        ScriptedPart::Call { arguments, .. } => {
            arguments.as_ref().map_or(Ok(()), placeholder::check_value)
        }
        ScriptedPart::Role { values, .. } => {
            values.values().try_for_each(|text| placeholder::check(text))
        }
    }
}

/// A number, or the first and last number of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CountRange {
    first: u64,
    last: u64,
}

impl CountRange {
    pub(crate) fn contains(self, count: usize) -> bool {
        u64::try_from(count).is_ok_and(|count| (self.first..=self.last).contains(&count))
    }
}

impl<'de> Deserialize<'de> for CountRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RangeVisitor)
    }
}

struct RangeVisitor;

impl<'de> Visitor<'de> for RangeVisitor {
    type Value = CountRange;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a number, or a list of the first and last number")
    }

    fn visit_u64<E: de::Error>(self, count: u64) -> Result<CountRange, E> {
        Ok(CountRange { first: count, last: count })
    }

    fn visit_i64<E: de::Error>(self, count: i64) -> Result<CountRange, E> {
        let count = u64::try_from(count);
        count.map_err(|_| E::custom("a count cannot be negative")).and_then(|c| self.visit_u64(c))
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut numbers: S) -> Result<CountRange, S::Error> {
        let first: Option<u64> = numbers.next_element()?;
        let last: Option<u64> = numbers.next_element()?;
        let extra: Option<u64> = numbers.next_element()?;
        match (first, last, extra) {
            (Some(first), Some(last), None) if first <= last => Ok(CountRange { first, last }),
            _ => Err(de::Error::custom("a range is a list of the first and last number")),
        }
    }
}

/// Number of requests that a turn answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnLimit {
    Times(u64),
    Always,
}

impl Default for TurnLimit {
    fn default() -> Self {
        Self::Times(1)
    }
}

impl<'de> Deserialize<'de> for TurnLimit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LimitVisitor)
    }
}

struct LimitVisitor;

impl Visitor<'_> for LimitVisitor {
    type Value = TurnLimit;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a number of at least 1, or \"always\"")
    }

    fn visit_u64<E: de::Error>(self, times: u64) -> Result<TurnLimit, E> {
        if times == 0 {
            return Err(E::invalid_value(Unexpected::Unsigned(times), &self));
        }
        Ok(TurnLimit::Times(times))
    }

    fn visit_i64<E: de::Error>(self, times: i64) -> Result<TurnLimit, E> {
        let unsigned = u64::try_from(times);
        let invalid = || E::invalid_value(Unexpected::Signed(times), &self);
        unsigned.map_err(|_| invalid()).and_then(|times| LimitVisitor.visit_u64(times))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<TurnLimit, E> {
        match text {
            "always" => Ok(TurnLimit::Always),
            _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
        }
    }
}
