//! Roles of API keys.

use throughline_json::{StringEnum as _, words};

words! {
    /// What the holder of an API key may do in its tenant. A key without a role has all permissions
    /// except the management of keys.
    KeyRole {
        /// Everything, including approvals, exports and the management of keys.
        Operator = "operator",
        /// Model calls and agents, for programs.
        App = "app",
        /// Reading.
        Viewer = "viewer",
    }
}

impl KeyRole {
    /// Parses a name such as `viewer`; `None` if the name is unknown.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|role| role.as_str() == name)
    }
}
