//! A session of a client: its tasks, the simulators' script for them, and the checks of the result.

use std::fmt::Write as _;
use std::fs;

use serde_json::Value;
use throughline_testkit::{figure, skip};

use crate::fixture::{ClientFixture, ClientOutput};
use crate::program::{ClientProgram, Prompt};

/// A simulated Claude model on Anthropic's wire.
pub(crate) const CLAUDE: &str = "sim/claude-sonnet-5-5";
/// A simulated OpenAI model on the Responses wire.
pub(crate) const GPT: &str = "sim/gpt-5.6-sol";
/// A simulated model on the Chat wire.
pub(crate) const DEEPSEEK: &str = "sim/deepseek-v4-pro";
/// A simulated Gemini model.
pub(crate) const GEMINI: &str = "sim/gemini-3.8-flash";
/// A simulated Claude model on Bedrock's Converse wire.
pub(crate) const BEDROCK: &str = "sim/us.anthropic.claude-sonnet-4-5-20250929-v1:0";

/// The text of each answer before the result. Careless encoders corrupt such characters.
const GREETING: &str = "Finished — naïve café ☕:";

/// A session that runs its tasks one after the other. All tasks after the first resume the session.
pub(crate) struct Session<'p> {
    pub(crate) fixture: ClientFixture,
    program: &'p ClientProgram,
    /// The model of each task, and its number of rounds of tool calls.
    tasks: Vec<(&'static str, usize)>,
    next: usize,
    /// The client's id of this session, after the first task.
    id: Option<String>,
}

/// Counts from the simulators' ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LedgerFigures {
    pub(crate) requests: usize,
    pub(crate) refused: usize,
    pub(crate) issued: usize,
    pub(crate) returned: usize,
    pub(crate) lost: u64,
    /// Returned Seals that the provider would not accept.
    pub(crate) altered: usize,
    /// Placeholders for the Seals of another provider's calls, which Gemini documents.
    pub(crate) stand_ins: usize,
}

