//! `ReasoningConfig`: how an agent's model thinks and how the agent reflects, as configured by a
//! caller.
//!
//! A level sets defaults for everything; explicit settings override it.

use std::sync::Arc;

use throughline_core::NativeReasoning;
use throughline_json::{self as json, Fields, InvalidDocument, Json, Name, Object, words};

/// Configures the model's thinking and the agent's reflections.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReasoningConfig {
    /// `false` disables everything. If absent, any other setting enables reasoning.
    pub enabled: Option<bool>,
    /// The level that sets all defaults; medium if absent.
    pub level: Option<Level>,
    /// The provider's native reasoning.
    pub native: Option<Section<NativeConfig>>,
    /// Short notes between tool calls.
    pub reflection: Option<Section<ReflectionConfig>>,
}

words! {
    /// The overall amount of reasoning.
    Level {
        /// Less reasoning.
        Low = "low",
        /// The default amount.
        Medium = "medium",
        /// More reasoning.
        High = "high",
    }
}

words! {
    /// The reasoning effort of a model.
    Effort {
        /// Almost no reasoning.
        Minimal = "minimal",
        /// Less reasoning.
        Low = "low",
        /// The default amount.
        Medium = "medium",
        /// More reasoning.
        High = "high",
    }
}

words! {
    /// When an agent reflects.
    Cadence {
        /// Never.
        Off = "off",
        /// After every turn.
        EveryTurn = "every_turn",
        /// After tool results.
        AfterTool = "after_tool",
        /// When the set of tools in use changes.
        OnBranch = "on_branch",
    }
}

words! {
    /// How a reflection is requested.
    ReflectionMode {
        /// Within the conversation itself.
        Piggyback = "piggyback",
        /// In a separate Call.
        Separate = "separate",
    }
}

/// A section of the configuration that can be disabled as a whole.
#[derive(Clone, Debug, PartialEq)]
pub enum Section<T> {
    /// `false`
    Off,
    /// An object with settings.
    On(T),
}

/// Settings of the provider's native reasoning.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NativeConfig {
    /// The reasoning effort; the level if absent.
    pub effort: Option<Effort>,
    /// The token budget for thinking.
    pub budget_tokens: Option<u64>,
    /// Whether the answer should contain readable thoughts.
    pub include_thoughts: Option<bool>,
    /// Members that are merged into the request last, verbatim.
    pub provider_extras: Vec<(Name, Json)>,
}

/// Settings of reflections.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReflectionConfig {
    /// `false` disables reflections.
    pub enabled: Option<bool>,
    /// When to reflect.
    pub cadence: Option<Cadence>,
    /// How to request a reflection.
    pub mode: Option<ReflectionMode>,
    /// Maximum number of tokens of one reflection.
    pub max_tokens: Option<u64>,
    /// Maximum number of characters that are kept of one reflection.
    pub max_chars: Option<u64>,
    /// How many of the latest reflections the model sees.
    pub keep_last: Option<u64>,
    /// Whether older reflections are summarised.
    pub summarize: Option<bool>,
    /// The prompt that requests a reflection.
    pub prompt_template: Option<Arc<str>>,
    /// Whether each reflection emits an event.
    pub emit_events: Option<bool>,
    /// Maximum number of reflections in one run.
    pub max_per_run: Option<u64>,
    /// Minimum number of tool turns between two reflections.
    pub every_n_turns: Option<u64>,
}

/// A configuration with all defaults applied.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResolvedReasoning {
    /// Settings of the provider's native reasoning; `None` leaves the model's default.
    pub native: Option<NativeReasoning>,
    /// Settings of reflections; `None` if they are disabled.
    pub reflection: Option<Reflection>,
}

/// Settings of reflections with all defaults applied.
#[derive(Clone, Debug, PartialEq)]
pub struct Reflection {
    /// When to reflect; never [`Cadence::Off`].
    pub cadence: Cadence,
    /// How to request a reflection.
    pub mode: ReflectionMode,
    /// Maximum number of tokens of one reflection.
    pub max_tokens: u64,
    /// Maximum number of characters that are kept of one reflection.
    pub max_chars: u64,
    /// How many of the latest reflections the model sees.
    pub keep_last: u64,
    /// Whether older reflections are summarised.
    pub summarize: bool,
    /// The prompt that requests a reflection, if the caller supplied one.
    pub prompt_template: Option<Arc<str>>,
    /// Whether each reflection emits an event.
    pub emit_events: bool,
    /// Maximum number of reflections in one run; `None` for no limit.
    pub max_per_run: Option<u64>,
    /// Minimum number of tool turns between two reflections.
    pub every_n_turns: u64,
}

