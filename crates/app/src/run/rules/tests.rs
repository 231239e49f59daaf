//! Tests of rule sets: judgements, rule files, explanations.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::redact;

fn judged(rules: &RuleSet, exit: Exit, output: &str) -> String {
    let Judgement {
        class,
        rule,
        reason,
        text,
    } = rules.judge(exit, output.as_bytes());
    format!("{class} {} | {reason} | {text}", rule.unwrap_or("-"))
}

#[track_caller]
fn check_problems(file: &str, expected: &[&str]) {
    let problems = RuleSet::parse("rules.toml", file.as_bytes()).unwrap_err();
    let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(problems, expected);
}

#[test]
fn without_rules_the_exit_code_decides() {
    let rules = RuleSet::default();
    for (exit, expected) in [
        (Exit::Code(0), "success - | exit code 0 | last"),
        (Exit::Code(3), "retryable - | exit code 3 | last"),
        (Exit::Signal(9), "retryable - | ended by signal 9 | last"),
        (
            Exit::TimedOut,
            "retryable - | took longer than an attempt may | last",
        ),
    ] {
        assert_eq!(judged(&rules, exit, "first\nlast\n"), expected);
    }
    assert_eq!(rules.name(), "");
}

#[test]
fn a_judgement_has_reason_and_deciding_line() {
    let rules = RuleSet::load("yt-dlp").unwrap();
    assert_eq!(rules.name(), "yt-dlp");
    assert_eq!(
        judged(
            &rules,
            Exit::Code(1),
            "[x] Downloading\n\x1b[0;31mERROR:\x1b[0m [x] 1: \x1b[1mPrivate video\x1b[0m\n1 failed\n"
        ),
        "terminal private_video | the owner has not made the video public | \
         ERROR: [x] 1: Private video"
    );
    assert_eq!(
        judged(&rules, Exit::Code(1), "ERROR: something new\ndone\n"),
        "retryable - | exit code 1, and no rule matches | ERROR: something new"
    );
}

#[test]
fn unknown_packs_are_refused_with_a_list() {
    let problem = |name: &str| RuleSet::load(name).unwrap_err()[0].to_string();
    assert_eq!(
        problem("ytdlp"),
        format!(
            "--rules: `ytdlp`: expected a pack ({}) or a rules file; did you mean `yt-dlp`?",
            PACKS.join(", ")
        )
    );
    assert!(problem("aria2c").ends_with("or a rules file"));
    let unreadable = problem("none/rules.toml");
    assert!(
        unreadable.starts_with("none/rules.toml: cannot read the rules: No such file"),
        "{unreadable}"
    );
}

#[test]
fn rules_of_a_file_come_before_those_of_its_base() {
    let file = r#"
base = "yt-dlp"

[[rule]]
name = "members"
text = ["members-only content", "join this channel"]
class = "terminal"
reason = "only members may see it"
sample = "ERROR: Join this channel to get access"

[[rule]]
name = "private_video"
all = ["private video", "soon"]
class = "retryable"

[[rule]]
name = "nothing_new"
exit = 101
class = "success"

[[rule]]
name = "silent"
exit = [3, 4]
no_output = true
class = "bot_check"
"#;
    let rules = RuleSet::parse("rules.toml", file.as_bytes()).unwrap();
    for (code, output, expected) in [
        (
            1,
            "Join this channel",
            "terminal members | only members may see it | Join this channel",
        ),
        (
            1,
            "private video, public soon",
            "retryable private_video | as rule `private_video` says | private video, public soon",
        ),
        (
            1,
            "private video",
            "retryable - | exit code 1, and no rule matches | private video",
        ),
        (
            101,
            "",
            "success nothing_new | as rule `nothing_new` says | ",
        ),
        (4, " \n", "bot_check silent | as rule `silent` says | "),
        (
            1,
            "Video unavailable",
            "terminal unavailable | the site does not offer the video | Video unavailable",
        ),
    ] {
        assert_eq!(judged(&rules, Exit::Code(code), output), expected);
    }
}

#[test]
fn every_problem_of_a_file_is_reported_with_its_place() {
    check_problems(
        r#"
base = "yt"
[[rule]]
name = "a b"
text = ["", 5, "--"]
class = "fatal"
[[rule]]
exit = [22, 300]
clas = "terminal"
[[rule]]
name = "idle"
class = "terminal"
[[rule]]
name = "list"
text = []
class = "terminal"
no_output = 1
"#,
        &[
            "rules.toml:2:8: `base` is `yt`, expected `yt-dlp`, `curl`, `wget`, `git` or `rclone`",
            "rules.toml:4:8: `rule[0].name` is `a b`, expected up to 64 letters, digits, \
             `-`, `_` and `.`",
            "rules.toml:5:9: `rule[0].text[0]` is ``, expected a phrase with a letter or a digit",
            "rules.toml:5:13: `rule[0].text[1]` is `5`, expected a string such as `\"not \
             found\"`, not a whole number",
            "rules.toml:5:16: `rule[0].text[2]` is `--`, expected a phrase with a letter or \
             a digit",
            "rules.toml:6:9: `rule[0].class` is `fatal`, expected `success`, `retryable`, \
             `terminal` or `bot_check`",
            "rules.toml:7:1: `rule[1].name` is missing, expected a word such as `not_found`",
            "rules.toml:7:1: `rule[1].class` is missing, expected `success`, `retryable`, \
             `terminal` or `bot_check`",
            "rules.toml:8:13: `rule[1].exit[1]` is `300`, expected a whole number from 0 to 255",
            "rules.toml:9:1: `rule[1].clas`: unknown setting; did you mean `class`?",
            "rules.toml:10:1: `rule[2]`: matches nothing, expected `text`, `all`, `exit` or \
             `no_output`",
            "rules.toml:15:8: `rule[3].text` is empty, expected at least one value",
            "rules.toml:17:13: `rule[3].no_output` is `1`, expected `true` or `false`, not a \
             whole number",
        ],
    );
}

