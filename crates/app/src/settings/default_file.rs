//! The commented default file: what every setting is by default, and why.
//!
//! `default.toml` is the only place where defaults and reasons are written for people. It is
//! printed as it is, and the schema and the reference take both from it. A test holds that reading
//! it gives the defaults of the code, another that its examples are right.

use super::table::{Kind, ROOT, Section};

/// The default file, as it is printed by `tidegate config default`.
pub const DEFAULT_FILE: &str = include_str!("../../default.toml");

/// What the default file says about one section.
#[derive(Debug)]
pub(crate) struct About {
    pub(crate) section: &'static Section,
    /// What it is for.
    pub(crate) reason: String,
    pub(crate) lines: Vec<Line>,
}

/// What the default file says about one setting.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) name: String,
    /// As it is written; the beginning only, if it goes over several lines.
    pub(crate) value: String,
    pub(crate) reason: String,
    /// An example, commented out: the value is no default.
    pub(crate) is_example: bool,
}

/// The sections of the default file in their order. Of those that people name themselves, only
/// the first has reasons for its settings.
pub(crate) fn sections() -> Vec<About> {
    let mut sections: Vec<About> = Vec::new();
    let mut reason = String::new();
    for line in DEFAULT_FILE.lines() {
        let (is_example, text) = match line.strip_prefix('#') {
            Some(comment) if comment.is_empty() || comment.starts_with(' ') => {
                // Continued lines of an example begin with blanks, too, but are no sentences.
                if !comment.starts_with("  ") {
                    reason = comment.trim().to_owned();
                }
                continue;
            }
            Some(example) => (true, example),
            None => (false, line),
        };
        if let Some(header) = text.strip_prefix('[') {
            let header = header.trim_matches(['[', ']']);
            sections.push(About {
                section: find(header),
                reason: std::mem::take(&mut reason),
                lines: Vec::new(),
            });
        } else if let Some((name, value)) = text.split_once(" = ")
            && let Some(section) = sections.last_mut()
        {
            section.lines.push(Line {
                name: name.to_owned(),
                value: value.to_owned(),
                reason: std::mem::take(&mut reason),
                is_example,
            });
        }
    }
    sections
}

/// The section of the table that a header means.
fn find(header: &str) -> &'static Section {
    let parts = super::split_path(header).unwrap_or_default();
    parts.iter().fold(&ROOT, |section, part| {
        let key = section.key(part).map(|key| key.kind);
        match (key, section.named) {
            (Some(Kind::Table(inner) | Kind::Tables(inner)), _) => inner,
            (_, Some(named)) => named.section,
            (_, None) => section,
        }
    })
}

/// The default file with all examples in use.
#[cfg(test)]
pub(crate) fn with_examples() -> String {
    let lines = DEFAULT_FILE.lines().map(|line| {
        let example = line.strip_prefix('#').filter(|rest| {
            let is_comment = rest.is_empty() || rest.starts_with(' ') && !rest.starts_with("  ");
            !is_comment
        });
        example.unwrap_or(line)
    });
    lines.map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Every setting of a section and of those within it, as `SECTION name`.
    fn settings_of(section: &'static Section, found: &mut BTreeSet<String>) {
        for key in section.keys {
            match key.kind {
                Kind::Table(inner) | Kind::Tables(inner) => settings_of(inner, found),
                _ => {
                    found.insert(format!("{} {}", section.path, key.name));
                }
            }
        }
        if let Some(named) = section.named {
            settings_of(named.section, found);
        }
    }

    #[test]
    fn every_setting_stands_in_the_default_file_with_a_reason() {
        let mut known = BTreeSet::new();
        settings_of(&ROOT, &mut known);
        let written: BTreeSet<String> = sections()
            .iter()
            .flat_map(|about| about.lines.iter().map(move |line| (about, line)))
            .filter(|(_, line)| !line.reason.is_empty())
            .map(|(about, line)| format!("{} {}", about.section.path, line.name))
            .collect();
        // The same in [gate] and in [gate."HOST"], and parts of tables on one line.
        let elsewhere = |setting: &&String| {
            !setting.starts_with("gate.HOST ")
                && !setting.starts_with("rule.header ")
                && !setting.starts_with("pool.NAME.endpoints ")
        };
        let missing: Vec<&String> = known.difference(&written).filter(elsewhere).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn every_reason_is_one_sentence_on_one_line() {
        for about in sections() {
            // Of several that people name, each says what it is for, too.
            assert!(!about.reason.is_empty(), "{}", about.section.path);
            for line in about.lines.iter().filter(|line| !line.reason.is_empty()) {
                assert!(line.reason.ends_with('.'), "{}", line.reason);
            }
        }
    }
}
