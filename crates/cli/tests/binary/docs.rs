//! Tests of the README and the book: every command and snippet runs, and every link resolves.
//!
//! The tag of a code block determines its check (see [`Tag`]). A block without a tag fails the
//! test.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use throughline_testkit::{figure, skip, workspace_root};

use crate::support::kept::TestStore;
use crate::support::serving::GatewayProcess;
use crate::support::{throughline_in, without_keys};

const OWN: &str = env!("CARGO_BIN_EXE_throughline");

/// Gateway addresses that the documentation uses.
const GATEWAYS: [&str; 2] = ["127.0.0.1:4400", "localhost:4400"];

/// The page with complete agent programs. Each program must run its own tool.
const AGENT_PROGRAMS: &str = "docs/agents-in-code.md";

/// How a code block is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tag {
    /// `sh`: runs to its end without a failing command.
    Shell,
    /// `sh,serve`: like `sh`, but the last command runs until it is stopped.
    Serve,
    /// `sh,client`: commands that need an installed client (see [`SnippetFolder::client_line`]).
    Client,
    /// `sh,clone`: commands in a clone of the repository (see [`SnippetFolder::clone_line`]).
    Clone,
    /// `console`: lines that start with `$` are run. The other lines are their expected output.
    Console,
    /// `python`, `js` and `ts`: programs that are run with the official clients. TypeScript is
    /// type-checked first.
    Python,
    JavaScript,
    TypeScript,
    /// `rust`: lines that must occur in a compiled example.
    Rust,
    /// `toml,config`: a valid configuration.
    Config,
    /// `toml,agent`: a valid agent declaration.
    Agent,
    /// `toml`: part of a file, which must be valid TOML.
    Toml,
    /// `text`, `json` and `diff`: not run, and must not contain a `throughline` command.
    Text,
}

impl Tag {
    fn parse(info: &str) -> Option<Self> {
        Some(match info {
            "sh" => Tag::Shell,
            "sh,serve" => Tag::Serve,
            "sh,client" => Tag::Client,
            "sh,clone" => Tag::Clone,
            "console" => Tag::Console,
            "python" => Tag::Python,
            "js" => Tag::JavaScript,
            "ts" => Tag::TypeScript,
            "rust" | "rust,ignore" => Tag::Rust,
            "toml,config" => Tag::Config,
            "toml,agent" => Tag::Agent,
            "toml" => Tag::Toml,
            "text" | "json" | "diff" => Tag::Text,
            _ => return None,
        })
    }
}

/// A fenced code block in a page.
struct Block {
    line: usize,
    tag: Tag,
    text: String,
}

/// Returns the paths of the README and of all pages in the book.
pub(crate) fn pages() -> Vec<PathBuf> {
    let root = workspace_root();
    let mut pages = vec![root.join("README.md")];
    let mut folders = vec![root.join("docs")];
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages
}

pub(crate) fn relative_path(page: &Path) -> String {
    page.strip_prefix(workspace_root()).unwrap().display().to_string()
}

fn blocks(page: &Path) -> Vec<Block> {
    let text = std::fs::read_to_string(page).unwrap();
    let mut blocks: Vec<Block> = Vec::new();
    let mut is_inside = false;
    for (number, line) in (1..).zip(text.lines()) {
        let fence = line.trim_start().strip_prefix("```");
        match fence {
            Some(_) if is_inside => is_inside = false,
            Some(info) => {
                let tag = Tag::parse(info.trim());
                let tag = tag.unwrap_or_else(|| {
                    panic!("{}:{number}: `{info}` is not a block tag", relative_path(page))
                });
                blocks.push(Block { line: number, tag, text: String::new() });
                is_inside = true;
            }
            None if is_inside => {
                let block = blocks.last_mut().unwrap();
                block.text.push_str(line);
                block.text.push('\n');
            }
            // An indented block cannot have a tag.
            None => assert!(
                !line.starts_with("    ") || line.trim_start().starts_with(['-', '*', '|', '[']),
                "{}:{number}: use a fenced block with a tag: {line}",
                relative_path(page)
            ),
        }
    }
    assert!(!is_inside, "{}: a fence is not closed", relative_path(page));
    blocks
}