#[test]
fn a_file_must_have_rules_and_names_must_differ() {
    check_problems(
        "",
        &["rules.toml:1:1: has no rules, expected a table `[[rule]]` or `base = \"yt-dlp\"`"],
    );
    check_problems(
        "rule = 5",
        &["rules.toml:1:8: `rule` is `5`, expected a list of tables"],
    );
    check_problems(
        "[[rule]]\nname = \"a\"\nexit = 1\nclass = \"terminal\"\n\
         [[rule]]\nname = \"a\"\nexit = 2\nclass = \"terminal\"\n",
        &["rules.toml:6:8: `rule[1].name`: another rule is called `a`, expected a name of its own"],
    );
}

#[test]
fn samples_are_checked() {
    check_problems(
        "[[rule]]\nname = \"a\"\ntext = \"not found\"\nclass = \"terminal\"\n\
         [[rule]]\nname = \"b\"\ntext = \"page\"\nclass = \"terminal\"\nsample = \"page not found\"\n\
         [[rule]]\nname = \"c\"\ntext = \"gone\"\nclass = \"terminal\"\nsample = \"bygone\"\n",
        &[
            "rules.toml:9:10: `rule[1].sample`: rule `a` matches this sample first",
            "rules.toml:14:10: `rule[2].sample`: no rule matches this sample, \
             expected this rule to",
        ],
    );
}

#[test]
fn explains_which_rule_matches_and_which_is_next() {
    let rules = RuleSet::named("yt-dlp").unwrap();
    assert_eq!(
        rules
            .explain(None, "one\nö: Private video. Video unavailable")
            .to_string(),
        "terminal: rule `private_video`\n\
         reason: the owner has not made the video public\n\
         phrase: `private video` at line 2, column 4\n\
         next: terminal, rule `unavailable`"
    );
    assert_eq!(
        rules.explain(Some(1), "something new").to_string(),
        "retryable: no rule matches"
    );
    let file = "[[rule]]\nname = \"gone\"\ntext = \"gone\"\nexit = [22, 23]\nclass = \"terminal\"\n\
                [[rule]]\nname = \"dns\"\nexit = 6\nclass = \"retryable\"\n";
    let rules = RuleSet::parse("f", file.as_bytes()).unwrap();
    assert_eq!(
        rules.explain(None, "gone").to_string(),
        "terminal: rule `gone`\nreason: as rule `gone` says\n\
         phrase: `gone` at line 1, column 1\nexit code: 22, 23\nnext: no other rule matches"
    );
    assert_eq!(
        rules.explain(None, "else").to_string(),
        "retryable: no rule matches\nby exit code: dns (6)"
    );
    assert_eq!(
        rules.explain(Some(6), "else").to_string(),
        "retryable: rule `dns`\nreason: as rule `dns` says\nexit code: 6\n\
         next: no other rule matches"
    );
}

#[test]
fn the_example_of_the_guide_is_right() {
    let example = include_str!("../../../../../examples/run-rules.toml");
    let guide = include_str!("../../../../../docs/guide/run-rules.md");
    assert!(guide.contains(example), "the guide shows an older example");
    let rules = RuleSet::parse("run-rules.toml", example.as_bytes()).unwrap();
    let judge = |code, output: &str| {
        let judgement = rules.judge(Exit::Code(code), output.as_bytes());
        (judgement.class, judgement.rule.map(str::to_owned))
    };
    let rule = |class, name: &str| (class, Some(name.to_owned()));
    assert_eq!(judge(0, "Sold out!"), rule(Class::Terminal, "sold_out"));
    assert_eq!(judge(0, "in stock"), (Class::Success, None));
    assert_eq!(
        judge(22, "curl: (22) The requested URL returned error: 403"),
        rule(Class::Terminal, "forbidden")
    );
    assert_eq!(judge(6, ""), rule(Class::Retryable, "dns"));
}

proptest! {
    /// Programs print anything, and people may write anything into a file.
    #[test]
    fn any_output_and_any_file_are_handled(
        output in vec(prop_oneof![any::<u8>(), Just(0x1b), Just(b'['), Just(b'\n')], 0..400),
        code in 0..256_i32,
        file in ".{0,200}",
    ) {
        for pack in PACKS {
            let rules = RuleSet::named(pack).unwrap();
            let judgement = rules.judge(Exit::Code(code), &output);
            prop_assert!(judgement.text.chars().count() <= redact::MAX_SHOWN + 1);
            prop_assert!(!judgement.text.chars().any(char::is_control));
            let text = String::from_utf8_lossy(&output);
            let explanation = rules.explain(Some(code), &text);
            prop_assert_eq!(explanation.matches.is_empty(), judgement.rule.is_none());
            prop_assert!(!explanation.to_string().is_empty());
        }
        if let Err(problems) = RuleSet::parse("f", file.as_bytes()) {
            prop_assert!(!problems.is_empty());
        }
    }
}
