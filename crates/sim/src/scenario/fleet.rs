//! `nodes`, `store` and `down` of a `[[client]]`: a fleet.

use std::time::Duration;

use config::Reader;
use policy::duration::Exact;
use policy::setting::{Format, Kind};
use policy::time::Timestamp;

use crate::fleet::{
    Cut, FleetSettings, NodeRange, StoreOptions, StoreOutage, StoreSettings, StoreValues,
};

policy::settings! {
    struct NodesOptions {
        /// How many nodes share the limit.
        nodes: u32 = none, Kind::whole(1, MAX_NODES);
    }

    struct StoreOutageOptions;
    struct StoreOutageValues(pub(super)) {
        /// Its first instant.
        from: Duration = none, Kind::DURATION;
        /// The first instant after it.
        to: Duration = none, Kind::DURATION;
        /// Whether the store knows nothing when it is back.
        empty: bool = "false", Kind::Switch;
    }

    struct CutOptions {
        /// Which nodes.
        nodes: NodeRange = none, NODES;
        /// The first instant.
        from: Duration = none, Kind::DURATION;
        /// The first instant after it; without it, there is none.
        to: Duration = none, Kind::DURATION;
    }
}

/// As many as there may be clients.
const MAX_NODES: u64 = 10_000;

const NODES: Kind = Kind::Format(&Format {
    or_number: true,
    ..Format::of("nodes", "\"5-8\"", None, |text| {
        text.parse::<NodeRange>().map(drop).map_err(str::to_owned)
    })
});

/// The settings of a fleet.
pub(super) const NAMES: [&str; 3] = ["nodes", "store", "down"];

/// Reads the fleets of `count` clients; `None` if they are no fleets.
pub(super) fn read(client: &Reader<'_>, count: u32) -> Option<FleetSettings> {
    let store = client.table("store");
    if !client.has("nodes") {
        for name in ["store", "down"].iter().filter(|name| client.has(name)) {
            client.expected(
                name,
                "it next to `nodes`, because only nodes of a fleet share a store",
            );
        }
        return None;
    }
    let nodes = client.options::<NodesOptions>().nodes?;
    if u64::from(nodes) * u64::from(count) > MAX_NODES {
        client.expected(
            "nodes",
            format!("at most {MAX_NODES} nodes in all clients together"),
        );
    }
    Some(FleetSettings {
        nodes,
        store: read_store(&store, nodes),
        down: read_cuts(client, "down", nodes),
    })
}

fn read_store(reader: &Reader<'_>, nodes: u32) -> StoreSettings {
    reader.allow(&[StoreOptions::NAMES, &["outage", "partition"]].concat());
    let values = reader.options::<StoreOptions>();
    let outages = reader.list("outage");
    StoreSettings {
        values: values.over(StoreValues::default()),
        outages: outages.iter().filter_map(read_outage).collect(),
        partitions: read_cuts(reader, "partition", nodes),
    }
}

fn read_outage(reader: &Reader<'_>) -> Option<StoreOutage> {
    reader.allow(StoreOutageOptions::NAMES);
    reader.require_of::<StoreOutageOptions>(&["from", "to"]);
    let options = reader.options::<StoreOutageOptions>();
    let values = options.over(StoreOutageValues::default());
    let (from, to) = (values.from?, values.to?);
    is_ordered(reader, from, to).then_some(StoreOutage {
        from: Timestamp::ZERO + from,
        to: Timestamp::ZERO + to,
        empty: values.empty,
    })
}

fn read_cuts(reader: &Reader<'_>, name: &str, nodes: u32) -> Vec<Cut> {
    let cuts = reader.list(name);
    cuts.iter().filter_map(|cut| read_cut(cut, nodes)).collect()
}

