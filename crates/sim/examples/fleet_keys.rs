//! Measures a fleet that uses many keys; see `sim::keys`.
//!
//! `fleet_keys NODES KEYS [--loss SHARE] [--cut NODES] [--interval MS] [--seconds N] [--pictures FOLDER]`
//!
//! Every key has an upstream of its own that accepts 100 requests per second, ten at once. Every node has 20
//! requests per second for all of them, after Zipf's law. `--loss` is the share of messages between nodes and
//! store that get lost; `--cut` cuts so many nodes off from the store for half a minute. It prints a line of
//! JSON, and stores the pictures of the documentation in FOLDER.

#![expect(clippy::print_stdout, reason = "a program that prints a line")]

use std::error::Error;
use std::time::{Duration, Instant};
use std::{fs, thread};

use policy::time::Timestamp;
use serde_json::json;
use sim::fleet::{Cut, NodeRange, StoreSettings};
use sim::keys::{KeyFigures, KeysFigures, KeysSettings, simulate_keys};
use sim::report::{limits_of_keys, store_work_of_keys};

const LIMIT: f64 = 100.0;
const ASKED: f64 = 20.0;
const SEED: u64 = 1;

fn main() -> Result<(), Box<dyn Error>> {
    let (settings, pictures) = arguments()?;
    let threads = thread::available_parallelism()?.get();
    let begin = Instant::now();
    let figures = simulate_keys(&settings, SEED, threads);
    if let Some(folder) = pictures {
        fs::write(
            format!("{folder}/fleet-keys-limits.svg"),
            limits_of_keys(&figures),
        )?;
        fs::write(
            format!("{folder}/fleet-keys-store.svg"),
            store_work_of_keys(&figures),
        )?;
    }
    println!("{}", summary(&settings, &figures, begin.elapsed()));
    Ok(())
}

fn arguments() -> Result<(KeysSettings, Option<String>), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().ok_or("a value is missing");
    let mut settings = KeysSettings {
        nodes: next()?.parse()?,
        keys: next()?.parse()?,
        limit: LIMIT,
        asked: ASKED,
        duration: Duration::from_secs(180),
        store: StoreSettings::default(),
    };
    let mut pictures = None;
    while let Ok(name) = next() {
        let value = next()?;
        match &*name {
            "--loss" => settings.store.values.loss = value.parse()?,
            "--cut" => settings.store.partitions = cut(value.parse()?),
            "--interval" => settings.store.values.interval = Duration::from_millis(value.parse()?),
            "--seconds" => settings.duration = Duration::from_secs(value.parse()?),
            "--pictures" => pictures = Some(value),
            _ => return Err(format!("there is no option `{name}`").into()),
        }
    }
    Ok((settings, pictures))
}

/// The first nodes do not reach the store for half a minute.
fn cut(nodes: u32) -> Vec<Cut> {
    let (from, to) = (Timestamp::from_secs(90), Timestamp::from_secs(120));
    let nodes = NodeRange {
        first: 1,
        last: nodes,
    };
    vec![Cut { from, to, nodes }]
}

fn summary(settings: &KeysSettings, figures: &KeysFigures, took: Duration) -> serde_json::Value {
    let busy: Vec<&KeyFigures> = figures
        .keys
        .iter()
        .filter(|key| key.asked > LIMIT)
        .collect();
    let least = |value: &dyn Fn(&KeyFigures) -> Option<f64>| {
        busy.iter().filter_map(|key| value(key)).reduce(f64::min)
    };
    let (sent, updates) = (figures.sent() as f64, figures.updates() as f64);
    let seconds = settings.duration.as_secs_f64();
    let over = |peak: f64| {
        figures
            .keys
            .iter()
            .filter(|key| key.figures.peak_ratio > Some(peak))
            .count()
    };
    let values = &settings.store.values;
    json!({
        "nodes": settings.nodes,
        "keys": settings.keys,
        "seconds": seconds,
        "interval_ms": values.interval.as_secs_f64() * 1e3,
        "store_latency_ms": values.latency.as_secs_f64() * 1e3,
        "loss": values.loss,
        "cut_off": settings.store.partitions.first().map_or(0, |cut| cut.nodes.last),
        "requests_per_s": round(sent / seconds, 0),
        "refused": round(figures.refused() as f64 / sent, 5),
        "peak": figures.peak().map(|peak| round(peak, 3)),
        "keys_over_105": over(1.05),
        "busy_keys": busy.len(),
        "goodput_of_busy": least(&|key| key.figures.goodput_ratio_settled).map(|it| round(it, 3)),
        "jain_of_busy": least(&|key| key.figures.jain).map(|it| round(it, 3)),
        "key_updates_per_s": round(updates / seconds, 0),
        "updates_per_request": round(updates / sent, 2),
        "calls_per_node_s": round(figures.calls as f64 / seconds / f64::from(settings.nodes), 1),
        "calls_per_request": round(figures.calls as f64 / sent, 2),
        "took_s": round(took.as_secs_f64(), 0),
    })
}

fn round(number: f64, digits: i32) -> f64 {
    let scale = 10_f64.powi(digits);
    (number * scale).round() / scale
}
