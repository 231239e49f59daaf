//! From the requests in an access log to a scenario: how much was offered, which limit the server
//! seems to have, and how long its responses took.
//!
//! Every request that was sent says what the server answered and when: accepted, refused (429, 503)
//! or failed. The limit is the model that explains most of these answers. Everything is an
//! estimate, and the scenario says so in its comments, with the share of answers that it explains.
//!
//! Memory is bounded: of a longer log the first [`MAX_REQUESTS`] requests are used.

mod limit;
mod line;

use std::collections::BTreeMap;
use std::fmt::Write;

pub use limit::{Limit, LimitEstimate};
pub use line::LineProblem;
use line::LoggedRequest;

/// As many requests as are kept: about 50 MB.
pub const MAX_REQUESTS: usize = 1_000_000;

/// Routes that are counted apart, to name them.
const MAX_ROUTES: usize = 100;

/// Reads the lines of an access log.
///
/// ```
/// use sim::estimate::AccessLogReader;
///
/// let mut reader = AccessLogReader::new(None);
/// for second in 10..40 {
///     let line = format!(r#"{{"time":"2026-11-15T06:00:{second}.000Z","status":200}}"#);
///     reader.read(&line).unwrap();
/// }
/// let scenario = reader.estimate().unwrap().scenario("access.log");
/// assert!(scenario.contains("No limit was met"));
/// ```
#[derive(Debug)]
pub struct AccessLogReader {
    route: Option<String>,
    routes: BTreeMap<String, u64>,
    requests: Vec<LoggedRequest>,
    left_out: u64,
}

/// Why a log gives no scenario.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EstimateError {
    /// It has fewer than two requests, of the wanted route if one is named.
    #[error("the log has {0} such requests, expected at least two")]
    TooFew(usize),
    /// It has requests of several routes, each with a limit of its own.
    #[error("the log has requests of several routes")]
    SeveralRoutes(Vec<(String, u64)>),
}

/// What a log says about a server and its load.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    /// Requests in the log.
    pub requests: usize,
    /// Requests that were left out, because there are too many.
    pub left_out: u64,
    /// From the first request to the last, in seconds.
    pub span_s: f64,
    /// Answers of the server by kind.
    pub answers: Answers,
    /// The limit.
    pub limit: LimitEstimate,
    /// How long accepted requests took.
    pub latency: Option<Latency>,
    /// How long refused ones took, in seconds.
    pub refuse_latency_s: Option<f64>,
}

/// Answers of a server by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// Let through by its limit, whatever it thought of the request.
    pub accepted: u64,
    /// Refused: 429 and 503.
    pub refused: u64,
    /// Everything else: other 5xx, and none at all.
    pub failed: u64,
}

/// How long responses took: lognormal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    /// In seconds.
    pub mean_s: f64,
    /// The standard deviation of the logarithm.
    pub spread: f64,
}

impl AccessLogReader {
    /// Reads requests of this route, or of the only one.
    pub fn new(route: Option<String>) -> Self {
        Self {
            route,
            routes: BTreeMap::new(),
            requests: Vec::new(),
            left_out: 0,
        }
    }

    /// Reads a line.
    ///
    /// # Errors
    ///
    /// If it is not a request in the format `json` or `combined`.
    pub fn read(&mut self, line: &str) -> Result<(), LineProblem> {
        let (route, request) = line::parse(line)?;
        let is_wanted = self.route.as_ref().is_none_or(|wanted| route == *wanted);
        if self.routes.len() < MAX_ROUTES || self.routes.contains_key(&*route) {
            *self.routes.entry(route.into_owned()).or_default() += 1;
        }
        if !is_wanted {
            return Ok(());
        }
        match self.requests.len() < MAX_REQUESTS {
            true => self.requests.push(request),
            false => self.left_out += 1,
        }
        Ok(())
    }

    /// What was read so far says this.
    ///
    /// # Errors
    ///
    /// If it says nothing, or about several routes.
    pub fn estimate(self) -> Result<Estimate, EstimateError> {
        if self.route.is_none() && self.routes.len() > 1 {
            let mut routes: Vec<(String, u64)> = self.routes.into_iter().collect();
            routes.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
            return Err(EstimateError::SeveralRoutes(routes));
        }
        let requests = self.requests;
        let arrivals = requests.iter().map(|request| request.at_s);
        let (first, last) = arrivals.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), at| {
            (low.min(at), high.max(at))
        });
        if requests.len() < 2 {
            return Err(EstimateError::TooFew(requests.len()));
        }
        let mut responses: Vec<limit::Response> = requests
            .iter()
            .flat_map(|request| request.responses(first))
            .collect();
        responses.sort_by(|one, other| one.at_s.total_cmp(&other.at_s));
        Ok(Estimate {
            requests: requests.len(),
            left_out: self.left_out,
            span_s: last - first,
            answers: count(&requests),
            limit: limit::estimate(&responses),
            latency: latency(&requests),
            refuse_latency_s: refuse_latency(&requests),
        })
    }
}

