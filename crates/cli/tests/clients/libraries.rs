//! The libraries and Aider, with the programs and the variables that `throughline connect` prints.

use std::fs;
use std::path::{Path, PathBuf};

use throughline_testkit::{ClientMatrixFilter, figure, skip, workspace_root};

use crate::fixture::{ClientFixture, ClientOutput};
use crate::program::{ClientProgram, ClientReply};

/// The answer of the simulators.
const ANSWER: &str = "Finished — naïve café ☕";

const SCRIPT: &str = r#"
[[turn]]
times = "always"
thoughts = ["I answer."]
texts = ["Finished — naïve café ☕"]
"#;

/// A client without a configuration file.
struct LibraryClient {
    /// Name in `throughline connect`.
    name: &'static str,
    model: &'static str,
    /// The Python environment, below `target`.
    environment: &'static str,
    program: TestedProgram,
}

/// What runs with the variables of `connect --run`.
enum TestedProgram {
    /// A Python program that sets neither an address nor a key.
    Python(&'static str),
    /// The client's own program, with these arguments.
    Installed(&'static [&'static str]),
}

const CLIENTS: [LibraryClient; 7] = [
    LibraryClient {
        name: "langchain",
        model: "sim/claude-sonnet-5-5",
        environment: "clients/python",
        program: TestedProgram::Python(
            "from langchain_anthropic import ChatAnthropic\n\
             model = ChatAnthropic(model='{model}', max_tokens=4096)\n\
             print(model.invoke('Hello').text)\n",
        ),
    },
    LibraryClient {
        name: "openai-agents",
        model: "sim/gpt-5.6-sol",
        environment: "clients/python",
        program: TestedProgram::Python(
            "from agents import Agent, Runner\n\
             print(Runner.run_sync(Agent(name='Assistant'), 'Hello').final_output)\n",
        ),
    },
    LibraryClient {
        name: "litellm",
        model: "sim/claude-sonnet-5-5",
        environment: "clients/aider",
        program: TestedProgram::Python(
            "import litellm\n\
             messages = [{'role': 'user', 'content': 'Hello'}]\n\
             reply = litellm.completion(model='anthropic/{model}', messages=messages)\n\
             print(reply.choices[0].message.content)\n",
        ),
    },
    LibraryClient {
        name: "openai-python",
        model: "sim/gpt-5.6-sol",
        environment: "sdks/python",
        program: TestedProgram::Python(
            "import openai\n\
             reply = openai.OpenAI().responses.create(model='{model}', input='Hello')\n\
             print(reply.output_text)\n",
        ),
    },
    LibraryClient {
        name: "anthropic-python",
        model: "sim/claude-sonnet-5-5",
        environment: "sdks/python",
        program: TestedProgram::Python(
            "import anthropic\n\
             messages = [{'role': 'user', 'content': 'Hello'}]\n\
             client = anthropic.Anthropic()\n\
             print(client.messages.create(model='{model}', max_tokens=4096, messages=messages))\n",
        ),
    },
    LibraryClient {
        name: "google-genai",
        model: "sim/gemini-3.8-flash",
        environment: "sdks/python",
        program: TestedProgram::Python(
            "from google import genai\n\
             client = genai.Client()\n\
             reply = client.models.generate_content(model='{model}', contents='Hello')\n\
             print(reply.text)\n",
        ),
    },
    LibraryClient {
        name: "aider",
        model: "sim/claude-sonnet-5-5",
        environment: "clients/aider",
        program: TestedProgram::Installed(&[
            "--message",
            "Hello",
            "--yes-always",
            "--no-git",
            "--no-show-model-warnings",
            // By default, Aider writes these files into the surrounding repository.
            "--chat-history-file",
            "chat.md",
            "--input-history-file",
            "input.txt",
        ]),
    },
];

/// The variables that keep a library from calling other servers.
const OFFLINE: &[(&str, &str)] = &[
    ("LITELLM_LOCAL_MODEL_COST_MAP", "True"),
    ("AIDER_CHECK_UPDATE", "false"),
    ("AIDER_ANALYTICS_DISABLE", "true"),
];

#[test]
fn client_matrix_of_libraries_runs_the_printed_programs() {
    let Some(filter) = ClientMatrixFilter::from_env() else {
        return skip("the libraries of the book: scripts/soak runs them");
    };
    for client in CLIENTS.iter().filter(|client| filter.selects(client.name)) {
        let Some(programs) = client.programs() else {
            skip(&format!("{}: run scripts/clients --libraries to install it", client.name));
            continue;
        };
        let requests = client.run(&programs);
        figure(&format!("{} as connected", client.name), format_args!("{requests} requests"));
    }
}

impl LibraryClient {
    /// Returns the folder of the environment's programs; `None` if it is not installed.
    fn programs(&self) -> Option<PathBuf> {
        let folder = workspace_root().join("target").join(self.environment).join("bin");
        folder.exists().then_some(folder)
    }

    /// Runs the printed program, and the client with the variables of `--run`. Returns the number
    /// of requests.
    fn run(&self, programs: &Path) -> usize {
        let client = ClientProgram {
            name: self.name,
            command: || None,
            environment: OFFLINE,
            settings: &[],
            arguments: |_| Vec::new(),
            read_output: |_| ClientReply::default(),
        };
        let fixture = ClientFixture::new(&format!("library-{}", self.name), SCRIPT, &client);
        let arguments: Vec<String> = match self.program {
            TestedProgram::Python(text) => {
                let url = fixture.url();
                let printed = fixture.connect(&[self.name, "--url", &url, "--model", self.model]);
                let (_, printed) = printed.split_once(": Python (").expect("a program is printed");
                let (_, printed) = printed.split_once('\n').unwrap();
                fs::write(fixture.work().join("printed.py"), printed).unwrap();
                let python = programs.join("python");
                let output = fixture.run_program(&client, &python, &["printed.py"]);
                self.assert_answered(&fixture, &output);
                let text = text.replace("{model}", self.model);
                fs::write(fixture.work().join("app.py"), text).unwrap();
                ["python", "app.py"].map(str::to_owned).to_vec()
            }
            TestedProgram::Installed(arguments) => {
                arguments.iter().map(|argument| (*argument).to_owned()).collect()
            }
        };
        let output = fixture.run_from(programs, &client, self.model, &arguments);
        self.assert_answered(&fixture, &output);
        let ledger = fixture.ledger();
        let model = self.model.trim_start_matches("sim/");
        for entry in &ledger {
            assert_eq!(
                (&entry["status"], &entry["model"]),
                (&200.into(), &model.into()),
                "{entry}"
            );
        }
        ledger.len()
    }

    fn assert_answered(&self, fixture: &ClientFixture, output: &ClientOutput) {
        let is_answered = output.succeeded && output.text.contains(ANSWER);
        assert!(is_answered, "{}: {}\n{}", self.name, output.text, fixture.gateway_log());
    }
}
