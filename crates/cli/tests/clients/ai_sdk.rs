//! The AI SDK with its provider packages, as an application uses them.

use std::path::{Path, PathBuf};

use serde_json::Value;
use throughline_testkit::figure;

use crate::program::{ClientProgram, ClientReply, Prompt, first_text, installed};
use crate::session::{CLAUDE, Session};

/// Defines a program for each pair of a provider package and a mode.
macro_rules! programs {
    ($($name:ident = $package:literal, $mode:literal;)*) => {
        $(pub(crate) const $name: ClientProgram = ClientProgram {
            name: concat!("ai-sdk ", $package, " ", $mode),
            command,
            environment: &[("AI_SDK_PACKAGE", $package), ("AI_SDK_MODE", $mode)],
            settings: &[],
            arguments,
            read_output,
        };)*

        /// All programs.
        pub(crate) const AI_SDK: &[ClientProgram] = &[$($name),*];
    };
}

programs! {
    ANTHROPIC_STREAM = "anthropic", "stream";
    ANTHROPIC_WHOLE = "anthropic", "whole";
    ANTHROPIC_LOSSY = "anthropic", "lossy";
    OPENAI_STREAM = "openai", "stream";
    OPENAI_WHOLE = "openai", "whole";
    GOOGLE_STREAM = "google", "stream";
    GOOGLE_WHOLE = "google", "whole";
    COMPATIBLE_STREAM = "openai-compatible", "stream";
    COMPATIBLE_WHOLE = "openai-compatible", "whole";
    COMPATIBLE_LOSSY = "openai-compatible", "lossy";
}

fn command() -> Option<Vec<PathBuf>> {
    installed("ai/package.json")?;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/node");
    Some(vec!["node".into(), folder.join("ai_sdk.mjs")])
}

fn arguments(prompt: &Prompt<'_>) -> Vec<String> {
    let session = prompt.session.unwrap_or("../session.json");
    [prompt.model, session, prompt.text].map(str::to_owned).to_vec()
}

fn read_output(lines: &[Value]) -> ClientReply {
    ClientReply { session: first_text(lines, "session"), text: first_text(lines, "answer") }
}

#[test]
fn client_ai_sdk_finishes_a_tool_loop() {
    let started = Session::start(&ANTHROPIC_STREAM, "ai-sdk", &[(CLAUDE, 3)]);
    let Some(mut session) = started else { return };
    session.run_all();
    let figures = session.assert_complete();
    figure("AI SDK", format_args!("{} Seals returned", figures.returned));
}

/// The history contains no reasoning, so the gateway restores it in every round of the loop.
#[test]
fn client_ai_sdk_with_a_lossy_history_loses_no_seal() {
    let started = Session::start(&ANTHROPIC_LOSSY, "ai-sdk-lossy", &[(CLAUDE, 3)]);
    let Some(mut session) = started else { return };
    session.run_all();
    let figures = session.assert_complete();
    assert!(figures.returned >= 6, "the gateway restored the Seals of all rounds: {figures:?}");
}