fn read_cut(reader: &Reader<'_>, nodes: u32) -> Option<Cut> {
    reader.allow(CutOptions::NAMES);
    reader.require_of::<CutOptions>(&["nodes", "from"]);
    let options = reader.options::<CutOptions>();
    let (range, from) = (options.nodes?, options.from?);
    if range.last > nodes {
        reader.expected("nodes", format!("numbers of nodes from 1 to {nodes}"));
    }
    if !options.to.is_none_or(|to| is_ordered(reader, from, to)) {
        return None;
    }
    Some(Cut {
        from: Timestamp::ZERO + from,
        to: options.to.map_or(Timestamp::MAX, |to| Timestamp::ZERO + to),
        nodes: range,
    })
}

fn is_ordered(reader: &Reader<'_>, from: Duration, to: Duration) -> bool {
    if to <= from {
        reader.expected("to", format!("later than `from` ({})", Exact(from)));
    }
    to > from
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    const UPSTREAM: &str = "[upstream]\nkind = \"bucket\"\nrate = 100\n[[client]]\n";

    fn read(client: &str) -> Result<FleetSettings, Vec<String>> {
        let text = format!("{UPSTREAM}{client}");
        let scenario = Scenario::read("f", text.as_bytes());
        let shown = |problem: &config::Problem| problem.to_string();
        let scenario = scenario.map_err(|found| found.iter().map(shown).collect::<Vec<_>>())?;
        Ok(scenario.clients[0].fleet.clone().unwrap())
    }

    #[test]
    fn reads_a_fleet_with_a_store_and_its_troubles() {
        let fleet = read(
            "nodes = 8\ndown = [{ nodes = 1, from = \"9s\" }]\n\
             [client.store]\nlatency = \"5ms\"\nloss = 0.01\nflush = [\"90s\"]\n\
             outage = [{ from = \"60s\", to = \"80s\", empty = true }]\n\
             partition = [{ nodes = \"5-8\", from = \"1s\", to = \"2s\" }]\n",
        )
        .unwrap();
        assert_eq!(fleet.nodes, 8);
        assert_eq!(fleet.store.values.latency, Duration::from_millis(5));
        assert_eq!(fleet.store.values.flush, [Duration::from_secs(90)]);
        assert!(fleet.store.outages[0].empty);
        let at = Timestamp::from_millis(1500);
        assert!(fleet.store.reaches(4, at) && !fleet.store.reaches(5, at));
        assert!(fleet.is_up(1, at) && !fleet.is_up(1, Timestamp::from_secs(9)));
        assert_eq!(read("nodes = 3"), Ok(FleetSettings::of(3)));
    }

    #[test]
    fn reports_what_is_wrong_with_a_fleet_at_its_place() {
        let found = read(
            "nodes = 8\ncount = 5000\ndown = [{ nodes = \"8-9\", from = \"9s\" }]\n\
             store = { loss = 2, x = 1, outage = [{ from = \"2s\", to = \"1s\" }], partition = [{ nodes = \"b\" }] }\n",
        );
        assert_eq!(
            found.unwrap_err(),
            [
                "f:5:9: `client[0].nodes` is `8`, expected at most 10000 nodes in all clients together",
                "f:7:19: `client[0].down[0].nodes` is `8-9`, expected numbers of nodes from 1 to 8",
                "f:8:18: `client[0].store.loss` is `2`, expected a share from 0 to 1",
                "f:8:21: `client[0].store.x`: unknown setting, expected one of: latency, latency_spread, loss, interval, lease, flush, outage, partition",
                "f:8:58: `client[0].store.outage[0].to` is `1s`, expected later than `from` (2s)",
                "f:8:80: `client[0].store.partition[0].from` is missing, expected a duration such as `500ms` or `30s`",
                "f:8:90: `client[0].store.partition[0].nodes` is `b`, expected the number of a node such as `1`, or two such as `5-8`",
            ]
        );
        let alone = read("store = { latency = \"1ms\" }").unwrap_err();
        assert_eq!(alone.len(), 1, "{alone:?}");
        let naive = read("strategy = \"none\"\nnodes = 8").unwrap_err();
        assert!(naive[0].contains("`client[0].nodes`"), "{naive:?}");
    }
}
