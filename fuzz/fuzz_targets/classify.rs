//! Judging an answer never panics, and the built-in order holds.

#![no_main]

mod answer;

use libfuzzer_sys::fuzz_target;
use policy::classify::{self, Because, HeaderRule, Rule};
use policy::hint;
use policy::outcome::Verdict;

fuzz_target!(|raw: &[u8]| {
    let response = answer::parse(raw);
    let hint = hint::read(&response, None);
    let judgement = classify::response(&[], &response, &hint);
    assert_eq!(judgement.verdict.is_none(), response.status < 200);
    assert!(!judgement.because.to_string().is_empty());
    if judgement.verdict == Some(Verdict::Success) {
        assert!((200..400).contains(&response.status));
    }
    if let Because::Text(_) = judgement.because {
        assert!((400..500).contains(&response.status));
    }
    // A rule made of pieces of the input: its text may be anything.
    let text = String::from_utf8_lossy(&raw[..raw.len().min(32)]).into_owned();
    let rule = Rule {
        header: Some(HeaderRule {
            name: "retry-after".into(),
            matches: text.clone(),
        }),
        code: Some(text.clone()),
        text: Some(text),
        ..Rule::new(Verdict::Rejected)
    };
    classify::response(&[rule], &response, &hint);
});
