//! A scenario before it is read: a file, or an upstream in one line, and the changes by flags.
//!
//! Flags are applied to the tree of the file, which is then read by the same code, so that values
//! are checked the same way wherever they are written, and a message names the flag like it would a
//! line.
//!
//! With several strategies there are several variants. Client settings of the file that a strategy
//! does not have are dropped for it: otherwise a comparison with `none` would be impossible as soon
//! as a gate has any settings. A value of `--set` goes to all clients that have the setting, and is
//! a problem if none has. The name of `--set` may also be a path into the file, such as
//! `upstream.rate` or `upstream.steps[0].at`, or `seed` or `duration`.

use std::collections::BTreeSet;

use config::document::{self, Entry, Node, Table, Value};
use config::{Location, Problem};

use super::read::{beginning, check};
use super::{Scenario, client};

/// The input of a simulation, not yet read.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// The name of the file in messages, and its text.
    pub file: Option<(String, Vec<u8>)>,
    /// The upstream, if there is no file: `KIND key=value …`, with the names of `[upstream]`.
    pub upstream: Option<String>,
    /// Strategies separated by commas, each applied to all clients.
    pub strategies: Option<String>,
    /// The duration.
    pub duration: Option<String>,
    /// The number of clients.
    pub clients: Option<String>,
    /// Settings of clients, or paths into the file, each as `key=value`.
    pub settings: Vec<String>,
    /// `[gate]` of a settings file: applies to clients with a gate, unless the scenario sets a
    /// value.
    pub gate: Table,
}

/// A scenario to run, and the name of its variant.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// What drives its clients, as it was written.
    pub strategy: String,
    /// The scenario.
    pub scenario: Scenario,
}

impl Draft {
    /// Reads the input: one variant per strategy, or one if none was named.
    ///
    /// ```
    /// use sim::scenario::Draft;
    ///
    /// let draft = Draft {
    ///     upstream: Some("window quota=600 period=60s retry_after=true".to_owned()),
    ///     strategies: Some("adaptive,none".to_owned()),
    ///     settings: vec!["initial_rate=5".to_owned()],
    ///     ..Draft::default()
    /// };
    /// let variants = draft.variants().unwrap();
    /// assert_eq!(variants.len(), 2);
    /// assert_eq!(variants[1].strategy, "none");
    /// ```
    ///
    /// # Errors
    ///
    /// All problems: those of the file in order, then those of the flags.
    pub fn variants(&self) -> Result<Vec<Variant>, Vec<Problem>> {
        let (mut table, mut problems) = self.base()?;
        self.change_run(&mut table, &mut problems);
        let mut tables = self.with_strategies(table);
        self.change_clients(&mut tables, &mut problems);
        let mut variants = Vec::new();
        for table in &tables {
            let (scenario, found) = check(table, self.location());
            problems.extend(found);
            variants.extend(scenario.map(|scenario| Variant {
                strategy: drivers(table),
                scenario,
            }));
        }
        if problems.is_empty() {
            return Ok(variants);
        }
        Err(each_once(problems))
    }

    /// The tree that flags are applied to, and its problems.
    fn base(&self) -> Result<(Table, Vec<Problem>), Vec<Problem>> {
        let mut problems = Vec::new();
        let mut table = Table::default();
        if let Some((name, text)) = &self.file {
            let Some(parsed) = document::parse(name, text, &mut problems) else {
                return Err(problems);
            };
            table = parsed;
            // Checked unchanged, because a variant may drop what is wrong.
            problems.extend(check(&table, beginning(name)).1);
        } else if let Some(line) = &self.upstream {
            let upstream = Value::Table(upstream(line, &mut problems));
            table.insert("upstream", at_flag(UPSTREAM, upstream));
        }
        Ok((table, problems))
    }

    fn location(&self) -> Location {
        match &self.file {
            Some((name, _)) => beginning(name),
            None => Location::Flag(UPSTREAM.to_owned()),
        }
    }

