//! Real and hostile responses as raw files. `corpus/hint/expected.tsv` has the hint and the verdict
//! of each. The same files seed the fuzz targets.
//!
//! A file has the status on its first line, then headers, an empty line and the body.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidegate_policy::classify;
use tidegate_policy::hint::{self, Hint, Response};
use tidegate_policy::item::{DelaySource, Item, ItemKind, Step};
use tidegate_policy::outcome::{Outcome, Verdict};
use tidegate_policy::preset::Preset;
use tidegate_policy::random::Random;
use tidegate_policy::time::{Timestamp, WallTime};

/// 2026-11-15T06:00:00Z.
const NOW: WallTime = WallTime::from_unix_millis(1_794_722_400_000);

#[test]
fn reads_every_response_as_expected() {
    let mut wrong = Vec::new();
    for [name, hint, verdict] in &expected() {
        let raw = std::fs::read(directory().join(format!("{name}.http"))).unwrap();
        let read = read(&raw);
        if read != (hint.clone(), verdict.clone()) {
            wrong.push(format!("{name}: expected {hint} {verdict}, read {read:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn expectations_and_files_match() {
    let listed: BTreeSet<String> = expected().into_iter().map(|[name, ..]| name).collect();
    let found: BTreeSet<String> = std::fs::read_dir(directory())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "http")
        })
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    assert_eq!(listed, found);
    assert!(listed.len() >= 60, "{} answers", listed.len());
}

#[test]
fn no_resend_before_the_directed_wait_ends() {
    let mut named = 0;
    for [name, ..] in &expected() {
        let raw = std::fs::read(directory().join(format!("{name}.http"))).unwrap();
        let (status, hint, verdict) = judged(&raw);
        let outcome = Outcome::status(status, Duration::ZERO).with_hint(hint);
        let now = Timestamp::from_secs(1);
        for (preset, seed) in Preset::ALL.iter().copied().zip(0..) {
            let settings = preset.settings();
            let mut random = Random::from_seed(seed);
            let mut item = Item::new(ItemKind::of("GET"), now);
            let step = item.after(&settings, &outcome, verdict, now, &mut random);
            let (Step::SendAt { delay, source, .. }, Some(wait)) = (step, outcome.hint.wait) else {
                continue;
            };
            named += 1;
            assert_eq!(source, DelaySource::RetryAfter, "{name}");
            let (least, most) = settings.directed_bounds(wait);
            assert!((least..=most).contains(&delay), "{name}: {delay:?}");
            assert_eq!(item.attempts(), u32::from(wait.is_zero()), "{name}");
        }
    }
    assert!(named >= 200, "{named} named a wait");
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/hint")
}

fn expected() -> Vec<[String; 3]> {
    let table = std::fs::read_to_string(directory().join("expected.tsv")).unwrap();
    let rows = table.lines().filter(|line| !line.starts_with('#'));
    rows.map(|line| {
        let fields: Vec<String> = line.split('\t').map(str::to_owned).collect();
        fields.try_into().unwrap()
    })
    .collect()
}

fn read(raw: &[u8]) -> (String, String) {
    let (_, hint, verdict) = judged(raw);
    let verdict = verdict.map_or("none", |verdict| verdict.as_str());
    (format_hint(&hint), verdict.to_owned())
}

fn judged(raw: &[u8]) -> (u16, Hint, Option<Verdict>) {
    let (head, body) = match raw.windows(2).position(|pair| pair == b"\n\n") {
        Some(end) => (&raw[..end], &raw[end + 2..]),
        None => (raw, &raw[raw.len()..]),
    };
    let mut lines = head.split(|&byte| byte == b'\n');
    let status = std::str::from_utf8(lines.next().unwrap()).unwrap();
    let headers = lines.map(|line| {
        let colon = line.iter().position(|&byte| byte == b':').unwrap();
        let name = std::str::from_utf8(&line[..colon]).unwrap();
        (name, line[colon + 1..].trim_ascii())
    });
    let response = Response {
        status: status.parse().unwrap(),
        headers,
        body,
    };
    let hint = hint::read(&response, Some(NOW));
    let verdict = classify::response(&[], &response, &hint).verdict;
    (response.status, hint, verdict)
}

fn format_hint(hint: &Hint) -> String {
    let fields = [
        ("wait", hint.wait.map(|wait| wait.as_millis().to_string())),
        ("source", hint.source.map(|source| source.to_string())),
        ("remaining", hint.remaining.map(|count| count.to_string())),
        (
            "reset",
            hint.reset.map(|reset| reset.as_millis().to_string()),
        ),
        ("limit", hint.limit.map(|count| count.to_string())),
        (
            "period",
            hint.period.map(|period| period.as_millis().to_string()),
        ),
        (
            "scope",
            hint.scope.as_ref().map(|scope| scope.as_str().to_owned()),
        ),
    ];
    let known = fields
        .into_iter()
        .filter_map(|(name, value)| Some(format!("{name}={}", value?)));
    known.collect::<Vec<_>>().join(" ")
}
