//! Tests of the rules and of every pack.

use std::collections::BTreeSet;

use super::*;

fn rule(class: Class, any: &[&'static str], exits: &[i32]) -> Rule {
    Rule {
        any: any.iter().copied().map(Cow::Borrowed).collect(),
        exits: exits.to_vec(),
        ..Rule::new("rule", class, "a test asks for it")
    }
}

fn check(text: &str, class: Class, name: Option<&str>) {
    let rules = Rules::pack("yt-dlp").unwrap();
    for judgement in [
        rules.judge_text(text.as_bytes()),
        rules.judge(Exit::Code(1), text.as_bytes()),
    ] {
        assert_eq!(judgement.class, class, "{text}");
        assert_eq!(judgement.rule().map(|rule| &*rule.name), name, "{text}");
    }
}

#[test]
fn final_errors_are_terminal() {
    for (text, name) in [
        (
            "ERROR: [youtube] x: Private video. Sign in",
            "private_video",
        ),
        ("PRIVATE VIDEO", "private_video"),
        (
            "This video has been removed for violating YouTube's Terms of Service",
            "terms_violation",
        ),
        (
            "Video unavailable. This content isn't available",
            "unavailable",
        ),
        (
            "Sign in to confirm your age. This video may be inappropriate for some users.",
            "age_restricted",
        ),
        ("this video is age-restricted", "age_restricted"),
        (
            "ERROR: Requested format is not available. Use --list-formats",
            "invalid_format",
        ),
    ] {
        check(text, Class::Terminal, Some(name));
    }
}

#[test]
fn bot_check_has_its_own_class_and_is_a_failure() {
    for text in [
        "Sign in to confirm you're not a bot",
        "Sign in to confirm you\u{2019}re not a bot. Use --cookies",
        "sign in to confirm you are NOT A BOT",
    ] {
        check(text, Class::BotCheck, Some("bot_check"));
    }
    assert!(Class::BotCheck.is_failure());
    check("I am not a bot", Class::Retryable, None);
}

#[test]
fn unknown_texts_are_retryable() {
    for text in [
        "",
        "Read timed out.",
        "tlsv1 alert protocol version",
        "Videos unavailable",
        "private videos",
    ] {
        check(text, Class::Retryable, None);
    }
}

#[test]
fn network_failures_are_retryable() {
    let timeout = "Unable to download webpage: timed out (caused by TransportError('timed out'))";
    check(timeout, Class::Retryable, Some("network"));
    check(
        "HTTP Error 403: Forbidden",
        Class::Retryable,
        Some("forbidden"),
    );
}

/// YouTube's message for a limited session starts like the one for a removed video.
#[test]
fn limited_session_is_retryable() {
    check(
        "Video unavailable. This content isn't available, try again later. Your account has been \
         rate-limited by YouTube for up to an hour.",
        Class::Retryable,
        Some("session_rate_limited"),
    );
    check(
        "Video unavailable. YouTube is requiring a captcha challenge before playback",
        Class::BotCheck,
        Some("captcha"),
    );
}

#[test]
fn first_matching_rule_wins() {
    check(
        "Private video. Video unavailable",
        Class::Terminal,
        Some("private_video"),
    );
    let rules = Rules::new(vec![
        rule(Class::Success, &["already downloaded"], &[]),
        rule(Class::Terminal, &["downloaded"], &[]),
        rule(Class::BotCheck, &[], &[]),
    ]);
    let judge = |output| rules.judge(Exit::Code(1), output);
    assert_eq!(judge(b"already downloaded").class, Class::Success);
    assert_eq!(judge(b"not downloaded").class, Class::Terminal);
    assert_eq!(judge(b"else").rule(), None);
    assert_eq!(rules.rules().len(), 3);
    let matches: Vec<_> = rules.matches(None, b"already downloaded").collect();
    assert_eq!(matches.len(), 2);
    let found = matches[1].found.clone().unwrap();
    assert_eq!((found.phrase, found.place), ("downloaded", 8..18));
}

#[test]
fn text_and_exit_code_must_both_match() {
    let rules = Rules::new(vec![rule(Class::Terminal, &["error: 404"], &[22])]);
    let class = |exit, output: &str| rules.judge(exit, output.as_bytes()).class;
    assert_eq!(class(Exit::Code(22), "error: 404"), Class::Terminal);
    assert_eq!(class(Exit::Code(22), "error: 503"), Class::Retryable);
    assert_eq!(class(Exit::Code(1), "error: 404"), Class::Retryable);
    assert_eq!(rules.judge_text(b"error: 404").class, Class::Terminal);
}

#[test]
fn exit_code_alone_is_a_condition() {
    let rules = Rules::new(vec![
        rule(Class::Terminal, &[], &[3, 60]),
        rule(Class::BotCheck, &["captcha"], &[0]),
    ]);
    let class = |code, output: &str| rules.judge(Exit::Code(code), output.as_bytes()).class;
    assert_eq!(class(60, ""), Class::Terminal);
    assert_eq!(class(7, ""), Class::Retryable);
    assert_eq!(class(0, "fine"), Class::Success);
    assert_eq!(class(0, "solve this captcha"), Class::BotCheck);
    assert_eq!(rules.judge_text(b"anything").rule(), None);
}

#[test]
fn exit_code_0_is_a_success_whatever_was_printed() {
    let rules = Rules::pack("yt-dlp").unwrap();
    let judgement = rules.judge(Exit::Code(0), b"WARNING: Private video");
    assert_eq!(judgement.class, Class::Success);
    assert_eq!(judgement.rule(), None);
}

#[test]
fn signal_and_timeout_are_retryable_whatever_was_printed() {
    let rules = Rules::pack("yt-dlp").unwrap();
    for exit in [Exit::Signal(9), Exit::TimedOut] {
        let judgement = rules.judge(exit, b"ERROR: Private video");
        assert_eq!(judgement.class, Class::Retryable);
        assert_eq!(judgement.rule(), None);
    }
}

#[test]
fn no_output_is_a_condition() {
    let silent = Rule {
        no_output: true,
        ..rule(Class::Terminal, &[], &[])
    };
    let rules = Rules::new(vec![silent]);
    let class = |code, output: &str| rules.judge(Exit::Code(code), output.as_bytes()).class;
    assert_eq!(class(1, " \n"), Class::Terminal);
    assert_eq!(class(1, "why"), Class::Retryable);
    assert_eq!(class(0, ""), Class::Success);
}

#[test]
fn every_rule_of_every_pack_matches_its_sample_first() {
    for name in PACKS {
        let pack = Rules::pack(name).unwrap();
        let mut names = BTreeSet::new();
        for rule in pack.rules() {
            let sample = rule.sample.as_deref().unwrap();
            let exit = rule.exits.first().copied().unwrap_or(1);
            let judged = pack.judge(Exit::Code(exit), sample.as_bytes());
            assert_eq!(judged.rule(), Some(rule), "{name}: {sample}");
            assert!(names.insert(&rule.name), "{name}: `{}` twice", rule.name);
            let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            assert!(rule.name.chars().all(is_word), "{name}: {}", rule.name);
            assert!(rule.reason.len() > 10, "{name}: {}", rule.name);
        }
    }
    assert_eq!(Rules::pack("yt_dlp"), None);
}

#[test]
fn only_retryable_and_bot_check_are_failures() {
    for (class, is_failure) in [
        (Class::Success, false),
        (Class::Retryable, true),
        (Class::Terminal, false),
        (Class::BotCheck, true),
    ] {
        assert_eq!(class.is_failure(), is_failure, "{}", class.as_str());
    }
}