impl<'p> Session<'p> {
    /// Starts a gateway for a session. Returns `None` and reports the skipped test if the client is
    /// not installed.
    pub(crate) fn start(
        program: &'p ClientProgram,
        name: &str,
        tasks: &[(&'static str, usize)],
    ) -> Option<Self> {
        if (program.command)().is_none() {
            skip(&format!("{}: run scripts/clients to install it", program.name));
            return None;
        }
        let fixture = ClientFixture::new(name, &script(tasks), program);
        fs::write(fixture.work().join("notes.txt"), "count: 0\n").unwrap();
        Some(Self { fixture, program, tasks: tasks.to_vec(), next: 0, id: None })
    }

    /// Connects the client to the gateway and runs all tasks. Each change of the model connects the
    /// client again, as a user would.
    pub(crate) fn run_all(&mut self) {
        let mut connected = "";
        for (model, _) in self.tasks.clone() {
            let has_file = !self.program.settings.is_empty();
            if has_file && model != connected {
                self.connect(model);
                connected = model;
            }
            self.run_task();
        }
    }

    /// Writes the client's configuration with `throughline connect`.
    fn connect(&self, model: &str) {
        let url = self.fixture.url();
        let arguments = [self.program.name, "--url", &url, "--model", model, "--write"];
        self.fixture.connect(&arguments);
    }

    /// Runs the next task, and checks its answer and the edited file.
    pub(crate) fn run_task(&mut self) {
        self.run_task_with(ClientFixture::run);
    }

    /// Runs the next task with `throughline connect --run`, and checks it.
    pub(crate) fn run_task_connected(&mut self) {
        self.run_task_with(ClientFixture::run_connected);
    }

    fn run_task_with(
        &mut self,
        run: fn(&ClientFixture, &ClientProgram, &Prompt<'_>) -> ClientOutput,
    ) {
        let (model, rounds) = self.tasks[self.next];
        let text = format!("{} Keep the count in notes.txt.", marker(self.next));
        let prompt = Prompt { text: &text, model, session: self.id.as_deref() };
        let output = run(&self.fixture, self.program, &prompt);
        let reply = (self.program.read_output)(&output.lines);
        let name = self.program.name;
        let context = || format!("{name}, {text}\n{}\n{}", output.text, self.fixture.gateway_log());
        assert!(output.succeeded, "{}", context());
        let end = format!("(end of {})", marker(self.next));
        let is_complete = reply.text.contains(GREETING) && reply.text.trim_end().ends_with(&end);
        assert!(is_complete, "the answer is incomplete: {:?}\n{}", reply.text, context());
        let edits = self.edits_until(self.next + 1);
        let count = format!("count: {edits}");
        if rounds >= 3 {
            assert!(reply.text.contains(&count), "{:?} is without {count}", reply.text);
        }
        let notes = fs::read_to_string(self.fixture.work().join("notes.txt")).unwrap();
        assert_eq!(notes.trim_end(), count, "{}", context());
        assert!(!reply.session.is_empty(), "no session id\n{}", context());
        self.id = Some(reply.session);
        self.next += 1;
    }

    /// Requires that the ledger shows all scripted requests, at the right models, and that the
    /// simulators refused nothing and lost or rejected no Seal. Each round of tool calls issues at
    /// least one Seal, which the next request returns.
    pub(crate) fn assert_complete(&self) -> LedgerFigures {
        assert_eq!(self.next, self.tasks.len(), "all tasks were run");
        let entries = self.fixture.ledger();
        let mut wanted: Vec<(&str, usize)> = Vec::new();
        for (model, rounds) in &self.tasks {
            let model = model.trim_start_matches("sim/");
            match wanted.iter_mut().find(|(name, _)| *name == model) {
                Some((_, count)) => *count += rounds,
                None => wanted.push((model, *rounds)),
            }
        }
        for (model, count) in wanted {
            let own = || entries.iter().filter(move |entry| entry["model"] == model);
            let loops = own().filter(|entry| entry["stop"] == "tools").count();
            assert_eq!(loops, count, "{model} called tools {loops} times: {entries:#?}");
            let figures = LedgerFigures::new(own());
            let accepted = figures.returned - figures.altered - figures.stand_ins;
            assert!(
                figures.issued >= count && accepted >= count,
                "{model} issued {} Seals and accepted {accepted} in {count} rounds: {entries:#?}",
                figures.issued
            );
        }
        let figures = LedgerFigures::new(entries.iter());
        let clean = LedgerFigures { refused: 0, lost: 0, altered: 0, ..figures };
        assert_eq!(figures, clean, "{entries:#?}");
        figures
    }

    /// Returns the number of edits in the first `tasks` tasks.
    fn edits_until(&self, tasks: usize) -> usize {
        let rounds = self.tasks[..tasks].iter().flat_map(|(_, rounds)| 0..*rounds);
        rounds.filter(|round| round % 3 == 1).count()
    }
}

impl LedgerFigures {
    fn new<'e>(entries: impl Iterator<Item = &'e Value>) -> Self {
        let mut figures = Self::default();
        for entry in entries {
            figures.requests += 1;
            figures.refused += usize::from(entry["status"].as_u64().is_none_or(|s| s >= 400));
            figures.lost += entry["lost"].as_u64().unwrap();
            figures.issued += entry["issued"].as_array().unwrap().len();
            for seal in entry["returned"].as_array().unwrap() {
                figures.returned += 1;
                let is_stand_in = seal["verdict"]["dropped"] == "stand_in";
                figures.stand_ins += usize::from(is_stand_in);
                figures.altered += usize::from(!is_stand_in && seal["verdict"] != "accepted");
            }
        }
        figures
    }
}

/// Runs a loop of three rounds in a fresh home folder that `throughline connect` configured, and
/// checks that its undo restores the former files.
pub(crate) fn assert_connected_loop(program: &ClientProgram, model: &'static str) {
    let Some(mut session) = Session::start(program, program.name, &[(model, 3)]) else { return };
    session.run_all();
    let figures = session.assert_complete();
    figure(
        &format!("{} with {model}", program.name),
        format_args!("{} requests, {} Seals returned", figures.requests, figures.returned),
    );
    session.fixture.connect(&[program.name, "--undo"]);
    for (path, former) in program.settings {
        let restored = fs::read_to_string(session.fixture.home(path)).unwrap();
        assert_eq!(restored, *former, "{path}");
    }
}

/// Returns the words that mark a task in its prompt.
fn marker(task: usize) -> String {
    format!("task {:02}", task + 1)
}

/// Writes the script: each task reads a file, edits the file, runs a command and so on, and ends
/// with an answer that contains the last result.
fn script(tasks: &[(&str, usize)]) -> String {
    let mut script = String::new();
    let mut count = 0;
    for (task, (_, rounds)) in tasks.iter().enumerate() {
        let marker = marker(task);
        for round in 0..*rounds {
            let call = match round % 3 {
                0 => r#"role = "read", path = "notes.txt""#.to_owned(),
                1 => {
                    count += 1;
                    let (old, new) = (format!("count: {}", count - 1), format!("count: {count}"));
                    format!(r#"role = "edit", path = "notes.txt", old = "{old}", new = "{new}""#)
                }
                _ => r#"role = "run", command = "cat notes.txt""#.to_owned(),
            };
            let thought = format!("{marker}, round {round}: où aller? 🤔");
            write!(
                script,
                "[[turn]]\nuser = \"{marker}\"\nround = {round}\nthoughts = [\"{thought}\"]\n\
                 calls = [{{ {call} }}]\n\n"
            )
            .unwrap();
        }
        write!(
            script,
            "[[turn]]\nuser = \"{marker}\"\nround = {rounds}\nthoughts = [\"{marker} ends.\"]\n\
             texts = [\"{GREETING} {{{{result}}}} (end of {marker})\"]\n\n"
        )
        .unwrap();
    }
    script
}