/// A directory for running the snippets of a page. The directory contains the files of a clone, and
/// the binary is on the snippets' `PATH`.
struct SnippetFolder {
    store: TestStore,
    gateway: Option<GatewayProcess>,
    /// The simulators, which must outlive the gateway.
    _simulators: Option<Simulators>,
}

/// The simulators as a separate process. They replace the real providers, so snippets that need a
/// provider key run unchanged.
struct Simulators {
    child: Child,
    address: String,
    /// Kept open, because the simulators fail to print if their standard output is closed.
    _out: Lines<BufReader<ChildStdout>>,
}

impl Simulators {
    fn start() -> Self {
        let mut child = Command::new(OWN)
            .args(["sim", "--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let welcome = lines.next().unwrap().unwrap();
        let address = welcome.split_once("http://").unwrap().1;
        let address = address.split_whitespace().next().unwrap().to_owned();
        Self { child, address, _out: lines }
    }

    /// Returns a configuration whose providers are the simulators.
    fn config(&self) -> String {
        let rows = [("anthropic", ""), ("openai", "/v1"), ("gemini", "")];
        let rows = rows.map(|(name, path)| {
            let url = format!("http://{}{path}", self.address);
            format!("[providers.{name}]\nbase_url = \"{url}\"\napi_key = \"any\"\n")
        });
        rows.concat()
    }
}

impl Drop for Simulators {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl SnippetFolder {
    fn new(page: &str, needs_gateway: bool) -> Self {
        let store = TestStore::without_database(&format!("docs-{}", page.replace(['/', '.'], "-")));
        for folder in ["bin", "home", "examples"] {
            std::fs::create_dir_all(store.file(folder)).unwrap();
        }
        for example in std::fs::read_dir(workspace_root().join("examples")).unwrap() {
            let example = example.unwrap();
            std::fs::copy(example.path(), store.file("examples").join(example.file_name()))
                .unwrap();
        }
        std::os::unix::fs::symlink(OWN, store.file("bin/throughline")).unwrap();
        let simulators = needs_gateway.then(Simulators::start);
        let gateway = simulators.as_ref().map(|simulators| {
            let folder = store.file("gateway");
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("throughline.toml"), simulators.config()).unwrap();
            GatewayProcess::start(&folder, &[], &[])
        });
        Self { store, gateway, _simulators: simulators }
    }

    /// Replaces the documented gateway address with the address of this page's gateway.
    fn with_own_gateway(&self, text: &str) -> String {
        let Some(gateway) = &self.gateway else { return text.to_owned() };
        GATEWAYS.iter().fold(text.to_owned(), |text, known| text.replace(known, &gateway.address))
    }

    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        without_keys(&mut command)
            .env_remove("THROUGHLINE_STORE")
            .env_remove("THROUGHLINE_MASTER_KEY")
            .env("BIN", self.store.file("bin"))
            .env("HOME", self.store.file("home"))
            .env("XDG_DATA_HOME", self.store.file("home"))
            .env("XDG_CONFIG_HOME", self.store.file("home"))
            .current_dir(&self.store.folder)
            .stdin(Stdio::null());
        command
    }

    /// Checks a block and panics if it fails.
    fn run(&self, page: &str, block: &Block) {
        let location = format!("{page}:{}", block.line);
        let text = self.with_own_gateway(&block.text);
        match block.tag {
            Tag::Shell => self.shell(&location, &text),
            Tag::Console => {
                let lines = text.lines().filter_map(|line| line.strip_prefix("$ "));
                self.shell(&location, &lines.collect::<Vec<_>>().join("\n"));
            }
            Tag::Serve => self.serve(&location, &text),
            Tag::Clone => {
                for line in text.lines().map(|line| without_remark(line.trim())) {
                    self.clone_line(&location, line);
                }
            }
            Tag::Client => {
                for line in text.lines() {
                    self.client_line(&location, line);
                }
            }
            Tag::Python => self.script(&location, "python", "py", &text),
            Tag::JavaScript => self.script(&location, "node", "mjs", &text),
            Tag::TypeScript => self.typescript(&location, &text),
            Tag::Rust => assert_compiled(&location, &text),
            Tag::Config => {
                std::fs::write(self.store.file("checked.toml"), &text).unwrap();
                self.shell(&location, "throughline config check --config checked.toml");
            }
            Tag::Agent => {
                std::fs::write(self.store.file("agent.toml"), &text).unwrap();
                self.shell(&location, "throughline run Hello --agent agent.toml --no-ask");
            }
            Tag::Toml => {
                let read: Result<toml::Table, _> = toml::from_str(&text);
                assert!(read.is_ok(), "{location}: {}", read.unwrap_err());
            }
            Tag::Text => assert_no_command(&location, &text),
        }
    }

    /// Runs a command that the documentation runs in a clone. `cargo run` is replaced by the
    /// existing binary, and workspace tests use the current build. Slow release commands must
    /// appear unchanged in `scripts/soak`.
    fn clone_line(&self, location: &str, line: &str) {
        let root = workspace_root();
        match (line.strip_prefix("cargo run --release -- "), line.split_whitespace().next()) {
            (Some(goes_on @ ("demo" | "serve")), _) => {
                self.serve(location, &format!("throughline {goes_on}"));
            }
            (Some(arguments), _) => self.shell(location, &format!("throughline {arguments}")),
            (None, Some("cargo")) => {
                let is_ours = line.starts_with("cargo test --workspace ");
                assert!(is_ours, "{location}: a separate build: {line}");
                // Cargo needs the user's home directory.
                let output = Command::new("bash").args(["-c", line]).current_dir(root).output();
                assert_success(location, &output.unwrap());
            }
            (None, Some(program)) => {
                assert!(root.join(program).exists(), "{location}: there is no {program}");
                let soak = std::fs::read_to_string(root.join("scripts/soak")).unwrap();
                assert!(
                    soak.lines().any(|run| run == line),
                    "{location}: scripts/soak must run {line}"
                );
            }
            (None, None) => {}
        }
    }

    /// Checks a command that needs an installed client. `connect --run` is replaced by
    /// `connect --print`. Other commands must install or start a client of the list.
    fn client_line(&self, location: &str, line: &str) {
        if line.starts_with("throughline ") {
            let (command, is_run) = match line.split_once(" --run") {
                Some((command, _)) => (command, true),
                None => (line, false),
            };
            let print = if is_run { " --print" } else { "" };
            return self.shell(location, &format!("{command}{print}"));
        }
        let list = std::fs::read_to_string(workspace_root().join("crates/cli/src/clients.toml"));
        let list: toml::Table = toml::from_str(&list.unwrap()).unwrap();
        let is_known = list["client"].as_array().unwrap().iter().any(|client| {
            let program = client.get("program").and_then(toml::Value::as_str);
            client["install"].as_str() == Some(line)
                || line.split_whitespace().next().is_some_and(|word| Some(word) == program)
        });
        assert!(is_known, "{location}: no client is installed or started by: {line}");
    }

    fn shell(&self, location: &str, text: &str) {
        let text = format!("PATH=$BIN:$PATH\n{text}");
        let output = self.command("bash").args(["-euo", "pipefail", "-c", &text]).output().unwrap();
        assert_success(&format!("{location}: {text}"), &output);
    }

    /// Runs a server command until the command prints its address, and then stops the command.
    fn serve(&self, location: &str, text: &str) {
        let text = without_remark(text.trim());
        let is_gateway = text.ends_with("throughline serve");
        let text =
            if is_gateway { format!("{text} --listen 127.0.0.1:0") } else { text.to_owned() };
        let mut child = self
            .command("bash")
            .args(["-c", &format!("PATH=$BIN:$PATH\nexec {text}")])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let began = lines.any(|line| line.contains("http://"));
        let id = child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        // Read the remaining output, because the process blocks on a full pipe.
        assert!(began, "{location}: {text} never listened");
        lines.for_each(drop);
        child.wait().unwrap();
    }

    fn script(&self, location: &str, language: &str, end: &str, text: &str) {
        let Some(file) = self.write_script(location, language, end, text) else { return };
        let sdks = workspace_root().join("target/sdks");
        let program =
            if language == "python" { sdks.join("python/bin/python") } else { "node".into() };
        self.run_program(location, program.as_ref(), &file);
    }

    /// Checks the types of a program with the compiler of the console, and runs the program.
    fn typescript(&self, location: &str, text: &str) {
        let compiler = workspace_root().join("ui/node_modules/.bin/tsc");
        if !compiler.exists() {
            skip(&format!("{location}: run scripts/ui to install the TypeScript compiler"));
            return;
        }
        let Some(file) = self.write_script(location, "node", "mts", text) else { return };
        let options = ["--strict", "--skipLibCheck", "--target", "es2022", "--module", "nodenext"];
        let output = self.command(compiler).args(options).arg(&file).output().unwrap();
        assert_success(location, &output);
        self.run_program(location, "node".as_ref(), &file.with_extension("mjs"));
    }

    fn run_program(&self, location: &str, program: &Path, file: &Path) {
        let source = std::fs::read_to_string(file).unwrap();
        let mut decisions = vec![("y", "It is sunny in")];
        // A program that asks a person before it runs a tool also runs with a rejection.
        if source.contains("input(") {
            decisions.push(("n", "A person rejected this call."));
        }
        for (decision, result) in decisions {
            let answers = self.store.file("answers");
            std::fs::write(&answers, format!("{decision}\n")).unwrap();
            let answers = std::fs::File::open(answers).unwrap();
            let output = self.command(program).arg(file).stdin(answers).output().unwrap();
            assert_success(location, &output);
            if location.starts_with(AGENT_PROGRAMS) {
                let reply = String::from_utf8_lossy(&output.stdout);
                assert!(
                    reply.contains(result),
                    "{location}: no tool result {result:?} in: {reply}"
                );
            }
        }
    }

    /// Writes a program to a file beside the modules that it imports. Returns `None` if the
    /// official clients of the language are not installed.
    fn write_script(
        &self,
        location: &str,
        language: &str,
        end: &str,
        text: &str,
    ) -> Option<PathBuf> {
        let sdks = workspace_root().join("target/sdks");
        if !sdks.join(language).exists() {
            skip(&format!("{location}: run scripts/sdks to install the official clients"));
            return None;
        }
        // Node.js resolves modules relative to the script.
        let modules = self.store.file("node_modules");
        if language == "node" && !modules.exists() {
            std::os::unix::fs::symlink(sdks.join("node/node_modules"), modules).unwrap();
        }
        let file = self.store.file(&format!("snippet.{end}"));
        std::fs::write(&file, text).unwrap();
        Some(file)
    }
}

fn assert_success(location: &str, output: &Output) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{location}\n{}\n{}",
        text(&output.stdout),
        text(&output.stderr)
    );
}

