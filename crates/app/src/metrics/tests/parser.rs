//! A strict parser of the text format, for the parts of it that are used.

use std::collections::{BTreeMap, BTreeSet};

/// One sample: its name, its labels, its value.
type Sample = (String, BTreeMap<String, String>, f64);

/// A parsed output: families in order, each with its type, and their samples.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    pub(super) families: Vec<(String, String)>,
    samples: Vec<Sample>,
}

impl Parsed {
    pub(super) fn of(text: &str) -> Self {
        let mut read = Self::default();
        let (mut helped, mut seen) = (None, BTreeSet::new());
        assert!(text.ends_with('\n'));
        for line in text.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, sentence) = help.split_once(' ').unwrap();
                assert!(
                    sentence.ends_with('.') && !sentence.contains('\\'),
                    "{line}"
                );
                helped = Some(name.to_owned());
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').unwrap();
                assert_eq!(helped.take().as_deref(), Some(name), "HELP comes first");
                let is_new = read.families.iter().all(|(known, _)| known != name);
                assert!(is_new, "{name} is not split");
                read.families.push((name.to_owned(), kind.to_owned()));
            } else {
                let sample = sample(line);
                let (family, kind) = read.families.last().unwrap();
                assert!(
                    belongs(&sample.0, family, kind),
                    "{line} is not of {family}"
                );
                let is_new = seen.insert((sample.0.clone(), sample.1.clone()));
                assert!(is_new, "{line} comes twice");
                read.samples.push(sample);
            }
        }
        read
    }

    pub(super) fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let labels: BTreeMap<String, String> = labels.iter().map(owned).collect();
        let found = self
            .samples
            .iter()
            .find(|one| one.0 == name && one.1 == labels);
        found.map(|(_, _, value)| *value)
    }

    /// The values of a label, in the order of the samples.
    pub(super) fn labels(&self, name: &str, label: &str) -> Vec<&str> {
        let samples = self.samples.iter().filter(|one| one.0 == name);
        samples.map(|(_, labels, _)| &*labels[label]).collect()
    }

    pub(super) fn sum(&self, name: &str) -> f64 {
        let samples = self.samples.iter().filter(|one| one.0 == name);
        samples.map(|(_, _, value)| value).sum()
    }
}

fn belongs(sample: &str, family: &str, kind: &str) -> bool {
    match (sample.strip_prefix(family), kind) {
        (Some(""), "counter") => family.ends_with("_total"),
        (Some(""), "gauge") => true,
        (Some("_bucket" | "_sum" | "_count"), "histogram") => true,
        _ => false,
    }
}

fn sample(line: &str) -> Sample {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let end = line.find(|c| !is_name(c)).unwrap();
    let (name, mut rest) = line.split_at(end);
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, after) = rest.split_once("=\"").unwrap();
            assert!(!label.is_empty() && label.chars().all(is_name), "{line}");
            let (value, after) = unescape(after);
            assert!(labels.insert(label.to_owned(), value).is_none(), "{line}");
            match after.strip_prefix(',') {
                Some(after) => rest = after,
                None => {
                    rest = after.strip_prefix('}').unwrap();
                    break;
                }
            }
        }
    }
    let value = rest.strip_prefix(' ').unwrap();
    assert!(!value.contains(' '), "{line}");
    (name.to_owned(), labels, value.parse().unwrap())
}

/// The value of a label, and what follows its closing quote.
fn unescape(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &text[at + 1..]),
            '\\' => value.push(match chars.next().unwrap().1 {
                'n' => '\n',
                c @ ('\\' | '"') => c,
                c => panic!("\\{c} is no escape"),
            }),
            c => value.push(c),
        }
    }
    panic!("a label has no end: {text}")
}
