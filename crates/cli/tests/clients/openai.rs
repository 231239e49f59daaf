//! OpenAI's library for Python, against a mock in the style of that API.

use crate::client::{of_python, run, script};
use crate::servers::Servers;

fn python(name: &str, servers: &Servers) {
    run(of_python("python").arg(script(name)).arg(servers.base()));
}

#[test]
fn who_has_no_retries_needs_none() {
    // Whatever pace the gate finds, the fifth is refused.
    let throttling = [
        "--style",
        "openai",
        "--limit",
        "5/s burst 3",
        "--retry-after",
        "--script",
        "200*4,429:1,200",
    ];
    let servers = Servers::start(&throttling, "");
    python("openai_calls.py", &servers);
    let stats = servers.stats();
    assert_eq!(stats["accepted"], 12, "{stats}");
    assert!(stats["refused"].as_u64() >= Some(1), "{stats}");
    assert_eq!(stats["early"], 0, "{stats}");
    servers.end();
}

#[test]
fn errors_are_the_librarys_own() {
    // The first two are wrong, and answered so.
    let script = ["--style", "openai", "--script", "200,200,429:60,200"];
    let servers = Servers::start(&script, "[gate]\ninitial_rate = 1000.0\n");
    python("openai_errors.py", &servers);
    let stats = servers.stats();
    assert_eq!(stats["received"], 3, "{stats}");
    servers.end();
}