/// Asserts that a block that is not run contains no command.
fn assert_no_command(location: &str, text: &str) {
    let commands = text.lines().filter(|line| line.starts_with("throughline "));
    assert_eq!(commands.count(), 0, "{location}: a command is in a block that is not run");
}

/// Asserts that each line occurs in a compiled example or test.
fn assert_compiled(location: &str, text: &str) {
    let folders =
        ["crates/throughline/examples", "crates/throughline/tests", "crates/throughline/src"];
    let files =
        folders.iter().flat_map(|folder| std::fs::read_dir(workspace_root().join(folder)).unwrap());
    let files = files.map(|file| file.unwrap().path()).filter(|path| path.is_file());
    let sources: String = files.map(|path| std::fs::read_to_string(path).unwrap()).collect();
    let known: BTreeSet<&str> = sources.lines().map(|line| without_comment(line.trim())).collect();
    for line in
        text.lines().map(|line| without_comment(line.trim())).filter(|line| !line.is_empty())
    {
        assert!(known.contains(line), "{location}: no example contains the line {line}");
    }
}

fn without_comment(line: &str) -> &str {
    line.split_once(" // ").map_or(line, |(code, _)| code).trim_end()
}

/// Removes a trailing `#` comment from a shell command.
fn without_remark(line: &str) -> &str {
    line.split_once(" #").map_or(line, |(command, _)| command).trim_end()
}