    fn change_run(&self, table: &mut Table, problems: &mut Vec<Problem>) {
        if let Some(duration) = &self.duration {
            let duration = Value::Text(duration.clone());
            table.insert("duration", at_flag("--duration", duration));
        }
        for (path, value) in self.settings.iter().filter_map(|text| path_and_value(text)) {
            let flag = format!("--set {path}");
            if set_at(table, path, literal(&flag, value)).is_none() {
                let location = Location::Flag(flag);
                let what = "is not in the scenario, expected a value that it has";
                problems.push(Problem::about(&location, path, what));
            }
        }
        let Some(count) = &self.clients else {
            return;
        };
        let mut clients = clients(table);
        if let [only] = clients.as_mut_slice() {
            only.insert("count", literal("--clients", count));
        } else if !clients.is_empty() {
            let expected = format!(
                "a scenario with one kind of clients, this one has {}",
                clients.len()
            );
            let location = Location::Flag("--clients".to_owned());
            problems.push(Problem::expected(&location, "", count, expected));
        }
    }

    fn with_strategies(&self, mut table: Table) -> Vec<Table> {
        // The default strategy has to be explicit to be changed.
        for client in clients(&mut table) {
            self.add_gate_strategy(client);
        }
        let mut tables = match &self.strategies {
            None => vec![table],
            Some(strategies) => {
                let words = strategies.split(',').map(str::trim);
                words.map(|word| with_strategy(&table, word)).collect()
            }
        };
        for client in tables.iter_mut().flat_map(clients) {
            self.add_gate_settings(client);
        }
        tables
    }

    /// Gives a client the strategy of `[gate]`, if it has none and no policy.
    fn add_gate_strategy(&self, client: &mut Table) {
        let Some(node) = self.gate.get("strategy") else {
            return;
        };
        let is_driven = client.get("policy").is_some() || client.get("strategy").is_some();
        if self.strategies.is_some() || is_driven {
            return;
        }
        let mut word = node.value.shown().to_owned();
        if word == "fixed" {
            let own = client
                .entries
                .remove("initial_rate")
                .map(|entry| entry.node);
            let rate = own.as_ref().or_else(|| self.gate.get("initial_rate"));
            let rate = rate.map_or("2", |node| node.value.shown());
            word = format!("fixed:{rate}");
        }
        let value = Value::Text(word);
        let location = node.location.clone();
        client.insert("strategy", Node { location, value });
    }

    /// Gives a client with a gate every setting of `[gate]` that it does not set itself.
    fn add_gate_settings(&self, client: &mut Table) {
        if client.get("policy").is_some() {
            return;
        }
        let names = client::fitting_names(client);
        let fitting = self.gate.entries.iter();
        for (name, entry) in fitting.filter(|(name, _)| names.contains(&name.as_str())) {
            let own = client.entries.entry(name.clone());
            own.or_insert_with(|| entry.clone());
        }
    }

    fn change_clients(&self, tables: &mut [Table], problems: &mut Vec<Problem>) {
        let mut settings = Vec::new();
        for written in &self.settings {
            match written.split_once('=') {
                Some(_) if path_and_value(written).is_some() => {}
                Some((name, value)) => settings.push((name.trim(), value.trim())),
                None => problems.push(without_value("--set", written)),
            }
        }
        // The strategy or policy determines which other settings a client has.
        settings.sort_by_key(|(name, _)| !matches!(*name, "strategy" | "policy"));
        let mut clients: Vec<&mut Table> = tables.iter_mut().flat_map(clients).collect();
        for (name, value) in settings {
            set(&mut clients, name, literal(&format!("--set {name}"), value));
        }
    }
}

/// The parts of a `--set` that is about the file, not about all clients.
fn path_and_value(written: &str) -> Option<(&str, &str)> {
    let (name, value) = written.split_once('=')?;
    let name = name.trim();
    let is_path = name.contains('.') || matches!(name, "seed" | "duration");
    is_path.then(|| (name, value.trim()))
}

/// Sets a value at a path such as `upstream.steps[0].at`; `None` if there is no table to put it in.
fn set_at(table: &mut Table, path: &str, node: Node) -> Option<()> {
    // A scenario without clients has one.
    clients(table);
    let (tables, name) = path.rsplit_once('.').unwrap_or(("", path));
    let mut table = table;
    for part in tables.split('.').filter(|part| !part.is_empty()) {
        let (name, index) = match part.strip_suffix(']').and_then(|part| part.split_once('[')) {
            Some((name, index)) => (name, Some(index.parse::<usize>().ok()?)),
            None => (part, None),
        };
        let mut value = &mut table.entries.get_mut(name)?.node.value;
        if let Some(index) = index {
            let Value::List(list) = value else {
                return None;
            };
            value = &mut list.get_mut(index)?.value;
        }
        let Value::Table(inner) = value else {
            return None;
        };
        table = inner;
    }
    table.insert(name, node);
    Some(())
}

