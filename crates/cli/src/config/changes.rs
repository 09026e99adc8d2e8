//! Compares two versions of the configuration file, to find the settings that need a restart.

use std::collections::BTreeSet;

use toml::{Table, Value};

/// The settings that a running gateway applies. Every other setting needs a restart.
const RELOADABLE: [&str; 19] = [
    "console",
    "gateway.body_limit",
    "gateway.depth_limit",
    "gateway.passthrough",
    "gateway.prefix",
    "gateway.replay",
    "gateway.timeouts.connect",
    "gateway.timeouts.first_byte",
    "gateway.timeouts.idle",
    "prices",
    "providers",
    "redaction",
    "retention",
    "routes",
    "server.allow_open",
    "server.hosts",
    "server.log",
    "server.tls.cert",
    "server.tls.key",
];

/// The values of a configuration file as written. The file may contain secrets, so this type has no
/// `Debug` implementation.
#[derive(Clone, Default)]
pub(crate) struct ConfigSnapshot(Table);

impl ConfigSnapshot {
    /// Parses the text of a file. An invalid text has no values.
    pub(super) fn parse(text: &str) -> Self {
        Self(text.parse().unwrap_or_default())
    }

    /// Returns the keys whose values differ in `new` and take effect only after a restart.
    pub(crate) fn keys_that_need_restart(&self, new: &Self) -> Vec<String> {
        let is_reloadable = |key: &String| {
            RELOADABLE.iter().any(|prefix| {
                key.strip_prefix(prefix)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            })
        };
        let mut keys = changed_keys(&self.0, &new.0);
        keys.retain(|key| !is_reloadable(key));
        let had_tls = has_tls(&self.0);
        if had_tls != has_tls(&new.0) {
            keys.push("server.tls".to_owned());
        }
        keys.sort();
        keys
    }
}

fn has_tls(table: &Table) -> bool {
    table.get("server").is_some_and(|server| server.get("tls").is_some())
}

/// Returns the dotted keys of all values that differ between two tables.
fn changed_keys(old: &Table, new: &Table) -> Vec<String> {
    let empty = Table::new();
    let (mut changed, mut pending) = (Vec::new(), vec![(String::new(), old, new)]);
    while let Some((path, old, new)) = pending.pop() {
        let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        for key in keys {
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            match (old.get(key), new.get(key)) {
                (Some(Value::Table(old)), Some(Value::Table(new))) => {
                    pending.push((path, old, new));
                }
                (Some(Value::Table(old)), None) => pending.push((path, old, &empty)),
                (None, Some(Value::Table(new))) => pending.push((path, &empty, new)),
                (old, new) if old == new => {}
                (_, _) => changed.push(path),
            }
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn restart_keys(old: &str, new: &str) -> Vec<String> {
        ConfigSnapshot::parse(old).keys_that_need_restart(&ConfigSnapshot::parse(new))
    }

    #[test]
    fn only_settings_of_the_process_need_a_restart() {
        let old =
            "[server]\nlisten = \"127.0.0.1:1\"\nlog = \"info\"\n[gateway]\nmax_streams = 1\n";
        let new = "[server]\nlisten = \"127.0.0.1:2\"\nlog = \"warn\"\nhosts = [\"a\"]\n\
                   [gateway]\nreplay = \"off\"\n[gateway.timeouts]\nidle = \"1s\"\nqueue = \"1s\"\n\
                   [providers.a]\nkind = \"openai\"\n[[routes]]\nmodel = \"m\"\n\
                   [prices.\"gpt-5*\"]\ninput = 1.0\n[redaction]\nthinkingPatterns = [\"a\"]\n\
                   [agents]\nmax_steps = 1\n[tracing]\nenabled = true\n\
                   [store]\nurl = \"sqlite://a\"\n";
        let keys = [
            "agents.max_steps",
            "gateway.max_streams",
            "gateway.timeouts.queue",
            "server.listen",
            "store.url",
            "tracing.enabled",
        ];
        assert_eq!(restart_keys(old, new), keys);
        assert_eq!(restart_keys(old, old), [""; 0]);
        assert_eq!(restart_keys(new, old), keys, "a removed setting counts as changed");
    }

    #[test]
    fn certificates_change_without_restart_but_tls_does_not() {
        let tls = "[server.tls]\ncert = \"a\"\nkey = \"b\"\n";
        assert_eq!(restart_keys(tls, &tls.replace("\"a\"", "\"c\"")), [""; 0]);
        assert_eq!(restart_keys("", tls), ["server.tls"]);
        assert_eq!(restart_keys(tls, ""), ["server.tls"]);
    }
}
