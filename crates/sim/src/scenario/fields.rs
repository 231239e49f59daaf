//! The numbers of a scenario that a person may want to change, for a form.

use config::document::{self, Table, Value};

use super::upstream;
use crate::upstream::UpstreamOptions;

/// A value of a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its path, as `--set` takes it: `upstream.rate`.
    pub name: String,
    /// What it is, for people.
    pub label: String,
    /// Its value as it is written, or the default.
    pub value: String,
}

/// The fields of a scenario file: the limit, its changes, latency and failures, clients, duration and
/// seed. None if the file cannot be read.
///
/// ```
/// use sim::scenario::{Shipped, fields};
///
/// let fields = fields(Shipped::find("o5").unwrap().text);
/// assert_eq!(fields[0].name, "upstream.rate");
/// assert_eq!((&*fields[0].label, &*fields[0].value), ("Rate per second", "100"));
/// ```
pub fn fields(text: &str) -> Vec<Field> {
    let Some(table) = document::parse("", text.as_bytes(), &mut Vec::new()) else {
        return Vec::new();
    };
    let mut fields = Fields(Vec::new());
    if let Some(Value::Table(upstream)) = table.get("upstream").map(|node| &node.value) {
        fields.add_upstream(upstream);
    }
    match list(&table, "client").as_slice() {
        [] => fields.add("client[0]", "count", "Clients", "1"),
        [client] => {
            fields.add_of(client, "client[0]", "count", "Clients", Some("1"));
            fields.add_of(client, "client[0]", "nodes", "Nodes", None);
        }
        _ => {}
    }
    fields.add_of(&table, "", "duration", "Duration", Some("300s"));
    fields.add_of(&table, "", "seed", "Seed", Some("1"));
    fields.0
}

struct Fields(Vec<Field>);

impl Fields {
    fn add_upstream(&mut self, upstream: &Table) {
        let kind = upstream.get("kind").map_or("", |node| node.value.shown());
        let limit: &[(&str, &str)] = match kind {
            "bucket" => &[("rate", "Rate per second"), ("burst", "Burst")],
            "window" => &[("quota", "Quota"), ("period", "Period")],
            "slots" => &[
                ("slots", "Slots"),
                ("service", "Service time"),
                ("queue", "Queue"),
            ],
            _ => &[],
        };
        let others: &[(&str, &str)] = match kind {
            "slots" => &[("failure_rate", "Failing share")],
            _ => &[
                ("latency", "Latency"),
                ("retry_after", "Retry-After"),
                ("failure_rate", "Failing share"),
            ],
        };
        for (name, label) in limit.iter().chain(others) {
            self.add_of(upstream, "upstream", name, label, default(name));
        }
        for (index, step) in list(upstream, "steps").into_iter().enumerate() {
            let path = format!("upstream.steps[{index}]");
            let number = index + 1;
            self.add_of(step, &path, "at", &format!("Step {number} at"), None);
            for (name, label) in limit {
                self.add_of(step, &path, name, &format!("{label} from there"), None);
            }
        }
        for (index, outage) in list(upstream, "outage").into_iter().enumerate() {
            let path = format!("upstream.outage[{index}]");
            self.add_of(outage, &path, "from", "Outage from", None);
            self.add_of(outage, &path, "to", "Outage to", None);
        }
        if let Some(Value::Table(ban)) = upstream.get("ban").map(|node| &node.value) {
            self.add_of(ban, "upstream.ban", "excesses", "Refusals that ban", None);
            self.add_of(ban, "upstream.ban", "within", "Within", None);
            self.add_of(ban, "upstream.ban", "for", "Banned for", None);
        }
    }

    /// A value of a table, or its default; none if it has neither.
    fn add_of(
        &mut self,
        table: &Table,
        path: &str,
        name: &str,
        label: &str,
        default: Option<&str>,
    ) {
        let written = table.get(name).and_then(|node| node.value.text());
        if let Some(value) = written.or(default) {
            self.add(path, name, label, value);
        }
    }

    fn add(&mut self, path: &str, name: &str, label: &str, value: &str) {
        let name = match path {
            "" => name.to_owned(),
            path => format!("{path}.{name}"),
        };
        self.0.push(Field {
            name,
            label: label.to_owned(),
            value: value.to_owned(),
        });
    }
}

fn default(name: &str) -> Option<&'static str> {
    let mut settings = UpstreamOptions::SETTINGS
        .iter()
        .chain(upstream::limit_settings());
    settings.find(|setting| setting.name == name)?.default
}

fn list<'a>(table: &'a Table, name: &str) -> Vec<&'a Table> {
    let Some(Value::List(list)) = table.get(name).map(|node| &node.value) else {
        return Vec::new();
    };
    let tables = list.iter().filter_map(|node| match &node.value {
        Value::Table(table) => Some(table),
        _ => None,
    });
    tables.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Draft, SHIPPED, Shipped};

    fn check(name: &str, expected: &[(&str, &str)]) {
        let fields = fields(Shipped::find(name).unwrap().text);
        let fields: Vec<(&str, &str)> = fields
            .iter()
            .map(|field| (&*field.name, &*field.value))
            .collect();
        assert_eq!(fields, expected, "{name}");
    }

    #[test]
    fn fields_are_what_a_scenario_has() {
        check(
            "o5",
            &[
                ("upstream.rate", "100"),
                ("upstream.burst", "10"),
                ("upstream.latency", "70ms"),
                ("upstream.retry_after", "false"),
                ("upstream.failure_rate", "0.0"),
                ("upstream.steps[0].at", "60s"),
                ("upstream.steps[0].rate", "20"),
                ("upstream.steps[1].at", "120s"),
                ("upstream.steps[1].rate", "200"),
                ("client[0].count", "1"),
                ("duration", "300s"),
                ("seed", "1"),
            ],
        );
        check(
            "o4",
            &[
                ("upstream.slots", "20"),
                ("upstream.service", "100ms"),
                ("upstream.queue", "200"),
                ("upstream.failure_rate", "0.0"),
                ("client[0].count", "1"),
                ("duration", "300s"),
                ("seed", "1"),
            ],
        );
        assert!(fields("= 1").is_empty());
    }

    /// Setting every field to what it has changes nothing.
    #[test]
    fn every_field_can_be_set() {
        for shipped in SHIPPED {
            let fields = fields(shipped.text);
            let settings = fields.iter();
            let settings = settings.map(|field| format!("{}={}", field.name, field.value));
            let file = || Some((shipped.name.to_owned(), shipped.text.as_bytes().to_vec()));
            let set = Draft {
                file: file(),
                settings: settings.collect(),
                ..Draft::default()
            };
            let unset = Draft {
                file: file(),
                ..Draft::default()
            };
            assert_eq!(set.variants(), unset.variants(), "{}", shipped.name);
        }
    }
}