const UPSTREAM: &str = "--upstream";

/// Sets this strategy for all clients and drops settings that it does not have.
fn with_strategy(table: &Table, word: &str) -> Table {
    let mut table = table.clone();
    for client in clients(&mut table) {
        client.entries.remove("policy");
        let word = Value::Text(word.to_owned());
        client.insert("strategy", at_flag("--strategy", word));
        let names = client::fitting_names(client);
        client
            .entries
            .retain(|name, _| names.contains(&name.as_str()));
    }
    table
}

/// Sets a value on every client that has the setting; if none has, where it will be reported.
fn set(clients: &mut [&mut Table], name: &str, node: Node) {
    let mut is_known = false;
    for client in clients.iter_mut() {
        if client::fitting_names(client).contains(&name) {
            client.insert(name, node.clone());
            is_known = true;
        }
    }
    if let Some(first) = clients.first_mut()
        && !is_known
    {
        first.insert(name, node);
    }
}

/// The tables of all clients, creating one if there is none. Empty if another value is there, which
/// reading reports.
fn clients(table: &mut Table) -> Vec<&mut Table> {
    let none = || Entry {
        location: Location::Default,
        node: Node {
            location: Location::Default,
            value: Value::List(Vec::new()),
        },
    };
    let entry = table.entries.entry("client".to_owned());
    let Value::List(list) = &mut entry.or_insert_with(none).node.value else {
        return Vec::new();
    };
    if list.is_empty() {
        list.push(Node {
            location: Location::Default,
            value: Value::Table(Table::default()),
        });
    }
    let tables = list.iter_mut().filter_map(|node| match &mut node.value {
        Value::Table(table) => Some(table),
        _ => None,
    });
    tables.collect()
}

/// The strategies and policies of a scenario's clients, without duplicates.
fn drivers(table: &Table) -> String {
    let mut words: Vec<&str> = Vec::new();
    if let Some(Value::List(list)) = table.get("client").map(|node| &node.value) {
        for node in list {
            if let Value::Table(client) = &node.value {
                let word = client::driven_by(client);
                if !words.contains(&word) {
                    words.push(word);
                }
            }
        }
    }
    words.join(" + ")
}

/// An upstream in one line: its kind, then settings.
fn upstream(line: &str, problems: &mut Vec<Problem>) -> Table {
    let mut table = Table::default();
    for (index, word) in words(line).into_iter().enumerate() {
        let (name, node) = match word.split_once('=') {
            Some((name, value)) => (name, literal(UPSTREAM, value)),
            None if index == 0 => ("kind", at_flag(UPSTREAM, Value::Text(word.to_owned()))),
            None => {
                problems.push(without_value(UPSTREAM, word));
                continue;
            }
        };
        if table.get(name).is_some() {
            let what = "is given twice, expected once";
            let key = format!("upstream.{name}");
            problems.push(Problem::about(&node.location, key, what));
        }
        table.insert(name, node);
    }
    table
}

fn without_value(flag: &str, word: &str) -> Problem {
    let location = Location::Flag(flag.to_owned());
    Problem::expected(&location, "", word, "KEY=VALUE")
}

/// Words separated by spaces or commas; those within quotes, brackets and braces are part of a
/// word.
fn words(line: &str) -> Vec<&str> {
    let (mut depth, mut is_quoted) = (0_i32, false);
    let is_between = |c: char| {
        match c {
            '"' => is_quoted = !is_quoted,
            '[' | '{' if !is_quoted => depth += 1,
            ']' | '}' if !is_quoted => depth -= 1,
            _ => {}
        }
        depth <= 0 && !is_quoted && (c.is_whitespace() || c == ',')
    };
    line.split(is_between)
        .filter(|word| !word.is_empty())
        .collect()
}

