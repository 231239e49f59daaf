//! `tidegate run --explain`: which rule matches a text.

use insta::assert_snapshot;

use crate::support::{shown, tidegate};

fn explain(flags: &str, text: &str) -> String {
    let output = tidegate(&format!("run {flags} --explain"))
        .arg(text)
        .output();
    shown(&output.unwrap())
}

#[test]
fn shows_the_rule_that_decides_and_the_next() {
    let text = "[x] Downloading\nERROR: Private video. Video unavailable";
    assert_snapshot!(explain("--rules yt-dlp", text), @"
    exit 0
    --- stdout
    terminal: rule `private_video`
    reason: the owner has not made the video public
    phrase: `private video` at line 2, column 8
    next: terminal, rule `unavailable`
    ");
    assert_snapshot!(explain("--rules curl --exit-code 7", "curl: (7)"), @"
    exit 0
    --- stdout
    retryable: rule `connect`
    reason: nothing listens at the address at the moment
    exit code: 7
    next: no other rule matches
    ");
}

#[test]
fn shows_when_no_rule_matches() {
    assert_snapshot!(explain("--rules yt-dlp", "-something new"), @"
    exit 0
    --- stdout
    retryable: no rule matches
    by exit code: usage (2), stopped (101)
    ");
    assert_snapshot!(explain("", "anything"), @"
    exit 0
    --- stdout
    retryable: no rule matches
    ");
    assert_snapshot!(explain("--rules yt-dlp --exit-code 0", "Private video"), @"
    exit 0
    --- stdout
    success: no rule matches
    ");
}

#[test]
fn prints_matches_as_json() {
    assert_snapshot!(explain("--json --rules git", "fatal: early EOF"), @r#"
    exit 0
    --- stdout
    {
      "class": "retryable",
      "matches": [
        {
          "class": "retryable",
          "exit": [],
          "phrase": {
            "column": 8,
            "line": 1,
            "text": "early EOF"
          },
          "reason": "the connection ended in the middle of the transfer",
          "rule": "interrupted"
        }
      ]
    }
    "#);
}

#[test]
fn bad_flags_are_refused() {
    assert_snapshot!(explain("--rules ytdlp", "text"), @"
    exit 2
    --- stderr
    error: `--rules` is `ytdlp`, expected a pack (yt-dlp, curl, wget, git, rclone) or a rules file; did you mean `yt-dlp`?
    hint: `tidegate run --help` lists the packs
    ");
    assert_snapshot!(explain("--exit-code 256", "text"), @"
    exit 2
    --- stderr
    error: `--exit-code` is `256`, expected a whole number from 0 to 255
    hint: `tidegate run --help` shows what it takes
    ");
    assert_snapshot!(explain("item", "text"), @"
    exit 2
    --- stderr
    error: `ITEM` cannot be used with `--explain`
    hint: `tidegate run --help` shows what it takes
    ");
    let alone = tidegate("run --exit-code 1 a -- echo {}").output();
    assert_snapshot!(shown(&alone.unwrap()), @"
    exit 2
    --- stderr
    error: `--exit-code` needs `--explain TEXT`
    hint: `tidegate run --help` shows what it takes
    ");
}