fn count(requests: &[LoggedRequest]) -> Answers {
    let mut answers = Answers::default();
    for request in requests {
        answers.accepted += u64::from(request.is_accepted);
        answers.refused += u64::from(request.refused);
        answers.failed += u64::from(request.failed());
    }
    answers
}

fn latency(requests: &[LoggedRequest]) -> Option<Latency> {
    let accepted = requests.iter().filter(|request| request.is_accepted);
    let latencies = accepted.filter_map(|request| request.latency_s);
    // A millisecond is the unit of the log; less is shown as that.
    let latencies = latencies.map(|latency| latency.max(0.001));
    let (mut count, mut sum, mut logs, mut squares) = (0.0, 0.0, 0.0, 0.0);
    for latency in latencies {
        let log = latency.ln();
        count += 1.0;
        sum += latency;
        logs += log;
        squares += log * log;
    }
    (count > 0.0).then(|| Latency {
        mean_s: sum / count,
        spread: (squares / count - (logs / count).powi(2)).max(0.0).sqrt(),
    })
}

fn refuse_latency(requests: &[LoggedRequest]) -> Option<f64> {
    let refused = requests.iter().filter(|request| request.is_only_refused());
    let latencies: Vec<f64> = refused.filter_map(|request| request.latency_s).collect();
    let sum: f64 = latencies.iter().sum();
    (!latencies.is_empty()).then(|| sum / latencies.len() as f64)
}

/// Shorter scenarios say nothing about how a strategy settles, and longer ones nothing more.
const MIN_DURATION_S: f64 = 120.0;
const MAX_DURATION_S: f64 = 3600.0;

impl Estimate {
    /// Requests per second that clients offered.
    pub fn offered_per_second(&self) -> f64 {
        // The last one stands for as much time as each before it.
        let gaps = self.requests as f64 - 1.0;
        (gaps / self.span_s.max(0.001)).clamp(0.001, 1e6)
    }

    /// The text of a scenario file; `source` names the log.
    pub fn scenario(&self, source: &str) -> String {
        let mut text = self.comments(source);
        let mut line = |line: String| text.push_str(&format!("{line}\n"));
        let duration = self.span_s.clamp(MIN_DURATION_S, MAX_DURATION_S).ceil();
        line(format!("duration = \"{duration}s\""));
        line("seed = 1\n".to_owned());
        line("[upstream]".to_owned());
        match self.limit.limit {
            Limit::Bucket { rate, burst } => {
                line("kind = \"bucket\"".to_owned());
                line(format!("rate = {}", rounded(rate)));
                line(format!("burst = {}", rounded(burst.max(1.0))));
            }
            Limit::Window {
                quota,
                period_s,
                phase_s,
            } => {
                line("kind = \"window\"".to_owned());
                line(format!("quota = {quota}"));
                line(format!("period = \"{period_s}s\""));
                line(format!("phase = \"{}ms\"", (phase_s * 1000.0).round()));
            }
        }
        if let Some(latency) = self.latency {
            // Measured at the client, so the network is in it.
            line(format!("latency = \"{}\"", millis(latency.mean_s)));
            line(format!(
                "latency_spread = {}",
                rounded(latency.spread.min(3.0))
            ));
            line("network = \"0ms\"".to_owned());
        }
        if let Some(latency) = self.refuse_latency_s {
            line(format!("refuse_latency = \"{}\"", millis(latency)));
        }
        let failure_rate = self.failure_rate();
        if failure_rate > 0.0 {
            line(format!("failure_rate = {failure_rate}"));
        }
        line("\n[[client]]".to_owned());
        line("strategy = \"adaptive\"".to_owned());
        line(format!(
            "backlog = \"{}/s\"",
            rounded(self.offered_per_second())
        ));
        text
    }

    fn comments(&self, source: &str) -> String {
        let Answers {
            accepted,
            refused,
            failed,
        } = self.answers;
        // A line end in a name would end the comment.
        let source = source.replace(|c: char| c.is_control(), " ");
        let mut text = format!(
            "# Estimated from {source}: {} requests in {} s; the server accepted {accepted}, refused {refused} \
             and failed {failed}.\n",
            self.requests,
            self.span_s.round(),
        );
        if self.left_out > 0 {
            // Writing into a string cannot fail.
            _ = writeln!(text, "# {} later requests were left out.", self.left_out);
        }
        _ = writeln!(text, "# {}", self.limit);
        text
    }

    fn failure_rate(&self) -> f64 {
        let Answers {
            accepted, failed, ..
        } = self.answers;
        let admitted = accepted + failed;
        match admitted {
            0 => 0.0,
            admitted => (failed as f64 / admitted as f64 * 1e4).round() / 1e4,
        }
    }
}

/// With three digits, which is more than an estimate is worth.
fn rounded(value: f64) -> f64 {
    let scale = 10_f64.powf(2.0 - value.abs().max(1e-6).log10().floor());
    let rounded = (value * scale).round() / scale;
    // What is left of the division by a power of ten.
    (rounded * 1e6).round() / 1e6
}

fn millis(seconds: f64) -> String {
    format!("{}ms", (seconds * 1000.0).round().max(1.0))
}

#[cfg(test)]
mod tests;