#[test]
fn every_command_and_snippet_works() {
    let mut run = 0;
    for page in pages() {
        let name = relative_path(&page);
        let blocks = blocks(&page);
        if blocks.iter().all(|block| block.tag == Tag::Text) {
            for block in &blocks {
                assert_no_command(&format!("{name}:{}", block.line), &block.text);
            }
            continue;
        }
        let needs = |block: &Block| GATEWAYS.iter().any(|gateway| block.text.contains(gateway));
        let runs = |block: &&Block| !matches!(block.tag, Tag::Text | Tag::Toml | Tag::Config);
        let folder = SnippetFolder::new(&name, blocks.iter().filter(runs).any(needs));
        for block in &blocks {
            folder.run(&name, block);
            run += usize::from(block.tag != Tag::Text);
        }
    }
    figure("snippets of README and docs that were run", run);
}

#[test]
fn every_link_resolves() {
    let link = regex::Regex::new(r"\]\(([^)\s]+)\)").unwrap();
    let mut problems = Vec::new();
    let mut followed = 0;
    let mut all = pages();
    all.extend(
        ["ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"]
            .map(|name| workspace_root().join(name)),
    );
    for page in all {
        let text = std::fs::read_to_string(&page).unwrap();
        for captures in link.captures_iter(&text) {
            let link_target = &captures[1];
            if link_target.contains("://") {
                continue;
            }
            followed += 1;
            let (file, anchor) = link_target.split_once('#').unwrap_or((link_target, ""));
            let target =
                if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            if !target.exists() {
                problems.push(format!("{}: {link_target} is not there", relative_path(&page)));
            } else if !anchor.is_empty() {
                let target = std::fs::read_to_string(target).unwrap();
                let headings =
                    target.lines().filter(|line| line.starts_with('#')).map(heading_anchor);
                if !headings.collect::<Vec<_>>().contains(&anchor.to_owned()) {
                    problems.push(format!(
                        "{}: {link_target} has no such heading",
                        relative_path(&page)
                    ));
                }
            }
        }
    }
    assert_eq!(problems, Vec::<String>::new());
    figure("links of the documentation that lead somewhere", followed);
}

