//! Real failures of curl, Wget and git, classified by their packs.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use app::run::rules::{Class, Exit, RuleSet};

use crate::client::program;
use crate::scripted::{Reply, ScriptedServer};

use Class::{BotCheck, Retryable, Success, Terminal};

/// Answers `/404` with 404 and so on, and fails as the other paths say.
fn server() -> ScriptedServer {
    ScriptedServer::start(
        |path, _| match path.trim_start_matches('/').split('/').next() {
            Some("hang") => Reply::Hang,
            Some("close") => Reply::Close,
            Some("cut") => Reply::Cut,
            Some("loop") => Reply::Loop,
            Some("challenge") => Reply::Challenge,
            Some(status) => Reply::Status(status.parse().unwrap_or(200)),
            None => Reply::Status(200),
        },
    )
}

/// Runs a program and judges it by a pack: the class, and the rule that decided.
#[track_caller]
pub(crate) fn check(pack: &str, command: &mut Command, class: Class, rule: Option<&str>) {
    let output = command.stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| {
        panic!("{command:?}: {error}\nhint: scripts/install-clients installs it")
    });
    let exit = Exit::Code(output.status.code().unwrap());
    let printed = [output.stdout, output.stderr].concat();
    let rules = RuleSet::named(pack).unwrap();
    let judgement = rules.judge(exit, &printed);
    assert_eq!(
        (judgement.class, judgement.rule),
        (class, rule),
        "{command:?} ended with {exit:?}\n{}",
        String::from_utf8_lossy(&printed)
    );
}

#[test]
fn curl_failures_are_classified_by_its_pack() {
    let server = server();
    let curl = |args: &[&str], class, rule: &str| {
        let mut command = program("curl");
        let always = ["--disable", "--silent", "--show-error", "--fail-with-body"];
        command.args(always).args(["--max-time", "50"]).args(args);
        check(
            "curl",
            &mut command,
            class,
            (!rule.is_empty()).then_some(rule),
        );
    };
    for (path, class, rule) in [
        ("/200", Success, ""),
        ("/404", Terminal, "not_found"),
        ("/410", Terminal, "not_found"),
        ("/401", Terminal, "login_required"),
        ("/400", Terminal, "rejected"),
        ("/403", Retryable, "forbidden"),
        ("/429", Retryable, "rate_limited"),
        ("/500", Retryable, "server_error"),
        ("/503", Retryable, "server_error"),
        ("/challenge", BotCheck, "bot_check"),
        ("/close", Retryable, "interrupted"),
        ("/cut", Retryable, "interrupted"),
    ] {
        curl(&[&server.url(path)], class, rule);
    }
    curl(&["--location", &server.url("/loop")], Terminal, "redirects");
    curl(
        &["--max-time", "0.3", &server.url("/hang")],
        Retryable,
        "timeout",
    );
    // Nothing listens on port 1; an HTTP server does not speak TLS.
    curl(&["http://127.0.0.1:1/"], Retryable, "connect");
    let tls = server.url("/").replace("http:", "https:");
    curl(&[&tls], Retryable, "tls_handshake");
    curl(&["http://nonexistent.invalid/"], Retryable, "dns");
    curl(&["http://bad host/"], Terminal, "malformed_url");
    curl(&["nonsense://x/"], Terminal, "unsupported_protocol");
    curl(&["--no-such-option"], Terminal, "usage");
}

