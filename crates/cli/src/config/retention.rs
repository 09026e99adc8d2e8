//! `[retention]`: how long each class of data is kept.

use std::time::Duration;

use throughline_json::StringEnum as _;
use throughline_store::RetentionClass;
use throughline_tools::reader::{Diagnostics, Section, Value};

/// The key of traces, which are files outside of the store.
pub(crate) const TRACES: &str = "traces";
const INTERVAL: &str = "interval";

/// Ages below this are probably mistakes in the unit.
const SHORT: Duration = Duration::from_hours(1);

/// How long each class of data is kept after its last use. Data without a time is kept forever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RetentionSettings {
    requests: Option<Duration>,
    bodies: Option<Duration>,
    threads: Option<Duration>,
    runs: Option<Duration>,
    /// For the sessions that sinks of kind `file` write.
    pub(crate) traces: Option<Duration>,
    /// Time between two passes that delete expired data.
    pub(crate) interval: Duration,
}

impl Default for RetentionSettings {
    fn default() -> Self {
        let interval = Duration::from_hours(24);
        Self { requests: None, bodies: None, threads: None, runs: None, traces: None, interval }
    }
}

impl RetentionSettings {
    /// Returns how long data of a class is kept; `None` means forever.
    pub(crate) fn age(&self, class: RetentionClass) -> Option<Duration> {
        match class {
            RetentionClass::Requests => self.requests,
            RetentionClass::Bodies => self.bodies,
            RetentionClass::Threads => self.threads,
            RetentionClass::Runs => self.runs,
        }
    }

    /// Returns all classes with their names in the file.
    pub(crate) fn by_name(&self) -> Vec<(&'static str, Option<Duration>)> {
        let classes = RetentionClass::ALL.iter();
        let mut all: Vec<_> = classes.map(|class| (class.as_str(), self.age(*class))).collect();
        all.push((TRACES, self.traces));
        all
    }

    /// Returns whether all data is kept forever.
    pub(crate) fn keeps_everything(&self) -> bool {
        self.by_name().iter().all(|(_, age)| age.is_none())
    }

    /// Describes for how long data is kept, in one line.
    pub(crate) fn describe(&self) -> String {
        if self.keeps_everything() {
            return "everything is kept; [retention] in throughline.toml deletes old data"
                .to_owned();
        }
        let all = self.by_name().into_iter();
        let (limited, forever): (Vec<_>, Vec<_>) = all.partition(|(_, age)| age.is_some());
        let limited = limited.into_iter().filter_map(|(name, age)| Some((name, shown_age(age?))));
        let mut parts: Vec<String> =
            limited.map(|(name, age)| format!("{name} are kept for {age}")).collect();
        let forever: Vec<&str> = forever.into_iter().map(|(name, _)| name).collect();
        if !forever.is_empty() {
            parts.push(format!("{} forever", forever.join(", ")));
        }
        parts.join(", ")
    }
}

/// Returns an age in the form of the configuration file.
pub(crate) fn shown_age(age: Duration) -> String {
    const UNITS: [(u64, &str); 3] = [(24 * 60 * 60, "d"), (60 * 60, "h"), (60, "m")];
    let seconds = age.as_secs();
    let unit = UNITS.iter().find(|(length, _)| seconds.is_multiple_of(*length));
    match unit {
        Some((length, unit)) => format!("{}{unit}", seconds / length),
        None => format!("{seconds}s"),
    }
}

pub(super) fn read(section: &Section<'_>, notes: &mut Diagnostics<'_>) -> RetentionSettings {
    let defaults = RetentionSettings::default();
    let mut keys: Vec<&str> = defaults.by_name().iter().map(|(name, _)| *name).collect();
    keys.push(INTERVAL);
    section.reject_unknown_keys(&keys, notes);
    let mut age = |key: &str| {
        let parse = |value: &Value| parse_age(value.text()?);
        let expected = format!("an age of at least one second: write {key} = \"30d\" or \"12h\"");
        section.parse(key, parse, expected, notes)
    };
    let settings = RetentionSettings {
        requests: age("requests"),
        bodies: age("bodies"),
        threads: age("threads"),
        runs: age("runs"),
        traces: age(TRACES),
        interval: age(INTERVAL).unwrap_or(defaults.interval),
    };
    for (key, age) in settings.by_name() {
        let Some(age) = age.filter(|age| *age < SHORT) else { continue };
        let age = shown_age(age);
        let message = format!(
            "`{key}` = \"{age}\" permanently erases this data {age} after its last use; if you \
             mean days, write a number and `d`, such as \"3d\""
        );
        notes.warning(section.value_at(key), message);
    }
    settings
}

/// Parses an age such as `30d`. The largest age is about a hundred years.
fn parse_age(text: &str) -> Option<Duration> {
    const LARGEST: u64 = 36_500 * 24 * 60 * 60;
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let length = match unit.trim() {
        "s" => 1,
        "m" | "min" => 60,
        "h" => 60 * 60,
        "d" => 24 * 60 * 60,
        "w" => 7 * 24 * 60 * 60,
        _ => return None,
    };
    let seconds = number.parse::<u64>().ok()?.checked_mul(length)?;
    (1..=LARGEST).contains(&seconds).then(|| Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_units() {
        let seconds = |text| parse_age(text).map(|age| age.as_secs());
        assert_eq!(seconds("30d"), Some(30 * 86_400));
        assert_eq!(seconds("2w"), Some(14 * 86_400));
        assert_eq!((seconds("12h"), seconds("90s")), (Some(43_200), Some(90)));
        for text in ["", "30", "0d", "d", "-1d", "1y", "99999999999999999999d", "36501d"] {
            assert_eq!(seconds(text), None, "{text}");
        }
        for text in ["30d", "12h", "5m", "90s"] {
            assert_eq!(parse_age(text).map(shown_age).as_deref(), Some(text));
        }
    }

    #[test]
    fn description_names_every_class() {
        let settings = RetentionSettings {
            requests: parse_age("30d"),
            bodies: parse_age("12h"),
            ..RetentionSettings::default()
        };
        let expected = "requests are kept for 30d, bodies are kept for 12h, \
                        threads, runs, traces forever";
        assert_eq!(settings.describe(), expected);
        assert!(RetentionSettings::default().describe().starts_with("everything is kept"));
    }
}