const CONFIG: [&str; 4] = ["enabled", "level", "native", "reflection"];
const NATIVE: [&str; 4] = ["effort", "budgetTokens", "includeThoughts", "providerExtras"];
const REFLECTION: [&str; 11] = [
    "enabled",
    "cadence",
    "mode",
    "maxTokens",
    "maxChars",
    "keepLast",
    "summarize",
    "promptTemplate",
    "emitEvents",
    "maxPerRun",
    "everyNTurns",
];

impl ReasoningConfig {
    /// Parses and validates the configuration. JSON `null` means absent; an unknown key is an
    /// error.
    pub fn parse(document: &Json) -> Result<Self, InvalidDocument> {
        let tree = document.tree();
        let fields = Fields::from_node(tree.root(), "reasoning")?;
        fields.refuse_unknown(&CONFIG)?;
        Ok(Self {
            enabled: fields.bool("enabled")?,
            level: fields.string_enum("level")?,
            native: section(&fields, "native", NativeConfig::read)?,
            reflection: section(&fields, "reflection", ReflectionConfig::read)?,
        })
    }

    /// Returns the configuration as written, without defaults.
    pub fn json(&self) -> Json {
        json::object(|out| {
            maybe_bool(out, "enabled", self.enabled);
            out.maybe_string("level", self.level.map(Level::as_str));
            write_section(out, "native", self.native.as_ref(), NativeConfig::write);
            write_section(out, "reflection", self.reflection.as_ref(), ReflectionConfig::write);
        })
    }

    /// Applies the level's defaults and the explicit settings.
    pub fn resolve(&self) -> ResolvedReasoning {
        let is_said = self.level.is_some() || self.native.is_some() || self.reflection.is_some();
        // Disabling must be explicit, because many models think by default.
        let off = NativeReasoning { enabled: Some(false), ..NativeReasoning::default() };
        if !self.enabled.unwrap_or(is_said) {
            let native = self.enabled.is_some().then_some(off);
            return ResolvedReasoning { native, reflection: None };
        }
        let level = self.level.unwrap_or(Level::Medium);
        let native = match &self.native {
            Some(Section::Off) => Some(off),
            Some(Section::On(native)) => Some(native.resolve(level)),
            None => Some(NativeConfig::default().resolve(level)),
        };
        let reflection = match &self.reflection {
            Some(Section::Off) => None,
            Some(Section::On(reflection)) => reflection.resolve(level),
            None => ReflectionConfig::default().resolve(level),
        };
        ResolvedReasoning { native, reflection }
    }
}

impl NativeConfig {
    fn read(fields: &Fields<'_>) -> Result<Self, InvalidDocument> {
        fields.refuse_unknown(&NATIVE)?;
        let extras = fields.present("providerExtras");
        let extras = extras.map(|node| Fields::from_node(node, fields.path("providerExtras")));
        Ok(Self {
            effort: fields.string_enum("effort")?,
            budget_tokens: fields.count("budgetTokens")?,
            include_thoughts: fields.bool("includeThoughts")?,
            provider_extras: extras.transpose()?.map_or_else(Vec::new, |e| e.extras(&[])),
        })
    }

    fn write(&self, out: &mut Object<'_>) {
        out.maybe_string("effort", self.effort.map(Effort::as_str));
        maybe_number(out, "budgetTokens", self.budget_tokens);
        maybe_bool(out, "includeThoughts", self.include_thoughts);
        if !self.provider_extras.is_empty() {
            out.object("providerExtras", |out| {
                for (key, value) in &self.provider_extras {
                    out.raw(key, value);
                }
            });
        }
    }

    fn resolve(&self, level: Level) -> NativeReasoning {
        let effort = self.effort.map_or(level.as_str(), Effort::as_str);
        NativeReasoning {
            enabled: Some(true),
            effort: Some(Name::from(effort)),
            budget_tokens: self.budget_tokens,
            include_thoughts: self.include_thoughts,
            provider_extras: self.provider_extras.clone(),
        }
    }
}

