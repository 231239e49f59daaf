//! What the binary says about itself, and about words it does not know.

use insta::assert_snapshot;

use crate::support::{output, run};

#[test]
fn version() {
    assert_snapshot!(run("--version", ""), @"");
}

#[test]
fn help() {
    assert_snapshot!(run("--help", ""), @"");
}

#[test]
fn help_of_replay() {
    assert_snapshot!(run("replay --help", ""), @"");
}

#[test]
fn help_of_completions() {
    assert_snapshot!(run("completions --help", ""), @"");
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
    assert_snapshot!(run("replya", ""), @"");
}

#[test]
fn unknown_policy_names_those_there_are() {
    assert_snapshot!(run("replay --policy poll", ""), @"");
}

#[test]
fn policy_is_required() {
    assert_snapshot!(run("replay", ""), @"");
}

#[test]
fn seed_is_a_number() {
    assert_snapshot!(run("replay --policy gate --seed x", ""), @"");
}

#[test]
fn all_bad_settings_are_told_at_once() {
    assert_snapshot!(
        run(
            "replay --policy gate --set max_rat=8 --set max_rate=x --set burst --set max_wait=30",
            ""
        ),
        @""
    );
}

#[test]
fn settings_that_contradict_each_other() {
    assert_snapshot!(
        run("replay --policy gate --set min_rate=5 --set max_rate=1", ""),
        @""
    );
}

#[test]
fn a_policy_without_settings_takes_none() {
    assert_snapshot!(run("replay --policy hint --set max_rate=8", ""), @"");
}

#[test]
fn quiet_leaves_the_hint_out() {
    assert_snapshot!(run("replay --policy hint --quiet", "\n"), @"");
}

#[test]
fn verbose_says_what_was_done() {
    assert_snapshot!(run("--verbose replay --policy hint", "{}\n{}\n"), @"");
}
