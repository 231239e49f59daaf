//! Settings that a console needs.

use serde_json::json;

use crate::support::{Running, TWO};

#[test]
fn shows_settings_of_the_present_configuration() {
    let toml = format!(
        r#"
        {TWO}
        [poll]
        early = "1s"
        middle = "1500ms"
        give_up_after = "2m"
        [jobs]
        retain = "36h"
        [operation.analytics]
        [operation.bills]
        webhook = {{ url = "https://hooks.example.com/x", secret = "env:PATH" }}
        "#
    );
    let (running, _folder) = Running::new(&toml);
    assert_eq!(
        running.get("/api/v1/settings"),
        json!({
            "poll": {
                "early_ms": 1000, "middle_ms": 1500, "late_ms": 2000, "first_ms": 2000,
                "base_ms": 2000, "max_ms": 15_000, "give_up_after_ms": 120_000, "other_retries": 3,
            },
            "jobs": {
                "retain": "36h", "max_urls": 1_000_000, "max_given_urls": 10_000,
                "depth": 5, "max_depth": 1000,
            },
            "operations": { "types": ["default", "analytics", "bills", "webhook"] },
            "gate": { "throttled_after_ms": 100 },
        })
    );
}