/// Returns the link anchor that GitHub generates for a heading.
fn heading_anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let text = text.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    text.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn environment_report_contains_no_secret() {
    let store = TestStore::empty("env");
    let secret = "sk-ant-api03-a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2";
    let config = "[tracing.sinks.own]\nkind = \"otlp\"\nurl = \"http://collector.secret.example\"\nheader = \"x-key\"\nvalue = \"hush\"\n";
    std::fs::write(store.file("throughline.toml"), config).unwrap();
    // `doctor` is an earlier name of the command.
    for (command, format) in [("env", "text"), ("env", "json"), ("doctor", "text")] {
        let environment = [("ANTHROPIC_API_KEY", secret)];
        let output = store.run_with(&environment, &[command, "--format", format], b"");
        assert_eq!((output.code, output.err.as_str()), (0, ""));
        for fact in [
            "anthropic (variable)",
            "SQLite",
            "schema version 3",
            "a valid file, throughline.toml",
            "ANTHROPIC_API_KEY",
            "an address, without TLS",
        ] {
            assert!(output.out.contains(fact), "{fact}: {}", output.out);
        }
        for private in [secret, "hush", "secret.example", store.folder.to_str().unwrap()] {
            assert!(!output.out.contains(private), "{private}: {}", output.out);
        }
    }
}

#[test]
fn environment_report_distinguishes_missing_and_invalid_configurations() {
    let store = TestStore::without_database("env-configuration");
    std::fs::write(store.file("invalid.toml"), "[stor]\n").unwrap();
    for (file, fact) in [
        ("missing.toml", "cannot be read: `throughline config check` prints the reason"),
        ("invalid.toml", "a file with errors: `throughline config check` lists them"),
    ] {
        let output = throughline_in(&store.folder, &["env", "--config", file], b"");
        assert_eq!((output.code, output.err.as_str()), (0, ""));
        for fact in [fact, "unknown: `throughline check` prints the reason"] {
            assert!(output.out.contains(fact), "{fact}: {}", output.out);
        }
    }
}