impl ReflectionConfig {
    fn read(fields: &Fields<'_>) -> Result<Self, InvalidDocument> {
        fields.refuse_unknown(&REFLECTION)?;
        let every_n_turns = fields.count("everyNTurns");
        let every_n_turns = every_n_turns.ok().flatten().filter(|turns| *turns > 0);
        if every_n_turns.is_none() && fields.present("everyNTurns").is_some() {
            return Err(fields.error("everyNTurns", "must be a whole number >= 1"));
        }
        Ok(Self {
            enabled: fields.bool("enabled")?,
            cadence: fields.string_enum("cadence")?,
            mode: fields.string_enum("mode")?,
            max_tokens: fields.count("maxTokens")?,
            max_chars: fields.count("maxChars")?,
            keep_last: fields.count("keepLast")?,
            summarize: fields.bool("summarize")?,
            prompt_template: fields.text("promptTemplate")?,
            emit_events: fields.bool("emitEvents")?,
            max_per_run: fields.count("maxPerRun")?,
            every_n_turns,
        })
    }

    fn write(&self, out: &mut Object<'_>) {
        maybe_bool(out, "enabled", self.enabled);
        out.maybe_string("cadence", self.cadence.map(Cadence::as_str));
        out.maybe_string("mode", self.mode.map(ReflectionMode::as_str));
        maybe_number(out, "maxTokens", self.max_tokens);
        maybe_number(out, "maxChars", self.max_chars);
        maybe_number(out, "keepLast", self.keep_last);
        maybe_bool(out, "summarize", self.summarize);
        out.maybe_string("promptTemplate", self.prompt_template.as_deref());
        maybe_bool(out, "emitEvents", self.emit_events);
        maybe_number(out, "maxPerRun", self.max_per_run);
        maybe_number(out, "everyNTurns", self.every_n_turns);
    }

    /// Returns `None` if reflections are disabled.
    fn resolve(&self, level: Level) -> Option<Reflection> {
        let (max_tokens, max_chars, cadence) = match level {
            Level::Low => (200, 600, Cadence::OnBranch),
            Level::Medium => (350, 1200, Cadence::AfterTool),
            Level::High => (600, 2000, Cadence::AfterTool),
        };
        let cadence = self.cadence.unwrap_or(cadence);
        if self.enabled == Some(false) || cadence == Cadence::Off {
            return None;
        }
        Some(Reflection {
            cadence,
            mode: self.mode.unwrap_or(ReflectionMode::Piggyback),
            max_tokens: self.max_tokens.unwrap_or(max_tokens),
            max_chars: self.max_chars.unwrap_or(max_chars),
            keep_last: self.keep_last.unwrap_or(3),
            summarize: self.summarize.unwrap_or(false),
            prompt_template: self.prompt_template.clone(),
            emit_events: self.emit_events.unwrap_or(true),
            max_per_run: self.max_per_run,
            every_n_turns: self.every_n_turns.unwrap_or(1),
        })
    }
}

fn section<T>(
    fields: &Fields<'_>,
    key: &str,
    read: impl FnOnce(&Fields<'_>) -> Result<T, InvalidDocument>,
) -> Result<Option<Section<T>>, InvalidDocument> {
    let Some(node) = fields.present(key) else { return Ok(None) };
    if node.bool() == Some(false) {
        return Ok(Some(Section::Off));
    }
    let inner = Fields::from_node(node, fields.path(key))
        .map_err(|_| fields.error(key, "must be an object or false"))?;
    read(&inner).map(|section| Some(Section::On(section)))
}

fn write_section<T>(
    out: &mut Object<'_>,
    key: &str,
    section: Option<&Section<T>>,
    write: impl FnOnce(&T, &mut Object<'_>),
) {
    match section {
        None => {}
        Some(Section::Off) => {
            out.bool(key, false);
        }
        Some(Section::On(inner)) => {
            out.object(key, |out| write(inner, out));
        }
    }
}

fn maybe_bool(out: &mut Object<'_>, key: &str, value: Option<bool>) {
    if let Some(value) = value {
        out.bool(key, value);
    }
}

fn maybe_number(out: &mut Object<'_>, key: &str, value: Option<u64>) {
    if let Some(value) = value {
        out.number(key, value);
    }
}
