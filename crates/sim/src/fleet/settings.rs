//! Settings of a fleet and of its store.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use policy::fleet::SharedSettings;
use policy::setting::{self, Kind};
use policy::time::Timestamp;

policy::settings! {
    /// Options of a store; `None` keeps the default.
    pub struct StoreOptions;
    /// What every store has besides its troubles.
    pub struct StoreValues(pub) {
        /// Mean time from a node to the store and back.
        latency: Duration = "1ms", Kind::DURATION;
        /// How much times are spread: sigma of the lognormal distribution. Zero: not at all.
        latency_spread: f64 = "0.5", Kind::number("a number", 0.0, 5.0);
        /// The share of messages that get lost: calls, replies and notices.
        loss: f64 = "0.0", Kind::number("a share", 0.0, 1.0);
        /// The time between two calls of a node.
        interval: Duration = "100ms", Kind::Duration(Duration::from_millis(10));
        /// A node that did not call for this long has no share.
        lease: Duration = "2s", Kind::Duration(Duration::from_millis(100));
        /// When the store loses everything.
        flush: Vec<Duration> = "", Kind::list(&Kind::DURATION, 100);
    }
}

/// A fleet: nodes that share one limit.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetSettings {
    /// The number of nodes.
    pub nodes: u32,
    /// What they share the limit through.
    pub store: StoreSettings,
    /// When nodes do not run. One that starts again has forgotten everything.
    pub down: Vec<Cut>,
}

/// The store of a fleet and its troubles.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreSettings {
    /// Latency, loss and times.
    pub values: StoreValues,
    /// When it does not answer; in order.
    pub outages: Vec<StoreOutage>,
    /// When nodes do not reach it.
    pub partitions: Vec<Cut>,
}

/// The store does not answer from `from` until just before `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreOutage {
    /// Its first instant.
    pub from: Timestamp,
    /// The first instant after it.
    pub to: Timestamp,
    /// Whether it knows nothing when it is back.
    pub empty: bool,
}

/// Some nodes are missing from `from` until just before `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The first instant.
    pub from: Timestamp,
    /// The first instant after it; [`Timestamp::MAX`] if it never ends.
    pub to: Timestamp,
    /// Which nodes.
    pub nodes: NodeRange,
}

/// Nodes by their numbers, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeRange {
    /// The first.
    pub first: u32,
    /// The last, not before the first.
    pub last: u32,
}

impl FleetSettings {
    /// This many nodes and a store without troubles.
    pub fn of(nodes: u32) -> Self {
        Self {
            nodes,
            store: StoreSettings::default(),
            down: Vec::new(),
        }
    }

    /// Whether `node`, counted from 1, runs at `at`.
    pub fn is_up(&self, node: u32, at: Timestamp) -> bool {
        !self.down.iter().any(|cut| cut.covers(node, at))
    }
}

impl StoreSettings {
    /// The outage that covers `at`.
    pub fn outage_at(&self, at: Timestamp) -> Option<&StoreOutage> {
        let mut outages = self.outages.iter();
        outages.find(|outage| outage.from <= at && at < outage.to)
    }

    /// Whether messages pass between `node`, counted from 1, and the store at `at`.
    pub fn reaches(&self, node: u32, at: Timestamp) -> bool {
        !self.partitions.iter().any(|cut| cut.covers(node, at))
    }

    /// All instants at which the store has lost what it knew, in order.
    pub(super) fn losses(&self) -> Vec<Timestamp> {
        let flushes = self.values.flush.iter().map(|at| Timestamp::ZERO + *at);
        let outages = self.outages.iter().filter(|outage| outage.empty);
        let mut losses: Vec<_> = flushes.chain(outages.map(|outage| outage.to)).collect();
        losses.sort_unstable();
        losses
    }
}

impl Default for StoreSettings {
    fn default() -> Self {
        Self {
            values: StoreValues {
                interval: SharedSettings::INTERVAL,
                lease: SharedSettings::LEASE,
                ..StoreValues::default()
            },
            outages: Vec::new(),
            partitions: Vec::new(),
        }
    }
}

impl Cut {
    fn covers(&self, node: u32, at: Timestamp) -> bool {
        self.from <= at && at < self.to && self.nodes.contains(node)
    }
}

impl NodeRange {
    /// Whether `node` is one of them.
    pub fn contains(&self, node: u32) -> bool {
        (self.first..=self.last).contains(&node)
    }
}

impl FromStr for NodeRange {
    type Err = &'static str;

    /// Reads one number, or two with `-` between them.
    fn from_str(text: &str) -> Result<Self, &'static str> {
        const EXPECTED: &str = "the number of a node such as `1`, or two such as `5-8`";
        let number = |text: &str| {
            let number = setting::number::<u32>(text.trim());
            number.filter(|number| *number > 0).ok_or(EXPECTED)
        };
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (number(first)?, number(last)?);
        if last < first {
            return Err("two numbers of nodes of which the second is no smaller than the first");
        }
        Ok(Self { first, last })
    }
}

impl fmt::Display for NodeRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => write!(f, "{}", self.first),
            false => write!(f, "{}-{}", self.first, self.last),
        }
    }
}

policy::setting_values!(NodeRange);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_one_node_and_a_range_of_nodes() {
        let read = |text: &str| text.parse::<NodeRange>();
        assert_eq!(read("3"), Ok(NodeRange { first: 3, last: 3 }));
        assert_eq!(read("5 - 8"), Ok(NodeRange { first: 5, last: 8 }));
        for text in ["", "0", "-1", "3-", "8-5", "a"] {
            assert!(read(text).is_err(), "{text}");
        }
        assert_eq!(read("2-2").unwrap().to_string(), "2");
        assert_eq!(read("2-3").unwrap().to_string(), "2-3");
    }

    #[test]
    fn a_store_has_the_times_of_the_real_one_by_default() {
        assert_eq!(StoreSettings::default().values, StoreValues::default());
    }

    #[test]
    fn loses_everything_at_a_flush_and_after_an_empty_outage() {
        let outage = |from, to, empty| StoreOutage {
            from: Timestamp::from_secs(from),
            to: Timestamp::from_secs(to),
            empty,
        };
        let store = StoreSettings {
            outages: vec![outage(10, 20, true), outage(30, 40, false)],
            values: StoreValues {
                flush: vec![Duration::from_secs(5), Duration::from_secs(25)],
                ..StoreValues::default()
            },
            ..StoreSettings::default()
        };
        assert_eq!(store.losses(), [5, 20, 25].map(Timestamp::from_secs));
        assert!(store.outage_at(Timestamp::from_secs(35)).is_some());
        assert!(store.outage_at(Timestamp::from_secs(40)).is_none());
    }
}
