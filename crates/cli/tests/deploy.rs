//! Tests of `deploy/`: settings pass `tidegate check`, commands are accepted, and every file, volume,
//! port and variable that is named exists. Whether the files mean something to Docker, Kubernetes and
//! systemd is checked by `scripts/make-packages`, with their own tools.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use yaml_rust2::{Yaml, YamlLoader};

#[test]
fn settings_of_the_package_have_no_errors() {
    check(&read("deploy/debian/tidegate.toml"), &[]);
}

#[test]
fn settings_of_a_fleet_have_no_errors() {
    let settings = read("deploy/fleet.toml");
    check(&settings, &FLEET_VARIABLES);
    let names = FLEET_VARIABLES.map(|(name, _)| name.to_owned());
    assert_eq!(references(&settings), names.into());
}

/// What a node gets from its environment.
const FLEET_VARIABLES: [(&str, &str); 3] = [
    ("APP_TOKEN", "0123456789abcdef"),
    ("GATES_URL", "redis://redis:6379"),
    (
        "OPERATIONS_URL",
        "postgres://tidegate:secret@postgres/tidegate?sslmode=disable",
    ),
];

#[test]
fn compose_gives_nodes_what_they_need() {
    let compose = &documents("deploy/compose.yaml")[0];
    let services = compose["services"].as_hash().unwrap();
    let names: Vec<&str> = services.keys().map(text).collect();
    assert_eq!(names, ["tidegate-a", "tidegate-b", "postgres", "redis"]);
    for name in ["tidegate-a", "tidegate-b"] {
        let (own, shared) = (&compose["services"][name], &compose["services"][name]["<<"]);
        let dockerfile = root()
            .join("deploy")
            .join(text(&shared["build"]["context"]));
        assert!(
            dockerfile
                .join(text(&shared["build"]["dockerfile"]))
                .is_file()
        );
        let variables = shared["environment"].as_hash().unwrap();
        let variables: BTreeSet<String> =
            variables.keys().map(|key| text(key).to_owned()).collect();
        assert_eq!(variables, references(&read("deploy/fleet.toml")));
        let services = shared["depends_on"].as_hash().unwrap();
        assert!(
            services
                .keys()
                .all(|service| names.contains(&text(service)))
        );
        for volume in list(&own["volumes"]) {
            let (source, _) = text(volume).split_once(':').unwrap();
            let is_declared = !compose["volumes"][source].is_badvalue();
            let is_file = root().join("deploy").join(source).is_file();
            assert!(is_declared || is_file, "{name} mounts `{source}`");
        }
        assert!(
            read("deploy/fleet.toml").contains(&format!("\"{name}\"")),
            "a host name"
        );
    }
}

#[test]
fn kubernetes_overrides_settings_that_exist() {
    let documents = documents("deploy/kubernetes/fleet.yaml");
    let pod = &documents.last().unwrap()["spec"]["template"]["spec"];
    let node = find_named([&pod["containers"]], "tidegate");
    let overrides = list(&node["env"]).iter();
    let overrides = overrides.map(|one| (text(&one["name"]), text(&one["value"])));
    let variables: Vec<_> = overrides.chain(FLEET_VARIABLES).collect();
    assert!(variables.len() > FLEET_VARIABLES.len());
    check(&read("deploy/fleet.toml"), &variables);
}

#[test]
fn kubernetes_gives_nodes_what_they_need() {
    for file in [
        "deploy/kubernetes/fleet.yaml",
        "deploy/kubernetes/sidecar.yaml",
    ] {
        let documents = documents(file);
        let workload = documents
            .iter()
            .find(|one| !one["spec"]["template"].is_badvalue());
        let spec = &workload.unwrap()["spec"];
        let pod = &spec["template"]["spec"];
        let node = find_named([&pod["containers"], &pod["initContainers"]], "tidegate");
        accepts(&strings(&node["args"]));
        let volumes = [&pod["volumes"], &spec["volumeClaimTemplates"]];
        for mount in list(&node["volumeMounts"]) {
            let name = text(&mount["name"]);
            assert!(has_volume(volumes, name), "{file} mounts `{name}`");
        }
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
            check_probe(node, &node[probe]);
        }
    }
}

/// A probe asks for what the server has, or runs a command that it has.
fn check_probe(node: &Yaml, probe: &Yaml) {
    if let Some(path) = probe["httpGet"]["path"].as_str() {
        assert!(matches!(path, "/healthz" | "/readyz"), "{path}");
        find_named([&node["ports"]], text(&probe["httpGet"]["port"]));
    }
    if let Some((program, args)) = strings(&probe["exec"]["command"]).split_first() {
        assert_eq!(program, "/usr/bin/tidegate");
        accepts(args);
    }
}

