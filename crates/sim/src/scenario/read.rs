//! Scenario files: from TOML to a [`Scenario`], or to all problems.

use std::time::Duration;

use config::document::{self, Table};
use config::{Context, Location, Problem, Reader};
use policy::setting::{self, Format, Kind};

use super::{Scenario, client, upstream};
use crate::client::{ClientSettings, Strategy};

policy::settings! {
    struct RunOptions;
    pub(super) struct Run(pub(super)) {
        /// From the first instant to the last.
        duration: Duration = "300s", DURATION;
        /// What random numbers come from.
        seed: u64 = "1", Kind::whole(0, u64::MAX);
    }
}

/// A month is simulated in minutes; longer runs show nothing more.
const DURATION: Kind = Kind::Format(&Format::of("duration", "\"300s\"", None, |text| {
    match setting::positive(text)? > Duration::from_secs(31 * 86_400) {
        true => Err("a duration of at most 31d".to_owned()),
        false => Ok(()),
    }
}));

impl Scenario {
    /// Reads a scenario; `file` is its name in messages.
    ///
    /// ```
    /// use sim::scenario::Scenario;
    ///
    /// let text = "[upstream]\nkind = \"bucket\"\nrate = -5\n";
    /// let problems = Scenario::read("a.toml", text.as_bytes()).unwrap_err();
    /// assert_eq!(
    ///     problems[0].to_string(),
    ///     "a.toml:3:8: `upstream.rate` is `-5`, \
    ///      expected a number of requests per second above 0 and at most 1000000"
    /// );
    /// ```
    ///
    /// # Errors
    ///
    /// All problems, in the order of the file.
    pub fn read(file: &str, bytes: &[u8]) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        let Some(table) = document::parse(file, bytes, &mut problems) else {
            return Err(problems);
        };
        let (scenario, found) = check(&table, beginning(file));
        problems.extend(found);
        problems.sort_by(|a, b| a.location.cmp(&b.location));
        match scenario {
            Some(scenario) if problems.is_empty() => Ok(scenario),
            _ => Err(problems),
        }
    }
}

/// The scenario in `table`, and all problems; missing sections are reported at `location`.
pub(super) fn check(table: &Table, location: Location) -> (Option<Scenario>, Vec<Problem>) {
    let context = Context::default();
    let scenario = read(&Reader::root(&context, table, location));
    (scenario, context.into_problems())
}

pub(super) fn beginning(file: &str) -> Location {
    Location::File {
        file: file.into(),
        line: 1,
        column: 1,
    }
}

fn read(root: &Reader<'_>) -> Option<Scenario> {
    root.allow(&["duration", "seed", "upstream", "client"]);
    let run = root.options::<RunOptions>().over(Run::default());
    let clients: Vec<_> = root.list("client").iter().map(client::read).collect();
    root.require("upstream", "a table");
    let upstream = root.table("upstream");
    let upstream = upstream.is_written().then(|| upstream::read(&upstream));
    let mut clients: Vec<_> = clients.into_iter().collect::<Option<_>>()?;
    if clients.is_empty() {
        clients.push(ClientSettings::of(Strategy::Adaptive));
    }
    Some(Scenario {
        duration: run.duration,
        seed: run.seed,
        upstream: upstream??,
        clients,
    })
}
