//! Tests of the container image's steps, the npm packages and the other files in `packaging/`. No
//! test needs a container engine.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use serde_json::Value;
use throughline_testkit::{Folder, skip, workspace_root};

use crate::support::serving::GatewayProcess;

/// Returns the instructions of the Dockerfile's last stage, with continued lines joined.
fn image_instructions() -> Vec<(String, String)> {
    let text = fs::read_to_string(workspace_root().join("Dockerfile")).unwrap();
    let text = text.replace("\\\n", " ");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let instructions = lines.filter_map(|line| line.split_once(' '));
    let all: Vec<(String, String)> =
        instructions.map(|(name, rest)| (name.to_owned(), rest.trim().to_owned())).collect();
    let last = all.iter().rposition(|(name, _)| name == "FROM").unwrap();
    all[last..].to_vec()
}

fn instruction(name: &str) -> String {
    let found = image_instructions().into_iter().find(|(found, _)| found == name);
    found.unwrap_or_else(|| panic!("the image has no {name}")).1
}

fn arguments(name: &str) -> Vec<String> {
    let text = instruction(name);
    serde_json::from_str(&text[text.find('[').unwrap()..]).unwrap()
}

fn port_of(serving: &GatewayProcess) -> String {
    serving.address.rsplit(':').next().unwrap().to_owned()
}

fn healthcheck(port: &str) -> bool {
    let script = workspace_root().join("packaging/docker/healthcheck");
    Command::new(script).arg(port).output().unwrap().status.success()
}

/// Other builds do not have the feature, because the AWS SDK takes long to compile.
#[test]
fn published_binaries_include_the_aws_sdk() {
    for (file, setting) in [
        ("Dockerfile", "--package throughline-cli --features aws"),
        (".github/workflows/release.yml", "scripts/dist --features aws"),
        ("pyproject.toml", "features = [\"aws\"]"),
    ] {
        let text = fs::read_to_string(workspace_root().join(file)).unwrap();
        assert!(text.contains(setting), "{file}");
    }
}

#[test]
fn image_starts_as_shipped() {
    // The image's user is not root, owns the volume, and starts the gateway on all interfaces.
    assert_eq!(instruction("USER"), "10001:10001");
    assert_eq!(instruction("VOLUME"), "/var/lib/throughline");
    assert_eq!(instruction("EXPOSE"), "4400");
    assert_eq!(arguments("ENTRYPOINT"), ["throughline"]);
    assert!(instruction("HEALTHCHECK").ends_with(r#"CMD ["throughline-healthcheck"]"#));
    assert!(instruction("RUN").contains("useradd --system --uid 10001"));
    let copied: Vec<String> = image_instructions()
        .into_iter()
        .filter_map(|(name, rest)| (name == "COPY").then_some(rest))
        .collect();
    assert_eq!(
        copied,
        [
            "--from=build /src/target/dist/throughline /usr/local/bin/throughline",
            "packaging/docker/healthcheck /usr/local/bin/throughline-healthcheck",
        ]
    );
    let command = arguments("CMD");
    assert_eq!(command[..3], ["serve", "--listen", "0.0.0.0:4400"]);
    // Run the image's command on a folder in place of the volume and on a free port.
    let folder = Folder::new("packaging-image");
    let volume = folder.to_str().unwrap();
    let rest: Vec<String> =
        command[3..].iter().map(|part| part.replace("/var/lib/throughline", volume)).collect();
    let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
    let mut serving = GatewayProcess::start_at("0.0.0.0:0", &folder, &[], &rest);
    let port = port_of(&serving);
    assert!(healthcheck(&port), "{}", serving.errors());
    let file = folder.join("first-key");
    let key = fs::read_to_string(&file).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!serving.errors().contains(key.trim()), "the key is in the log");
    let body = r#"{"model":"sim/claude-sonnet-4-5","max_tokens":20,"messages":[{"role":"user","content":"Hello"}]}"#;
    let refused = serving.send("POST", "/v1/messages", "", body);
    assert!(refused.starts_with("HTTP/1.1 401"), "{refused}");
    let credentials = format!("x-api-key: {}\r\n", key.trim());
    let served = serving.send("POST", "/v1/messages", &credentials, body);
    assert!(served.starts_with("HTTP/1.1 200"), "{served}");
    assert_eq!(serving.stop(), 0, "{}", serving.errors());
    assert!(!healthcheck(&port));
    // The next start keeps the key and creates none.
    let mut serving = GatewayProcess::start_at("0.0.0.0:0", &folder, &[], &rest);
    assert_eq!(fs::read_to_string(&file).unwrap(), key);
    assert_eq!(serving.stop(), 0, "{}", serving.errors());
}

#[test]
fn npm_package_runs_the_binary_of_its_platform() {
    let (os, cpu, target) = match (std::env::consts::OS, std::env::consts::ARCH) {
        ("linux", "x86_64") => ("linux", "x64", "x86_64-unknown-linux-gnu"),
        ("linux", "aarch64") => ("linux", "arm64", "aarch64-unknown-linux-gnu"),
        ("macos", "x86_64") => ("darwin", "x64", "x86_64-apple-darwin"),
        ("macos", "aarch64") => ("darwin", "arm64", "aarch64-apple-darwin"),
        _ => return skip("no npm package for this platform"),
    };
    if Command::new("node").arg("--version").output().is_err() {
        return skip("Node: install it to test the npm packages");
    }
    let folder = Folder::new("packaging-npm");
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).current_dir(&*folder).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    // An archive as the release workflow packs it, with a script in place of the binary.
    let name = format!("throughline-{target}");
    let inside = folder.join(&name);
    fs::create_dir(&inside).unwrap();
    for file in ["LICENSE-APACHE", "LICENSE-MIT"] {
        fs::copy(workspace_root().join(file), inside.join(file)).unwrap();
    }
    let binary = inside.join("throughline");
    fs::write(&binary, "#!/bin/sh\necho \"ran $*\"\nexit 3\n").unwrap();
    fs::set_permissions(&binary, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(run("tar", &["-czf", &format!("{name}.tar.gz"), &name]).0, Some(0));
    let build = workspace_root().join("packaging/npm/build.mjs");
    let build = build.to_str().unwrap();
    assert_eq!(run("node", &[build, "1.2.3", ".", "packages"]).0, Some(0));
    let read = |path: &str| -> Value {
        let text = fs::read_to_string(folder.join("packages").join(path)).unwrap();
        serde_json::from_str(&text).unwrap()
    };
    let platform = read(&format!("{os}-{cpu}/package.json"));
    let scoped = format!("@throughline/{os}-{cpu}");
    assert_eq!(platform["name"], scoped);
    assert_eq!(platform["version"], "1.2.3");
    let main = read("throughline/package.json");
    assert_eq!(main["optionalDependencies"], serde_json::json!({ scoped.clone(): "1.2.3" }));
    // Install both packages, as npm does.
    let modules = folder.join("node_modules");
    fs::create_dir_all(modules.join("@throughline")).unwrap();
    let packages = folder.join("packages");
    fs::rename(packages.join(format!("{os}-{cpu}")), modules.join(&scoped)).unwrap();
    fs::rename(packages.join("throughline"), modules.join("throughline")).unwrap();
    let script = "node_modules/throughline/bin/throughline.js";
    let (code, printed) = run("node", &[script, "audit", "a b"]);
    assert_eq!((code, printed.as_str()), (Some(3), "ran audit a b\n"));
    fs::remove_dir_all(modules.join(&scoped)).unwrap();
    assert_eq!(run("node", &[script, "audit"]).0, Some(1));
}

#[test]
fn packaging_files_pass_the_tools_that_are_installed() {
    let output = Command::new(workspace_root().join("scripts/packaging")).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}\n{errors}");
    for tool in printed.lines().filter_map(|line| line.strip_prefix("skipped: ")) {
        skip(&format!("{tool}: install it to check the files in packaging/"));
    }
}

