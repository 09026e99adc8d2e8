//! Tests of `throughline demo`, with and without a network.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use throughline_testkit::figure;

use crate::support::kept::TestStore;
use crate::support::serving::send_request;
use crate::support::{CommandOutput, throughline_in, without_keys};

const OWN: &str = env!("CARGO_BIN_EXE_throughline");

/// Shell command that enables the loopback device of an empty network namespace and runs the demo.
const CUT_OFF: &str = "ip link set lo up && exec \"$0\" \"$@\"";

/// Returns whether this machine allows unprivileged network namespaces.
fn can_isolate_network() -> bool {
    let tried = Command::new("unshare").args(["-rn", "sh", "-c", CUT_OFF, "true"]).output();
    tried.is_ok_and(|tried| tried.status.success())
}

/// Runs the demo to its end in a directory called `name`.
fn run_demo(name: &str, options: &[&str], input: &str) -> (CommandOutput, PathBuf) {
    let store = TestStore::without_database(name);
    let home = store.file("home");
    let mut arguments = vec!["demo", "--no-serve", "--home", home.to_str().unwrap()];
    arguments.extend(options);
    (throughline_in(&store.folder, &arguments, input.as_bytes()), home)
}

/// Returns the numbers in the first output line that starts with `what`.
fn counts(out: &str, label: &str) -> Vec<u64> {
    let line = out.lines().find(|line| line.trim_start().starts_with(label));
    let line = line.unwrap_or_else(|| panic!("{label} is not in {out}"));
    line.split_whitespace().filter_map(|field| field.parse().ok()).collect()
}

#[test]
fn demo_succeeds_with_the_network_cut() {
    let store = TestStore::without_database("demo-cut");
    let home = store.file("home");
    let cut = can_isolate_network();
    let mut command = Command::new(if cut { "unshare" } else { OWN });
    if cut {
        command.args(["-rn", "sh", "-c", CUT_OFF, OWN]);
    } else {
        println!("SKIPPED network namespaces are not available: running with the network");
    }
    let began = tokio::time::Instant::now();
    let output = without_keys(&mut command)
        .args(["demo", "--no-serve", "--home", home.to_str().unwrap()])
        .env_remove("THROUGHLINE_STORE")
        .env_remove("THROUGHLINE_MASTER_KEY")
        .current_dir(&store.folder)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let took = began.elapsed();
    let (out, err) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{out}\n{err}");
    figure("demo: seconds", format!("{:.1}", took.as_secs_f64()));
    // All chapters were printed.
    for chapter in 1..=9 {
        assert!(out.contains(&format!("{chapter}/9 ")), "{chapter}: {out}");
    }
    // A process was killed, and another process continued after its incomplete thought.
    assert!(out.contains("was killed"), "{out}");
    assert!(out.contains("half a thought has no signature"), "{out}");
    assert!(out.contains("deploy ran once"), "{out}");
    // The lossy client received the providers' real error messages.
    let unwrapped = out.split_whitespace().collect::<Vec<_>>().join(" ");
    for refusal in ["Expected `thinking`", "Invalid `signature`", "could not be verified"] {
        assert!(unwrapped.contains(refusal), "{refusal}: {out}");
    }
    assert!(out.contains("is intact"), "{out}");
    // The same requests succeed through the gateway, which is the first scene.
    let (first_scene, _) = out.split_once("2/9 ").unwrap();
    assert_eq!(first_scene.matches("→ 400").count(), 3, "{out}");
    assert_eq!(first_scene.matches("restored; details: call").count(), 4, "{out}");
    // Requests, refused, degraded, Seals issued and accepted: the rows add up to the ledger.
    let rows = ["the client, directly", "the client, through the gateway", "the agent"];
    let rows = rows.map(|label| counts(&out, label));
    let sums: Vec<u64> = (0..5).map(|at| rows.iter().map(|row| row[at]).sum()).collect();
    assert_eq!(counts(&out, "all "), sums, "{out}");
    let [direct, gateway, agent] = &rows;
    assert_eq!((&direct[..3], &gateway[..3]), (&[6, 3, 1][..], &[6, 0, 0][..]), "{out}");
    assert_eq!(agent[1..3], [0, 0], "{out}");
    // The last line repeats these figures.
    let result = format!(
        "With Throughline, 0 of {} requests were refused. Without it, 3 of 6, and 1 lost its \
         reasoning.\n",
        gateway[0] + agent[0]
    );
    assert!(out.contains(&result), "{result}: {out}");
    let (_, end) = out.split_once(&result).unwrap();
    assert!(end.contains("throughline connect claude-code"), "{end}");
    // The store contains the same thread.
    let url = format!("sqlite://{}", home.join("demo.db").display());
    let thread = out.split_whitespace().find(|word| word.starts_with("thread_")).unwrap();
    let thread = thread.trim_end_matches('…');
    let listed =
        throughline_in(&store.folder, &["threads", "--store", &url, "--format", "json"], b"");
    let threads: serde_json::Value = serde_json::from_str(&listed.out).unwrap();
    let threads = threads["threads"].as_array().unwrap();
    assert!(threads.iter().any(|one| one["id"] == thread), "{thread}: {threads:?}");
    let deployed = std::fs::read_to_string(home.join("deployed")).unwrap();
    assert_eq!(deployed.lines().count(), 1, "{deployed}");
}

