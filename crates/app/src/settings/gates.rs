//! The gates: settings for every key, and for single hosts.
//!
//! What is not written for a host is taken from `[gate]`, and then everything is fitted together
//! once more, so that a contradiction between the two is found.

use std::collections::BTreeSet;

use policy::gate::GateOptions;
use policy::hosts::{HostPattern, Hosts};
use policy::setting::{self, SettingErrors};
use tidegate::HostSettings;

use super::problem::Problem;
use super::reader::Section;
use super::rule;

/// Reads `[gate]` and every section below it.
pub(crate) fn read(section: &Section<'_>) -> Hosts<HostSettings> {
    let mut options = GateOptions::default();
    section.fill(GateOptions::NAMES, |name, text| options.set(name, text));
    let built = options.clone().build();
    let told = built.as_ref().err().cloned();
    let default = section.built(built).unwrap_or_default();
    let mut gates = Hosts::new(HostSettings::from(default));
    let mut seen = BTreeSet::new();
    for (name, host) in section.sections() {
        // A name that is no pattern was reported with the shape of the file.
        let Ok(pattern) = name.parse::<HostPattern>() else {
            continue;
        };
        if !seen.insert(pattern.clone()) {
            let what = format!("the host `{pattern}` has two sections, expected one");
            host.reader
                .report(Problem::about(&host.place, &host.path, what));
            continue;
        }
        let settings = read_host(&pattern, &options, told.as_ref(), &host);
        if gates.insert(pattern, settings).is_none() {
            let most = Hosts::<HostSettings>::MAX_HOSTS;
            let what = format!("is one too many, expected at most {most} hosts");
            host.reader
                .report(Problem::about(&host.place, &host.path, what));
        }
    }
    gates
}

fn read_host(
    pattern: &HostPattern,
    defaults: &GateOptions,
    told: Option<&SettingErrors>,
    section: &Section<'_>,
) -> HostSettings {
    let mut options = defaults.clone();
    section.fill(GateOptions::NAMES, |name, text| options.set(name, text));
    let gate = section.built_over(options.build(), told);
    let share = section.read("share", setting::switch).unwrap_or(false);
    if share && matches!(pattern, HostPattern::Exact(_)) {
        section.expected(
            "share",
            "`false`: one host has one gate anyway; patterns such as `*.example.com` can share",
        );
    }
    HostSettings {
        gate: gate.unwrap_or_default(),
        share,
        rules: rule::read(section).into(),
    }
}
