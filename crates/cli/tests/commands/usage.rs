//! What the binary says about itself, and about words it does not know.

use insta::assert_snapshot;

use crate::support::{output, run};

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
      demo         See it work: upstreams with limits, the gateway, and clients that know nothing of
                   either
      serve        Stand between a program and the APIs it calls: gateway and admin API
      gates        Show the gates of a running server: rate, line, breaker and hold of each
      pools        Show, enable, disable and test the endpoints of a running server
      explain      Tell every decision about one request of a running server
      check        Check the settings and tell what they come to at worst
      config       Print the default settings, or the schema of a settings file
      mock         Run a local upstream that limits, fails and answers like real ones
      replay       Run one policy over scripted events in virtual time, a decision per line
      simulate     Play clients against a model upstream in virtual time, and tell what that came to
      completions  Print a completion script for a shell
      help         Print this message or the help of the given subcommand(s)

    Options:
      -h, --help
              Print help (see a summary with '-h')

      -V, --version
              Print version

    Options of every command:
          --config <FILE>
              The settings file [default: tidegate.toml, if it is there]

          --json
              Write for programs: JSON on stdout

      -q, --quiet
              Say only what went wrong

      -v, --verbose...
              Say more on stderr

    Examples:
      tidegate demo
      tidegate config default > tidegate.toml
      tidegate check
      tidegate replay --policy gate events.jsonl
      tidegate replay --policy hint < answers.jsonl
      tidegate simulate o1 --strategy adaptive,none
      tidegate mock --limit '50/s burst 10' --retry-after
      tidegate completions bash > ~/.local/share/bash-completion/completions/tidegate

    Exit codes:
        0  done
        1  something failed
        2  usage or configuration, or a bad line of input
      130  interrupted
    ");
}

#[test]
fn help_of_replay() {
    assert_snapshot!(run("replay --help", ""), @r#"
    exit 0
    --- stdout
    Run one policy over scripted events in virtual time, a decision per line

    Events are JSON Lines, read from the files in order as one stream, or from stdin. Every line is
    answered by one line, at once; with `gate`, those who leave a waiting line are told of before the
    event at which that is known. A bad line ends it.

    Usage: tidegate replay [OPTIONS] --policy <NAME> [FILE]...

    Arguments:
      [FILE]...
              Files of events; `-` or none at all is stdin

    Options:
          --policy <NAME>
              The policy to run

              Possible values:
              - gate:          Gates by key: who is admitted, who waits until when, who is refused
              - backoff:       One item over all its attempts: is it sent again, and when
              - hint:          What an answer says about pace
              - classify:      The verdict on an answer, and what decided it
              - failure-queue: The gap between attempts, by a queue of recent failures
              - protection:    The growing pauses of one endpoint of a pool
              - poll:          Following a job's status: when to ask next, when to stop

          --set <KEY=VALUE>
              A setting of the policy, by its name in the configuration; may be repeated

          --preset <NAME>
              Begin with the settings of this preset (`backoff`): standard, aggressive, conservative,
              background or crawl

          --explain
              Say why, in words, as the last field of every line

          --seed <N>
              Fix what is drawn at random, for policies with jitter

          --jitter <JITTER>
              Take jitter away, for policies that have any

              Possible values:
              - none: No jitter

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

    Examples:
      # who would have been admitted, and when
      tidegate replay --policy gate --set strategy=aimd --set max_rate=8 events.jsonl

      # one event at a time
      echo '{"at":0,"acquire":"api.example.com"}' | tidegate replay --policy gate

      # when a failed request is sent again
      echo '{"attempt":1,"status":503}' | tidegate replay --policy backoff --preset background

      # what an answer says about pace
      echo '{"status":429,"headers":{"retry-after":"90"}}' | tidegate replay --policy hint

      # how long to wait after a failed download, and why
      echo '{"at":0,"text":"Read timed out."}' | tidegate replay --policy failure-queue --explain

      # an endpoint that is disabled by its third error
      tidegate replay --policy protection --set pauses=30s,60s --set disable_after=3 attempts.jsonl

      # when to ask for a job's status next
      echo '{"at":0,"status":200,"job":"running","progress":12}' | tidegate replay --policy poll
    "#);
}

#[test]
fn help_of_completions() {
    assert_snapshot!(run("completions --help", ""), @"
    exit 0
    --- stdout
    Print a completion script for a shell

    Usage: tidegate completions [OPTIONS] <SHELL>

    Arguments:
      <SHELL>  The shell to complete in [possible values: bash, elvish, fish, powershell, zsh]

    Options:
      -h, --help  Print help

    Options of every command:
          --config <FILE>  The settings file [default: tidegate.toml, if it is there]
          --json           Write for programs: JSON on stdout
      -q, --quiet          Say only what went wrong
      -v, --verbose...     Say more on stderr

    Examples:
      tidegate completions bash > ~/.local/share/bash-completion/completions/tidegate
      tidegate completions zsh > ~/.zfunc/_tidegate
      tidegate completions fish > ~/.config/fish/completions/tidegate.fish
    ");
}

#[test]
fn nothing_typed_is_a_wrong_usage_that_shows_help() {
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
fn unknown_command() {
    assert_snapshot!(run("replya", ""), @"
    exit 2
    --- stderr
    error: unrecognized subcommand 'replya'

      tip: some similar subcommands exist: 'explain', 'replay'

    Usage: tidegate [OPTIONS] <COMMAND>

    For more information, try '--help'.
    ");
}

#[test]
fn unknown_policy_names_those_there_are() {
    assert_snapshot!(run("replay --policy weather", ""), @"
    exit 2
    --- stderr
    error: invalid value 'weather' for '--policy <NAME>'
      [possible values: gate, backoff, hint, classify, failure-queue, protection, poll]

    For more information, try '--help'.
    ");
}

#[test]
fn policy_is_required() {
    assert_snapshot!(run("replay", ""), @"
    exit 2
    --- stderr
    error: the following required arguments were not provided:
      --policy <NAME>

    Usage: tidegate replay --policy <NAME> [FILE]...

    For more information, try '--help'.
    ");
}

#[test]
fn seed_is_a_number() {
    assert_snapshot!(run("replay --policy gate --seed x", ""), @"
    exit 2
    --- stderr
    error: invalid value 'x' for '--seed <N>': invalid digit found in string

    For more information, try '--help'.
    ");
}

#[test]
fn all_bad_settings_are_told_at_once() {
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
        hint: settings are written as `--set max_rate=8`, by their names in the configuration
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
        hint: settings are written as `--set max_rate=8`, by their names in the configuration
        "
    );
}

#[test]
fn a_policy_without_settings_takes_none() {
    assert_snapshot!(run("replay --policy hint --set max_rate=8", ""), @"
    exit 2
    --- stderr
    error: `max_rate` is not a setting of policy `hint`, which has none
    hint: policies `hint` and `classify` have no settings
    ");
}

#[test]
fn quiet_leaves_the_hint_out() {
    assert_snapshot!(run("replay --policy hint --quiet", "\n"), @"
    exit 2
    --- stderr
    error: line 1 of stdin: blank, expected a JSON object
    ");
}

#[test]
fn verbose_says_what_was_done() {
    assert_snapshot!(run("--verbose replay --policy hint", "{}\n{}\n"), @r#"
    exit 0
    --- stdout
    {"wait_ms":null}
    {"wait_ms":null}
    --- stderr
    replayed 2 lines
    "#);
}