#[test]
fn interactive_demo_uses_the_users_decisions() {
    let (output, home) = run_demo("demo-interactive", &["--interactive"], "\n7\n2\nperhaps\nn\n");
    assert!(output.out.contains("“Roll back”, decided by you"), "{}\n{}", output.out, output.err);
    assert!(output.out.contains("rejected, decided by you"), "{}\n{}", output.out, output.err);
    // A rejected call was not executed.
    assert!(output.out.contains("deploy ran 0 times"), "{}\n{}", output.out, output.err);
    assert!(!home.join("deployed").exists());
    assert_eq!(output.code, 0, "{}\n{}", output.out, output.err);
}

#[test]
fn interactive_demo_fails_at_end_of_input() {
    let (output, home) = run_demo("demo-unknown", &["--interactive"], "1\n");
    assert_eq!(output.code, 2, "{}\n{}", output.out, output.err);
    assert!(output.err.contains("standard input is closed"), "{}", output.err);
    assert!(!home.join("deployed").exists());
}

#[test]
fn demo_rejects_a_folder_that_is_not_empty() {
    let store = TestStore::without_database("demo-full");
    std::fs::write(store.file("mine"), "mine").unwrap();
    let home = store.folder.to_str().unwrap();
    let output = throughline_in(&store.folder, &["demo", "--home", home], b"");
    assert_eq!(output.code, 2, "{}", output.err);
    assert!(output.err.contains("is not empty"), "{}", output.err);
}

#[test]
fn gateway_stays_open_until_sigterm() {
    let store = TestStore::without_database("demo-open");
    let mut command = Command::new(OWN);
    let mut child = without_keys(&mut command)
        .arg("demo")
        .env_remove("THROUGHLINE_STORE")
        .env("TMPDIR", &store.folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let open =
        lines.find(|line| line.contains("Open the console")).expect("the gateway stays open");
    let (_, address) = open.split_once("http://").unwrap();
    let address = address.split_whitespace().next().unwrap();
    let address = address.split('/').next().unwrap();
    assert!(send_request(address, "GET", "/healthz", "", "").starts_with("HTTP/1.1 200"));
    // The whole message is printed before the process is stopped.
    assert!(lines.any(|line| line.contains("Ctrl-C")));
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(left_in(&store.folder), Vec::<PathBuf>::new());
}

#[test]
fn interrupted_demo_leaves_no_files() {
    let store = TestStore::without_database("demo-stopped");
    let mut command = Command::new(OWN);
    let mut child = without_keys(&mut command)
        .args(["demo", "--interactive"])
        .env_remove("THROUGHLINE_STORE")
        .env("TMPDIR", &store.folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    // The first worker was killed; the resumed run now waits for an answer.
    assert!(lines.any(|line| line.contains("4/9")), "the demo prompts");
    let _says_nothing = child.stdin.take();
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130));
    let stderr = String::from_utf8(ended.stderr).unwrap();
    assert!(stderr.contains("the demo was interrupted"), "{stderr}");
    assert_eq!(left_in(&store.folder), Vec::<PathBuf>::new());
}

fn left_in(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}
