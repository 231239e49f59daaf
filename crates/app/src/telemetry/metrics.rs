//! From the metrics that Prometheus scrapes to those of OTLP.
//!
//! What is exported is read from the text that a scrape would get, so that both always agree, bounds
//! of labels included. Names, labels and units are the same. Counters become cumulative sums,
//! histograms keep their bounds, and everything else is a gauge.

use std::collections::BTreeMap;

use super::protobuf::Message;
use super::resource::{attribute, export};

/// A metric of one name.
#[derive(Debug, Default, PartialEq)]
struct Metric<'a> {
    name: &'a str,
    kind: &'a str,
    help: &'a str,
    /// In the order of the text.
    samples: Vec<Sample<'a>>,
}

/// A line of the text.
#[derive(Debug, PartialEq)]
struct Sample<'a> {
    /// Behind the name of the metric: empty, `_sum`, `_count` or `_bucket`.
    part: &'a str,
    labels: Vec<(&'a str, String)>,
    value: f64,
}

/// An export of the metrics in `text`, measured from `start` to `now`, in nanoseconds since 1970.
pub(super) fn encode(text: &str, start: u64, now: u64, instance: &str) -> Vec<u8> {
    export(instance, |scope| {
        for metric in parse(text) {
            scope.message(2, |message| {
                message.text(1, metric.name);
                message.text(2, metric.help);
                if metric.name.contains("_seconds") {
                    message.text(3, "s");
                }
                metric.encode(message, Times { start, now });
            });
        }
    })
}

#[derive(Clone, Copy)]
struct Times {
    start: u64,
    now: u64,
}

impl Times {
    fn encode(self, point: &mut Message) {
        point.fixed(2, self.start);
        point.fixed(3, self.now);
    }
}

/// Counts since the process has started.
const CUMULATIVE: u64 = 2;

impl Metric<'_> {
    fn encode(&self, message: &mut Message, times: Times) {
        match self.kind {
            "counter" => message.message(7, |sum| {
                self.encode_numbers(sum, times);
                sum.number(2, CUMULATIVE);
                sum.number(3, 1);
            }),
            "histogram" => message.message(9, |histogram| {
                self.encode_histograms(histogram, times);
                histogram.number(2, CUMULATIVE);
            }),
            _ => message.message(5, |gauge| self.encode_numbers(gauge, times)),
        }
    }

    fn encode_numbers(&self, message: &mut Message, times: Times) {
        for sample in &self.samples {
            message.message(1, |point| {
                times.encode(point);
                point.double(4, sample.value);
                for (name, value) in &sample.labels {
                    attribute(point, 7, name, value.as_str());
                }
            });
        }
    }

    fn encode_histograms(&self, message: &mut Message, times: Times) {
        for (labels, histogram) in self.histograms() {
            message.message(1, |point| {
                times.encode(point);
                point.fixed(4, histogram.count);
                point.double(5, histogram.sum);
                point.fixed_list(6, histogram.counts());
                point.double_list(7, histogram.bounds());
                for (name, value) in labels {
                    attribute(point, 9, name, value);
                }
            });
        }
    }

    /// The histograms by their labels.
    fn histograms(&self) -> BTreeMap<Vec<(&str, &str)>, HistogramSamples> {
        let mut all: BTreeMap<Vec<(&str, &str)>, HistogramSamples> = BTreeMap::new();
        for sample in &self.samples {
            let labels = sample.labels.iter();
            let labels = labels.map(|(name, value)| (*name, value.as_str()));
            let (bounds, labels): (Vec<_>, Vec<_>) = labels.partition(|(name, _)| *name == "le");
            let histogram = all.entry(labels).or_default();
            match (sample.part, bounds.first()) {
                ("_sum", _) => histogram.sum = sample.value,
                ("_count", _) => histogram.count = whole(sample.value),
                (_, Some((_, bound))) => {
                    let bound = bound.parse().unwrap_or(f64::INFINITY);
                    histogram.buckets.push((bound, whole(sample.value)));
                }
                _ => {}
            }
        }
        all
    }
}

#[derive(Debug, Default)]
struct HistogramSamples {
    sum: f64,
    count: u64,
    /// How many values are at most so large.
    buckets: Vec<(f64, u64)>,
}

