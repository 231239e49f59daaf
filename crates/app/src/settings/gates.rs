//! The gates: settings for every key, and for single hosts.
//!
//! Settings are found by index, not by pointer: a gate keeps two bytes of its settings and a
//! reload swaps the whole list. What is not written for a host is taken from `[gate]`, and then
//! everything is fitted together once more, so that a contradiction between the two is found.

use std::collections::{BTreeMap, BTreeSet};

use policy::classify::Rule;
use policy::gate::{GateOptions, GateSettings};
use policy::setting::{self, SettingError};

use super::problem::Problem;
use super::reader::Section;
use super::rule;
use super::value::HostPattern;

/// The settings of all gates.
#[derive(Clone, Debug, PartialEq)]
pub struct Gates {
    default: GateSettings,
    hosts: Vec<HostGate>,
    /// The index of each host that has settings of its own.
    exact: BTreeMap<String, GateIndex>,
    /// The patterns and their indices, the longest first.
    below: Vec<(HostPattern, GateIndex)>,
}

/// The settings of the gates of one host, or of all hosts below one.
#[derive(Clone, Debug, PartialEq)]
pub struct HostGate {
    /// Which hosts.
    pub pattern: HostPattern,
    /// What their gates work with.
    pub settings: GateSettings,
    /// All hosts of the pattern have one gate together.
    pub share: bool,
    /// What the owner of the settings knows of their answers.
    pub rules: Vec<Rule>,
}

/// Which settings a gate has. Valid for the [`Gates`] that gave it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateIndex(u16);

impl GateIndex {
    const DEFAULT: Self = Self(0);

    /// The index of the `position`-th host; 0 is the default.
    fn of(position: usize) -> Option<Self> {
        let index = u16::try_from(position).ok()?.checked_add(1)?;
        Some(Self(index))
    }

    fn position(self) -> Option<usize> {
        self.0.checked_sub(1).map(usize::from)
    }
}

impl Gates {
    /// The settings for a host in its normalised form: those of the host itself, else those of
    /// the longest pattern that matches, else the default. A port is ignored.
    pub fn index_for(&self, host: &str) -> GateIndex {
        let host = without_port(host);
        if let Some(index) = self.exact.get(host) {
            return *index;
        }
        let below = self.below.iter();
        let mut below = below.filter(|(pattern, _)| pattern.matches(host));
        below.next().map_or(GateIndex::DEFAULT, |(_, index)| *index)
    }

    /// The settings at an index.
    pub fn get(&self, index: GateIndex) -> &GateSettings {
        self.host(index)
            .map_or(&self.default, |host| &host.settings)
    }

    /// What is written for the host besides the gate's own settings; `None` for the default.
    pub fn host(&self, index: GateIndex) -> Option<&HostGate> {
        index.position().and_then(|at| self.hosts.get(at))
    }

    /// The settings of every key that has none of its own.
    pub fn default_gate(&self) -> &GateSettings {
        &self.default
    }

    /// Every host and pattern with settings of its own.
    pub fn hosts(&self) -> &[HostGate] {
        &self.hosts
    }

    pub(crate) fn read(section: &Section<'_>) -> Self {
        let mut options = GateOptions::default();
        section.fill(&GateOptions::NAMES, |name, text| options.set(name, text));
        let built = options.clone().build();
        let told = built.as_ref().err().cloned().unwrap_or_default();
        let default = section.built(built).unwrap_or_default();
        let mut gates = Self {
            default,
            hosts: Vec::new(),
            exact: BTreeMap::new(),
            below: Vec::new(),
        };
        let mut seen = BTreeSet::new();
        for (name, host) in section.sections() {
            // A name that is no pattern was reported with the shape of the file.
            let Ok(pattern) = name.parse::<HostPattern>() else {
                continue;
            };
            if seen.insert(pattern.clone()) {
                gates.add(pattern, &options, &told, &host);
            } else {
                let what = format!("the host `{pattern}` has two sections, expected one");
                host.reader
                    .report(Problem::about(&host.place, &host.path, what));
            }
        }
        let length = |pattern: &HostPattern| std::cmp::Reverse(pattern.to_string().len());
        gates.below.sort_by_key(|(pattern, _)| length(pattern));
        gates
    }

    fn add(
        &mut self,
        pattern: HostPattern,
        defaults: &GateOptions,
        told: &[SettingError],
        section: &Section<'_>,
    ) {
        let Some(index) = GateIndex::of(self.hosts.len()) else {
            let what = format!("is one too many, expected at most {} hosts", u16::MAX);
            let problem = Problem::about(&section.place, &section.path, what);
            section.reader.report(problem);
            return;
        };
        match &pattern {
            HostPattern::Exact(host) => {
                self.exact.insert(host.clone(), index);
            }
            HostPattern::Below(_) => self.below.push((pattern.clone(), index)),
        }
        let mut options = defaults.clone();
        section.fill(&GateOptions::NAMES, |name, text| options.set(name, text));
        let settings = section.built_over(options.build(), told);
        let share = section.read("share", setting::switch).unwrap_or(false);
        if share && matches!(pattern, HostPattern::Exact(_)) {
            section.expected(
                "share",
                "`false`: one host has one gate anyway; patterns such as `*.example.com` can share",
            );
        }
        self.hosts.push(HostGate {
            pattern,
            settings: settings.unwrap_or_default(),
            share,
            rules: rule::read(section),
        });
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => name,
        _ => host,
    }
}
