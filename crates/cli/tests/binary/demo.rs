//! The first five minutes: `throughline demo`, played as a newcomer would, and with the network cut.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use throughline_testkit::figure;

use crate::support::kept::Kept;
use crate::support::serving::said_at;
use crate::support::{Ran, throughline_in, without_keys};

const OWN: &str = env!("CARGO_BIN_EXE_throughline");

/// Brings up the loopback device of a network that has nothing else, and then plays.
const CUT_OFF: &str = "ip link set lo up && exec \"$0\" \"$@\"";

/// Whether this machine lets us have a network of our own.
fn may_cut_the_network() -> bool {
    let tried = Command::new("unshare").args(["-rn", "sh", "-c", CUT_OFF, "true"]).output();
    tried.is_ok_and(|tried| tried.status.success())
}

/// Plays the story to its end, in a folder of that name.
fn played(name: &str, options: &[&str], input: &str) -> (Ran, PathBuf) {
    let kept = Kept::nothing(name);
    let home = kept.file("home");
    let mut arguments = vec!["demo", "--no-serve", "--home", home.to_str().unwrap()];
    arguments.extend(options);
    (throughline_in(&kept.folder, &arguments, input.as_bytes()), home)
}

/// The counts behind a word of the last table.
fn counts(out: &str, what: &str) -> Vec<u64> {
    let line = out.lines().find(|line| line.trim_start().starts_with(what));
    let line = line.unwrap_or_else(|| panic!("{what} is not in {out}"));
    line.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn the_story_is_played_with_the_network_cut() {
    let kept = Kept::nothing("demo-cut");
    let home = kept.file("home");
    let cut = may_cut_the_network();
    let mut command = Command::new(if cut { "unshare" } else { OWN });
    if cut {
        command.args(["-rn", "sh", "-c", CUT_OFF, OWN]);
    } else {
        println!("SKIPPED the network cannot be cut here: it is played with it");
    }
    let began = tokio::time::Instant::now();
    let ran = without_keys(&mut command)
        .args(["demo", "--no-serve", "--home", home.to_str().unwrap()])
        .env_remove("THROUGHLINE_STORE")
        .env_remove("THROUGHLINE_MASTER_KEY")
        .current_dir(&kept.folder)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let took = began.elapsed();
    let (out, err) =
        (String::from_utf8(ran.stdout).unwrap(), String::from_utf8(ran.stderr).unwrap());
    assert!(ran.status.success(), "{out}\n{err}");
    figure("demo: seconds", format!("{:.1}", took.as_secs_f64()));
    // Every chapter was told.
    for chapter in 1..=9 {
        assert!(out.contains(&format!("{chapter}/9 ")), "{chapter}: {out}");
    }
    // A process was killed, and another went on from its half thought.
    assert!(out.contains("is gone, without a word"), "{out}");
    assert!(out.contains("half a thought has no signature"), "{out}");
    assert!(out.contains("deploy ran once"), "{out}");
    // What the providers really said to the naive client.
    for refusal in ["Expected `thinking`", "Invalid `signature`", "could not be verified"] {
        assert!(out.contains(refusal), "{refusal}: {out}");
    }
    assert!(out.contains("is intact"), "{out}");
    let agent = counts(&out, "the agent and the gateway");
    let naive = counts(&out, "the naive client");
    assert_eq!((agent[1], naive[0] > 0, naive[1] > 0), (0, true, true), "{out}");
    assert!(counts(&out, "restored")[0] > 0 && counts(&out, "replayed")[0] > 0, "{out}");
    // What it counted is what the store holds.
    let store = format!("sqlite://{}", home.join("demo.db").display());
    let thread = out.split_whitespace().find(|word| word.starts_with("thread_")).unwrap();
    let thread = thread.trim_end_matches('…');
    let listed =
        throughline_in(&kept.folder, &["threads", "--store", &store, "--format", "json"], b"");
    let threads: serde_json::Value = serde_json::from_str(&listed.out).unwrap();
    let threads = threads["threads"].as_array().unwrap();
    assert!(threads.iter().any(|one| one["id"] == thread), "{thread}: {threads:?}");
    let deployed = std::fs::read_to_string(home.join("deployed")).unwrap();
    assert_eq!(deployed.lines().count(), 1, "{deployed}");
}

#[test]
fn whoever_plays_it_decides() {
    let (ran, home) = played("demo-interactive", &["--interactive"], "\n7\n2\nperhaps\nn\n");
    assert!(ran.out.contains("“Roll back”, say you"), "{}\n{}", ran.out, ran.err);
    assert!(ran.out.contains("it may not run, say you"), "{}\n{}", ran.out, ran.err);
    // What a person did not allow was not done.
    assert!(ran.out.contains("deploy ran 0 times"), "{}\n{}", ran.out, ran.err);
    assert!(!home.join("deployed").exists());
    assert_eq!(ran.code, 0, "{}\n{}", ran.out, ran.err);
}

#[test]
fn nothing_is_decided_where_nobody_is() {
    let (ran, home) = played("demo-nobody", &["--interactive"], "1\n");
    assert_eq!(ran.code, 2, "{}\n{}", ran.out, ran.err);
    assert!(ran.err.contains("nobody is there to decide"), "{}", ran.err);
    assert!(!home.join("deployed").exists());
}

#[test]
fn a_folder_that_is_in_use_is_left_alone() {
    let kept = Kept::nothing("demo-full");
    std::fs::write(kept.file("mine"), "mine").unwrap();
    let home = kept.folder.to_str().unwrap();
    let ran = throughline_in(&kept.folder, &["demo", "--home", home], b"");
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("is not empty"), "{}", ran.err);
}

#[test]
fn the_gateway_stays_open_until_somebody_asks_to_stop() {
    let kept = Kept::nothing("demo-open");
    let mut command = Command::new(OWN);
    let mut child = without_keys(&mut command)
        .arg("demo")
        .env_remove("THROUGHLINE_STORE")
        .env("TMPDIR", &kept.folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let open = lines.find(|line| line.contains("Look around")).expect("it stays open");
    let (_, address) = open.split_once("http://").unwrap();
    let address = address.split_whitespace().next().unwrap();
    let address = address.split('/').next().unwrap();
    assert!(said_at(address, "GET", "/healthz", "", "").starts_with("HTTP/1.1 200"));
    // All that it tells is told before it is asked to stop.
    assert!(lines.any(|line| line.contains("Ctrl-C")));
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(left_in(&kept.folder), Vec::<PathBuf>::new());
}

#[test]
fn whoever_stops_it_half_way_finds_nothing_left() {
    let kept = Kept::nothing("demo-stopped");
    let mut command = Command::new(OWN);
    let mut child = without_keys(&mut command)
        .args(["demo", "--interactive"])
        .env_remove("THROUGHLINE_STORE")
        .env("TMPDIR", &kept.folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    // It has been killed and resumed, and now waits for a person who says nothing.
    assert!(lines.any(|line| line.contains("3/9")), "it asks");
    let _says_nothing = child.stdin.take();
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130));
    let told = String::from_utf8(ended.stderr).unwrap();
    assert!(told.contains("stopped half-way"), "{told}");
    assert_eq!(left_in(&kept.folder), Vec::<PathBuf>::new());
}

fn left_in(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}