#[test]
fn wget_failures_are_classified_by_its_pack() {
    let server = server();
    let wget = |args: &[&str], class, rule: &str| {
        let mut command = program("wget");
        let always = ["--no-config", "--no-verbose", "--tries=1", "--timeout=50"];
        command.env("LC_ALL", "C").args(always);
        command.args(["--content-on-error", "--output-document=-"]);
        command.args(args);
        check(
            "wget",
            &mut command,
            class,
            (!rule.is_empty()).then_some(rule),
        );
    };
    for (path, class, rule) in [
        ("/200", Success, ""),
        ("/404", Terminal, "not_found"),
        ("/400", Terminal, "rejected"),
        ("/403", Retryable, "forbidden"),
        ("/429", Retryable, "rate_limited"),
        ("/503", Retryable, "server_error"),
        ("/challenge", BotCheck, "bot_check"),
        ("/close", Retryable, "network"),
        ("/loop", Terminal, "redirects"),
    ] {
        wget(&[&server.url(path)], class, rule);
    }
    wget(
        &["--timeout=0.3", &server.url("/hang")],
        Retryable,
        "network",
    );
    wget(&["http://127.0.0.1:1/"], Retryable, "network");
    wget(&["http://nonexistent.invalid/"], Retryable, "network");
    wget(&["http://"], Terminal, "malformed_url");
    wget(&["nonsense://x/"], Terminal, "malformed_url");
    wget(&["--no-such-option"], Terminal, "usage");
}

#[test]
fn git_failures_are_classified_by_its_pack() {
    let folder = tempfile::tempdir().unwrap();
    let repository = folder.path().join("repository.git");
    make_repository(&repository);
    let answers = server();
    let files = ScriptedServer::start(move |path, _| {
        let file = path.strip_prefix("/repository.git/");
        match file.and_then(|file| fs::read(repository.join(file)).ok()) {
            Some(bytes) => Reply::File("application/octet-stream", bytes),
            None => Reply::Status(404),
        }
    });
    let mut clones = 0;
    let mut clone = |url: &str, options: &[&str], class, rule: &str| {
        clones += 1;
        let mut command = git();
        command.arg("clone").args(options).arg(url);
        command.arg(folder.path().join(format!("clone-{clones}")));
        check(
            "git",
            &mut command,
            class,
            (!rule.is_empty()).then_some(rule),
        );
    };
    let whole = files.url("/repository.git");
    clone(&whole, &[], Success, "");
    clone(&files.url("/none.git"), &[], Terminal, "not_found");
    clone(&whole, &["--branch=none"], Terminal, "no_branch");
    for (path, class, rule) in [
        ("/404", Terminal, "not_found"),
        ("/401", Terminal, "login_required"),
        ("/403", Retryable, "forbidden"),
        ("/410", Terminal, "gone"),
        ("/429", Retryable, "rate_limited"),
        ("/500", Retryable, "server_error"),
        ("/503", Retryable, "server_error"),
        ("/close", Retryable, "interrupted"),
        ("/cut", Retryable, "interrupted"),
    ] {
        clone(&answers.url(path), &[], class, rule);
    }
    let slow = [
        "--config=http.lowSpeedLimit=1",
        "--config=http.lowSpeedTime=1",
    ];
    clone(&answers.url("/hang"), &slow, Retryable, "timeout");
    clone("http://127.0.0.1:1/x", &[], Retryable, "connect");
    clone("http://nonexistent.invalid/x", &[], Retryable, "dns");
    clone("http://[::1", &[], Terminal, "malformed_url");
    clone("/none/repository", &[], Terminal, "no_local_repository");
    clone("file:///none/repository", &[], Terminal, "no_repository");
}

pub(crate) fn git() -> Command {
    let mut command = program("git");
    let settings = [
        ("LC_ALL", "C"),
        ("GIT_TERMINAL_PROMPT", "0"),
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ];
    command.envs(settings);
    command
}

/// A bare repository with one commit that can be served as files.
pub(crate) fn make_repository(path: &Path) {
    let source = path.with_extension("source");
    let run = |folder: &Path, args: &[&str]| {
        let mut command = git();
        let author = ["-c", "user.name=a", "-c", "user.email=a@example.com"];
        command.args(author).args(args).current_dir(folder);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{command:?}: {output:?}");
    };
    fs::create_dir_all(&source).unwrap();
    run(&source, &["init", "--quiet"]);
    run(
        &source,
        &["commit", "--quiet", "--allow-empty", "--message=one"],
    );
    let (from, to) = (source.to_str().unwrap(), path.to_str().unwrap());
    run(&source, &["clone", "--quiet", "--bare", from, to]);
    run(path, &["update-server-info"]);
}