impl HistogramSamples {
    /// How many values are in each bucket; the last one has no bound.
    fn counts(&self) -> impl Iterator<Item = u64> {
        let below = self.finite().map(|(_, count)| count);
        let from = [0].into_iter().chain(below.clone());
        let to = below.chain([self.count]);
        to.zip(from).map(|(to, from)| to.saturating_sub(from))
    }

    fn bounds(&self) -> impl Iterator<Item = f64> {
        self.finite().map(|(bound, _)| bound)
    }

    fn finite(&self) -> impl Iterator<Item = (f64, u64)> + Clone {
        let buckets = self.buckets.iter().copied();
        buckets.filter(|(bound, _)| bound.is_finite())
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts are whole and above zero, and the cast saturates"
)]
fn whole(value: f64) -> u64 {
    value as u64
}

/// Reads the text format. It is our own, so a line of another form is left out.
fn parse(text: &str) -> Vec<Metric<'_>> {
    let mut metrics: Vec<Metric<'_>> = Vec::new();
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').unwrap_or((help, ""));
            metrics.push(Metric {
                name,
                help,
                ..Metric::default()
            });
        } else if let (Some(kind), Some(metric)) =
            (line.strip_prefix("# TYPE "), metrics.last_mut())
        {
            metric.kind = kind.split_once(' ').map_or("", |(_, kind)| kind);
        } else if let Some(metric) = metrics.last_mut() {
            metric.samples.extend(parse_sample(metric.name, line));
        }
    }
    metrics
}

fn parse_sample<'a>(name: &str, line: &'a str) -> Option<Sample<'a>> {
    let rest = line.strip_prefix(name)?;
    let (rest, value) = rest.rsplit_once(' ')?;
    let (part, labels) = match rest.split_once('{') {
        Some((part, labels)) => (part, parse_labels(labels.strip_suffix('}')?)),
        None => (rest, Vec::new()),
    };
    Some(Sample {
        part,
        labels,
        value: value.parse().ok()?,
    })
}

/// `a="1",b="2"`, where a value may have escaped quotes, backslashes and line ends.
fn parse_labels(text: &str) -> Vec<(&str, String)> {
    let mut labels = Vec::new();
    let mut rest = text;
    while let Some((name, value)) = rest.split_once("=\"") {
        let mut decoded = String::new();
        let mut characters = value.char_indices();
        let mut end = value.len();
        while let Some((at, c)) = characters.next() {
            match c {
                '"' => {
                    end = at + 1;
                    break;
                }
                '\\' => match characters.next() {
                    Some((_, 'n')) => decoded.push('\n'),
                    Some((_, escaped)) => decoded.push(escaped),
                    None => {}
                },
                c => decoded.push(c),
            }
        }
        labels.push((name.trim_start_matches(','), decoded));
        rest = &value[end..];
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_line_of_a_scrape() {
        let metrics = crate::metrics::Metrics::new();
        metrics
            .route("a\"b\\c")
            .request(crate::metrics::RequestOutcome::Success);
        let latency = std::time::Duration::from_millis(30);
        metrics.key("llm/a").attempt(None, latency);
        let text = metrics.render();
        let parsed = parse(&text);
        let samples: usize = parsed.iter().map(|metric| metric.samples.len()).sum();
        let lines = text.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(samples, lines);
        let requests = parsed
            .iter()
            .find(|one| one.name == "tidegate_requests_total");
        let labels = &requests.unwrap().samples[0].labels;
        assert_eq!(labels[0], ("route", "a\"b\\c".to_owned()));
        assert_eq!(labels[1], ("outcome", "success".to_owned()));
    }

    #[test]
    fn buckets_count_their_own_values_only() {
        let text = "# HELP t_seconds T.\n# TYPE t_seconds histogram\nt_seconds_sum 3.5\nt_seconds_count 4\n\
                    t_seconds_bucket{le=\"1.0\"} 1\nt_seconds_bucket{le=\"2.0\"} 3\nt_seconds_bucket{le=\"+Inf\"} 4\n";
        let parsed = parse(text);
        let histograms = parsed[0].histograms();
        let histogram = histograms.values().next().unwrap();
        assert_eq!(histogram.counts().collect::<Vec<_>>(), [1, 2, 1]);
        assert_eq!(histogram.bounds().collect::<Vec<_>>(), [1.0, 2.0]);
        assert_eq!((histogram.sum, histogram.count), (3.5, 4));
    }
}
