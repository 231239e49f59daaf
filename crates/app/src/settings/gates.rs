//! The gates: settings for every key, and for single hosts.
//!
//! What is not written for a host is as in `[gate]`, and then everything is fitted together once
//! more, so that a contradiction between the two is found.

use std::collections::BTreeSet;

use config::Reader;
use policy::gate::GateOptions;
use policy::hosts::{HostPattern, Hosts};
use policy::setting::{Kind, SettingErrors};
use tidegate::HostSettings;

use super::rule;

policy::settings! {
    /// What only `[gate."HOST"]` has.
    pub struct ShareOptions {
        /// One gate for all hosts of the pattern, if they share a limit.
        share: bool = "false", Kind::Switch;
    }
}

/// Reads `[gate]` and every section below it.
pub(crate) fn read(reader: &Reader<'_>) -> Hosts<HostSettings> {
    let options: GateOptions = reader.options();
    let built = options.clone().build();
    let known = built.as_ref().err().cloned();
    let default = reader.built(built, None).unwrap_or_default();
    let mut gates = Hosts::new(HostSettings::from(default));
    let mut seen = BTreeSet::new();
    for (name, host) in reader.tables() {
        // A name that is no pattern is reported with the other names.
        let Ok(pattern) = name.parse::<HostPattern>() else {
            continue;
        };
        if !seen.insert(pattern.clone()) {
            host.report_table(format!(
                "the host `{pattern}` has two sections, expected one"
            ));
            continue;
        }
        let settings = read_host(&pattern, &options, known.as_ref(), &host);
        if gates.insert(pattern, settings).is_none() {
            let max = Hosts::<HostSettings>::MAX_HOSTS;
            host.report_table(format!("is one too many, expected at most {max} hosts"));
        }
    }
    gates
}

fn read_host(
    pattern: &HostPattern,
    defaults: &GateOptions,
    known: Option<&SettingErrors>,
    reader: &Reader<'_>,
) -> HostSettings {
    let options = reader.options_of(defaults.clone(), |_| true);
    let gate = reader.built(options.build(), known);
    let share = reader.options::<ShareOptions>().share.unwrap_or(false);
    if share && matches!(pattern, HostPattern::Exact(_)) {
        reader.expected(
            "share",
            "`false`: one host has one gate anyway; patterns such as `*.example.com` can share",
        );
    }
    HostSettings {
        gate: gate.unwrap_or_default(),
        share,
        rules: rule::read(reader).into(),
    }
}
