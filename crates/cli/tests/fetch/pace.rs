//! What the summary says about waits.

use std::fs;

use serde_json::Value;

use crate::server;
use crate::support::{folder, tidegate_fetch};

#[test]
fn counts_waits_at_a_gate_of_five_per_second_as_throttled() {
    let server = server::start(|_| Some(("text/plain", "ok".to_owned())));
    let settings = "[gate]\nstrategy = \"fixed\"\ninitial_rate = 5\n[fetch]\nrobots = false\n";
    let folder = folder(settings);
    let urls = (0..10).map(|n| format!("http://{server}/{n}\n"));
    fs::write(folder.path().join("list"), urls.collect::<String>()).unwrap();
    let output = tidegate_fetch(folder.path(), &["--json", "-i", "list"])
        .output()
        .unwrap();
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["counts"]["fetched"], 10, "{summary}");
    // A process that is late asks for a token that is there already, so not each of nine waits is
    // certain.
    assert!(
        summary["totals"]["throttled"].as_u64() > Some(0),
        "{summary}"
    );
    assert!(summary["elapsed_ms"].as_u64() >= Some(1790), "{summary}");
}