fn has_volume<const N: usize>(lists: [&Yaml; N], name: &str) -> bool {
    let mut volumes = lists.into_iter().flat_map(list);
    volumes.any(|volume| {
        [&volume["name"], &volume["metadata"]["name"]].contains(&&Yaml::String(name.to_owned()))
    })
}

#[test]
fn settings_of_a_sidecar_have_no_errors() {
    let documents = documents("deploy/kubernetes/sidecar.yaml");
    let settings = text(&documents[0]["data"]["tidegate.toml"]);
    check(settings, &[("KEY_A", "secret"), ("KEY_B", "secret")]);
    let pod = &documents[1]["spec"]["template"]["spec"];
    let node = find_named([&pod["initContainers"]], "tidegate");
    let variables = list(&node["env"])
        .iter()
        .map(|one| text(&one["name"]).to_owned());
    assert_eq!(references(settings), variables.collect());
}

#[test]
fn dockerfile_copies_and_runs_what_exists() {
    let dockerfile = read("deploy/Dockerfile");
    let copied = dockerfile
        .lines()
        .filter_map(|line| line.strip_prefix("COPY "));
    for line in copied.filter(|line| !line.starts_with("--from")) {
        let source = line.split_whitespace().next().unwrap();
        assert!(root().join(source).exists(), "{source}");
    }
    let settings = dockerfile
        .lines()
        .find_map(|line| line.strip_prefix("ENV TIDEGATE_CONFIG="));
    assert!(
        dockerfile.contains(&format!(" {}\n", settings.unwrap())),
        "it is copied"
    );
    let mut commands = 0;
    for line in dockerfile.lines() {
        let Some((instruction, json)) = line.split_once('[') else {
            continue;
        };
        let words: Vec<String> = serde_json::from_str(&format!("[{json}")).unwrap();
        let args = match instruction.split_whitespace().next() {
            Some("HEALTHCHECK") => &words[1..],
            Some("CMD") => &words,
            _ => continue,
        };
        accepts(args);
        commands += 1;
    }
    assert_eq!(commands, 2);
}

#[test]
fn unit_starts_a_command_that_exists() {
    let unit = read("deploy/systemd/tidegate.service");
    let start = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart=/usr/bin/tidegate "));
    let args: Vec<String> = start
        .unwrap()
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    accepts(&args);
    let manifest = read("crates/cli/Cargo.toml");
    let settings = args.last().unwrap().trim_start_matches('/');
    assert!(
        manifest.contains(&format!("\"{settings}\"")),
        "`{settings}` is not packaged"
    );
}

/// Runs `tidegate check` on settings, with these variables and no others of ours.
#[track_caller]
fn check(settings: &str, variables: &[(&str, &str)]) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tidegate.toml");
    fs::write(&file, settings).unwrap();
    let output = tidegate()
        .args(["check", "--json"])
        .arg(&file)
        .envs(variables.iter().copied())
        .output();
    let report: Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
    let findings = ["problems", "warnings"].map(|kind| report[kind].as_array());
    let findings = findings.into_iter().flatten().flatten();
    let findings: Vec<&Value> = findings.collect();
    assert!(findings.is_empty(), "{findings:#?}");
}

/// The binary knows the command and all of its flags: help comes only after they were parsed.
#[track_caller]
fn accepts(args: &[String]) {
    let output = tidegate().args(args).arg("--help").output().unwrap();
    assert!(
        output.status.success(),
        "{args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn tidegate() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    command.env_clear().env("PATH", path);
    command
}

/// The variables that settings refer to.
fn references(settings: &str) -> BTreeSet<String> {
    let lines = settings.lines().filter(|line| !line.starts_with('#'));
    let references = lines.flat_map(|line| line.split("env:").skip(1));
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    references
        .map(|rest| rest.split(|c| !is_part(c)).next().unwrap().to_owned())
        .collect()
}

fn documents(file: &str) -> Vec<Yaml> {
    let documents = YamlLoader::load_from_str(&read(file));
    documents.unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// The one entry of these lists with this name.
#[track_caller]
fn find_named<'a, const N: usize>(lists: [&'a Yaml; N], name: &str) -> &'a Yaml {
    let entries = lists.into_iter().flat_map(list);
    let mut named = entries.filter(|entry| entry["name"].as_str() == Some(name));
    named
        .next()
        .unwrap_or_else(|| panic!("nothing is called `{name}`"))
}

fn list(node: &Yaml) -> &[Yaml] {
    node.as_vec().map_or(&[], Vec::as_slice)
}

fn strings(node: &Yaml) -> Vec<String> {
    list(node).iter().map(|one| text(one).to_owned()).collect()
}

#[track_caller]
fn text(node: &Yaml) -> &str {
    node.as_str()
        .unwrap_or_else(|| panic!("{node:?} is no text"))
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
