//! Help, version and usage errors.

use insta::assert_snapshot;

use crate::support::{output, run, tidegate};

#[test]
fn version() {
    assert_snapshot!(run("--version", ""), @"
    exit 0
    --- stdout
    tidegate 0.1.0
    ");
}

#[test]
fn help() {
    assert_snapshot!(run("--help", ""), @"
    exit 0
    --- stdout
    Send as fast as they will take, never faster

    Usage: tidegate [OPTIONS] <COMMAND>

    Commands:
      demo         Watch everything that Tidegate does, within a minute
      serve        Run the gateway and its admin API
      fetch        Fetch URLs, lists, sitemaps or whole sites
      run          Run a command per item, paced by recent failures
      poll         Follow the status of a job until it ends
      gates        Show the gates of a running server, or override what they decided
      pools        Show, switch, add, remove and test the endpoints of a running
                   server
      ops          Show, add, retry, cancel, resolve, export and move operations
      jobs         Start, follow and cancel fetches and crawls of a running server
      explain      Show every decision about one request of a running server
      health       Ask a running server whether it is alive
      check        Check the settings, and show the worst case of each route
      config       Print the default settings, or the schema of a settings file
      mock         Run a local upstream that limits and fails like real ones
      replay       Run one policy over scripted events in virtual time, a decision
                   per line
      simulate     Simulate clients against a model upstream in virtual time
      completions  Print a completion script for a shell
      man          Print the manual page of a command
      help         Print this message or the help of the given subcommand(s)

    Options:
      -h, --help
              Print help (see a summary with '-h')

      -V, --version
              Print version

    Global options:
          --config <FILE>
              Settings file, for the commands that read one

          --json
              Print JSON on stdout

      -q, --quiet
              Print errors only

      -v, --verbose...
              Print more on stderr

    Examples:
      tidegate demo
      tidegate config default > tidegate.toml
      tidegate check
      tidegate serve
      tidegate fetch https://example.com/ --crawl --out pages
      tidegate run -i urls.txt -- yt-dlp {}
      tidegate poll https://api.example.com/jobs/7
      tidegate replay --policy gate events.jsonl
      tidegate simulate o1 --strategy adaptive,none
      tidegate mock --limit '50/s burst 10' --retry-after

    Exit codes:
        0  done
        1  something failed
        2  usage or configuration, or a bad line of input
       69  refused by the breaker of the upstream
       75  gave up while throttled, or out of time
      130  interrupted
    ");
}

#[test]
fn help_of_replay() {
    assert_snapshot!(run("replay --help", ""), @r#"
    exit 0
    --- stdout
    Run one policy over scripted events in virtual time, a decision per line

    Events are JSON Lines, read from the files in order as one stream, or from
    stdin. Every line gets one line of output at once; `gate` prints extra lines for
    callers that leave the waiting line. It stops at the first bad line.

    Usage: tidegate replay [OPTIONS] --policy <NAME> [FILE]...

    Arguments:
      [FILE]...
              Files of events; `-` or no file is stdin

    Options:
          --policy <NAME>
              Policy to run

              Possible values:
              - gate:          Gates by key: admit, wait until, or refuse
              - backoff:       One item over all its attempts: whether and when it
                is sent again
              - hint:          What a response says about pace
              - classify:      The verdict on a response, and what decided it
              - failure-queue: The gap between attempts, from a queue of recent
                failures
              - protection:    The growing pauses of one endpoint of a pool
              - poll:          Following a job's status: when to ask next, when to
                stop

          --set <KEY=VALUE>
              Setting of the policy, by its name in the configuration; may be
              repeated

          --preset <NAME>
              Preset to start from (policy `backoff`): standard, aggressive,
              conservative, background or crawl; with --config also any
              `[backoff.NAME]`

          --pool <NAME>
              Pool of --config whose protection is replayed (policy `protection`);
              not needed if the file has one pool

          --explain
              Add a field to every line that explains the decision

          --seed <N>
              Seed of the jitter

          --jitter <JITTER>
              Remove the jitter

              Possible values:
              - none: No jitter

      -h, --help
              Print help (see a summary with '-h')

    Global options:
          --config <FILE>
              Settings file whose settings of the policy --set overrides [default:
              none]

          --json
              Print JSON on stdout

      -q, --quiet
              Print errors only

      -v, --verbose...
              Print more on stderr

    Examples:
      # which requests are admitted, and when
      tidegate replay --policy gate --set strategy=aimd events.jsonl

      # the same with the settings of a file, one of them changed
      tidegate replay --policy gate --config tidegate.toml --set max_rate=5 \
          events.jsonl

      # one event at a time
      echo '{"at":0,"acquire":"api.example.com"}' | tidegate replay --policy gate

      # when a failed request is sent again
      echo '{"attempt":1,"status":503}' |
          tidegate replay --policy backoff --preset background

      # what a response says about pace
      echo '{"status":429,"headers":{"retry-after":"90"}}' |
          tidegate replay --policy hint

      # how long to wait after a failed download, and why
      echo '{"at":0,"text":"Read timed out."}' |
          tidegate replay --policy failure-queue --explain

      # an endpoint that is disabled at its third error
      tidegate replay --policy protection --set disable_after=3 attempts.jsonl

      # when to ask for a job's status next
      echo '{"at":0,"status":200,"job":"running","progress":12}' |
          tidegate replay --policy poll
    "#);
}

#[test]
fn help_of_completions() {
    assert_snapshot!(run("completions --help", ""), @r#"
    exit 0
    --- stdout
    Print a completion script for a shell

    Usage: tidegate completions [OPTIONS] <SHELL>

    Arguments:
      <SHELL>  Shell to complete in [possible values: bash, elvish, fish,
               powershell, zsh]

    Options:
      -h, --help  Print help

    Global options:
          --json        Print JSON on stdout
      -q, --quiet       Print errors only
      -v, --verbose...  Print more on stderr

    Examples:
      tidegate completions bash > \
          ~/.local/share/bash-completion/completions/tidegate
      tidegate completions zsh > ~/.zfunc/_tidegate
      tidegate completions fish > ~/.config/fish/completions/tidegate.fish
    "#);
}

#[test]
fn no_arguments_is_a_usage_error_that_shows_help() {
    let output = output("", b"");
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("Usage: tidegate")
    );
}

#[test]
fn help_of_every_command_fits_80_columns_and_has_examples() {
    let mut commands = vec![String::new()];
    let mut count = 0;
    while let Some(command) = commands.pop() {
        count += 1;
        for flag in ["-h", "--help"] {
            // Wider terminals and pipes get the same width.
            for columns in ["80", "200"] {
                let help = help_text(&format!("{command} {flag}"), columns);
                let too_long = help.lines().find(|line| line.chars().count() > 80);
                assert_eq!(too_long, None, "{command} {flag}");
                assert!(help.contains("Examples:\n"), "{command} {flag}");
            }
        }
        commands.extend(subcommands(&command));
    }
    assert!(count > 15, "only {count} commands were found");
}

fn help_text(args: &str, columns: &str) -> String {
    let output = tidegate(args).env("COLUMNS", columns).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{args}");
    String::from_utf8(output.stdout).unwrap()
}

/// The subcommands that the help of a command lists, by their full names.
fn subcommands(command: &str) -> Vec<String> {
    let help = help_text(&format!("{command} -h"), "80");
    let Some((_, list)) = help.split_once("\nCommands:\n") else {
        return Vec::new();
    };
    let names = list.lines().take_while(|line| !line.is_empty());
    names
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(|name| format!("{command} {name}"))
        .collect()
}

#[test]
fn config_is_listed_only_where_it_is_read() {
    for command in [
        "serve",
        "gates",
        "gates list",
        "pools",
        "pools add",
        "explain",
        "check",
        "replay",
        "simulate",
    ] {
        let help = help_text(&format!("{command} -h"), "80");
        assert!(help.contains("--config <FILE>"), "{command}");
    }
    for command in ["demo", "config", "mock", "completions"] {
        let help = help_text(&format!("{command} -h"), "80");
        assert!(!help.contains("--config"), "{command}");
    }
}

#[test]
fn config_is_refused_with_a_reason_where_it_has_no_meaning() {
    for (before, after) in [
        ("--config x mock", "mock --config x"),
        ("--config x demo", "demo --config x"),
    ] {
        assert_eq!(run(before, ""), run(after, ""));
    }
    assert_snapshot!(run("mock --config tidegate.toml", ""), @"
    exit 2
    --- stderr
    error: `tidegate mock` reads no settings file, but `--config` names one
    hint: a mock is an upstream: its limits are flags, or `--scenario FILE`
    ");
    assert_snapshot!(run("demo --config tidegate.toml", ""), @"
    exit 2
    --- stderr
    error: `tidegate demo` reads no settings file, but `--config` names one
    hint: its gateway is not given any limits: that is what it shows
    ");
    assert_snapshot!(run("config default --config tidegate.toml", ""), @"
    exit 2
    --- stderr
    error: `tidegate config` reads no settings file, but `--config` names one
    hint: it prints the defaults; `tidegate check FILE` checks a file
    ");
    assert_snapshot!(run("completions bash --config tidegate.toml", ""), @"
    exit 2
    --- stderr
    error: `tidegate completions` reads no settings file, but `--config` names one
    hint: completions do not depend on settings
    ");
    assert_snapshot!(run("replay --policy hint --config tidegate.toml", ""), @"
    exit 2
    --- stderr
    error: policy `hint` has no settings, but `--config` names a file
    hint: policies `hint` and `classify` have no settings
    ");
    assert_snapshot!(run("replay --policy protection --pool llm", ""), @"
    exit 2
    --- stderr
    error: `--pool` needs `--policy protection` and `--config`
    hint: a setting is written as `--set pauses=30s,60s`, by its name in `[pool.NAME.protection]`
    ");
}

#[test]
fn negative_values_are_errors_that_name_what_was_expected() {
    assert_snapshot!(run("replay --policy gate --seed -1", ""), @"
    exit 2
    --- stderr
    error: `--seed` is `-1`, expected a whole number from 0 to 18446744073709551615
    hint: `tidegate replay --help` shows what it takes
    ");
    assert_snapshot!(run("gates --limit -5", ""), @"
    exit 2
    --- stderr
    error: `--limit` is `-5`, expected a whole number from 1 to 1000
    hint: `tidegate gates --help` shows what it takes
    ");
    assert_snapshot!(run("demo --for -3s", ""), @"
    exit 2
    --- stderr
    error: `--for` is `-3s`, expected a number with a unit such as `500ms`, `30s` or `5m`
    hint: `tidegate demo --help` shows what it takes
    ");
    assert_snapshot!(run("demo --port -1", ""), @"
    exit 2
    --- stderr
    error: `--port` is `-1`, expected a whole number from 0 to 65535
    hint: `tidegate demo --help` shows what it takes
    ");
    assert_snapshot!(run("simulate o1 --seed -1", ""), @"
    exit 2
    --- stderr
    error: `--seed` is `-1`, expected a whole number from 0 to 18446744073709551615
    hint: `tidegate simulate --help` shows what it takes
    ");
    assert_snapshot!(run("simulate o1 --seeds -2", ""), @"
    exit 2
    --- stderr
    error: `--seeds` is `-2`, expected a whole number from 1 to 10000
    hint: `tidegate simulate --help` shows what it takes
    ");
    assert_snapshot!(run("simulate o1 --duration -3s --clients -1", ""), @"
    exit 2
    --- stderr
    error: `--clients` is `-1`, expected a whole number from 1 to 10000
    error: `--duration` is `-3s`, expected a number with a unit such as `500ms`, `30s` or `5m`
    hint: `tidegate simulate --show o1` prints a valid scenario, `--help` shows how flags are written
    ");
    assert_snapshot!(run("mock --seed -1", ""), @"
    exit 2
    --- stderr
    error: `--seed` is `-1`, expected a whole number from 0 to 18446744073709551615
    hint: `tidegate mock --help` shows what it takes
    ");
    assert_snapshot!(run("mock --limit -5 --for -3s --latency -1ms --threads -1 --failure-rate -1", ""), @"
    exit 2
    --- stderr
    error: `--limit` is `-5`, expected a token bucket such as `50/s burst 10`, a fixed window such as `600/1m`, or slots such as `slots 20 100ms queue 200`
    error: `--latency` is `-1ms`, expected a number with a unit such as `500ms`, `30s` or `5m`
    error: `--failure-rate` is `-1`, expected a share from 0 to 1, such as `0.03` or `3%`
    error: `--threads` is `-1`, expected a whole number from 1 to 256
    error: `--for` is `-3s`, expected a number with a unit such as `500ms`, `30s` or `5m`
    hint: `tidegate mock --help` shows how limits, scripts and outages are written
    ");
    assert_snapshot!(run("serve --listen -1", ""), @"
    exit 2
    --- stderr
    error: `--listen` is `-1`, expected an IP address and a port such as `127.0.0.1:7070` or `[::1]:7070`
    hint: `tidegate config default` prints every setting with its default
    ");
}

#[test]
fn missing_values_and_conflicts_are_errors_in_the_same_words() {
    assert_snapshot!(run("demo --for", ""), @"
    exit 2
    --- stderr
    error: `--for` has no value, expected one
    hint: `tidegate demo --help` shows what it takes
    ");
    assert_snapshot!(run("demo --for --json", ""), @"
    exit 2
    --- stderr
    error: `--for` is `--json`, expected a number with a unit such as `500ms`, `30s` or `5m`
    hint: `tidegate demo --help` shows what it takes
    ");
    assert_snapshot!(run("mock --seed 1 --seed 2", ""), @"
    exit 2
    --- stderr
    error: `--seed` is given twice, expected once
    hint: `tidegate mock --help` shows what it takes
    ");
    assert_snapshot!(run("--quiet --verbose demo", ""), @"
    exit 2
    --- stderr
    error: `--quiet` cannot be used with `--verbose`
    hint: `tidegate demo --help` shows what it takes
    ");
    assert_snapshot!(run("gates --limt 5", ""), @"
    exit 2
    --- stderr
    error: `tidegate gates` takes no argument `--limt`
    hint: did you mean `--limit`? `tidegate gates --help` shows all
    ");
    assert_snapshot!(run("gates reset", ""), @"
    exit 2
    --- stderr
    error: `tidegate gates reset` needs `<KEY>...`
    hint: `tidegate gates reset --help` shows what it takes
    ");
    assert_snapshot!(run("check a b", ""), @"
    exit 2
    --- stderr
    error: `tidegate check` takes no argument `b`
    hint: `tidegate check --help` shows what it takes
    ");
}

#[test]
fn unknown_command_is_an_error_with_a_suggestion() {
    assert_snapshot!(run("replya", ""), @"
    exit 2
    --- stderr
    error: `tidegate` has no command `replya`
    hint: did you mean `replay`? `tidegate --help` shows all
    ");
}

#[test]
fn unknown_policy_is_an_error_that_lists_the_known_ones() {
    assert_snapshot!(run("replay --policy weather", ""), @"
    exit 2
    --- stderr
    error: `--policy` is `weather`, expected one of `gate`, `backoff`, `hint`, `classify`, `failure-queue`, `protection`, `poll`
    hint: `tidegate replay --help` shows what it takes
    ");
}

#[test]
fn policy_is_required() {
    assert_snapshot!(run("replay", ""), @"
    exit 2
    --- stderr
    error: `tidegate replay` needs `--policy <NAME>`
    hint: `tidegate replay --help` shows what it takes
    ");
}

#[test]
fn seed_is_a_number() {
    assert_snapshot!(run("replay --policy gate --seed x", ""), @"
    exit 2
    --- stderr
    error: `--seed` is `x`, expected a whole number from 0 to 18446744073709551615
    hint: `tidegate replay --help` shows what it takes
    ");
}

#[test]
fn all_bad_settings_are_reported_in_one_run() {
    assert_snapshot!(
        run(
            "replay --policy gate --set max_rat=8 --set max_rate=x --set burst --set max_wait=30",
            ""
        ),
        @"
        exit 2
        --- stderr
        error: `--set burst` has no `=`, expected KEY=VALUE
        error: `max_rat` is `8`, expected a known setting; did you mean `max_rate`?
        error: `max_rate` is `x`, expected a number of requests per second from 0.000001 to 1000000000
        error: `max_wait` is `30`, expected a number with a unit such as `500ms`, `30s` or `5m`
        hint: a setting is written as `--set max_rate=8`, by its name in the configuration
        "
    );
}

#[test]
fn settings_that_contradict_each_other() {
    assert_snapshot!(
        run("replay --policy gate --set min_rate=5 --set max_rate=1", ""),
        @"
        exit 2
        --- stderr
        error: `min_rate` is `5`, expected at most `max_rate` (1)
        hint: a setting is written as `--set max_rate=8`, by its name in the configuration
        "
    );
}

#[test]
fn settings_of_a_policy_without_any_are_errors() {
    assert_snapshot!(run("replay --policy hint --set max_rate=8", ""), @"
    exit 2
    --- stderr
    error: `max_rate` is not a setting of policy `hint`, which has none
    hint: policies `hint` and `classify` have no settings
    ");
}

#[test]
fn quiet_omits_the_hint() {
    assert_snapshot!(run("replay --policy hint --quiet", "\n"), @"
    exit 2
    --- stderr
    error: line 1 of stdin: blank, expected a JSON object
    ");
}

#[test]
fn verbose_prints_what_was_done() {
    assert_snapshot!(run("--verbose replay --policy hint", "{}\n{}\n"), @r#"
    exit 0
    --- stdout
    {"wait_ms":null}
    {"wait_ms":null}
    --- stderr
    replayed 2 lines
    "#);
}