#[test]
fn chart_image_and_unit_agree() {
    let read = |path: &str| fs::read_to_string(workspace_root().join(path)).unwrap();
    let chart = read("packaging/helm/throughline/Chart.yaml");
    let version = env!("CARGO_PKG_VERSION");
    assert!(chart.contains(&format!("\nversion: {version}\n")), "{chart}");
    assert!(chart.contains(&format!("\nappVersion: \"{version}\"\n")), "{chart}");
    // The pod starts the image's own command, as the image's user, with the probes of the gateway.
    let workload = read("packaging/helm/throughline/templates/workload.yaml");
    let arguments = arguments("CMD");
    let arguments = arguments.iter().map(|part| format!("\"{part}\"")).collect::<Vec<_>>();
    let user = instruction("USER");
    let (user, group) = user.split_once(':').unwrap();
    for expected in [
        format!("args: [{}]", arguments.join(", ")),
        format!("runAsUser: {user}"),
        format!("runAsGroup: {group}"),
        format!("containerPort: {}", instruction("EXPOSE")),
        "path: /healthz".to_owned(),
        "path: {{ .Values.readinessPath }}".to_owned(),
    ] {
        assert!(workload.contains(&expected), "{expected} is not in {workload}");
    }
    // Every value is used by a template, and every value in a template exists.
    let values = read("packaging/helm/throughline/values.yaml");
    let schema: Value =
        serde_json::from_str(&read("packaging/helm/throughline/values.schema.json")).unwrap();
    let templates = workspace_root().join("packaging/helm/throughline/templates");
    let templates: String = fs::read_dir(templates)
        .unwrap()
        .map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap())
        .collect();
    let declared = values.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()));
    for key in declared.map(|line| line.split(':').next().unwrap()) {
        assert!(templates.contains(&format!(".Values.{key}")), "no template uses {key}");
        assert!(schema["properties"][key].is_object(), "the schema has no {key}");
    }
    for used in templates.split(".Values.").skip(1) {
        let end = used.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(used.len());
        let key = &used[..end];
        assert!(values.contains(&format!("\n{key}:")), "values.yaml has no {key}");
    }
    let unit = read("packaging/throughline.service");
    for setting in ["NoNewPrivileges=yes", "ProtectSystem=strict", "DynamicUser=yes"] {
        assert!(unit.lines().any(|line| line == setting), "{setting}");
    }
}
