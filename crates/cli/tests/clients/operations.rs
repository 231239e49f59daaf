//! The examples of the guide to operations: with curl and with Python.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::client::{program, run};
use crate::servers::Servers;

fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

#[test]
fn examples_of_the_guide_deliver_a_request() {
    let guide = fs::read_to_string(in_repository("docs/guide/operations.md")).unwrap();
    // The first response is a failure.
    let servers = Servers::start(
        &["--script", "503,200,200"],
        "[backoff.standard]\nbase = \"10ms\"\n",
    );
    let mut ids = Vec::new();
    for (shell, example) in [("sh", "operation.sh"), ("python3", "operation.py")] {
        let file = in_repository("examples").join(example);
        let text = fs::read_to_string(&file).unwrap();
        assert!(
            guide.contains(&text),
            "the guide does not show examples/{example}"
        );
        let output = run(program(shell)
            .arg(&file)
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
