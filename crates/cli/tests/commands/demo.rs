//! `tidegate demo`, run for a few seconds.

use insta::assert_snapshot;
use serde_json::Value;

use crate::support::{output, run};

#[test]
fn help() {
    assert_snapshot!(run("demo --help", ""), @"
    exit 0
    --- stdout
    Watch everything that Tidegate does, within a minute

    Starts mock upstreams, a gateway that is not given their limits, clients that
    send as fast as they get responses, operations and a job. Prints the console's
    address, where a guided tour says what happens; shows what each gate has learned
    and what callers wait for, and a summary at the end. Listens on free ports of
    this machine and leaves no files behind.

    Usage: tidegate demo [OPTIONS]

    Options:
          --for <DURATION>
              Stop after this time [default: on a terminal at Ctrl-C, otherwise 60s]

          --port <PORT>
              Port of the gateway; 0 takes any free port
              
              [default: 0]

      -h, --help
              Print help (see a summary with '-h')

    Global options:
          --json
              Print JSON on stdout

      -q, --quiet
              Print errors only

      -v, --verbose...
              Print more on stderr

    On a terminal the picture is redrawn in place. Elsewhere a block is printed
    every five seconds; with --quiet only the summary, with --json only the summary
    as JSON.

    After a minute the script of the tour rests, and plays again every 90 seconds.

    The summary compares with naive retries: the simulator runs as many clients
    against the same upstreams for the same virtual time.

    Examples:
      tidegate demo
      tidegate demo --for 30s --port 7070
      tidegate demo --for 60s --json
    ");
}

#[test]
fn demo_learns_rates_within_seconds() {
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

/// The one test that takes a real minute: everything that the demo promises has happened by then.
#[test]
fn demo_shows_every_step_within_a_minute() {
    let output = output("demo --for 60s --json", b"");
    assert_eq!(output.status.code(), Some(0));
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    let steps = summary["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 8);
    for step in steps {
        assert_eq!(step["state"], "done", "{steps:#?}");
    }
    let text = |n: usize| steps[n - 1]["text"].as_str().unwrap();
    assert!(text(3).contains("Delivered: 4") && text(3).contains("`rejected`"));
    assert!(text(5).contains("it waits for a decision"));
    assert!(text(7).contains("The script of the demo enabled it"));
    assert!(text(8).contains("waits of 2s, 4s, 8s"), "{}", text(8));
}

#[test]
fn demo_prints_plain_text_without_a_terminal() {
    let output = output("demo --for 1s", b"");
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("tidegate demo, "), "{text}");
    assert!(text.contains("try  curl -i http://127.0.0.1:"), "{text}");
    assert!(text.contains("console  http://127.0.0.1:") && text.contains("/?token="));
    assert!(text.contains("Learned in "), "{text}");
    assert!(!text.contains('\x1b'), "{text}");
}

#[test]
fn demo_rejects_a_bad_duration() {
    assert_snapshot!(run("demo --for soon", ""), @"
    exit 2
    --- stderr
    error: `--for` is `soon`, expected a number with a unit such as `500ms`, `30s` or `5m`
    hint: `tidegate demo --help` shows what it takes
    ");
}

#[cfg(unix)]
#[test]
fn demo_prints_the_summary_at_ctrl_c() {
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
    assert!(rest.contains("Learned in "), "{rest}");
    assert_eq!(child.wait().unwrap().code(), Some(130));
}
