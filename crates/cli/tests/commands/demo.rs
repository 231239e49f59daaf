//! `tidegate demo`: the real thing, for a few seconds.

use insta::assert_snapshot;
use serde_json::Value;

use crate::support::{output, run};

#[test]
fn help() {
    assert_snapshot!(run("demo --help", ""), @"
    exit 0
    --- stdout
    See it work: upstreams with limits, the gateway, and clients that know nothing of either

    Starts five mock upstreams whose limits nobody tells the gateway, the gateway itself, and programs
    that send as fast as they are answered. Shows what each gate has learned, who waits and why, and at
    the end what came of it. Everything is on free ports of this machine, and nothing stays behind.

    Usage: tidegate demo [OPTIONS]

    Options:
          --for <DURATION>
              End after so long [default: until Ctrl-C on a terminal, otherwise 60s]

          --port <PORT>
              The gateway's port; 0 is any that is free
              
              [default: 0]

      -h, --help
              Print help (see a summary with '-h')

    Options of every command:
          --config <FILE>
              The settings file [default: tidegate.toml, if it is there]

          --json
              Write for programs: JSON on stdout

      -q, --quiet
              Say only what went wrong

      -v, --verbose...
              Say more on stderr

    On a terminal the picture is drawn in place. Elsewhere a block is written every five seconds, with
    --quiet only the result, and with --json only the result as JSON.

    What naive retries come to is computed at the end: the simulator plays as many clients against the
    same upstreams for as long, in virtual time.

    Examples:
      tidegate demo
      tidegate demo --for 30s --port 7070
      tidegate demo --for 60s --json
    ");
}

#[test]
fn something_is_learned_within_seconds() {
    let output = output("demo --for 3s --json", b"");
    assert_eq!(output.status.code(), Some(0));
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(
        summary["gateway"]
            .as_str()
            .unwrap()
            .starts_with("http://127.0.0.1:")
    );
    let upstreams = summary["upstreams"].as_array().unwrap();
    let names: Vec<&str> = upstreams
        .iter()
        .map(|upstream| upstream["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["steady", "quota", "polite", "slow", "pool"]);
    for upstream in upstreams {
        let number = |name: &str| {
            let number = upstream[name].as_f64();
            number.unwrap_or_else(|| panic!("{name} of {upstream}"))
        };
        assert!(
            number("received") > 0.0 && number("accepted") > 0.0,
            "{upstream}"
        );
        assert!(
            number("learned_per_second") > number("initial_per_second"),
            "{upstream}"
        );
        assert!(number("refused_ratio") <= 1.0 && number("really_per_second") > 0.0);
    }
}

#[test]
fn what_is_shown_without_a_terminal() {
    let output = output("demo --for 1s", b"");
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("tidegate demo, "), "{text}");
    assert!(text.contains("try  curl -i http://127.0.0.1:"), "{text}");
    assert!(text.contains("What was learned in "), "{text}");
    assert!(!text.contains('\x1b'), "{text}");
}

#[test]
fn a_length_that_makes_no_sense() {
    assert_snapshot!(run("demo --for soon", ""), @"
    exit 2
    --- stderr
    error: --for: `soon`: expected a number with a unit such as `500ms`, `30s` or `5m`
    hint: `tidegate demo --for 30s` ends after half a minute
    ");
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_it_with_what_it_came_to() {
    use std::io::{BufRead, BufReader, Read};
    use std::process::Command;

    let mut child = crate::support::tidegate("demo").spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    let kill = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(kill.unwrap().success());
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("What was learned in "), "{rest}");
    assert_eq!(child.wait().unwrap().code(), Some(130));
}