/// A TOML value if it is in quotes, brackets or braces, else an untyped one.
fn literal(flag: &str, written: &str) -> Node {
    let location = Location::Flag(flag.to_owned());
    match written.trim() {
        text if text.starts_with(['[', '{', '"', '\'']) => document::parse_value(text, &location),
        text => Node {
            location,
            value: Value::Untyped(text.to_owned()),
        },
    }
}

fn at_flag(flag: &str, value: Value) -> Node {
    let location = Location::Flag(flag.to_owned());
    Node { location, value }
}

/// In order, with problems that occur in several variants reported once.
fn each_once(mut problems: Vec<Problem>) -> Vec<Problem> {
    let mut seen = BTreeSet::new();
    problems.retain(|problem| seen.insert(problem.to_string()));
    problems.sort_by(|a, b| a.location.cmp(&b.location));
    problems
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use policy::time::Timestamp;

    use super::*;
    use crate::client::{ClientSettings, Strategy};
    use crate::upstream::Kind;

    fn draft(upstream: &str) -> Draft {
        Draft {
            upstream: Some(upstream.to_owned()),
            ..Draft::default()
        }
    }

    fn over_file(text: &str) -> Draft {
        Draft {
            file: Some(("f".to_owned(), text.as_bytes().to_vec())),
            ..Draft::default()
        }
    }

    fn only(draft: &Draft) -> Scenario {
        let mut variants = draft.variants().unwrap();
        assert_eq!(variants.len(), 1);
        variants.remove(0).scenario
    }

    fn problems(draft: &Draft) -> Vec<String> {
        let problems = draft.variants().unwrap_err();
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn reads_an_upstream_in_one_line_as_in_a_file() {
        let line =
            r#"window quota=300, period=10s headers=true steps=[{ at = "60s", quota = 20 }]"#;
        let text = "[upstream]\nkind = \"window\"\nquota = 300\nperiod = \"10s\"\nheaders = true\n\
                    steps = [{ at = \"60s\", quota = 20 }]\n";
        assert_eq!(only(&draft(line)), only(&over_file(text)));
    }

    #[test]
    fn sets_values_of_the_file_by_their_path() {
        let set = |settings: &[&str]| Draft {
            settings: settings.iter().map(|text| (*text).to_owned()).collect(),
            ..over_file(
                "[upstream]\nkind = \"bucket\"\nrate = 5\nsteps = [{ at = \"60s\", rate = 20 }]\n",
            )
        };
        let scenario = only(&set(&[
            "upstream.rate = 7",
            "upstream.steps[0].at=30s",
            "upstream.retry_after=true",
            "client[0].count=3",
            "seed=9",
            "duration=90s",
        ]));
        let upstream = &scenario.upstream;
        assert_eq!(
            upstream.kind,
            Kind::Bucket {
                rate: 7.0,
                burst: 10.0
            }
        );
        assert_eq!(upstream.steps[0].at, Timestamp::from_secs(30));
        assert!(upstream.retry_after);
        assert_eq!((scenario.clients[0].count, scenario.seed), (3, 9));
        assert_eq!(scenario.duration, Duration::from_secs(90));
        let draft = set(&[
            "upstream.rate=-1",
            "upstream.steps[1].at=5s",
            "upstream.rat=1",
            "server.rate=1",
        ]);
        assert_eq!(
            problems(&draft),
            [
                "--set server.rate: `server.rate` is not in the scenario, expected a value that it has",
                "--set upstream.rat: `upstream.rat`: unknown setting; did you mean `rate`?",
                "--set upstream.rate: `upstream.rate` is `-1`, expected a number of requests per second above 0 and at most 1000000",
                "--set upstream.steps[1].at: `upstream.steps[1].at` is not in the scenario, expected a value that it has",
            ]
        );
    }

    #[test]
    fn reports_problems_of_flags_with_the_flag() {
        let draft = Draft {
            strategies: Some("adaptive,aimdd".to_owned()),
            duration: Some("300".to_owned()),
            clients: Some("none".to_owned()),
            settings: vec!["max_rat=5".to_owned(), "burst".to_owned()],
            ..draft("bucket rate=-5 rate=x qota=5 now")
        };
        assert_eq!(
            problems(&draft),
            [
                "--clients: `client[0].count` is `none`, expected a whole number from 1 to 10000",
                "--duration: `duration` is `300`, expected a number with a unit such as `500ms`, `30s` or `5m`",
                "--set: `burst`: expected KEY=VALUE",
                "--set max_rat: `client[0].max_rat`: unknown setting; did you mean `max_rate`?",
                "--strategy: `client[0].strategy` is `aimdd`, expected `adaptive`, `aimd`, `fixed:RATE` (requests per second) or `none`; did you mean `aimd`?",
                "--upstream: `upstream.rate` is given twice, expected once",
                "--upstream: `now`: expected KEY=VALUE",
                "--upstream: `upstream.qota`: unknown setting, expected one of: kind, retry_after, headers, latency, latency_spread, refuse_latency, network, failure_rate, steps, outage, ban, cost, rate, burst",
                "--upstream: `upstream.rate` is `x`, expected a number of requests per second above 0 and at most 1000000",
            ]
        );
    }

    #[test]
    fn flags_override_the_file() {
        let draft = Draft {
            duration: Some("10s".to_owned()),
            clients: Some("3".to_owned()),
            settings: vec!["max_rate=40".to_owned(), "backlog=30/s".to_owned()],
            ..over_file("[upstream]\nkind = \"bucket\"\nrate = 50\n")
        };
        let text = "duration = \"10s\"\n[upstream]\nkind = \"bucket\"\nrate = 50\n\
                    [[client]]\ncount = 3\nmax_rate = 40\nbacklog = \"30/s\"\n";
        assert_eq!(only(&draft), only(&over_file(text)));
    }

    const TUNED: &str = "[upstream]\nkind = \"bucket\"\nrate = 50\n[[client]]\ncount = 2\n\
                         initial_rate = 9\nmax_rate = 60\n";

    #[test]
    fn drops_settings_that_a_strategy_does_not_have() {
        let draft = Draft {
            strategies: Some("aimd,fixed:50,none".to_owned()),
            settings: vec!["base=1s".to_owned()],
            ..over_file(TUNED)
        };
        let variants = draft.variants().unwrap();
        let words: Vec<&str> = variants.iter().map(|v| v.strategy.as_str()).collect();
        assert_eq!(words, ["aimd", "fixed:50", "none"]);
        let clients = |variant: &Variant| variant.scenario.clients[0].clone();
        assert_eq!(clients(&variants[2]).count, 2);
        let usual = ClientSettings::of(Strategy::None);
        assert_ne!(clients(&variants[2]).driver, usual.driver, "base was set");
    }

    #[test]
    fn reports_problems_of_the_file_under_another_strategy() {
        let draft = Draft {
            strategies: Some("none".to_owned()),
            ..over_file(&TUNED.replace("max_rate", "max_rat"))
        };
        assert_eq!(
            problems(&draft),
            ["f:7:1: `client[0].max_rat`: unknown setting; did you mean `max_rate`?"]
        );
    }

    #[test]
    fn replaces_a_policy_by_a_strategy() {
        let text = "[upstream]\nkind = \"bucket\"\nrate = 5\n[[client]]\npolicy = \"poll\"\njob = \"60s\"\n\
                    [[client]]\nstrategy = \"aimd\"\n";
        let written = over_file(text).variants().unwrap();
        assert_eq!(written[0].strategy, "poll + aimd");
        let draft = Draft {
            strategies: Some("none".to_owned()),
            ..over_file(text)
        };
        let variants = draft.variants().unwrap();
        assert_eq!(variants[0].strategy, "none");
        assert_eq!(variants[0].scenario.clients.len(), 2);
        let draft = Draft {
            clients: Some("4".to_owned()),
            ..over_file(text)
        };
        assert_eq!(
            problems(&draft),
            ["--clients: `4`: expected a scenario with one kind of clients, this one has 2"]
        );
    }

    #[test]
    fn reports_a_truncated_line() {
        assert_eq!(problems(&draft("")).len(), 1);
        assert_eq!(
            problems(&draft("bucket rate=5 steps=[{ at")),
            ["--upstream: `upstream.steps` is `[{ at`, expected a list of tables"]
        );
        let kind = only(&draft("slots slots=4 service=\"100ms\""))
            .upstream
            .kind;
        assert!(matches!(kind, Kind::Slots { slots: 4, .. }));
    }
}
