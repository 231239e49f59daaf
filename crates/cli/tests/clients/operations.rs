//! The examples of the guides to operations and webhooks: with curl and with Python.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;

use crate::client::{of_python, program, run};
use crate::servers::{Servers, TIMEOUT, wait};

fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

/// An example, which its guide shows as it is.
fn example(name: &str, guide: &str) -> PathBuf {
    let guide = fs::read_to_string(in_repository("docs/guide").join(guide)).unwrap();
    let file = in_repository("examples").join(name);
    let text = fs::read_to_string(&file).unwrap();
    assert!(
        guide.contains(&text),
        "the guide does not show examples/{name}"
    );
    file
}

#[test]
fn examples_of_the_guide_deliver_a_request() {
    // The first response is a failure.
    let servers = Servers::start(
        &["--script", "503,200,200"],
        "[backoff.standard]\nbase = \"10ms\"\n",
    );
    let mut ids = Vec::new();
    for (shell, name) in [("sh", "operation.sh"), ("python3", "operation.py")] {
        let output = run(program(shell)
            .arg(example(name, "operations.md"))
            .env("ADMIN", format!("http://{}", servers.admin()))
            .env("TARGET", "/api/echo")
            .env("DATA", servers.folder.path().join("data")));
        let operation: Value = serde_json::from_str(&output.stdout).unwrap();
        assert_eq!(operation["state"], "completed", "{operation}");
        assert_eq!(operation["attempts"].as_array().unwrap().len(), 2);
        ids.push(operation["id"].clone());
    }
    // Both use the same key.
    assert_eq!(ids[0], ids[1]);
    assert_eq!(servers.stats()["received"], 2);
    servers.end();
}

#[test]
fn a_library_of_standard_webhooks_verifies_a_report() {
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let mut receiver = of_python("python")
        .arg(example("webhook_receiver.py", "webhooks.md"))
        .env("HOOK_SECRET", secret)
        .env("PORT", "0")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(receiver.stdout.take().unwrap()).lines();
    let url = lines.next().unwrap().unwrap();
    let servers = Servers::start_with(&[], |folder| {
        let file = folder.join("secret");
        fs::write(&file, secret).unwrap();
        let file = file.display();
        format!(
            "[operation.default]\nwebhook = {{ url = \"{url}/hook\", secret = \"file:{file}\" }}\n"
        )
    });
    run(program("curl")
        .args([
            "--silent",
            "--fail",
            "--header",
            "prefer: respond-async",
            "--data",
            "x",
        ])
        .arg(format!("{}/echo", servers.base())));
    let report: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(report["type"], "operation.completed", "{report}");
    assert_eq!(report["data"]["key"], "/api");
    assert!(wait(&mut receiver, TIMEOUT).success());
    servers.end();
}
