//! A home directory for the tests of `throughline connect`.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::{CommandOutput, scratch, throughline_with};

/// A key that must not appear in any output.
pub(crate) const SECRET: &str = "tl_0123456789abcdef0123456789abcdef";

/// An address on which no gateway listens.
pub(crate) const NO_GATEWAY: &str = "http://127.0.0.1:1";

/// A home directory for one test.
pub(crate) struct TestHome {
    pub(crate) folder: PathBuf,
}

impl TestHome {
    pub(crate) fn new(name: &str) -> Self {
        let folder = scratch(&format!("connect-{name}"));
        std::fs::remove_dir_all(&folder).ok();
        std::fs::create_dir_all(&folder).unwrap();
        Self { folder }
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> CommandOutput {
        self.run_with(&[], arguments)
    }

    pub(crate) fn run_with(
        &self,
        environment: &[(&str, &str)],
        arguments: &[&str],
    ) -> CommandOutput {
        self.run_in("", environment, arguments)
    }

    /// Runs `throughline connect` in a folder below the home directory.
    pub(crate) fn run_in(
        &self,
        folder: &str,
        environment: &[(&str, &str)],
        arguments: &[&str],
    ) -> CommandOutput {
        let home = self.folder.to_str().unwrap();
        let all = [&[("HOME", home), ("NO_COLOR", "1")], environment].concat();
        // A gateway may run on the default port of this machine.
        let is_default = arguments.contains(&"--write") && !arguments.contains(&"--url");
        let url: &[&str] = if is_default { &["--url", NO_GATEWAY] } else { &[] };
        throughline_with(&all, &self.path(folder), &[&["connect"], arguments, url].concat(), b"")
    }

    /// Runs a command that must succeed.
    pub(crate) fn succeed(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.code, 0, "{arguments:?}: {}", output.err);
        output.out
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        String::from_utf8(std::fs::read(self.path(name)).unwrap()).unwrap()
    }

    /// Adds a program that prints its arguments and environment and exits with code 7. Returns the
    /// value for `PATH`.
    pub(crate) fn program(&self, name: &str) -> String {
        let script =
            "#!/bin/sh\nfor word in \"$@\"; do echo \"argument: $word\"; done\nenv\nexit 7\n";
        self.write(&format!("bin/{name}"), script.as_bytes());
        let path = self.path("bin").join(name);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        format!("{}:/usr/bin:/bin", self.path("bin").display())
    }

    /// Lists all files below the home directory, relative to it.
    pub(crate) fn files(&self) -> Vec<String> {
        let (mut waiting, mut found) = (vec![self.folder.clone()], Vec::new());
        while let Some(folder) = waiting.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    waiting.push(path);
                } else {
                    found.push(path.strip_prefix(&self.folder).unwrap().display().to_string());
                }
            }
        }
        found.sort();
        found
    }
}

/// Returns the permissions of a file.
pub(crate) fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}
