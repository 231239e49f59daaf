//! OpenAI's library for Python, against a mock in the style of that API.

use crate::client::{of_python, run, script};
use crate::servers::Servers;

fn python(name: &str, servers: &Servers) {
    run(of_python("python").arg(script(name)).arg(servers.base()));
}

#[test]
fn openai_client_without_retries_succeeds() {
    // The fifth request is refused, whatever the rate.
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
fn openai_errors_keep_their_types() {
    // The first two are errors.
    let script = ["--style", "openai", "--script", "200,200,429:60,200"];
    let servers = Servers::start(&script, "[gate]\ninitial_rate = 1000.0\n");
    python("openai_errors.py", &servers);
    let stats = servers.stats();
    assert_eq!(stats["received"], 3, "{stats}");
    servers.end();
}
