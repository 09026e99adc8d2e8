//! `ReasoningConfig`: a caller's settings for the model's native reasoning and the agent's
//! reflections.
//!
//! A level sets the defaults for all other settings; explicit settings override the defaults.

use std::sync::Arc;

use throughline_core::NativeReasoning;
use throughline_json::{
    self as json, Fields, InvalidDocument, Json, Name, Object, RecordMember, words,
};

/// The value type of a setting, which can be read from and written to JSON.
trait Setting: Sized {
    fn read(fields: &Fields<'_>, key: &str) -> Result<Self, InvalidDocument>;

    fn write(&self, out: &mut Object<'_>, key: &str);
}

/// A JSON object that contains settings.
trait SettingsRecord: Sized {
    fn read(fields: &Fields<'_>) -> Result<Self, InvalidDocument>;

    fn write(&self, out: &mut Object<'_>);
}

/// Declares JSON objects that contain settings. An unknown key is an error.
macro_rules! settings {
    ($(
        $(#[$about:meta])*
        $name:ident { $($(#[$note:meta])* $key:literal => $field:ident: $type:ty,)+ }
    )+) => { $(
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $name { $($(#[$note])* pub $field: $type,)+ }

        impl SettingsRecord for $name {
            fn read(fields: &Fields<'_>) -> Result<Self, InvalidDocument> {
                fields.refuse_unknown(&[$($key),+])?;
                Ok(Self { $($field: Setting::read(fields, $key)?,)+ })
            }

            fn write(&self, out: &mut Object<'_>) {
                $(Setting::write(&self.$field, out, $key);)+
            }
        }
    )+ };
}

settings! {
    /// Configures the model's thinking and the agent's reflections.
    ReasoningConfig {
        /// `false` disables native reasoning and reflections. If absent, any other setting enables
        /// them.
        "enabled" => enabled: Option<bool>,
        /// The level that sets all defaults; medium if absent.
        "level" => level: Option<Level>,
        /// Settings for the provider's native reasoning; `false` disables it.
        "native" => native: Option<Section<NativeConfig>>,
        /// Settings for reflections, which are short notes between tool calls; `false` disables
        /// them.
        "reflection" => reflection: Option<Section<ReflectionConfig>>,
    }

    /// Settings for the provider's native reasoning.
    NativeConfig {
        /// The reasoning effort; by default, the effort of the level.
        "effort" => effort: Option<Effort>,
        /// The token budget for thinking.
        "budgetTokens" => budget_tokens: Option<u64>,
        /// Whether the reply should contain readable Thoughts.
        "includeThoughts" => include_thoughts: Option<bool>,
        /// JSON members that are merged verbatim into the encoded request, after all other members.
        "providerExtras" => provider_extras: Vec<(Name, Json)>,
    }

    /// Settings for reflections, which are short notes between tool calls.
    ReflectionConfig {
        /// `false` disables reflections.
        "enabled" => enabled: Option<bool>,
        /// When the agent reflects; the default depends on the level.
        "cadence" => cadence: Option<Cadence>,
        /// How to request a reflection.
        "mode" => mode: Option<ReflectionMode>,
        /// Maximum number of tokens in one reflection.
        "maxTokens" => max_tokens: Option<u64>,
        /// Maximum number of characters in one reflection; longer text is truncated.
        "maxChars" => max_chars: Option<u64>,
        /// How many of the latest reflections the model sees.
        "keepLast" => keep_last: Option<u64>,
        /// Whether older reflections are summarised.
        "summarize" => summarize: Option<bool>,
        /// The prompt that requests a reflection.
        "promptTemplate" => prompt_template: Option<Arc<str>>,
        /// Whether each reflection emits an event.
        "emitEvents" => emit_events: Option<bool>,
        /// Maximum number of reflections in one run.
        "maxPerRun" => max_per_run: Option<u64>,
        /// Minimum number of tool turns between two reflections.
        "everyNTurns" => every_n_turns: Option<u64>,
    }
}

words! {
    /// A preset for the amount of reasoning and reflection.
    Level {
        /// Less reasoning than the default.
        Low = "low",
        /// The default amount of reasoning.
        Medium = "medium",
        /// More reasoning than the default.
        High = "high",
    }

    /// The reasoning effort of a model.
    Effort {
        /// Almost no reasoning.
        Minimal = "minimal",
        /// Less reasoning than the default.
        Low = "low",
        /// The default amount of reasoning.
        Medium = "medium",
        /// More reasoning than the default.
        High = "high",
    }

    /// When an agent reflects.
    Cadence {
        /// The agent never reflects.
        Off = "off",
        /// The agent reflects after every turn.
        EveryTurn = "every_turn",
        /// The agent reflects after tool results.
        AfterTool = "after_tool",
        /// The agent reflects when the model starts to use a different set of tools.
        OnBranch = "on_branch",
    }

    /// How a reflection is requested.
    ReflectionMode {
        /// With a Call that extends the conversation and offers no tools.
        Piggyback = "piggyback",
        /// With a separate, smaller Call that contains only recent content.
        Separate = "separate",
    }
}

/// A section of the configuration that can be disabled as a whole.
#[derive(Clone, Debug, PartialEq)]
pub enum Section<T> {
    /// The section is `false`, so that the section's feature is disabled.
    Off,
    /// The section is an object with settings.
    On(T),
}

/// A configuration with all defaults applied.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResolvedReasoning {
    /// Settings for the provider's native reasoning; `None` keeps the model's default.
    pub native: Option<NativeReasoning>,
    /// Settings for reflections; `None` if reflections are disabled.
    pub reflection: Option<Reflection>,
}

/// Settings for reflections, with all defaults applied.
#[derive(Clone, Debug, PartialEq)]
pub struct Reflection {
    /// When to reflect; never [`Cadence::Off`].
    pub cadence: Cadence,
    /// How to request a reflection.
    pub mode: ReflectionMode,
    /// Maximum number of tokens in one reflection.
    pub max_tokens: u64,
    /// Maximum number of characters in one reflection; longer text is truncated.
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

impl ReasoningConfig {
    /// Parses and validates the configuration. JSON `null` means absent; an unknown key is an
    /// error.
    pub fn parse(document: &Json) -> Result<Self, InvalidDocument> {
        let tree = document.tree();
        let fields = Fields::from_node(tree.root(), "reasoning")?;
        let turns = fields.present("reflection").and_then(|node| node.present("everyNTurns"));
        if turns.is_some_and(|turns| turns.u64().is_none_or(|turns| turns == 0)) {
            return Err(fields.error("reflection.everyNTurns", "must be a whole number >= 1"));
        }
        Self::read(&fields)
    }

    /// Returns the configuration as written, without defaults.
    pub fn json(&self) -> Json {
        json::object(|out| self.write(out))
    }

    /// Applies the level's defaults and the explicit settings.
    pub fn resolve(&self) -> ResolvedReasoning {
        let is_set = self.level.is_some() || self.native.is_some() || self.reflection.is_some();
        // Disabling must be explicit in the request, because many models think by default.
        let off = NativeReasoning { enabled: Some(false), ..NativeReasoning::default() };
        if !self.enabled.unwrap_or(is_set) {
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
    /// Applies the defaults of `level` to the missing settings; `None` if reflections are disabled.
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

impl<T: RecordMember> Setting for Option<T> {
    fn read(fields: &Fields<'_>, key: &str) -> Result<Self, InvalidDocument> {
        T::read(fields, key)
    }

    fn write(&self, out: &mut Object<'_>, key: &str) {
        if let Some(value) = self {
            T::write(value, out, key);
        }
    }
}

impl<T: SettingsRecord> Setting for Option<Section<T>> {
    fn read(fields: &Fields<'_>, key: &str) -> Result<Self, InvalidDocument> {
        let Some(node) = fields.present(key) else { return Ok(None) };
        if node.bool() == Some(false) {
            return Ok(Some(Section::Off));
        }
        let inner = Fields::from_node(node, fields.path(key))
            .map_err(|_| fields.error(key, "must be an object or false"))?;
        T::read(&inner).map(|section| Some(Section::On(section)))
    }

    fn write(&self, out: &mut Object<'_>, key: &str) {
        match self {
            None => out,
            Some(Section::Off) => out.bool(key, false),
            Some(Section::On(inner)) => out.object(key, |out| inner.write(out)),
        };
    }
}

impl Setting for Vec<(Name, Json)> {
    fn read(fields: &Fields<'_>, key: &str) -> Result<Self, InvalidDocument> {
        Ok(RecordMember::read(fields, key)?.unwrap_or_default())
    }

    fn write(&self, out: &mut Object<'_>, key: &str) {
        if !self.is_empty() {
            RecordMember::write(self, out, key);
        }
    }
}
